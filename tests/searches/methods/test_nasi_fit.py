import re
from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from scipy.stats import rankdata

from initio.data import load
from initio.errors import InputError
from initio.records import Architecture
from initio.searches import Limits, Problem, drive
from initio.searches.methods.nasi_fit import Measured, NasiFit, TraceFit, traces
from initio.searches.models.additive import OWN, design, regress
from initio.searches.traces import penalised
from initio.spaces import DARTS, NB201, NetworkSettings, get_space

TINY = NetworkSettings(channels=2, cells=1, shape=(3, 8, 8))
PROBLEM = Problem(NB201, load("noise:3x8x8:10"), TINY, batch_size=8)


def test_the_same_seed_gives_the_same_result_and_another_seed_another_trace() -> None:
    search = NasiFit(steps=6)
    first = drive(search, PROBLEM, seed=0)
    assert drive(search, PROBLEM, seed=0) == first
    assert drive(search, PROBLEM, seed=1).steps != first.steps


@pytest.mark.parametrize("rows", [0, 4, 6])
def test_a_resumed_search_equals_an_uninterrupted_one(rows: int) -> None:
    search, heard = NasiFit(steps=6), list[Measured]()
    whole = drive(search, PROBLEM, seed=2)
    assert len(whole.steps) == search.n_steps(PROBLEM) == 6
    resumed = drive(search, PROBLEM, seed=2, done=whole.steps[:rows], on_step=heard.append)
    assert resumed == whole
    assert tuple(heard) == whole.steps[rows:]


def world(problem: Problem, n: int) -> tuple[list[Architecture], np.ndarray, np.ndarray, np.ndarray]:
    """Architectures, their design, and T_c and T_o that are products over the options."""
    rng, numbers = Random(0), np.random.default_rng(0)
    archs = [problem.draw_admitted(rng) for _ in range(n)]
    X = design(problem, archs)
    T_c, T_o = (np.exp(X @ numbers.normal(size=X.shape[1])) for _ in range(2))
    return archs, X, T_c, T_o


@pytest.mark.parametrize("space", [NB201, DARTS], ids=lambda space: space.name)
def test_the_regression_recovers_slopes_that_are_there(space: object) -> None:
    problem = replace(PROBLEM, space=space)  # type: ignore[arg-type]
    archs, _, T_c, T_o = world(problem, 600)
    search = NasiFit(ridge=1e-6)
    fit = search.fit(problem, archs, list(T_c + T_o), list(T_c))
    assert min(fit.sums.predicted) > 0.9999
    assert fit.nu == pytest.approx(np.exp(np.log(T_c + T_o).mean()))
    assert fit.predict(problem, archs) == pytest.approx(penalised(T_c, T_c + T_o, 1.0, fit.nu), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("counted", ["chosen", "all"])
def test_climbing_finds_the_best_predicted_of_the_whole_space(counted: str) -> None:
    archs, _, T_c, T_o = world(PROBLEM, 100)
    fit = NasiFit(counted=counted).fit(PROBLEM, archs, list(T_c + T_o), list(T_c))  # type: ignore[arg-type]
    sound = [arch for arch in NB201.architectures() if PROBLEM.accepts(arch)]
    assert fit.predict(PROBLEM, [fit.best(PROBLEM, archs)])[0] == pytest.approx(fit.predict(PROBLEM, sound).max())


def test_parts_of_the_trace_find_what_a_fit_of_the_objective_misses() -> None:
    """R has a kink: a sum over options fitted to R itself takes a worse architecture than sums fitted to its parts."""
    archs, X, T_c, T_o = world(PROBLEM, 300)
    fit = NasiFit().fit(PROBLEM, archs, list(T_c + T_o), list(T_c))
    sound = [arch for arch in NB201.architectures() if PROBLEM.accepts(arch)]
    by_parts = fit.best(PROBLEM, archs)
    ranks = rankdata(penalised(T_c, T_c + T_o, 1.0, fit.nu))
    by_itself = sound[int(np.argmax(regress(X, ranks[None], 1.0).of(design(PROBLEM, sound))[0]))]
    exact = NasiFit(ridge=1e-9).fit(PROBLEM, archs, list(T_c + T_o), list(T_c))
    parts, itself = exact.predict(PROBLEM, [by_parts, by_itself])
    assert parts > itself
    assert parts >= 0.9 * exact.predict(PROBLEM, sound).max()


def test_noise_is_not_predicted() -> None:
    """In darts the options are more than the measurements: what they explain of these rows says nothing."""
    problem, rng = replace(PROBLEM, space=DARTS), Random(0)
    X = design(problem, [problem.draw_admitted(rng) for _ in range(150)])
    assert X.shape[1] > 150
    assert regress(X, np.random.default_rng(0).normal(size=(2, 150)), 1.0).predicted.max() < 0


def test_a_shared_row_counts_operations_cell_by_cell_and_names_the_edges_that_are_there() -> None:
    problem, arch = replace(PROBLEM, space=DARTS), DARTS.sample(Random(0))
    (row,) = design(problem, [arch], shared=True)
    (plain,) = design(problem, [arch])
    own, counts, there = np.split(row, [196, 196 + 14])
    assert own.tolist() == (OWN * plain).tolist()
    genotype = DARTS.genotype(arch)
    seen = [Counter(op for op, _ in pairs) for pairs in (genotype.normal, genotype.reduce)]
    assert sorted(counts[counts > 0]) == sorted(n for counter in seen for n in counter.values())
    assert counts.sum() == there.sum() == 16
    assert there.tolist() == plain.reshape(28, 7).sum(axis=1).tolist()


def test_shared_slopes_predict_more_where_an_operation_does_alike_in_all_places_of_a_cell() -> None:
    problem, rng, numbers = replace(PROBLEM, space=DARTS), Random(0), np.random.default_rng(0)
    archs = [problem.draw_admitted(rng) for _ in range(150)]
    plain, shared = (design(problem, archs, shared=flag) for flag in (False, True))
    logs = shared[:, 196:210] @ numbers.normal(size=(14, 2)) + 0.5 * numbers.normal(size=(150, 2))
    with_shared, without = (regress(X, logs.T, 1.0).predicted for X in (shared, plain))
    assert with_shared.min() > 0.85
    assert without.max() < with_shared.min() - 0.15
    fit = NasiFit(shared=True).fit(problem, archs, list(np.exp(logs).sum(axis=1)), list(np.exp(logs[:, 0])))
    best = fit.best(problem, archs)
    assert fit.predict(problem, [best])[0] >= fit.predict(problem, archs).max()
    assert set(fit.ties(problem, best)) < {decision.name for decision in DARTS.decisions}


@pytest.mark.parametrize(("space", "n"), [(NB201, 200), (DARTS, 150)], ids=["nb201", "darts"])
def test_two_of_three_differences_lie_within_their_standard_error(space: object, n: int) -> None:
    """Slopes and noise from the prior, many times; the parts' noise is correlated, and ν lies in the middle."""
    problem, rng, numbers = replace(PROBLEM, space=space), Random(0), np.random.default_rng(0)  # type: ignore[arg-type]
    archs = [problem.draw_admitted(rng) for _ in range(n)]
    X = design(problem, archs)
    near = [arch for arch in problem.space.neighbours(archs[0]) if problem.sound(arch)]
    around, within = design(problem, [archs[0], *near]), list[np.ndarray]()
    for _ in range(30):
        w, both = 0.3 * numbers.normal(size=(2, X.shape[1])), numbers.normal(size=n)
        logs = w @ X.T + 0.3 * (0.8 * both + 0.6 * numbers.normal(size=(2, n)))
        fit = TraceFit(regress(X, logs, 1.0), 1.0, float(np.exp(np.log(np.exp(logs).sum(axis=0)).mean())))
        truth = fit._objective(w @ around.T)
        R = fit.of(around)
        within.append(np.abs((R[0] - R[1:]) - (truth[0] - truth[1:])) < fit.errors(around))
    assert 0.55 < np.mean(within) < 0.8


def test_noise_alone_leaves_ties_and_clear_slopes_none() -> None:
    rng, noise = Random(1), np.random.default_rng(0)
    archs = [PROBLEM.draw_admitted(rng) for _ in range(60)]
    T_c, T_o = np.exp(noise.normal(size=(2, 60)))
    fit = NasiFit().fit(PROBLEM, archs, list(T_c + T_o), list(T_c))
    assert fit.ties(PROBLEM, fit.best(PROBLEM, archs))
    archs, _, T_c, _ = world(PROBLEM, 300)
    clear = NasiFit(ridge=1e-9, counted="all").fit(PROBLEM, archs, list(T_c))
    assert not clear.ties(PROBLEM, clear.best(PROBLEM, archs))


def test_what_a_limit_forbids_is_no_tie() -> None:
    rng, noise = Random(1), np.random.default_rng(0)
    limited = replace(PROBLEM, limits=Limits(max_params=100_000))  # one convolution at most
    archs = [limited.draw_admitted(rng) for _ in range(60)]
    fit = NasiFit(counted="all").fit(limited, archs, list(np.exp(noise.normal(size=60))))
    chosen = fit.best(limited, archs)
    open_here = fit.ties(limited, chosen)
    assert set(open_here) < set(fit.ties(PROBLEM, chosen))


def test_nothing_disconnected_and_no_none_is_chosen() -> None:
    for seed in range(3):
        chosen = drive(NasiFit(steps=5), PROBLEM, seed=seed).best
        assert NB201.connected(chosen)
        assert 0 not in chosen.choices


def test_limits_are_kept_or_refused() -> None:
    limited = replace(PROBLEM, limits=Limits(max_params=400_000))
    result = drive(NasiFit(steps=12), limited, seed=0)
    assert limited.accepts(result.best)
    with pytest.raises(InputError, match=r"found that has at most 1 parameters: the smallest has [\d,]+ parameters"):
        drive(NasiFit(steps=2), replace(PROBLEM, limits=Limits(max_params=1)), seed=0)


def test_leading_is_the_best_predicted_of_those_measured() -> None:
    search = NasiFit(steps=12)
    result = drive(search, PROBLEM, seed=0)
    leading = search.leading(PROBLEM, result.steps)
    assert leading is not None
    assert leading in [step.architecture for step in result.steps]
    assert search.leading(PROBLEM, result.steps[:1]) is None


def test_architectures_without_a_trace_are_left_out() -> None:
    rng = Random(3)
    archs, numbers = [PROBLEM.draw_admitted(rng) for _ in range(20)], np.random.default_rng(0)
    T: list[float | None] = list(np.exp(numbers.normal(size=20)))
    search = NasiFit(counted="all")
    with_gap = search.fit(PROBLEM, [*archs, PROBLEM.draw_admitted(rng)], [*T, None])
    assert with_gap.predict(PROBLEM, archs) == pytest.approx(search.fit(PROBLEM, archs, T).predict(PROBLEM, archs))
    with pytest.raises(InputError, match="fewer than two"):
        search.fit(PROBLEM, archs[:3], [None, 1.0, None])


def test_the_penalty_clips_at_nu() -> None:
    T = np.array([1.0, 2.0, 3.0, 100.0])
    assert NasiFit(mu=1, nu="2.5").objective(T).max() == pytest.approx(np.log(2.5))
    assert NasiFit(mu=1, nu="fixed").objective(T).max() == pytest.approx(np.log(T.mean()))
    assert NasiFit(mu=1, nu="geometric").objective(T).max() == pytest.approx(np.log(T).mean())
    assert NasiFit(nu="none").objective(T) == pytest.approx(np.log(T))


# --- T of the chosen operations alone --------------------------------------------------------------------------------

CELLS = replace(PROBLEM, space=get_space("nb1shot1-s1"), network=replace(TINY, channels=4))


def test_the_chosen_trace_is_the_part_of_the_trace_that_the_blocks_hold() -> None:
    import torch
    import torch.nn.functional as F  # noqa: N812

    network, batch = CELLS.build(CELLS.draw_admitted(Random(2)), 0), CELLS.batch(0)
    T, T_c, flag = traces(CELLS.space, network, batch)
    weights = {name: p for name, p in network.named_parameters() if p.ndim > 1}
    loss = F.cross_entropy(network.train()(torch.from_numpy(batch.x.copy())), torch.from_numpy(batch.y.copy()))
    gradients = torch.autograd.grad(loss, list(weights.values()))
    squares = {name: g.square().sum().item() for name, g in zip(weights, gradients, strict=True)}
    assert pytest.approx(sum(squares.values()), rel=1e-4) == T
    assert T_c == pytest.approx(sum(value for name, value in squares.items() if ".vertex_" in name), rel=1e-4)
    assert T_c < T  # type: ignore[operator]
    assert not flag


def test_the_trace_is_penalised_and_its_chosen_part_rewarded() -> None:
    T, T_c = np.array([5.0, 10.0, 40.0]), np.array([2.0, 4.0, 30.0])
    search = NasiFit(nu="10")
    assert search.objective(T, T_c) == pytest.approx(np.log([2.0, 4.0, 2.0]))  # 30 − (40 − 10) = 0 counts as 2


def test_a_cell_of_poolings_alone_counts_as_the_smallest() -> None:
    archs, _, T_c, T_o = world(PROBLEM, 40)
    T_c[0] = 0
    fit = NasiFit().fit(PROBLEM, archs, list(T_c + T_o), list(T_c))
    assert np.isfinite(fit.predict(PROBLEM, archs)).all()


def test_poolings_alone_have_nothing_to_reward() -> None:
    archs, _, _, T_o = world(PROBLEM, 10)
    with pytest.raises(InputError, match="no measured architecture has a chosen operation with parameters"):
        NasiFit().fit(PROBLEM, archs, list(T_o), [0.0] * 10)


def test_the_reason_says_what_is_known() -> None:
    search = NasiFit(steps=6)
    assert "of log T_c and" in drive(search, CELLS, seed=0).why
    paper = NasiFit(steps=6, counted="all", nu="none")
    result = drive(paper, CELLS, seed=0)
    assert result.why.startswith("largest predicted T,")
    assert re.search(r"; the runner-up has .+ instead of .+ at .+ and is [\d.e-]+ behind with a", result.why)
    assert result.steps[0].chosen_trace is None


@pytest.mark.parametrize(
    "wrong",
    [{"counted": "some"}, {"nu": "median"}, {"steps": 1}, {"nu": "0"}, {"nu": "banana"}, {"mu": -1}, {"ridge": 0}],
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        NasiFit(**wrong)  # type: ignore[arg-type]
