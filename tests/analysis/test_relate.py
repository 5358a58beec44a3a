"""Scores beside a table: the right value for each row, one kind of scores at a time, bounds and their fit."""

import math
from pathlib import Path
from random import Random

import numpy as np
import pytest

from initio import Architecture, Evaluation, InputError
from initio.analysis.correlation import spearman
from initio.analysis.relate import Relation, relate
from initio.records import settings
from initio.scores.store import Store
from initio.spaces import NB201
from initio.tables import CompactTable, open_compact

N = 80


@pytest.fixture
def table(tmp_path: Path) -> CompactTable:
    rng = Random(0)
    rows = list(dict.fromkeys(NB201.sample(rng) for _ in range(N)))
    ops = np.array([arch.choices for arch in rows], dtype=np.int8)
    np.savez(tmp_path / "table.npz", ops=ops, acc=np.random.default_rng(0).permutation(len(ops)).astype(np.float32))
    return open_compact(str(tmp_path / "table.npz"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "scores.db")


def archs(table: CompactTable) -> list[Architecture]:
    return [NB201.architecture(*map(int, row)) for row in np.load(table.path)["ops"]]


def fill(
    store: Store, table: CompactTable, metric: str, value: object, seeds: int = 1, flag: str = "", **how: int
) -> dict[Architecture, float]:
    """The mean accuracy of a class, or what `value` makes of it."""
    acc = table.column("acc")
    members: dict[Architecture, list[float]] = {}
    for arch, a in zip(archs(table), acc, strict=True):
        members.setdefault(NB201.canonical(arch), []).append(float(a))
    means = {arch: float(np.mean(a)) for arch, a in members.items()}
    store.put(
        Evaluation(arch, metric, value(mean, seed), seed, flag, settings(**how), "d00d")  # type: ignore[operator]
        for arch, mean in means.items()
        for seed in range(seeds)
    )
    return means


def test_every_row_gets_the_score_of_its_network(store: Store, table: CompactTable) -> None:
    means = fill(store, table, "trace", lambda mean, seed: mean)
    found = relate(store, table, "acc")
    assert len(found.rows) == table.length
    assert found.networks == len(means) < table.length
    expected = np.array([means[NB201.canonical(arch)] for arch in archs(table)])
    assert found.scores["trace"].tolist() == expected.tolist()
    agreement = found.agreements(k=5)["trace"]
    assert agreement.spearman == spearman(expected, table.column("acc"))
    assert (agreement.used, agreement.undefined) == (table.length, 0)


def test_costs_belong_to_the_architecture_as_written(store: Store, table: CompactTable) -> None:
    fill(store, table, "trace", lambda mean, seed: mean)
    written = archs(table)
    store.put(Evaluation(arch, "params", float(i), 0) for i, arch in enumerate(written))
    found = relate(store, table, "acc")
    assert found.scores.metrics == ("trace", "params")
    assert found.scores["params"].tolist() == list(range(len(written)))


def test_only_a_sample(store: Store, table: CompactTable) -> None:
    fill(store, table, "trace", lambda mean, seed: mean)
    found = relate(store, table, "acc", only=archs(table)[5:15])
    assert found.rows == tuple(range(5, 15))


def test_seeds_are_averaged_and_their_spread_told(store: Store, table: CompactTable) -> None:
    fill(store, table, "trace", lambda mean, seed: mean if seed else -mean, seeds=2)
    found = relate(store, table, "acc")
    assert not found.scores["trace"].any()
    assert found.agreements()["trace"].spearman is None
    each = spearman(found.scores.each("trace")[1], found.target)
    assert each is not None
    assert found.spread("trace") == pytest.approx(abs(each) * math.sqrt(2))


def test_undefined_and_infinite_values(store: Store, table: CompactTable) -> None:
    fill(store, table, "kappa", lambda mean, seed: math.inf if mean < 20 else 100 - mean, flag="f")
    fill(store, table, "naswot", lambda mean, seed: None if mean < 20 else mean, flag="why")
    found = relate(store, table, "acc").agreements()
    assert found["kappa"].undefined == 0
    assert found["kappa"].used == table.length
    assert found["kappa"].spearman is not None
    assert found["kappa"].spearman < -0.5
    assert 0 < found["naswot"].undefined == table.length - found["naswot"].used


def test_one_value_without_a_number_takes_the_mean_away(store: Store, table: CompactTable) -> None:
    fill(store, table, "naswot", lambda mean, seed: None if mean < 20 and seed else mean, seeds=2, flag="why")
    found = relate(store, table, "acc").agreements()["naswot"]
    assert 0 < found.undefined == table.length - found.used


def test_kinds_of_scores_are_not_mixed(store: Store, table: CompactTable) -> None:
    fill(store, table, "trace", lambda mean, seed: mean, cells=5, channels=4)
    fill(store, table, "trace", lambda mean, seed: -mean, cells=1, channels=4)
    with pytest.raises(InputError, match="several scores of trace, with cells = 1, 5: choose with --where cells=5"):
        relate(store, table, "acc")
    for cells, sign in ((5, 1), (1, -1)):
        rho = relate(store, table, "acc", where={"cells": str(cells)}).agreements()["trace"].spearman
        assert rho is not None
        assert rho * sign > 0
    with pytest.raises(InputError, match="the store has no scores of nb201 with cells=3"):
        relate(store, table, "acc", where={"cells": "3"})
    with pytest.raises(InputError, match="scores have no setting 'cels': did you mean 'cells'?"):
        relate(store, table, "acc", where={"cels": "3"})


def test_only_the_newest_version_of_a_metric(store: Store, table: CompactTable) -> None:
    fill(store, table, "trace", lambda mean, seed: mean)
    store.put(Evaluation(e.architecture, "trace", 1.0, 0, data=e.data, version=2) for e in list(store.evaluations()))
    assert set(relate(store, table, "acc").scores["trace"]) == {1.0}


def test_wrong_stores(store: Store, table: CompactTable) -> None:
    with pytest.raises(InputError, match="the store has no scores of nb201: it has no scores"):
        relate(store, table, "acc")
    store.put([Evaluation(archs(table)[0], "params", 1.0, 0)])
    with pytest.raises(InputError, match="only costs were asked for: add a metric of networks"):
        relate(store, table, "acc")
    fill(store, table, "trace", lambda mean, seed: mean)
    with pytest.raises(InputError, match="the store has no scores of 'kapa'"):
        relate(store, table, "acc", metrics=["kapa"])


def bounded(store: Store, table: CompactTable) -> Relation:
    """An accuracy that falls with |M² − ν| and with κ: what Corollary 2 describes."""
    rng = np.random.default_rng(1)
    M = dict(zip(fill(store, table, "knas", lambda mean, seed: mean), rng.uniform(1, 3, N), strict=False))
    store.put(Evaluation(arch, "trace", value, 0, data="d00d") for arch, value in M.items())
    store.put(Evaluation(arch, "kappa", 10.0, 0, data="d00d") for arch in M)
    return relate(store, table, "acc", metrics=["trace", "kappa"])


def test_bounds_and_their_ablations(store: Store, table: CompactTable) -> None:
    found = bounded(store, table)
    M = found.scores["trace"]
    assert [row.bound for row in found.bounds()] == ["realisable", "trade_off", "kappa", "non_realisable"]
    target = -np.abs(M**2 - np.quantile(M**2, 0.5))
    rows = {row.bound: row for row in Relation(found.rows, found.networks, target, found.scores).bounds()}
    assert rows["realisable"].spearman == pytest.approx(spearman(-M, -target))
    assert rows["realisable"].spearman == pytest.approx(rows["kappa"].spearman)  # κ is constant here
    by = rows["non_realisable"].trade_off
    assert by is not None
    assert by.nu == 0.5
    assert rows["non_realisable"].spearman is not None
    assert rows["non_realisable"].spearman > 0.99
    assert rows["realisable"].trade_off is None


def test_bounds_fitted_to_another_column_do_not_see_the_target(store: Store, table: CompactTable) -> None:
    found = bounded(store, table)
    fit = np.arange(len(found.rows), dtype=float)
    first = found.bounds(fit)
    other = Relation(found.rows, found.networks, found.target[::-1].copy(), found.scores).bounds(fit)
    assert [row.trade_off for row in first] == [row.trade_off for row in other]
    assert [row.spearman for row in first] != [row.spearman for row in other]


def test_without_kappa_only_the_bounds_that_need_none(store: Store, table: CompactTable) -> None:
    fill(store, table, "trace", lambda mean, seed: mean + 1)
    assert [row.bound for row in relate(store, table, "acc").bounds()] == ["realisable", "trade_off"]
