"""The driver of searches on trainings: budget, memory, resumption, and what it does when something goes wrong."""

import math
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

import pytest

from initio import InputError
from initio.records import Architecture, Observation, Query, from_json, to_json
from initio.scores.table import ScoreTable
from initio.searches import Budget, Problem, Proposals, QuerySearch, SearchResult, Trained, find_search
from initio.searches.methods.evolution import RegularisedEvolution
from initio.searches.methods.random_search import RandomSearch
from initio.searches.problem import Evaluate
from initio.searches.queries import REPEATS
from initio.spaces import NB101, NB201
from tests.searches.asking import ask, asking

POOL = tuple(arch for arch in NB201.architectures() if arch.choices[3] == 0)[::5]  # 625, some disconnected
CHOICES = tuple(POOL[i] for i in (3, 200, 100))


@dataclass(frozen=True)
class Fixed(QuerySearch):
    """Asks for three architectures, each twice, at the given lengths of training."""

    lengths: ClassVar[tuple[int | None, ...]] = (None,)
    name: ClassVar[str] = "fixed"

    def propose(self, problem: Problem, seed: int) -> Proposals:
        for length in self.lengths:
            for arch in CHOICES:
                first = yield Query(arch, length)
                assert (yield Query(arch, length)) == first
        return None


def value(query: Query) -> Observation:
    """A number that depends on all choices; longer trainings give more and cost more."""
    epochs = query.epochs or 12
    total = sum((place + 1) * choice for place, choice in enumerate(query.architecture.choices))
    return Observation(float(total % 17) + epochs / 100, float(epochs))


class Counter:
    """Counts what is evaluated."""

    def __init__(self, evaluate: Evaluate = value) -> None:
        self.evaluate, self.asked = evaluate, list[Query]()

    def __call__(self, query: Query) -> Observation:
        self.asked.append(query)
        return self.evaluate(query)


def test_nothing_is_evaluated_twice() -> None:
    evaluate = Counter()
    result = ask(Fixed(), asking(NB201, Budget(queries=10), POOL), evaluate, seed=0)
    assert [query.architecture for query in evaluate.asked] == list(CHOICES)
    assert result.cost.queries == len(result.steps) == 3
    assert result.chosen == (max(CHOICES, key=lambda arch: value(Query(arch)).value),)


def test_budget_in_queries() -> None:
    evaluate = Counter()
    result = ask(RandomSearch(), asking(NB201, Budget(queries=7), POOL), evaluate, seed=0)
    assert (len(evaluate.asked), result.cost.queries, result.cost.published_seconds) == (7, 7, 7 * 12.0)


@pytest.mark.parametrize(("seconds", "queries"), [(36.0, 3), (47.9, 3), (48.0, 4)])
def test_budget_in_seconds_is_never_exceeded(seconds: float, queries: int) -> None:
    result = ask(RandomSearch(), asking(NB201, Budget(seconds=seconds), POOL), value, seed=0)
    assert result.cost.queries == queries
    assert result.cost.published_seconds == queries * 12


def test_a_budget_below_one_training() -> None:
    with pytest.raises(InputError, match="nothing was trained: the budget is smaller than one training"):
        ask(RandomSearch(), asking(NB201, Budget(seconds=1), POOL), value, seed=0)


def test_budgets_that_are_none() -> None:
    for make, message in (
        (lambda: Budget(), "a search that trains needs a budget"),
        (lambda: Budget(queries=0), "the number of queries must be at least 1, not 0"),
        (lambda: Budget(seconds=float("nan")), "the seconds of training must be positive, not nan"),
    ):
        with pytest.raises(InputError, match=message):
            make()


@pytest.mark.parametrize("name", ["random", "rea", "reinforce", "bohb"])
def test_any_prefix_of_the_rows_resumes_to_the_same_result(name: str) -> None:
    search, task = find_search(name)(), asking(NB201, Budget(queries=25), POOL, epochs=(4, 12, 36))
    rows: list[Trained] = []
    whole = ask(search, task, value, seed=3, on_step=rows.append)
    assert tuple(rows) == whole.steps
    for n in (0, 7, 24, 25):
        evaluate, more = Counter(), list[Trained]()
        again = ask(search, task, evaluate, seed=3, done=rows[:n], on_step=more.append)
        assert again == whole
        assert again.cost.published_seconds == whole.cost.published_seconds
        assert len(evaluate.asked) == 25 - n
        assert more == rows[n:]
    assert ask(search, task, value, seed=4) != whole


def test_a_result_survives_json() -> None:
    """Also of an evaluator whose values are whole numbers."""

    def whole_numbers(query: Query) -> Observation:
        return Observation(90, 1)

    task = asking(NB201, Budget(queries=5), POOL)
    result = ask(RandomSearch(), task, whole_numbers, seed=0)
    assert from_json(SearchResult, to_json(result)) == result
    assert ask(RandomSearch(), task, whole_numbers, seed=0, done=result.steps[:3]) == result


def test_a_recorded_answer_to_another_question_is_an_error() -> None:
    task = asking(NB201, Budget(queries=9), POOL)
    steps = ask(RandomSearch(), task, value, seed=0).steps
    with pytest.raises(InputError, match="query 1 of the run differs from what the search asks now"):
        ask(RandomSearch(), task, value, seed=1, done=steps)
    with pytest.raises(InputError, match="the run has 9 queries, more than this search asks"):
        ask(RandomSearch(), replace(task, budget=Budget(queries=4)), value, seed=0, done=steps)


def test_a_training_without_a_value_costs_its_query_and_counts_as_the_worst_so_far() -> None:
    """Before there is a worst one it is below all that may come, and never a number that nobody measured."""
    heard = []

    @dataclass(frozen=True)
    class Listens(QuerySearch):
        name: ClassVar[str] = "listens"

        def propose(self, problem: Problem, seed: int) -> Proposals:
            for arch in POOL[:4]:
                heard.append((yield Query(arch)).value)
            return None

    answers = iter([None, 7.0, 9.0, None])

    def evaluate(query: Query) -> Observation:
        return Observation(next(answers), 2.0, "diverged")

    result = ask(Listens(), asking(NB201, Budget(queries=4), POOL), evaluate, seed=0)
    assert heard == [-math.inf, 7.0, 9.0, 7.0]
    assert result.best == POOL[2]
    assert (result.cost.queries, result.cost.published_seconds) == (4, 8.0)
    assert [step.value for step in result.steps] == [None, 7.0, 9.0, None]
    assert from_json(SearchResult, to_json(replace(result, method="random"))).steps == result.steps
    with pytest.raises(InputError, match="none of the 3 trainings has a value: diverged"):
        ask(Fixed(), asking(NB201, Budget(queries=3), POOL), lambda query: Observation(None, 0.0, "diverged"), seed=0)


@pytest.mark.parametrize("name", ["random", "rea", "reinforce", "bohb", "robust", "hnas"])
def test_a_search_goes_on_when_its_first_trainings_have_no_value(name: str) -> None:
    numbers = [float(n) for n in range(len(POOL))]
    task = asking(NB201, Budget(queries=14), POOL, ScoreTable.of(POOL, {"trace": numbers, "kappa": numbers[::-1]}))
    asked = list[Query]()

    def fails_twice(query: Query) -> Observation:
        asked.append(query)
        return value(query) if len(asked) > 2 else Observation(None, 1.0, "diverged")

    result = ask(find_search(name)(), task, fails_twice, seed=0)
    assert len(result.steps) == len(set(asked)) == 14
    assert result.best == max(result.steps[2:], key=lambda step: step.value).architecture
    assert ask(find_search(name)(), task, value, seed=0, done=result.steps[:5]) == result


def test_an_evaluator_that_raises_loses_nothing() -> None:
    rows: list[Trained] = []
    task = asking(NB201, Budget(queries=10), POOL)

    def failing(query: Query) -> Observation:
        if len(rows) == 4:
            raise OSError("the machine went away")
        return value(query)

    with pytest.raises(OSError, match="the machine went away"):
        ask(RegularisedEvolution(), task, failing, seed=0, on_step=rows.append)
    assert len(rows) == 4
    resumed = ask(RegularisedEvolution(), task, value, seed=0, done=rows)
    assert resumed == ask(RegularisedEvolution(), task, value, seed=0)


def test_a_search_that_only_repeats_itself_is_stopped() -> None:
    asked = 0

    @dataclass(frozen=True)
    class Stuck(QuerySearch):
        name: ClassVar[str] = "stuck"

        def propose(self, problem: Problem, seed: int) -> Proposals:
            nonlocal asked
            while True:
                asked += 1
                yield Query(POOL[5])

    result = ask(Stuck(), asking(NB201, Budget(queries=10), POOL), value, seed=0)
    assert result.cost.queries == 1
    assert asked == REPEATS + 1


def test_only_the_longest_training_competes() -> None:
    @dataclass(frozen=True)
    class Lengths(Fixed):
        lengths: ClassVar[tuple[int | None, ...]] = (4, 12)

    def shorter_is_better(query: Query) -> Observation:
        bonus = 50.0 if query.epochs == 4 else 0.0
        return Observation(bonus + value(query).value, 1.0)

    result = ask(Lengths(), asking(NB201, Budget(queries=5), POOL, epochs=(4, 12)), shorter_is_better, seed=0)
    long = CHOICES[:2]  # the fifth query is the second of 12 epochs
    assert result.chosen == (max(long, key=lambda arch: value(Query(arch, 12)).value),)


def test_a_search_may_choose_for_itself() -> None:
    @dataclass(frozen=True)
    class Chooses(QuerySearch):
        name: ClassVar[str] = "chooses"

        def propose(self, problem: Problem, seed: int) -> Proposals:
            yield Query(CHOICES[0])
            return POOL[0]

    assert ask(Chooses(), asking(NB201, Budget(queries=2), POOL), value, seed=0).chosen == (POOL[0],)


def test_mutations_stay_in_the_pool() -> None:
    rng, task = Random(0), asking(NB201, Budget(queries=1), POOL)
    for _ in range(50):
        assert task.mutate(CHOICES[0], rng) in POOL


def test_mutations_in_a_pool_of_distinct_cells() -> None:
    """A neighbour's matrix is seldom the pool's own writing of that cell; its representative is."""
    rng = Random(1)
    pool = tuple(sorted({NB101.canonical(NB101.sample(rng)) for _ in range(2000)}))
    task = asking(NB101, Budget(queries=1), pool)
    for arch in pool[::200]:
        child = task.mutate(arch, rng)
        assert child in task.members
        assert child != arch


def test_a_method_that_needs_scores_says_so() -> None:
    with pytest.raises(InputError, match="hnas ranks architectures by their scores: give it a store of scores"):
        asking(NB201, Budget(queries=1)).known_scores("hnas")
    with pytest.raises(InputError, match="give it a store of scores"):
        asking(NB201, Budget(queries=1), scores=ScoreTable.of([], {})).known_scores("hnas")


def test_a_pool_of_one() -> None:
    one = Architecture("nb201", (0,) * 6)  # disconnected
    result = ask(RegularisedEvolution(), asking(NB201, Budget(queries=9), (one,)), value, seed=0)
    assert result.chosen == (one,)
