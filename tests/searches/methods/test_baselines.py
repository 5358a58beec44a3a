"""Searches that learn from trainings only: random search, evolution, REINFORCE, BOHB."""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from initio import InputError
from initio.records import Architecture, Observation, Query
from initio.searches import Answer, Budget, QuerySearch
from initio.searches.methods.bohb import Bohb, Density, brackets
from initio.searches.methods.evolution import RegularisedEvolution
from initio.searches.methods.random_search import RandomSearch, draw_new
from initio.searches.methods.reinforce import Policy, Reinforce
from initio.spaces import NB201, Decision
from tests.searches.asking import ask, asking

SHARED = Path(os.environ.get("INITIO_DATA") or Path(__file__).parents[4] / "shared" / "data")
needs_data = pytest.mark.skipif(not (SHARED / "nb201_tss.npz").is_file(), reason=f"no benchmark tables in {SHARED}")

ALL = tuple(NB201.architectures())
SEARCHES: list[QuerySearch] = [RandomSearch(), RegularisedEvolution(), Reinforce(), Bohb()]
TARGET = (3, 2, 1, 3, 0, 3)


def matches(query: Query) -> Observation:
    """How many decisions are as in the target."""
    same = sum(a == b for a, b in zip(query.architecture.choices, TARGET, strict=True))
    return Observation(float(same), 1.0)


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)
def test_same_seed_same_answer(search: QuerySearch) -> None:
    task = asking(NB201, Budget(queries=30), ALL)
    first, again, other = (ask(search, task, matches, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert first.steps != other.steps
    assert first.method == search.name


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)
def test_without_a_pool_the_whole_space_is_searched(search: QuerySearch) -> None:
    result = ask(search, asking(NB201, Budget(queries=20)), matches, seed=0)
    assert result.cost.queries == 20


@pytest.mark.parametrize("search", [RandomSearch(), RegularisedEvolution(4, 2), Bohb()], ids=lambda s: s.name)
def test_a_small_pool_is_exhausted_and_the_best_found(search: QuerySearch) -> None:
    pool = tuple(arch for arch in ALL if arch.choices[2:] == TARGET[2:])  # 25, and neighbours of each other
    result = ask(search, asking(NB201, Budget(queries=1000), pool), matches, seed=0)
    assert result.cost.queries == 25
    assert result.best.choices == TARGET


def test_reinforce_stays_in_the_pool() -> None:
    pool = ALL[::3]  # rejection finds its members quickly
    answers = {arch: Answer(matches(Query(arch)).value or 0.0) for arch in pool}
    steps = Reinforce(lr=1.0).propose(asking(NB201, Budget(queries=9999), pool), 0)
    query = next(steps)
    for _ in range(500):
        assert query.architecture in answers
        query = steps.send(answers[query.architecture])


@pytest.mark.parametrize("search", [RegularisedEvolution(), Reinforce(lr=0.1), Bohb()], ids=lambda s: s.name)
def test_learning_beats_chance(search: QuerySearch) -> None:
    task = asking(NB201, Budget(queries=60), ALL)

    def mean(search: QuerySearch) -> float:
        found = (ask(search, task, matches, seed=seed).best for seed in range(6))
        return float(np.mean([matches(Query(arch)).value for arch in found]))

    assert mean(search) > mean(RandomSearch())


def test_draws_are_distinct_and_complete() -> None:
    task, rng, seen = asking(NB201, Budget(queries=1), ALL[:40]), Random(0), set[Architecture]()
    while (arch := draw_new(task, rng, seen)) is not None:
        assert arch not in seen
        seen.add(arch)
    assert seen == set(ALL[:40])
    almost = set(ALL[1:])
    assert draw_new(asking(NB201, Budget(queries=1)), rng, almost) == ALL[0]  # listed, not guessed


def test_evolution_forgets_the_oldest() -> None:
    """The best of all is the oldest; when it has left, no child descends from it any more."""
    task = asking(NB201, Budget(queries=100), ALL)
    steps = RegularisedEvolution(population=2, sample=2).propose(task, 0)
    announced = next(steps)
    first = next(steps).architecture
    assert [query.architecture for query in announced.queries] == [first, steps.send(Answer(99.0)).architecture]
    asked = [steps.send(Answer(0.0)).architecture for _ in range(10)]
    distances = [sum(a != b for a, b in zip(arch.choices, first.choices, strict=True)) for arch in asked]
    assert distances[0] == 1  # the child of the best
    assert max(distances[2:]) > 1


def test_evolution_does_not_end_in_a_pool_with_few_neighbours() -> None:
    """A hundred cells of 15,625: a population's neighbours are soon all known, and more decisions change at once."""
    pool = tuple(Random(0).sample(list(ALL), 100))
    asked = ask(RegularisedEvolution(), asking(NB201, Budget(queries=24), pool), matches, seed=0).steps
    assert len(asked) == 24  # children of one change alone end after 16


def test_policy_gradient_is_that_of_the_log_probability() -> None:
    policy = Policy(NB201.decisions)
    rng = np.random.default_rng(0)
    policy.logits = [rng.standard_normal(5) for _ in range(6)]
    arch = NB201.architecture(*TARGET)

    def log_p() -> float:
        return float(sum(np.log(p[c]) for p, c in zip(policy.probabilities, arch.choices, strict=True)))

    slopes, before, step = policy.slopes(arch), log_p(), 1e-6
    for k, option in ((0, 3), (0, 1), (5, 4)):
        policy.logits[k][option] += step
        assert (log_p() - before) / step == pytest.approx(slopes[k][option], abs=1e-5)
        policy.logits[k][option] -= step


def test_adam_first_step_has_the_size_of_the_learning_rate() -> None:
    policy = Policy(NB201.decisions)
    policy.ascend([np.array([3.0, -0.2, 0, 0, 0])] * 6, lr=0.01)
    np.testing.assert_allclose(policy.logits[0], [0.01, -0.01, 0, 0, 0], atol=1e-8)


def test_brackets_are_hyperbands() -> None:
    """η = 3, s_max = 4: the sizes of the table in the Hyperband paper, ⌈5/(s + 1) · 3^s⌉ to start with."""
    found = brackets([1, 3, 9, 27, 81])
    assert [rungs[0][1] for rungs in found] == [81, 34, 15, 8, 5]
    assert found[0] == [(1, 81), (3, 27), (9, 9), (27, 3), (81, 1)]


def test_bohb_promotes_the_best() -> None:
    task = asking(NB201, Budget(queries=13), ALL, epochs=(4, 12, 36))
    result = ask(Bohb(), task, matches, seed=0)
    steps = result.steps
    assert [step.epochs for step in steps] == [4] * 9 + [12] * 3 + [36]
    short = sorted((step.value for step in steps[:9]), reverse=True)
    assert [step.value for step in steps[9:12]] == short[:3]
    assert steps[12].value == short[0]


def test_density_is_a_distribution() -> None:
    decisions = (Decision("a", ("x", "y", "z")), Decision("b", ("x", "y")), Decision("c", ("only",)))
    density = Density(np.array([[0, 1, 0], [0, 0, 0], [2, 1, 0]]), decisions, 0.01)
    everything = [(a, b, 0) for a in range(3) for b in range(2)]
    p = {choices: np.exp(density.log(choices)) for choices in everything}
    assert sum(p.values()) == pytest.approx(1)
    assert max(p, key=p.__getitem__) == (0, 1, 0)


def test_settings_are_checked() -> None:
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: RegularisedEvolution(2, 3), "population must be at least sample, 3, not 2"),
        (lambda: RegularisedEvolution(2, 0), "sample must be at least 1, not 0"),
        (lambda: Reinforce(lr=0), "lr must be a positive number, not 0"),
        (lambda: Reinforce(momentum=1), "momentum must be in \\[0, 1\\), not 1"),
        (lambda: Bohb(samples=0), "samples must be at least 1, not 0"),
        (lambda: Bohb(random_fraction=2), "random_fraction must be in \\[0, 1\\], not 2"),
        (lambda: Bohb(good=0), "good must be in \\(0, 1\\), not 0"),
        (lambda: Bohb(bandwidth_factor=-1), "bandwidth_factor must be a positive number, not -1"),
        (lambda: Bohb(min_bandwidth=0), "min_bandwidth must be in \\(0, 1\\], not 0"),
    ]
    for make, message in wrong:
        with pytest.raises(InputError, match=message):
            make()


@needs_data
@pytest.mark.parametrize(
    ("search", "mean", "std"),
    [(RandomSearch(), 93.70, 0.36), (RegularisedEvolution(), 93.92, 0.30), (Reinforce(), 93.85, 0.37)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_published_accuracy_at_12000_seconds(search: QuerySearch, mean: float, std: float) -> None:
    """HNAS, Table 4, CIFAR-10: 12-epoch validation selects, 200-epoch test reports."""
    table = np.load(SHARED / "nb201_tss.npz", allow_pickle=False)
    pool = tuple(Architecture("nb201", tuple(map(int, ops))) for ops in table["ops"])
    row = {arch: number for number, arch in enumerate(pool)}
    validation, seconds, test = table["val12_c10"], table["time200_c10"] * 12 / 200, table["test_c10_nb201"]

    def train(query: Query) -> Observation:
        number = row[query.architecture]
        return Observation(float(validation[number]), float(seconds[number]))

    task = asking(NB201, Budget(seconds=12_000), pool)
    found = [ask(search, task, train, seed=seed).best for seed in range(30)]
    assert np.mean([test[row[arch]] for arch in found]) == pytest.approx(mean, abs=std)
