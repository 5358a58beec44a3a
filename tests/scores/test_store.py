"""What every store promises, whatever database it is in: it keeps what it is given, for many writers at once."""

import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as settings_of_test
from hypothesis import strategies as st

from initio import Architecture, Evaluation, InputError, noise
from initio.cli import main
from initio.records import Settings, settings
from initio.scores import database
from initio.scores import store as stores
from initio.scores.database import STORE_VERSION
from initio.scores.store import Known, Store, differences, pack
from tests.scores.conftest import NewPlace

ARCH = Architecture("nb201", (3, 0, 1, 0, 2, 4))


def score(
    value: float | None = 1.5, metric: str = "trace", seed: int = 0, flag: str = "", **values: object
) -> Evaluation:
    return Evaluation(ARCH, metric, value, seed, flag, settings(**values), data="d00d")  # type: ignore[arg-type]


def known(store: Store, arch: Architecture, values: Settings, data: str) -> set[Known]:
    (found,) = store.known([arch], values, data)
    return found


def test_what_goes_in_comes_out(new_place: NewPlace) -> None:
    place = new_place()
    scores = [
        score(0.1 + 0.2),
        score(math.inf, "kappa", flag="singular"),
        score(-math.inf, "naswot", flag="two images are alike"),
        score(None, "jacob_cov", flag="needs two images"),
        score(5e-324, "eigen"),
        score(1.7976931348623157e308, "synflow", cells=5, lr=math.inf, norm=None, on=True),
        Evaluation(Architecture("mlp-2", ()), "η ≤ 1", -0.0, 2**62, "„quoted“ 'flag'", (), "", 3),
    ]
    with Store(place) as store:
        store.put(scores)
    with Store(place, read_only=True) as store:
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


@settings_of_test(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(evaluations, max_size=12, unique_by=by_key))
def test_any_evaluations_round_trip_and_compare_equal(new_place: NewPlace, scores: list[Evaluation]) -> None:
    with Store(new_place()) as store, Store(new_place()) as other:
        store.put(scores)
        other.put(reversed(scores))
        assert {*store.evaluations()} == {*scores}
        assert list(differences(store, other)) == []
        for e in scores:
            assert (e.metric, e.version, e.seed) in known(store, e.architecture, e.settings, e.data)


def test_what_is_known_of_many_architectures_at_once(new_place: NewPlace) -> None:
    archs = [Architecture(f"space{n % 2}", (n,)) for n in range(1200)]
    with Store(new_place()) as store:
        store.put(Evaluation(arch, "trace", 1.0, n % 3, data="d") for n, arch in enumerate(archs) if n % 5)
        found = list(store.known(archs, (), "d"))
    assert found == [{("trace", 1, n % 3)} if n % 5 else set() for n in range(1200)]


def test_a_score_is_never_overwritten(new_place: NewPlace) -> None:
    with Store(new_place()) as store:
        store.put([score(1.0)])
        store.put([score(2.0)])
        assert [e.value for e in store.evaluations()] == [1.0]


def test_every_part_of_the_key_counts(new_place: NewPlace) -> None:
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
    with Store(new_place()) as store:
        store.put(scores)
        assert sorted(e.value or 0 for e in store.evaluations()) == list(map(float, range(1, 10)))
        assert known(store, ARCH, (), "d00d") == {("trace", 1, 0), ("trace", 1, 1), ("kappa", 1, 0), ("trace", 2, 0)}
        assert known(store, ARCH, settings(cells=3), "d00d") == set()


def test_a_failed_put_writes_nothing(new_place: NewPlace) -> None:
    with Store(new_place()) as store:
        with pytest.raises(OverflowError):
            store.put([score(1.0, cells=2), Evaluation(ARCH, "kappa", 1.0, seed=2**80)])
        assert len(store) == 0
        store.put([score(1.0, cells=2)])
        assert [dict(e.settings) for e in store.evaluations()] == [{"cells": 2}]


def test_groups_say_what_is_there(new_place: NewPlace) -> None:
    batch = noise((3, 4, 4), batch_size=2)
    with Store(new_place()) as store:
        store.describe(batch)
        store.describe(batch)
        store.put(Evaluation(ARCH, "kappa", None, seed, "why", data=batch.fingerprint) for seed in range(3))
        store.put([Evaluation(ARCH, "kappa", math.inf, 3, "singular", data=batch.fingerprint), score()])
        first, second = sorted(store.groups(), key=lambda group: group.metric)
        assert (first.metric, first.source, first.architectures, first.seeds) == ("kappa", "noise", 1, 4)
        assert (first.undefined, first.flagged) == (3, 4)
        assert (second.metric, second.source, second.data) == ("trace", "", "d00d")
        assert [row[3] for row in store.rows({"nb201"}) if row[0] == second.key] == [1.5]


def test_adding_a_store_keeps_what_was_there(new_place: NewPlace) -> None:
    batch = noise((3, 2, 2), classes=2, batch_size=3, seed=0)
    with Store(new_place()) as a, Store(new_place()) as b:
        a.put([score(1.0), score(2.0, seed=1)])
        b.put([score(9.0, seed=1), score(3.0, seed=2, cells=5)])
        b.describe(batch)
        assert a.add(b) == 1
        assert sorted(e.value or 0 for e in a.evaluations()) == [1.0, 2.0, 3.0]
        assert a.add(b) == 0
        assert [source for _, source, _ in a.described()] == [batch.source]


def test_differences(new_place: NewPlace) -> None:
    with Store(new_place()) as a, Store(new_place()) as b:
        a.put([score(1.0), score(2.0, seed=1), score(3.0, seed=2), score(4.0, seed=3)])
        b.put([score(1.0), score(2.0, seed=1, flag="doubtful"), score(3.5, seed=2), score(5.0, seed=4)])
        found = [(x and x.value, y and y.value) for x, y in differences(a, b)]
    assert found == [(2.0, 2.0), (3.0, 3.5), (4.0, None), (None, 5.0)]


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


def test_processes_create_and_write_at_once(new_place: NewPlace) -> None:
    place = new_place()
    command = [sys.executable, "-c", WRITER, str(place)]
    writers = [subprocess.Popen([*command, str(i)], stderr=subprocess.PIPE, text=True) for i in range(4)]
    assert [writer.communicate()[1] for writer in writers] == [""] * 4
    with Store(place) as store:
        assert len(store) == 4 * 40 * 4


def test_many_threads_open_one_new_file(new_place: NewPlace) -> None:
    place = new_place()

    def write(i: int) -> None:
        with Store(place) as store:
            store.put([score(1.0, seed=i)])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(16)))
    with Store(place) as store:
        assert len(store) == 16


def test_readers_do_not_wait_for_a_writer(new_place: NewPlace) -> None:
    place = new_place()
    with Store(place) as writer:
        writer.put([score()])
        with writer._db.transaction(), Store(place, read_only=True, patience=0.1) as reader:
            assert len(reader) == 1


# --- versions ---------------------------------------------------------------------------------------------------------


def test_a_newer_store(new_place: NewPlace) -> None:
    place = new_place()
    with Store(place) as store:
        store.put([score()])
        with store._db.transaction():
            store._db.set_version(STORE_VERSION + 1)
    for read_only in (False, True):
        with pytest.raises(
            InputError, match=f"has version {STORE_VERSION + 1}, this Initio reads up to {STORE_VERSION}"
        ):
            Store(place, read_only=read_only)


def test_an_older_store_is_brought_up_to_date_with_all_its_scores(
    new_place: NewPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = new_place()
    with Store(place) as store:
        store.put([score()])
    further = ("ALTER TABLE data ADD COLUMN note {text}", "CREATE TABLE runs (id {number}, name {text} NOT NULL)")
    monkeypatch.setattr(database, "MIGRATIONS", (*database.MIGRATIONS, further))
    monkeypatch.setattr("initio.scores.store.STORE_VERSION", STORE_VERSION + 1)
    old = (
        f"version {STORE_VERSION}, this Initio reads version {STORE_VERSION + 1}: bring it up to date with initio store"
    )
    with pytest.raises(InputError, match=old):
        Store(place, read_only=True)
    for _ in range(2):
        with Store(place) as store:
            assert list(store.evaluations()) == [score()]
            assert store._db.version() == STORE_VERSION + 1
            assert store._db.execute("SELECT count(*) FROM runs").fetchone()[0] == 0


def test_a_new_column_is_read_in_an_old_store(
    new_place: NewPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in copies that were packed before there was one, and in those that come with Initio."""
    place, packed = new_place(), tmp_path / "packed.db.xz"
    with Store(place) as store:
        store.put([score()])
        pack(store, packed)
    monkeypatch.setattr(database, "MIGRATIONS", (*database.MIGRATIONS, ("ALTER TABLE scores ADD COLUMN note {text}",)))
    for module in ("initio.scores.store", "initio.cli.store"):
        monkeypatch.setattr(f"{module}.STORE_VERSION", STORE_VERSION + 1)
    columns = stores._ROWS.replace("scores.flag", "coalesce(scores.note, scores.flag)")
    monkeypatch.setattr(stores, "_ROWS", columns)
    url = str(place)
    assert main(["store", "info", url]) == 2
    assert "bring it up to date with initio store update" in capsys.readouterr().err
    assert main(["store", "update", url]) == 0
    assert f"has version {STORE_VERSION + 1} and 1 scores" in capsys.readouterr().out
    for readable in (place, packed):
        with Store(readable, read_only=True) as store:
            assert list(store.evaluations()) == [score()]
    with Store(stores.find_store("nb201-study"), read_only=True) as store:
        assert next(store.evaluations()).metric
    assert main(["store", "update", "nb201-study"]) == 2
    assert main(["store", "update", str(packed)]) == 2
    assert "stays as it is" in capsys.readouterr().err


def test_what_is_no_store_is_not_read_as_one(new_place: NewPlace) -> None:
    with pytest.raises(InputError, match="there is no store|is not a store of Initio"):
        Store(new_place(), read_only=True)
