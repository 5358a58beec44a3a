"""The robust hybrid on a made-up world: it learns, it never asks twice, and bad metrics do not mislead it."""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from initio.errors import InputError
from initio.records import Architecture, Observation, Query
from initio.scores.table import ScoreTable
from initio.searches import Budget
from initio.searches.methods.random_search import RandomSearch
from initio.searches.methods.robust import FULL_GRID, LISTED, Learner, RankedPool, Robust, in_doubt
from initio.searches.models.model_average import NOTHING, REVERSED, SHARP, Posterior
from initio.spaces import NB201
from tests.searches.asking import ask, asking

WEIGHTS = np.array([0.0, 1.5, 2.0, 3.0, 0.5])  # of an edge's operation
POOL = tuple(Random(0).sample(list(NB201.architectures()), 400))


def quality(arch: Architecture) -> float:
    return float(WEIGHTS[list(arch.choices)].sum() + 0.3 * (arch.choices[3] == 1) * (arch.choices[0] == 3))


def evaluate(query: Query) -> Observation:
    return Observation(quality(query.architecture), 1.0)


def columns() -> dict[str, np.ndarray]:
    truth = np.array([quality(arch) for arch in POOL])
    noise = np.random.default_rng(0)
    return {"trace": truth + noise.normal(size=len(POOL)), "naswot": truth + 2 * noise.normal(size=len(POOL))}


def best(search: object, seed: int, scores: ScoreTable | None, queries: int = 12) -> float:
    task = asking(NB201, Budget(queries=queries), POOL, scores)
    return quality(ask(search, task, evaluate, seed=seed).best)  # type: ignore[arg-type]


def test_it_beats_random_search_with_scores_and_without() -> None:
    scores = ScoreTable.of(POOL, columns())
    chance = np.mean([best(RandomSearch(), seed, None) for seed in range(3)])
    assert np.mean([best(Robust(), seed, None) for seed in range(3)]) > chance
    assert np.mean([best(Robust(), seed, scores) for seed in range(3)]) > chance + 0.5


def test_bad_metrics_do_not_mislead_it() -> None:
    good = columns()
    holes = np.where(np.random.default_rng(1).random(len(POOL)) < 0.3, np.nan, good["trace"])
    bad = {"constant": np.ones(len(POOL)), "holes": holes, "wrong": -good["naswot"]}
    with_bad = np.mean([best(Robust(), seed, ScoreTable.of(POOL, {**good, **bad})) for seed in range(3)])
    without = np.mean([best(Robust(), seed, ScoreTable.of(POOL, good)) for seed in range(3)])
    assert with_bad >= without - 0.3
    nothing = ScoreTable.of(POOL, {"empty": np.full(len(POOL), np.nan)})
    assert best(Robust(), 0, nothing) > 0


def test_nothing_is_asked_twice_and_the_same_seed_asks_the_same() -> None:
    task = asking(NB201, Budget(queries=15), POOL, ScoreTable.of(POOL, columns()))
    first = ask(Robust(), task, evaluate, seed=3)
    asked = [step.architecture for step in first.steps]
    assert len(set(asked)) == len(asked) == 15
    assert ask(Robust(), task, evaluate, seed=3) == first
    assert ask(Robust(), task, evaluate, seed=3, done=first.steps[:7]) == first


@pytest.mark.parametrize("queries", [1, 2, 3])
def test_small_budgets_and_pools(queries: int) -> None:
    few = POOL[:3]
    scores = ScoreTable.of(few, {"trace": [1.0, 2.0, 3.0]})
    result = ask(Robust(), asking(NB201, Budget(queries=queries), few, scores), evaluate, seed=0)
    assert len(result.steps) == queries
    more = ask(Robust(), asking(NB201, Budget(queries=9), few, scores), evaluate, seed=0)
    assert len(more.steps) == 3  # the pool has no more


def test_a_pool_that_is_scored_in_part() -> None:
    scores = ScoreTable.of(POOL[:50], {name: values[:50] for name, values in columns().items()})
    assert best(Robust(), 0, scores) > np.median([quality(arch) for arch in POOL])


def test_the_prior_knows_the_direction_of_a_metric_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "smaller_is_better.py").write_text(
        "from dataclasses import replace\nfrom initio.metrics import METRICS\n"
        "Mine = replace(METRICS['trace'], higher_is_better=False)\n"
    )
    numbers = np.arange(len(POOL), dtype=float)
    for metric, first in (("smaller_is_better:Mine", 0), ("kappa", 0), ("trace", -1), ("nobody_knows", -1)):
        task = asking(NB201, Budget(queries=1), POOL, ScoreTable.of(POOL, {metric: numbers}))
        assert ask(Robust(), task, evaluate, seed=0).best == POOL[first]


def test_metrics_that_mislead_cost_little_and_not_for_long() -> None:
    turned = ScoreTable.of(POOL, {name: -values for name, values in columns().items()})
    seeds = range(8)
    for queries, behind in ((5, 0.8), (12, 0.0)):
        chance = np.mean([best(RandomSearch(), seed, None, queries) for seed in range(40)])
        assert np.mean([best(Robust(), seed, turned, queries) for seed in seeds]) > chance - behind


def test_each_training_acts_upon_one_hypothesis_and_several_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[np.ndarray] = []
    decide = Learner.most_promising

    def seen(self: Learner, posterior: Posterior, candidates: list[int], values: dict[int, float]) -> int:
        asked.append(posterior.beliefs)
        assert {model.hypothesis for model in posterior.models} == {int(posterior.beliefs.argmax())}
        return decide(self, posterior, candidates, values)

    monkeypatch.setattr(Learner, "most_promising", seen)
    for seed in range(3):
        best(Robust(), seed, ScoreTable.of(POOL, columns()), 12)
    assert all(sorted(beliefs) == [0, 0, 0, 1] for beliefs in asked)
    assert len({int(beliefs.argmax()) for beliefs in asked}) > 1


def test_a_longer_search_begins_as_a_shorter_one() -> None:
    scores = ScoreTable.of(POOL, columns())
    short, long = (
        ask(Robust(), asking(NB201, Budget(queries=queries), POOL, scores), evaluate, seed=1).steps
        for queries in (4, 9)
    )
    assert long[:4] == short


def test_lists_are_of_the_given_pool_alone() -> None:
    few = POOL[:40]
    scores = ScoreTable.of(few, {"trace": np.arange(40.0)})
    steps = ask(Robust(), asking(NB201, Budget(queries=15), (), scores), evaluate, seed=0).steps
    assert all(step.architecture in few for step in steps[:LISTED])
    assert any(step.architecture not in few for step in steps)


def test_the_best_by_the_prior_then_two_by_chance() -> None:
    place = {arch: k for k, arch in enumerate(POOL)}
    scores = ScoreTable.of(POOL, {"trace": np.arange(400.0)})
    runs = [ask(Robust(), asking(NB201, Budget(queries=3), POOL, scores), evaluate, seed=s).steps for s in range(6)]
    places = np.array([[place[step.architecture] for step in steps] for steps in runs])
    assert places[:, 0].tolist() == [399] * 6
    assert (np.ptp(places[:, 1:], axis=0) > 100).all()


def test_no_isomorphic_cell_is_trained_again() -> None:
    task = asking(NB201, Budget(queries=20), POOL, ScoreTable.of(POOL, columns()))
    asked = [step.architecture for step in ask(Robust(), task, evaluate, seed=0).steps]
    assert len({NB201.canonical(arch) for arch in asked}) == len(asked)


def test_candidates_are_of_the_hypothesis_that_was_drawn() -> None:
    scores = ScoreTable.of(POOL, {"trace": np.arange(400.0)})
    pool = RankedPool(asking(NB201, Budget(queries=9), POOL, scores), 0, Random(0))
    around = set(pool.neighbours([200], Random(0)))
    for hypothesis in (SHARP, REVERSED):
        named = set(pool.lists[hypothesis][:10])
        found = set(Robust(candidates=10)._candidates(pool, hypothesis, {200: 1.0}, Random(0)))
        assert found <= named | around
        assert found & named


def test_hopeless_models_are_weighed_no_more_after_many_trainings() -> None:
    learner = Learner(RankedPool(asking(NB201, Budget(queries=99), POOL, ScoreTable.of(POOL, columns())), 0, Random(0)))
    values = {k: quality(arch) for k, arch in enumerate(POOL[:FULL_GRID])}
    before = learner.models
    learner.learn(dict(list(values.items())[:-1]))
    assert learner.models == before
    posterior = learner.learn(values)
    assert 0 < len(learner.models) < len(posterior.models) < len(before)


def test_when_the_model_leaves_a_training_to_a_list() -> None:
    start = {0: SHARP, 1: NOTHING}
    assert not in_doubt({0: 2.0, 1: 1.0, 2: 1.5}, start)
    assert in_doubt({0: 2.0, 1: 1.0, 2: 1.5, 3: 1.0}, start)  # two without a gain, after two of lists
    assert not in_doubt({0: 2.0, 1: 1.0, 2: 1.5, 3: 3.0}, start)
    assert in_doubt({0: 1.0, 1: 2.0, 2: 1.5}, start)  # chance leads
    assert not in_doubt({0: 1.0, 1: 2.0, 2: 1.5, 4: 1.0}, {**start, 4: SHARP})


def test_too_few_candidates_are_refused() -> None:
    with pytest.raises(InputError):
        Robust(candidates=3)
