"""The voting search: what it measures, what it takes, and where it works."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from torch import nn

import initio
from initio.analysis.ranking import log_ranks
from initio.data import load
from initio.errors import InputError
from initio.metrics import evaluate
from initio.records import Architecture, Batch
from initio.searches import Limits, Problem, drive
from initio.searches.methods import votes
from initio.searches.methods.votes import CHOOSERS, Properties, VotedFinalist, VotedStep, VotingSearch, climbed, ranking
from initio.searches.models.additive import design, regress
from initio.searches.restarts import stability
from initio.spaces import NB101, NB201, NetworkSettings
from initio.system.executors import Processes

THIN = NetworkSettings(channels=2, cells=1, shape=(3, 8, 8))
PROBLEM = Problem(NB201, load("noise:3x8x8:10"), THIN, batch_size=8)
SMALL = VotingSearch(first=8, rounds=2, each=3)


def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that anyone can compute: naswot and FLOPs count 3x3 convolutions, T punishes a cell of nothing else."""

    def measure(problem: Problem, task: tuple[Architecture, int, Batch]) -> Properties:
        arch = task[0]
        threes = sum(option == 3 for option in arch.choices) + 0.1 * sum(option == 2 for option in arch.choices)
        return Properties(threes, 1000.0 if threes == 6 else 10 - threes, threes)

    monkeypatch.setattr(votes, "_properties", measure)


def test_rounds_measure_what_was_not_measured_and_the_choice_is_the_best_of_all() -> None:
    result = drive(SMALL, PROBLEM, seed=0)
    assert [step.round for step in result.steps] == [0] * 8 + [1] * 3 + [2] * 3
    networks = [NB201.canonical(step.architecture) for step in result.steps]
    assert len(set(networks)) == len(networks)
    assert result.best == SMALL.leading(PROBLEM, result.steps)


def test_the_fit_finds_the_corner_and_the_shares_judge_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of predictions points at six 3x3 convolutions, whose trace is the largest: the choice has five."""
    by_hand(monkeypatch)
    result = drive(VotingSearch(first=40, rounds=1, each=40), PROBLEM, seed=1)
    assert Architecture("nb201", (3,) * 6) in [step.architecture for step in result.steps]
    assert sorted(result.best.choices)[1:] == [3] * 5
    assert "first of 80 measured by the log-shares of naswot, FLOPs and a small trace" in result.why


def test_values_are_those_of_the_metrics_and_of_the_cell_as_written() -> None:
    arch = NB201.architecture(3, 1, 2, 3, 1, 4)
    naswot, T, flops, flag = SMALL.measure(PROBLEM, arch, 7)
    found = evaluate(PROBLEM.build(arch, 7), PROBLEM.batch(7), ("naswot", "nasi"))
    assert (naswot, T) == (found["naswot"].value, found["nasi"].value)
    assert flops == NB201.cost(arch, replace(THIN, prune=False)).flops
    assert flag == ""


def test_the_signs_are_those_that_the_page_gives_reasons_for() -> None:
    assert {member.metric: member.sign for member in CHOOSERS} == {"naswot": 1, "flops": 1, "nasi": -1}
    best = Properties(3.0, 1.0, 3.0)
    assert ranking([Properties(1.0, 2.0, 1.0), best, Properties(2.0, 3.0, 2.0)], np.ones(3, bool)).order[0] == 1


def test_a_small_trace_is_a_condition_and_no_goal() -> None:
    """Below the median trace only naswot and FLOPs count; above it the trace does."""
    pool = [Properties(float(k), float(k), float(k)) for k in range(9)]
    found = ranking(pool, np.ones(9, bool))
    values = dict(zip(range(9), found.votes[:, 2], strict=True))
    assert len({values[k] for k in range(5)}) == 1
    assert values[5] > values[6] > values[8]


def test_a_noisy_trace_is_drawn_towards_what_the_decisions_predict() -> None:
    """T that the decisions predict is taken as measured; of pure noise, their prediction is all that is left."""
    rng = Random(0)
    archs = [NB201.sample(rng) for _ in range(120)]
    threes = [float(sum(option == 3 for option in arch.choices)) for arch in archs]

    def judged(traces: list[float]) -> tuple[np.ndarray, np.ndarray, float]:
        rows = enumerate(zip(archs, threes, traces, strict=True))
        steps = [VotedStep(k, arch, 0, count, T, count) for k, (arch, count, T) in rows]
        X = design(PROBLEM, archs, **votes.DESIGN)
        fit = regress(X, np.log([traces]), 1.0)
        heard = VotingSearch()._judged(PROBLEM, steps).votes[:, 2]
        return heard, log_ranks(-fit.of(X)[0]), float(fit.predicted[0])

    heard, _, share = judged([np.exp(count) for count in threes])
    assert share > 0.8
    assert np.corrcoef(heard, np.minimum(log_ranks(-np.array(threes)), np.log(0.5)))[0, 1] > 0.95
    heard, predicted, share = judged([rng.random() for _ in archs])
    assert share < 0
    np.testing.assert_allclose(heard, np.minimum(predicted, np.log(0.5)))


def test_a_hair_of_one_goal_does_not_outweigh_much_of_another_where_the_search_has_looked() -> None:
    """Thirty near-copies lie between two in naswot; by ranks the one with far fewer FLOPs would win."""
    rng = Random(1)
    random = [Properties(rng.gauss(600, 30), 1.0, rng.lognormvariate(0, 1)) for _ in range(100)]
    largest, smaller = Properties(700.0, 1.0, 20.0), Properties(701.0, 1.0, 14.0)
    copies = [Properties(700.5, 1.0, 5.0)] * 30
    found = ranking([*random, largest, smaller, *copies], np.arange(132) < 100)
    assert found.order[:2].tolist() == [100, 101]


def test_processes_measure_the_same() -> None:
    search = VotingSearch(first=17, rounds=0)
    alone = drive(search, PROBLEM, seed=2)
    together = drive(search, replace(PROBLEM, executor=Processes(2)), seed=2)
    assert together.steps == alone.steps
    assert together.best == alone.best


def test_a_missing_member_does_not_speak_and_a_network_without_values_is_last() -> None:
    found = ranking(
        [Properties(None, None, 9.0), Properties(None, 2.0, 3.0), Properties(None, 1.0, 3.0)], np.ones(3, bool)
    )
    assert [member.metric for member in found.members] == ["flops", "nasi"]
    assert found.order.tolist()[0] != 1
    step = VotedStep(0, NB201.architecture(*[1] * 6), 0, None, None, 1.0, "no gradient")
    assert step.told() == "random, no T"


def test_climbing_finds_the_heaviest_and_looks_at_few_namesakes() -> None:
    weights = lambda archs: [float(sum(arch.choices)) for arch in archs]  # noqa: E731
    found = climbed(PROBLEM, [NB201.architecture(*[1] * 6)], weights, 60)
    assert found[0] == NB201.architecture(*[4] * 6)
    values = weights(found)
    assert values == sorted(values, reverse=True)
    start = NB101.sample(Random(3))
    same = replace(PROBLEM, space=NB101)
    flat = climbed(same, [start], lambda archs: [0.0] * len(archs), 40)
    networks = [NB101.canonical(arch) for arch in flat]
    assert max(map(networks.count, networks)) <= votes.NAMESAKES


def test_limits_hold_in_every_round() -> None:
    most = NB201.cost(NB201.architecture(*[3] * 6), PROBLEM.target).parameters // 2
    limited = replace(PROBLEM, limits=Limits(max_params=most))
    result = drive(SMALL, limited, seed=0)
    assert all(NB201.cost(step.architecture, PROBLEM.target).parameters <= most for step in result.steps)


def test_restarts_are_compared_on_common_draws() -> None:
    result = drive(SMALL.restarted(2), PROBLEM, seed=4)
    finals = [step for step in result.steps if isinstance(step, VotedFinalist)]
    assert len(finals) == 2
    assert all(len(final.properties) == 8 for final in finals)
    assert result.best in [final.architecture for final in finals]
    assert stability(result) is not None
    alone = drive(SMALL, PROBLEM, seed=4)
    assert alone.best == finals[0].architecture


def test_finalists_are_judged_on_the_scale_of_random_architectures() -> None:
    rng = Random(2)
    steps = [
        VotedStep(k, NB201.sample(rng), int(k >= 20), rng.gauss(600, 30), 1.0, rng.lognormvariate(0, 1))
        for k in range(30)
    ]
    finals = [VotedFinalist(NB201.sample(rng), (T,), (T,), naswot=(660.0,), flops=3.0) for T in (1.0, 2.0)]
    found = SMALL.restarted(2).objectives([*steps, *finals])
    pool = [step.properties for step in steps] + [its for final in finals for its in final.properties]
    values = ranking(pool, np.arange(32) < 20).values[-2:]
    assert found == [(values[0],), (values[1],)]
    assert values[0] > values[1]


def test_a_space_with_a_builder_and_a_small_one_are_searched() -> None:
    def net(width: int, depth: int, shape: tuple[int, ...], classes: int) -> nn.Module:
        sizes = [int(np.prod(shape)), *[width] * depth]
        layers = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(nn.Flatten(), *layers, nn.Linear(width, classes))

    mine = initio.space("mine", net, width=[4, 8, 16], depth=[1, 2])
    result = initio.search(mine, data="digits", batch_size=8)
    assert len(result.steps) == 6  # all that there are
    assert "first of 6 measured" in result.why
    limit = mine.cost(mine.architecture(1, 1), NetworkSettings(shape=(1, 8, 8))).parameters
    assert limit > 0


def test_an_mlp_is_searched() -> None:
    result = initio.search("mlp-2", data="digits", first=6, rounds=1, each=2, batch_size=8)
    assert result.best.space == "mlp-2"


def test_bad_settings() -> None:
    with pytest.raises(InputError, match="first must be at least 2, not 1"):
        VotingSearch(first=1)
    with pytest.raises(InputError, match="ridge must be"):
        VotingSearch(ridge=0.0)
