"""From the store to a table: one kind of scores at a time, to the same bits as ever."""

import hashlib
import sqlite3
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from initio import Architecture, Evaluation, InputError, get_space
from initio.records import settings
from initio.scores.read import read_all, read_table
from initio.scores.store import Store, find_store, pack
from initio.scores.table import ScoreTable
from initio.spaces import NB201

ARCHS = sorted({NB201.canonical(NB201.sample(Random(seed))) for seed in range(5)})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "scores.db")


def put(store: Store, value: float, seed: int = 0, data: str = "d00d", metric: str = "trace", **how: object) -> None:
    made = settings(**how)  # type: ignore[arg-type]
    store.put(Evaluation(arch, metric, value + row, seed, "", made, data) for row, arch in enumerate(ARCHS))


def test_draws_are_seeds_and_batches(store: Store) -> None:
    put(store, 20.0, seed=1)
    put(store, 10.0, seed=0)
    put(store, 0.0, seed=1, data="beef")
    with pytest.raises(InputError, match="several scores of trace, with data = beef, d00d"):  # of unknown sources
        read_table(store, NB201)
    store._db.execute("INSERT INTO data VALUES ('d00d', 'digits', 4), ('beef', 'digits', 4)")
    table = read_table(store, NB201)
    assert table.architectures == tuple(ARCHS)
    assert table.origin("trace").draws == ((0, "d00d"), (1, "beef"), (1, "d00d"))
    assert table.each("trace")[:, 0].tolist() == [10.0, 0.0, 20.0]


def test_a_value_without_a_number_keeps_its_flag(store: Store) -> None:
    store.put([Evaluation(ARCHS[0], "trace", None, 0, "not finite", (), "d00d")])
    store.put([Evaluation(ARCHS[1], "trace", 1.0, 0, "doubtful", (), "d00d")])
    table = read_table(store, NB201)
    assert [table.reason(arch, "trace") for arch in ARCHS[:2]] == ["not finite", ""]
    assert table.flag("trace", 0, 1) == "doubtful"
    assert table.networks == set(ARCHS[:2])


def test_a_pool_gets_the_scores_of_its_networks(store: Store) -> None:
    put(store, 1.0)
    put(store, 100.0, data="", metric="params")
    pool = [arch for arch in NB201.architectures() if NB201.canonical(arch) in ARCHS]
    table = read_table(store, NB201, pool=[*pool, Architecture("nb201", (0,) * 6)])
    assert table.architectures == tuple(pool)  # what was not scored is not there
    for row, arch in enumerate(pool):
        assert table["trace"][row] == 1.0 + ARCHS.index(NB201.canonical(arch))
        assert table.reason(arch, "params") == ("" if arch in ARCHS else "it was not scored")


def test_scores_that_do_not_say_who_rounded(store: Store) -> None:
    """Stores that were written before the key knew it are read as ever, and never mixed with others."""
    put(store, 1.0, cells=5)
    assert read_table(store, NB201)["trace"][0] == 1.0
    put(store, 2.0, cells=5, arithmetic="fused", threads=1)
    with pytest.raises(InputError, match="with arithmetic = fused, unrecorded: choose with --where arithmetic=unrec"):
        read_table(store, NB201)
    for arithmetic, value in (("unrecorded", 1.0), ("fused", 2.0)):
        assert read_table(store, NB201, where={"arithmetic": arithmetic})["trace"][0] == value


def test_an_own_metric_is_read_too(store: Store) -> None:
    put(store, 1.0, metric="examples.own_metric:Mine")
    put(store, 2.0)
    assert read_all(store, "nb201").metrics == ("trace", "examples.own_metric:Mine")


@pytest.mark.parametrize(
    "column", ["space", "choices", "settings", "data", "metric", "version", "seed", "value", "flag"]
)
@pytest.mark.parametrize("value", ["'abc'", "x'80ff'", "''", "1e400", "'1,2'", "'NaN'"])
def test_what_nobody_can_have_written_is_refused_or_read(store: Store, column: str, value: str) -> None:
    """SQLite keeps anything anywhere; whatever stands there, no other error leaves the reader."""
    put(store, 1.0)
    put(store, 2.0, seed=1)
    with suppress(sqlite3.Error):  # a key that stands twice
        store._db.execute(f"UPDATE scores SET {column} = {value} WHERE seed = 0 AND value > 2")
    for read in (lambda: read_table(store, NB201), lambda: read_table(store, NB201, pool=ARCHS), store.groups):
        with suppress(InputError):
            read()


def digest(table: ScoreTable) -> str:
    found = hashlib.sha256(repr([arch.choices for arch in table.architectures]).encode())
    for metric in table.metrics:
        found.update(metric.encode() + table.each(metric).tobytes())
    return found.hexdigest()[:16]


@pytest.mark.parametrize(
    ("name", "bits"),
    [("darts", "a143f9c92fa624a5"), ("nb101", "468239cd15966b0a"), ("nb201-ranking", "cce76007263e09bb")],
)
def test_shipped_scores_are_read_to_the_bit(name: str, bits: str) -> None:
    with Store(find_store(name), read_only=True) as store:
        assert digest(read_table(store, get_space(name.removesuffix("-ranking")))) == bits


def test_a_packed_store_reads_as_the_plain_one(store: Store, tmp_path: Path) -> None:
    put(store, 1.0)
    put(store, 2.0, seed=1)
    pack(store, tmp_path / "s.db.xz")
    with Store(tmp_path / "s.db.xz", read_only=True) as packed:
        fast, slow = read_table(packed, NB201), read_table(store, NB201)
        assert digest(fast) == digest(slow)
        assert (fast.flags, fast.origins) == (slow.flags, slow.origins)
        among = read_table(packed, NB201, pool=ARCHS[:1])
        assert digest(among) == digest(read_table(store, NB201, pool=ARCHS[:1]))
