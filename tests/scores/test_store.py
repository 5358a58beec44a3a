"""The store keeps exactly what it is given, for several processes at once, and refuses what is not a store."""

import lzma
import math
import sqlite3
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_test
from hypothesis import strategies as st

from initio import Architecture, Evaluation, InputError, noise
from initio.records import settings
from initio.scores.store import STORE_VERSION, Store, differences, find_store, pack

ARCH = Architecture("nb201", (3, 0, 1, 0, 2, 4))


def score(
    value: float | None = 1.5, metric: str = "trace", seed: int = 0, flag: str = "", **values: object
) -> Evaluation:
    return Evaluation(ARCH, metric, value, seed, flag, settings(**values), data="d00d")  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "scores.db"


def test_what_goes_in_comes_out(path: Path) -> None:
    scores = [
        score(0.1 + 0.2),
        score(math.inf, "kappa", flag="singular"),
        score(-math.inf, "naswot", flag="two images are alike"),
        score(None, "jacob_cov", flag="needs two images"),
        score(5e-324, "eigen"),
        score(1.7976931348623157e308, "synflow", cells=5, lr=math.inf, norm=None, on=True),
        Evaluation(Architecture("mlp-2", ()), "η ≤ 1", -0.0, 2**62, "„quoted“ 'flag'", (), "", 3),
    ]
    with Store(path) as store:
        store.put(scores)
    with Store(path, read_only=True) as store:
        found = list(store.evaluations())
        assert len(store) == len(scores)
    assert sorted(found, key=repr) == sorted(scores, key=repr)


numbers = st.one_of(st.none(), st.floats(allow_nan=False))
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
evaluations = st.builds(
    lambda choices, metric, value, seed, flag, values, version: Evaluation(
        Architecture("space", choices), metric, value, seed, flag or "flag", settings(**values), "data", version
    ),
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
    names, numbers, st.integers(0, 3), names,
    st.dictionaries(names, st.one_of(numbers, st.booleans(), names, st.integers(-(2**70), 2**70)), max_size=2),
    st.integers(1, 3),
)  # fmt: skip


def by_key(e: Evaluation) -> tuple[object, ...]:
    return e.architecture, e.metric, e.seed, repr(e.settings), e.data, e.version


@settings_of_test(max_examples=25, deadline=None)
@given(st.lists(evaluations, max_size=12, unique_by=by_key))
def test_any_evaluations_round_trip_and_compare_equal(scores: list[Evaluation]) -> None:
    with tempfile.TemporaryDirectory() as folder, Store(f"{folder}/a.db") as store, Store(f"{folder}/b.db") as other:
        store.put(scores)
        other.put(reversed(scores))
        assert {*store.evaluations()} == {*scores}
        assert list(differences(store, other)) == []
        for e in scores:
            assert (e.metric, e.version, e.seed) in store.known(e.architecture, e.settings, e.data)


def test_a_score_is_never_overwritten(path: Path) -> None:
    with Store(path) as store:
        store.put([score(1.0)])
        store.put([score(2.0)])
        assert [e.value for e in store.evaluations()] == [1.0]


def test_every_part_of_the_key_counts(path: Path) -> None:
    other = Architecture("nb201", (3, 0, 1, 0, 2, 3))
    scores = [
        score(1.0),
        score(2.0, seed=1),
        score(3.0, metric="kappa"),
        score(4.0, cells=5),
        score(5.0, cells=1),
        Evaluation(other, "trace", 6.0, 0, data="d00d"),
        Evaluation(ARCH, "trace", 7.0, 0, data="feed"),
        Evaluation(ARCH, "trace", 8.0, 0, data="d00d", version=2),
        Evaluation(Architecture("nb101", ARCH.choices), "trace", 9.0, 0, data="d00d"),
    ]
    with Store(path) as store:
        store.put(scores)
        assert sorted(e.value or 0 for e in store.evaluations()) == list(map(float, range(1, 10)))
        assert store.known(ARCH, (), "d00d") == {("trace", 1, 0), ("trace", 1, 1), ("kappa", 1, 0), ("trace", 2, 0)}
        assert store.known(ARCH, settings(cells=3), "d00d") == set()


def test_a_failed_put_writes_nothing(path: Path) -> None:
    with Store(path) as store:
        with pytest.raises(OverflowError):
            store.put([score(1.0, cells=2), Evaluation(ARCH, "kappa", 1.0, seed=2**80)])
        assert len(store) == 0
        store.put([score(1.0, cells=2)])
        assert [dict(e.settings) for e in store.evaluations()] == [{"cells": 2}]


def test_groups_say_what_is_there(path: Path) -> None:
    batch = noise((3, 4, 4), batch_size=2)
    with Store(path) as store:
        store.describe(batch)
        store.describe(batch)
        store.put(Evaluation(ARCH, "kappa", None, seed, "why", data=batch.fingerprint) for seed in range(3))
        store.put([Evaluation(ARCH, "kappa", math.inf, 3, "singular", data=batch.fingerprint), score()])
        first, second = sorted(store.groups(), key=lambda group: group.metric)
        assert (first.metric, first.source, first.architectures, first.seeds) == ("kappa", "noise", 1, 4)
        assert (first.undefined, first.flagged) == (3, 4)
        assert (second.metric, second.source, second.data) == ("trace", "", "d00d")
        assert [row[3] for row in store.rows({"nb201"}) if row[0] == second.key] == [1.5]


def test_a_packed_copy_is_equal_and_read_only(path: Path, tmp_path: Path) -> None:
    packed = tmp_path / "scores.db.xz"
    with Store(path) as store:
        store.put(score(float(seed), seed=seed) for seed in range(500))
        store.put([score(None, seed=500, flag="no value"), score(math.inf, "kappa", flag="singular", cells=5)])
        pack(store, packed)
        with Store(packed, read_only=True) as copy:
            assert copy.groups() == store.groups()
            assert list(differences(store, copy)) == []
            assert copy.groups() == store.groups()
        with pytest.raises(InputError, match="ends in .xz"):
            pack(store, tmp_path / "scores.zip")
    assert packed.stat().st_size < path.stat().st_size / 5
    refused(packed, "can only be read")
    packed.write_bytes(packed.read_bytes()[:-20])
    refused(packed, "the packed store .* is damaged", read_only=True)
    packed.write_bytes(lzma.compress(b"no database" * 100))
    refused(packed, "is not a store of Initio", read_only=True)
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".db", ".xz"]


def test_scores_that_come_with_the_package_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nb201.db.xz").touch()
    monkeypatch.setattr("initio.scores.store.SHIPPED", tmp_path)
    assert find_store("nb201") == tmp_path / "nb201.db.xz"
    with pytest.raises(InputError, match=r"there is no store 'nb101', and no scores of that name .* \(nb201 do\)"):
        find_store("nb101")


def test_adding_a_store_keeps_what_was_there(path: Path, tmp_path: Path) -> None:
    batch = noise((3, 2, 2), classes=2, batch_size=3, seed=0)
    with Store(path) as a, Store(tmp_path / "other.db") as b:
        a.put([score(1.0), score(2.0, seed=1)])
        b.put([score(9.0, seed=1), score(3.0, seed=2, cells=5)])
        b.describe(batch)
        assert a.add(b) == 1
        assert sorted(e.value or 0 for e in a.evaluations()) == [1.0, 2.0, 3.0]
        assert a.add(b) == 0
        known = a._db.execute("SELECT source FROM data").fetchall()
    assert known == [(batch.source,)]


def test_differences(path: Path, tmp_path: Path) -> None:
    with Store(path) as a, Store(tmp_path / "other.db") as b:
        a.put([score(1.0), score(2.0, seed=1), score(3.0, seed=2), score(4.0, seed=3)])
        b.put([score(1.0), score(2.0, seed=1, flag="doubtful"), score(3.5, seed=2), score(5.0, seed=4)])
        found = [(x and x.value, y and y.value) for x, y in differences(a, b)]
    assert found == [(2.0, 2.0), (3.0, 3.5), (4.0, None), (None, 5.0)]


def test_a_store_that_is_deleted_or_replaced_while_it_is_written_to(path: Path, tmp_path: Path) -> None:
    """SQLite would go on with a file that has no name any more, and everything would be lost without a word."""
    with Store(tmp_path / "other.db"):
        pass
    with Store(path) as store:
        store.put([score()])
        path.unlink()
        with pytest.raises(InputError, match="was deleted or replaced while it was in use"):
            store.put([score(seed=1)])
        (tmp_path / "other.db").rename(path)
        with pytest.raises(InputError, match="was deleted or replaced while it was in use"):
            store.put([score(seed=2)])


def test_texts_with_flipped_bytes(path: Path) -> None:
    with Store(path) as store:
        store.put([score()])
        store._db.execute("UPDATE scores SET metric = CAST(x'80ff' AS TEXT)")
        for read in (store.groups, lambda: list(store.evaluations()), lambda: list(store.rows({"nb201"}))):
            with pytest.raises(InputError, match="is damaged: restore a copy"):
                read()


# --- several processes ------------------------------------------------------------------------------------------------

WRITER = """
import sys
from initio import Architecture, Evaluation
from initio.scores.store import Store
path, who = sys.argv[1], int(sys.argv[2])
with Store(path) as store:
    for i in range(40):
        store.put([Evaluation(Architecture("s", (i,)), m, float(i), seed, data=m * who)
                   for m in ("a", "b") for seed in range(2)])
"""


def test_processes_create_and_write_at_once(path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, str(i)], stderr=subprocess.PIPE, text=True) for i in range(4)]
    assert [writer.communicate()[1] for writer in writers] == [""] * 4
    with Store(path) as store:
        assert len(store) == 4 * 40 * 4
        assert store._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_readers_do_not_wait_for_a_writer(path: Path) -> None:
    with Store(path) as writer:
        writer.put([score()])
        with writer._transaction(), Store(path, read_only=True, patience=0.1) as reader:
            assert len(reader) == 1


def test_a_lock_that_does_not_end_is_a_sentence(path: Path) -> None:
    locked = pytest.raises(InputError, match="has been locked by another process for 0 seconds")
    with Store(path) as holder, holder._transaction(), Store(path, patience=0.1) as store, locked:
        store.put([score()])


def test_many_threads_open_one_new_file(path: Path) -> None:
    def write(i: int) -> None:
        with Store(path) as store:
            store.put([score(1.0, seed=i)])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(16)))
    with Store(path) as store:
        assert len(store) == 16


# --- what is refused --------------------------------------------------------------------------------------------------


def refused(path: Path | str, match: str, **options: bool) -> None:
    with pytest.raises(InputError, match=match):
        Store(path, **options)  # type: ignore[arg-type]


def test_not_a_store(path: Path, tmp_path: Path) -> None:
    path.write_text("metric,value\ntrace,1\n" * 100)
    before = path.read_bytes()
    for read_only in (False, True):
        refused(path, "is not a store of Initio: it is another kind of file", read_only=read_only)
    assert path.read_bytes() == before
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    for read_only in (False, True):
        refused(foreign, "is not a store of Initio", read_only=read_only)
    refused(tmp_path, "is a folder")
    refused(tmp_path / "absent" / "s.db", "the folder of the store .* does not exist")
    refused(tmp_path / "absent.db", "there is no store", read_only=True)
    assert not (tmp_path / "absent.db").exists()


def test_a_newer_store(path: Path) -> None:
    with Store(path) as store:
        store._db.execute(f"PRAGMA user_version = {STORE_VERSION + 1}")
    refused(path, f"has version {STORE_VERSION + 1}, this Initio reads up to {STORE_VERSION}: install a newer Initio")


def test_a_store_that_was_killed_while_it_was_made(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.close()
    with Store(path) as store:
        store.put([score()])
        assert len(store) == 1


def test_an_empty_file_becomes_a_store_but_is_not_read_as_one(path: Path) -> None:
    path.touch()
    refused(path, "is not a store of Initio", read_only=True)
    with Store(path) as store:
        assert len(store) == 0


@pytest.mark.parametrize("column", ["choices = '1,x'", "value = NULL", "value = 'high'"])
def test_damage_is_a_sentence(path: Path, column: str) -> None:
    with Store(path) as store:
        store.put([score()])
        store._db.execute(f"UPDATE scores SET {column}")
        with pytest.raises(InputError, match="scores.db' is damaged"):
            list(store.evaluations())


def test_a_cut_file_is_a_sentence(path: Path) -> None:
    with Store(path) as store:
        for seed in range(2000):
            store.put([score(1.0, seed=seed)])
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises(InputError, match="is damaged|is not a store"), Store(path) as store:
        list(store.evaluations())


def test_a_full_disk_is_a_sentence_and_keeps_what_was_written(path: Path) -> None:
    with Store(path) as store:
        store.put([score()])
        store._db.execute(f"PRAGMA max_page_count = {store._pragma('page_count') + 1}")
        many = [[score(1.0, seed=seed, flag="f" * 50)] for seed in range(1, 2000)]
        with pytest.raises(InputError, match="cannot grow: the disk is full; the scores written so far are kept"):
            list(map(store.put, many))
        written = len(store)
    with Store(path) as store:
        assert len(store) == written > 1


def test_a_store_without_its_wal_reads_as_immutable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a folder that nobody may write: the plain read-only open fails there."""
    with Store(path) as store:
        store.put([score()])
    connect = Store._connect

    def fails_unless_immutable(self: Store, uri: str) -> sqlite3.Connection:
        return connect(self, uri if "immutable" in uri else uri.replace("scores", "absent"))

    monkeypatch.setattr(Store, "_connect", fails_unless_immutable)
    with Store(path, read_only=True) as store:
        assert len(store) == 1
