"""What a store in an SQLite file promises beside: packed copies, and sentences about files that are no stores."""

import lzma
import math
import sqlite3
from pathlib import Path

import pytest

from initio import InputError
from initio.scores.sqlite import SqliteDatabase
from initio.scores.store import Store, differences, find_store, pack
from tests.scores.test_store import score


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "scores.db"


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


def test_a_lock_that_does_not_end_is_a_sentence(path: Path) -> None:
    locked = pytest.raises(InputError, match="has been locked by another process for 0 seconds")
    with Store(path) as holder, holder._db.transaction(), Store(path, patience=0.1) as store, locked:
        store.put([score()])


def test_the_file_is_sound_after_many_writers(path: Path) -> None:
    with Store(path) as store:
        for seed in range(50):
            store.put([score(1.0, seed=seed)])
        assert store._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


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
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages + 1}")
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
    connect = SqliteDatabase._connect

    def fails_unless_immutable(self: SqliteDatabase, uri: str) -> sqlite3.Connection:
        return connect(self, uri if "immutable" in uri else uri.replace("scores", "absent"))

    monkeypatch.setattr(SqliteDatabase, "_connect", fails_unless_immutable)
    with Store(path, read_only=True) as store:
        assert len(store) == 1
