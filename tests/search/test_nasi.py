from dataclasses import replace
from random import Random

import numpy as np
import pytest

from initio.data import load
from initio.errors import InputError
from initio.records import Architecture, Settings
from initio.search import Limits, Nasi, Problem
from initio.search.nasi import design, traces
from initio.spaces import DARTS, NB201, NetworkSettings, get_space

TINY = NetworkSettings(channels=2, cells=1, shape=(3, 8, 8))
PROBLEM = Problem(NB201, load("noise:3x8x8:10"), TINY, batch_size=8)


def test_the_same_seed_gives_the_same_result_and_another_seed_another_trace() -> None:
    search = Nasi(steps=6, finalists=3, draws=2)
    first = search.run(PROBLEM, seed=0)
    assert search.run(PROBLEM, seed=0) == first
    assert search.run(PROBLEM, seed=1).trace != first.trace


@pytest.mark.parametrize("rows", [0, 4, 6, 9, 12])
def test_a_resumed_search_equals_an_uninterrupted_one(rows: int) -> None:
    search, heard = Nasi(steps=6, finalists=3, draws=2), list[Settings]()
    whole = search.run(PROBLEM, seed=2)
    assert len(whole.trace) == search.n_rows == 12
    resumed = search.run(PROBLEM, seed=2, rows=whole.trace[:rows], on_row=heard.append)
    assert resumed == whole
    assert tuple(heard) == whole.trace[rows:]


@pytest.mark.parametrize("space", [NB201, DARTS], ids=lambda space: space.name)
def test_the_regression_recovers_slopes_that_are_there(space: object) -> None:
    """T = exp(slopes of the options in use): the fit must find the best architecture of that world."""
    problem = replace(PROBLEM, space=space)  # type: ignore[arg-type]
    rng = Random(0)
    archs = [problem.draw(rng) for _ in range(600)]
    truth = np.random.default_rng(0).normal(size=design(problem, archs[:1]).shape[1])
    fit = Nasi(ridge=1e-6).fit(problem, archs, list(np.exp(design(problem, archs) @ truth)))
    assert fit.explained > 0.85  # ranks are a curved function of what adds up
    chosen = fit.best(problem, archs)
    assert problem.accepts(chosen)
    best_seen = max(float(value) for value in design(problem, archs) @ truth)
    assert float((design(problem, [chosen]) @ truth)[0]) >= best_seen


def test_the_finalists_are_the_best_predicted_of_the_whole_space() -> None:
    rng = Random(5)
    archs = [PROBLEM.draw(rng) for _ in range(60)]
    fit = Nasi().fit(PROBLEM, archs, list(np.exp(np.random.default_rng(0).normal(size=60))))
    found = fit.first(PROBLEM, fit.best(PROBLEM, archs), 15)
    sound = [arch for arch in NB201.architectures() if PROBLEM.accepts(arch)]
    order = np.sort(fit.predict(PROBLEM, sound))[::-1]
    networks = {NB201.canonical(arch) for arch in found}
    assert len(networks) == len(found) == 15
    values = fit.predict(PROBLEM, found)
    assert list(values) == sorted(values, reverse=True)
    assert values[0] == pytest.approx(order[0])
    better = {NB201.canonical(arch) for arch in sound if fit.predict(PROBLEM, [arch])[0] > values[-1] + 1e-12}
    assert better <= networks


def test_the_finalist_with_the_largest_measured_trace_is_chosen() -> None:
    search = Nasi(steps=8, finalists=4, draws=2)
    result = search.run(PROBLEM, seed=1)
    log_T: dict[str, list[float]] = {}
    for row in result.trace[8:]:
        log_T.setdefault(dict(row)["choices"], []).append(np.log(dict(row)["trace"]))  # type: ignore[arg-type]
    best = max(log_T, key=lambda choices: np.mean(log_T[choices]))
    assert len(log_T) == 4
    assert " ".join(map(str, result.chosen[0].choices)) == best
    assert "largest of 4 measured traces" in search.summary(PROBLEM, result)


def test_standard_errors_shrink_with_more_measurements() -> None:
    rng, noise = Random(1), np.random.default_rng(1)
    archs = [PROBLEM.draw(rng) for _ in range(400)]
    T = list(np.exp(noise.normal(size=400)))
    few, many = (Nasi().fit(PROBLEM, archs[:n], T[:n]) for n in (100, 400))
    live = [place for place in range(30) if place % 5]  # `none` is never measured
    ratio = np.array(many.error)[live].mean() / np.array(few.error)[live].mean()
    assert ratio == pytest.approx(0.5, abs=0.1)


def test_noise_alone_leaves_ties() -> None:
    rng = Random(1)
    archs = [PROBLEM.draw(rng) for _ in range(60)]
    fit = Nasi().fit(PROBLEM, archs, list(np.exp(np.random.default_rng(0).normal(size=60))))
    assert fit.ties(PROBLEM)


def test_nothing_disconnected_and_no_none_is_chosen() -> None:
    for seed in range(3):
        chosen = Nasi(steps=5, finalists=2, draws=1).run(PROBLEM, seed=seed).chosen[0]
        assert NB201.connected(chosen)
        assert 0 not in chosen.choices


def test_limits_are_kept_or_refused() -> None:
    limited = replace(PROBLEM, limits=Limits(max_params=400_000))
    result = Nasi(steps=12, finalists=3, draws=1).run(limited, seed=0)
    assert limited.accepts(result.chosen[0])
    finalists = [Architecture("nb201", tuple(map(int, str(dict(row)["choices"]).split()))) for row in result.trace[12:]]
    assert all(map(limited.accepts, finalists))
    with pytest.raises(InputError, match=r"found that has at most 1 parameters: the smallest has [\d,]+ parameters"):
        Nasi(steps=2).run(replace(PROBLEM, limits=Limits(max_params=1)), seed=0)


def test_leading_is_what_the_search_would_choose_now() -> None:
    search = Nasi(steps=12, finalists=1)
    result = search.run(PROBLEM, seed=0)
    assert search.leading(PROBLEM, result.trace) == result.chosen[0]
    assert search.leading(PROBLEM, result.trace[:1]) is None


def test_architectures_without_a_trace_are_left_out() -> None:
    rng = Random(3)
    archs = [PROBLEM.draw(rng) for _ in range(20)]
    T: list[float | None] = list(np.exp(np.random.default_rng(0).normal(size=20)))
    with_gap = Nasi().fit(PROBLEM, [*archs, PROBLEM.draw(rng)], [*T, None])
    assert with_gap == Nasi().fit(PROBLEM, archs, T)
    with pytest.raises(InputError, match="fewer than two"):
        Nasi().fit(PROBLEM, archs[:3], [None, 1.0, None])


def test_the_penalty_clips_at_nu() -> None:
    T = np.array([1.0, 2.0, 3.0, 100.0])
    assert Nasi(mu=1, nu="2.5").objective(T).max() == pytest.approx(np.log(2.5))
    assert Nasi(mu=1, nu="fixed").objective(T).max() == pytest.approx(np.log(T.mean()))
    assert Nasi().objective(T) == pytest.approx(np.log(T))


# --- T of the chosen operations alone --------------------------------------------------------------------------------

CELLS = replace(PROBLEM, space=get_space("nb1shot1-s1"), network=replace(TINY, channels=4))


def test_the_chosen_trace_is_the_part_of_the_trace_that_the_blocks_hold() -> None:
    import torch
    import torch.nn.functional as F  # noqa: N812

    network, batch = CELLS.build(CELLS.draw(Random(2)), 0), CELLS.batch(0)
    T, T_c, flag = traces(network, batch)
    weights = {name: p for name, p in network.named_parameters() if p.ndim > 1}
    loss = F.cross_entropy(network.train()(torch.from_numpy(batch.x.copy())), torch.from_numpy(batch.y.copy()))
    gradients = torch.autograd.grad(loss, list(weights.values()))
    squares = {name: g.square().sum().item() for name, g in zip(weights, gradients, strict=True)}
    assert pytest.approx(sum(squares.values()), rel=1e-4) == T
    assert T_c == pytest.approx(sum(value for name, value in squares.items() if ".vertex_" in name), rel=1e-4)
    assert T_c < T  # type: ignore[operator]
    assert not flag


def test_the_trace_is_penalised_and_its_chosen_part_rewarded() -> None:
    rows = [tuple({"trace": T, "chosen_trace": T_c}.items()) for T, T_c in ((5.0, 2.0), (10.0, 4.0), (40.0, 30.0))]
    search = Nasi(counted="chosen", nu="median")
    assert search.nu_of(np.array([5.0, 10.0, 40.0])) == 10
    assert search._objective(rows) == pytest.approx(np.log([2.0, 4.0, 2.0]))  # 30 − (40 − 10) = 0 is below the smallest


def test_a_search_that_rewards_the_chosen_part_is_resumed_to_the_same_answer() -> None:
    search = Nasi(steps=6, finalists=2, draws=2, counted="chosen", nu="median")
    whole = search.run(CELLS, seed=0)
    assert search.run(CELLS, seed=0, rows=whole.trace[:7]) == whole
    assert "measured traces, log R" in search.summary(CELLS, whole)


def test_the_largest_or_the_median_finalist_is_taken() -> None:
    largest = Nasi(steps=8, finalists=4, draws=2).run(PROBLEM, seed=0)
    search = Nasi(steps=8, finalists=4, draws=2, taken="median")
    median = search.run(PROBLEM, seed=0, rows=largest.trace)  # the same measurements
    measured = search.compare(PROBLEM, median.trace)
    ordered = sorted(measured, key=lambda arch: measured[arch][0])
    assert (largest.chosen[0], median.chosen[0]) == (ordered[-1], ordered[(len(ordered) - 1) // 2])
    assert search.summary(PROBLEM, median).startswith("median of")


@pytest.mark.parametrize(
    "wrong",
    [{"counted": "some"}, {"taken": "some"}, {"steps": 1}, {"nu": "0"}, {"nu": "banana"}, {"mu": -1}, {"ridge": 0}],
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Nasi(**wrong)  # type: ignore[arg-type]
