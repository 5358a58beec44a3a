"""Algorithm 1 of NASI: its derivative, its invariances, and that its rows are its state."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from initio.data import Noise
from initio.errors import InputError
from initio.networks.supernet import Supernet
from initio.searches import Limits, Problem, drive
from initio.searches.methods.nasi import Nasi, best, noise, one_step, relaxed, straight_through_slope
from initio.spaces import SPACES, NetworkSettings
from initio.spaces.darts import DARTS, DARTS_BY_NODE

SHAPE = (3, 8, 8)


def problem(name: str = "nb201", **more: object) -> Problem:
    network = NetworkSettings(channels=4, cells=3 if name == "darts" else 1, shape=SHAPE)
    return Problem(SPACES[name], Noise(SHAPE, 10), network, batch_size=8, **more)  # type: ignore[arg-type]


# --- the derivative --------------------------------------------------------------------------------------------------


def test_gate_derivative_equals_finite_differences_of_the_penalised_trace() -> None:
    """R as a plain function of the gates' values, computed without any second derivative."""
    supernet = Supernet(SPACES["nb201"], NetworkSettings(channels=4, cells=1, shape=SHAPE), seed=0).double()
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(8, *SHAPE, generator=generator).double(), torch.randint(10, (8,), generator=generator)
    choices, mu = [3, 1, 2, 4, 3, 2], 2.0
    T, dT = supernet.trace_gradient(x, y, choices, all_options=True)
    nu = 0.7 * T  # so that the penalty counts

    def reward(gates: list[torch.Tensor]) -> float:
        loss = F.cross_entropy(supernet(x, choices, gates, all_options=True), y)
        g = torch.autograd.grad(loss, list(supernet.parameters()), allow_unused=True)
        T = sum(part.square().sum().item() for part in g if part is not None)
        return T - mu * max(0.0, T - nu)

    for k, option in ((0, 3), (0, 1), (2, 0), (3, 2), (5, 3)):
        gates = [F.one_hot(torch.tensor(c), 5).double() for c in choices]
        h = 1e-5
        gates[k][option] += h
        up = reward(gates)
        gates[k][option] -= 2 * h
        down = reward(gates)
        assert (up - down) / (2 * h) == pytest.approx((1 - mu) * dT[k][option], rel=1e-4, abs=1e-6)


def test_straight_through_is_the_derivative_of_the_relaxed_sample() -> None:
    rng = np.random.default_rng(0)
    logits, dR = rng.gumbel(size=5), rng.normal(size=5)
    alpha = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    p = torch.softmax(alpha + torch.from_numpy(logits), 0)
    gate = F.one_hot(p.argmax(), 5) + p - p.detach()
    (gate @ torch.from_numpy(dR)).backward()
    assert alpha.grad is not None
    assert straight_through_slope(logits, dR) == pytest.approx(alpha.grad.numpy(), abs=1e-15)


def test_straight_through_sums_to_zero_and_leaves_masked_options() -> None:
    G = straight_through_slope(np.array([-np.inf, 0.3, 1.0]), np.array([5.0, 1.0, 2.0]))
    assert G[0] == 0
    assert G.sum() == pytest.approx(0, abs=1e-15)


def test_path_gates_are_all_gates_with_the_others_at_zero() -> None:
    supernet = Supernet(SPACES["nb201"], NetworkSettings(channels=4, cells=1, shape=SHAPE), seed=0).double()
    x, y, choices = torch.randn(4, *SHAPE).double(), torch.tensor([0, 1, 2, 3]), [3, 1, 2, 4, 3, 2]
    _, path = supernet.trace_gradient(x, y, choices)
    _, full = supernet.trace_gradient(x, y, choices, all_options=True)
    for k, chosen in enumerate(choices):
        assert path[k][chosen] == pytest.approx(full[k][chosen], rel=1e-9)
        assert all(value == 0 for option, value in enumerate(path[k]) if option != chosen)


# --- the one-step solution -------------------------------------------------------------------------------------------


def test_one_step_uses_the_largest_norm_so_far() -> None:
    gradients = [np.array([1.0, 0.0]), np.array([0.0, -4.0]), np.array([2.0, 0.0])]
    expected = (gradients[0] / 1 + gradients[1] / 4 + gradients[2] / 4) / 3
    assert one_step(gradients, 3) == pytest.approx(expected)
    assert one_step([10 * G for G in gradients], 3) == pytest.approx(expected)  # the scale of R does not count
    assert one_step([np.zeros(2)], 1) == pytest.approx([0, 0])


def test_adaptive_nu_is_equation_41() -> None:
    search = Nasi(nu="adaptive", nu_0=500)
    assert search.nu_after([]) == 500
    assert search.nu_after([10.0, None, 30.0]) == pytest.approx((500 + 40) / 3)
    assert Nasi(nu="100").nu_after([1.0]) == 100
    assert Nasi(nu="fixed").nu_after([2.0] * 50 + [9.0]) == 2


def test_gumbel_noise_draws_every_option_but_none() -> None:
    counts = np.zeros(5)
    for seed in range(200):
        for row in noise(SPACES["nb201"].relaxation, np.random.default_rng(seed)):
            counts[int(np.argmax(row))] += 1
    assert counts[0] == 0
    assert counts[1:] == pytest.approx(np.full(4, 300), abs=60)  # 4 standard deviations


# --- the search ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nb201", "nb1shot1-s1", "nb1shot1-s3", "darts"])
def test_a_search_chooses_an_accepted_architecture(name: str) -> None:
    at = problem(name)
    for gates in ("path", "all"):
        result = drive(Nasi(steps=3, nu="50", gates=gates), at, seed=0)  # type: ignore[arg-type]
        assert at.accepts(at.space.check(result.best))
        assert len(result.steps) == 3


@pytest.mark.parametrize("search", [Nasi(steps=4), Nasi(steps=2, nu="fixed", gates="all")])
def test_the_rows_are_the_state(search: Nasi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("initio.searches.methods.nasi.PROBES", 3)
    at, heard = problem(), []
    whole = drive(search, at, seed=3, on_step=heard.append)
    assert tuple(heard) == whole.steps
    resumed = drive(search, at, seed=3, done=whole.steps[: len(whole.steps) - 2])
    assert resumed == whole
    assert drive(search, at, seed=4).steps != whole.steps


def test_without_penalty_the_reward_is_the_trace() -> None:
    free = drive(Nasi(steps=2, mu=0, nu="1e-9"), problem(), seed=0)
    strict = drive(Nasi(steps=2, mu=2, nu="1e-9"), problem(), seed=0)
    for a, b in zip(free.steps, strict.steps, strict=True):
        assert a.reward == a.trace == b.trace
        assert np.array(b.gradient) == pytest.approx(-np.array(a.gradient))  # dR/dT = 1 − μ


def test_limits_are_kept() -> None:
    at = problem(limits=Limits(max_params=150_000), target=NetworkSettings(prune=False))
    result = drive(Nasi(steps=2), at, seed=0)
    assert at.accepts(result.best)
    alpha = [[0.0, 0.0, 0.0, 1.0, 0.0]] * 6  # 3x3 convolutions everywhere: too large
    assert at.accepts(best(at, alpha, seed=0))


def test_leading_is_what_the_search_would_choose_now() -> None:
    search = Nasi(steps=3, nu="50")
    result = drive(search, problem(), seed=0)
    assert search.leading(problem(), result.steps) == result.best
    assert search.leading(problem(), ()) is None


def test_the_objective_is_the_logarithm_of_the_reward() -> None:
    T = np.array([1.0, 2.0, 3.0, 100.0])
    assert Nasi(mu=1, nu="2.5").objective(T) == pytest.approx(np.log([1, 2, 2.5, 2.5]))
    assert Nasi(mu=2, nu="2.5").objective(T) == pytest.approx(np.log([1, 2, 2, 1]))  # 5 − T, not below 1
    adaptive = Nasi(mu=1, nu="adaptive", nu_0=14.0).objective(T)
    assert adaptive.max() == pytest.approx(np.log(24))  # (14 + 106) / 5 [NASI 41]
    fixed = Nasi(mu=1, nu="fixed").objective(T)
    assert fixed.max() == pytest.approx(np.log(106 / 4))  # the mean of all of them


def test_darts_is_relaxed_by_node() -> None:
    assert relaxed(DARTS) == DARTS_BY_NODE == relaxed(DARTS_BY_NODE)
    weights = [[0.0] * len(decision) for decision in DARTS_BY_NODE.relaxation]
    weights[2] = [0.1, 0.9, 0.5]  # inputs of the normal cell's second node: 1, then 2
    weights[3] = [0, 0, 0.2, 0.8, 0, 0, 0]  # its operations: sep_conv_3x3, then skip_connect
    genotype = DARTS.genotype(DARTS_BY_NODE.decode(weights))
    assert genotype.normal[2:4] == (("sep_conv_3x3", 1), ("skip_connect", 2))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"nu": "banana"}, "nu must be 'adaptive', 'fixed' or a positive number, not 'banana'"),
        ({"nu": "nan"}, "nu must be 'adaptive', 'fixed' or a positive number, not 'nan'"),
        ({"steps": 0}, "steps must be at least 1, not 0"),
        ({"mu": math.nan}, "mu must be a number of at least 0, not nan"),
        ({"nu_0": 0.0}, "nu_0 must be a positive number, not 0.0"),
        ({"gates": "some"}, "gates must be 'all' or 'path', not 'some'"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Nasi(**options)  # type: ignore[arg-type]
