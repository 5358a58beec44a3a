"""Searches that rank before they train: directions, ties, missing values, pools, and their error sentences."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from initio import InputError
from initio.records import Observation, Query
from initio.scores.table import ScoreTable
from initio.searches import Budget, Problem, QuerySearch
from initio.searches.methods.ranking import EigenNas, Knas, Naswot, ZeroCost, ranking
from initio.spaces import NB201
from tests.searches.asking import ask, asking

POOL = tuple(sorted({NB201.canonical(arch) for arch in NB201.architectures()}))[:60]  # 60 different networks
NUMBERS = [float(n) for n in range(60)]
SCORES = ScoreTable.of(
    POOL,
    {"lambda_relative": NUMBERS, "eigen": [-n for n in NUMBERS], "naswot": NUMBERS,
     "knas": NUMBERS, "trace": NUMBERS, "kappa": NUMBERS, "mine": NUMBERS,
     "synflow": [7.0] * 60, "grad": [math.nan] * 58 + [-math.inf, math.inf]},
)  # fmt: skip
TASK = asking(NB201, Budget(queries=50), POOL, SCORES)


def accuracy(query: Query) -> Observation:
    """The larger the score, the worse."""
    return Observation(100.0 - POOL.index(query.architecture), 1.0)


def asked(search: QuerySearch, task: Problem = TASK, seed: int = 0) -> list[int]:
    """The numbers of the architectures that were trained, in order."""
    return [POOL.index(step.architecture) for step in ask(search, task, accuracy, seed=seed).steps]


def test_the_first_k_are_trained_and_the_best_of_them_taken() -> None:
    for search in (EigenNas(k=3), Knas(k=3), ZeroCost("trace", k=3)):
        assert asked(search) == [59, 58, 57]
        assert ask(search, TASK, accuracy, seed=0).chosen == (POOL[57],)


def test_eigen_nas_ranks_by_the_bound_of_the_paper_if_asked() -> None:
    assert asked(EigenNas(k=3, sample=60, metric="eigen")) == [0, 1, 2]


def test_isomorphic_architectures_are_trained_once() -> None:
    """The first 60 as written are 7 networks; whichever of a class comes first stands for it."""
    written = tuple(NB201.architectures())[:60]
    networks = {NB201.canonical(arch) for arch in written}
    task = asking(
        NB201, Budget(queries=50), written, ScoreTable.of(written, {"lambda_relative": NUMBERS, "knas": NUMBERS})
    )
    for search in (EigenNas(), Knas()):
        steps = ask(search, task, lambda query: Observation(1.0), seed=0).steps
        seen = [NB201.canonical(step.architecture) for step in steps]
        assert len(seen) == len(networks) < 20
        assert set(seen) == networks


def test_candidates_are_trained_to_the_end() -> None:
    lengths: list[int | None] = []

    def remember(query: Query) -> Observation:
        lengths.append(query.epochs)
        return Observation(1.0)

    for search, task in (
        (EigenNas(k=1), replace(TASK, epochs=(12, 200))),
        (EigenNas(k=1, length=12), replace(TASK, epochs=(12, 200))),
        (Knas(k=1), TASK),
    ):
        ask(search, task, remember, seed=0)
    assert lengths == [200, 12, None]


def test_one_query_where_nothing_is_validated() -> None:
    assert asked(ZeroCost("trace")) == [59]
    assert asked(Naswot(60)) == [59]


def test_directions() -> None:
    assert asked(ZeroCost("kappa")) == [0]
    assert asked(ZeroCost("kappa", higher_is_better=True)) == [59]
    assert asked(ZeroCost("mine", higher_is_better=False)) == [0]
    with pytest.raises(InputError, match="'mine' is not known, say whether higher_is_better: there is no metric"):
        asked(ZeroCost("mine"))
    own = "examples.own_metric:Mine"
    assert asked(ZeroCost(own), replace(TASK, scores=ScoreTable.of(POOL, {own: NUMBERS}))) == [59]


def test_no_value_comes_last_behind_infinity() -> None:
    order = [POOL.index(arch) for arch in ranking(TASK, 0, "test", "grad")]
    assert order[:2] == [59, 58]
    order = [POOL.index(arch) for arch in ranking(TASK, 0, "test", "grad", higher=False)]
    assert order[:2] == [58, 59]
    assert sorted(order) == list(range(60))


def test_ties_are_broken_by_the_seed() -> None:
    first, again, other = (asked(ZeroCost("synflow", k=10), seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_a_random_sample_is_ranked() -> None:
    found = {asked(Naswot(5), seed=seed)[0] for seed in range(40)}
    assert len(found) > 5
    assert min(found) >= 4  # the best of five is at least the fifth
    assert asked(Naswot(1000)) == [59]  # there are only 60


def test_only_what_may_be_trained_is_ranked() -> None:
    assert asked(EigenNas(k=2), replace(TASK, pool=POOL[:10])) == [9, 8]
    assert asked(EigenNas(k=2), replace(TASK, pool=())) == [59, 58]
    with pytest.raises(InputError, match="eigen-nas ranks architectures by their scores: none of those scored"):
        asked(EigenNas(), replace(TASK, scores=SCORES.subset([1, 2]), pool=POOL[5:]))


def test_scores_that_are_missing() -> None:
    with pytest.raises(InputError, match="knas ranks architectures by their scores: give it a store of scores"):
        asked(Knas(), replace(TASK, scores=None))
    with pytest.raises(InputError, match="the pool has no scores 'snip'"):
        asked(ZeroCost("snip"))


def test_settings_are_checked() -> None:
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: EigenNas(k=0), "k must be at least 1, not 0"),
        (lambda: Knas(k=20, sample=10), "sample must be at least 20, the number to train, not 10"),
        (lambda: Naswot(0), "sample must be at least 1, the number to train, not 0"),
    ]
    for make, message in wrong:
        with pytest.raises(InputError, match=message):
            make()
