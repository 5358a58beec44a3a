"""HNAS: the bound it minimises, its independence of units, and what it does with missing values."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from initio import InputError
from initio.analysis.hnas_bounds import bound
from initio.records import Architecture, Observation, Query
from initio.scores.table import ScoreTable
from initio.searches import Budget, Problem
from initio.searches.methods.hnas import Hnas
from initio.spaces import NB201
from studies.hnas_optimisers import RandomPoints
from tests.searches.asking import ask, asking

RNG = np.random.default_rng(0)
SIZE = 400
POOL = tuple(itertools.islice(NB201.architectures(), 3000, 3000 + SIZE))
M = np.exp(RNG.standard_normal(SIZE) * 2)
KAPPA = np.exp(RNG.random(SIZE) * 5)
QUALITY = dict(zip(POOL, 90 - (np.log(M) - 0.5) ** 2 - np.log(KAPPA), strict=True))


def task(
    M: np.ndarray = M, kappa: np.ndarray = KAPPA, queries: int = 20, size: int = SIZE, name: str = "trace"
) -> Problem:
    scores = ScoreTable.of(POOL[:size], {name: M[:size], "kappa": kappa[:size]})
    return asking(NB201, Budget(queries=queries), POOL, scores)


def accuracy(query: Query) -> Observation:
    return Observation(float(QUALITY[query.architecture]), 1.0)


def asked(search: Hnas, task: Problem, seed: int = 0) -> list[Architecture]:
    """The architectures that were trained, in order."""
    return [step.architecture for step in ask(search, task, accuracy, seed=seed).steps]


def test_the_first_is_the_minimiser_of_the_bound() -> None:
    for t in (1.0, 0.5):
        for grid in (1, 5, 4):
            search = Hnas(t=t, grid=grid)
            (first, *_) = search.start(task())
            values = bound("non_realisable", M, KAPPA, search.trade_off(first))
            assert asked(search, task(queries=1)) == [POOL[int(np.argmin(values))]]


def test_an_architecture_trained_before_gives_way_to_the_next_best() -> None:
    class Same:
        def suggest(self) -> tuple[float, ...]:
            return 0.4, 0.6

        def observe(self, point: tuple[float, ...], value: float) -> None:
            """Nothing."""

    proposals = Hnas().steps(task(), 0, Same())
    assert next(proposals).queries == ()  # nothing is known of what such an optimiser will suggest
    found = [next(proposals), *(proposals.send(Observation(1.0, 1.0)) for _ in range(9))]
    values = bound("non_realisable", M, KAPPA, Hnas().trade_off((0.4, 0.6)))
    assert [query.architecture for query in found] == [POOL[i] for i in np.argsort(values)[:10]]


def test_the_band_means_the_same_for_any_t() -> None:
    for point in ((0.2, 0.1), (0.7, 0.9)):
        narrow = [10 ** (by.s / (2 * by.t)) for by in (Hnas(t=t).trade_off(point) for t in (0.5, 1.0, 2.0))]
        assert narrow == pytest.approx([narrow[0]] * 3)


@pytest.mark.parametrize("factor", [1e-30, 1e-3, 7.0, 1e30])
def test_units_of_the_metrics_do_not_matter(factor: float) -> None:
    assert asked(Hnas(), task(M * factor)) == asked(Hnas(), task())
    assert asked(Hnas(t=0.5), task(M * factor)) == asked(Hnas(t=0.5), task())
    assert asked(Hnas(), task(kappa=KAPPA * factor)) == asked(Hnas(), task())


def test_of_a_signed_metric_the_size_counts() -> None:
    signs = np.where(RNG.random(SIZE) < 0.5, -1.0, 1.0)
    assert asked(Hnas("grasp"), task(M * signs, name="grasp")) == asked(Hnas("grasp"), task(M, name="grasp"))


def test_synflow_is_the_exponential_of_its_score() -> None:
    assert asked(Hnas("synflow"), task(np.log(M) + 500, name="synflow")) == asked(Hnas(), task())
    assert len(asked(Hnas("synflow"), task(np.log(M) * 1000, name="synflow"))) == 20


def test_no_architecture_is_trained_twice_and_all_are_in_the_end() -> None:
    found = asked(Hnas(), task(queries=100, size=30))
    assert sorted(found) == sorted(POOL[:30])


def test_a_pool_of_one() -> None:
    assert asked(Hnas(), task(size=1)) == [POOL[0]]


def test_equal_scores_and_no_distance_at_all() -> None:
    assert len(set(asked(Hnas(), task(np.ones(SIZE), np.ones(SIZE))))) == 20


def test_what_has_no_value_comes_last() -> None:
    broken, kappa = M.copy(), KAPPA.copy()
    broken[:10] = [np.nan, np.inf, -np.inf, 0, np.nan, 1, 1, 1, 1, 1]
    kappa[5:10] = [np.nan, np.inf, np.nan, np.inf, np.inf]
    found = asked(Hnas(), task(broken, kappa, queries=30, size=30))
    assert set(found[:20]) == set(POOL[10:30])
    infinite = {3, 6, 8, 9}  # M = 0 or κ = ∞: bad, but known
    assert set(found[20:24]) == {POOL[i] for i in infinite}
    whole = asked(Hnas(), task(np.where(np.arange(SIZE) % 3, M, np.nan), KAPPA))
    assert all(POOL.index(arch) % 3 for arch in whole)


def test_huge_metrics_do_not_overflow() -> None:
    for power in (50, 150, 300):
        spread = 10.0 ** np.linspace(-power, power, SIZE)
        for t in (0.5, 1.0, 3.0):
            assert len(asked(Hnas(t=t), task(spread))) == 20


def test_a_growing_pool() -> None:
    search = Hnas(growth=10)
    order = [POOL[row] for row in task().scored_rows("hnas", 4)]
    found = asked(search, task(), seed=4)
    assert all(arch in order[: 10 * step] for step, arch in enumerate(found, start=1))
    assert any(arch not in order[: 10 * step] for step, arch in enumerate(asked(Hnas(), task(), seed=4), start=1))
    assert sorted(asked(Hnas(growth=1), task(queries=30, size=30))) == sorted(POOL[:30])


def test_only_the_pool_is_trained() -> None:
    some = frozenset(POOL[::4])
    narrow = replace(task(), pool=tuple(some))
    assert set(asked(Hnas(), narrow)) <= some
    with pytest.raises(InputError, match="none of those scored is in the pool"):
        asked(Hnas(), replace(task(size=4), pool=POOL[10:]))


def test_a_quarter_of_the_queries_is_a_grid() -> None:
    assert Hnas().start(task(queries=20)) == ((0.1, 0.5), (0.3, 0.5), (0.5, 0.5), (0.7, 0.5), (0.9, 0.5))
    assert len(Hnas().start(task(queries=2))) == 0
    assert len(Hnas().start(replace(task(), budget=Budget(seconds=9.0)))) == 5
    assert len(Hnas(grid=3).start(task())) == 3


def test_it_finds_better_ones_than_random_trade_offs() -> None:
    class WithoutLearning(Hnas):
        def propose(self, task, seed):  # type: ignore[no-untyped-def]
            return self.steps(task, seed, RandomPoints(2, seed))

    def mean(search: Hnas) -> float:
        return float(np.mean([max(QUALITY[arch] for arch in asked(search, task(), seed)) for seed in range(5)]))

    best, by_chance = mean(Hnas()), np.mean([np.sort(list(QUALITY.values()))[-20]])
    assert best >= mean(WithoutLearning())
    assert best > by_chance


def test_an_interrupted_search_ends_the_same() -> None:
    search = Hnas(growth=40)
    whole = ask(search, task(), accuracy, seed=7)
    again = ask(search, task(), accuracy, seed=7, done=whole.steps[:11])
    assert (again.chosen, again.steps) == (whole.chosen, whole.steps)
    assert ask(search, task(), accuracy, seed=8).steps != whole.steps


def test_sentences() -> None:
    with pytest.raises(InputError, match="the pool has no scores 'trase'"):
        asked(Hnas("trase"), task())
    with pytest.raises(InputError, match="no architecture of the pool has both 'trace' and 'kappa'"):
        asked(Hnas(), task(np.full(SIZE, np.nan)))
    for wrong, text in (({"t": 0.0}, "t must be a positive number"), ({"growth": 0}, "growth"), ({"grid": -1}, "grid")):
        with pytest.raises(InputError, match=text):
            Hnas(**wrong)  # type: ignore[arg-type]
