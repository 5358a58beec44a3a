import math
from random import Random

import numpy as np
import pytest
import torch

from initio.analysis.eigen_bounds import (
    constants,
    eigen_bounds,
    judge,
    largest_variance,
    theorem_1,
    theorem_2,
    theorem_3,
    two_classes,
)
from initio.errors import InputError
from initio.kernels.infinite import ntk

FIVE = ["relu", "leaky_relu", "sigmoid", "tanh", "swish"]


def sphere(n: int, d: int, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def signs(n: int) -> np.ndarray:
    return np.where(np.arange(n) % 2, 1.0, -1.0)


@pytest.mark.parametrize(
    ("name", "beta_1", "beta_2", "mu_1"),
    [
        ("relu", 1, 1, 1 / 2),
        ("leaky_relu", 1 + 0.01**2, 1 + 0.01**2, (1 + 0.01) / 2),
        ("sigmoid", 1 / 8, 1 / 8, 0.2066209641),  # E[sigmoid'(z)]
        ("tanh", 2, 2, 0.6057055096),  # E[1 − tanh(z)²]
        ("swish", 1, 1.016783276, 1 / 2),  # the paper's Table 1 has 1.22 for β2, which is a bound but not the least one
    ],
)
def test_computed_constants_are_those_of_table_1(name: str, beta_1: float, beta_2: float, mu_1: float) -> None:
    found = constants(name, 10)
    assert found.beta_1 == pytest.approx(beta_1, rel=1e-6)
    assert found.beta_2 == pytest.approx(beta_2, rel=1e-5)
    assert found.mu_1 == pytest.approx(mu_1, rel=1e-9)


def test_beta_3_is_f_of_t_for_saturating_activations() -> None:
    """f_S(t) = 2E[σ'(√t z)²] by the trapezoidal rule."""
    t = largest_variance(6)
    assert t == pytest.approx(3 * 1.0001 * 2.0001**3)
    z = np.linspace(-12, 12, 20_001)
    phi = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    slope = 1 - np.tanh(math.sqrt(t) * z) ** 2
    assert constants("tanh", 6).beta_3 == pytest.approx(2 * float(np.sum(phi * slope**2)), rel=1e-8)
    assert constants("swish", 6).beta_3 == pytest.approx(0.5, rel=1e-6)
    assert constants("relu", 6).beta_3 == 1


def test_lipschitz_constants() -> None:
    assert [constants(name, 5).lipschitz for name in ("relu", "sigmoid", "tanh")] == [1, 0.25, 1]
    assert constants("swish", 5).lipschitz == pytest.approx(1.0998, abs=1e-4)


def test_theorem_1_by_hand_for_three_layers() -> None:
    """L = 3: lower 2μ₁²(β₃(σ₂)+α₁); upper 1·β₂(σ₁)(β₂(σ₂)+α₁) + β₁(σ₁)(β₂(σ₂)+α₁) + β₁(σ₂)(β₁(σ₁)+α₀)."""
    tanh, swish = constants("tanh", 3), constants("swish", 3)
    low, up = theorem_1([tanh, swish], [1], ratio=2.0)
    assert low == pytest.approx(2.0 * 2 * tanh.mu_1**2 * (swish.beta_3 + 1))
    by_hand = tanh.beta_2 * (swish.beta_2 + 1) + tanh.beta_1 * (swish.beta_2 + 1) + swish.beta_1 * tanh.beta_1
    assert up == pytest.approx(2.0 * by_hand)


def test_theorem_2_by_hand_for_three_layers() -> None:
    relu = constants("relu", 3)
    assert theorem_2([relu, relu], [1], ratio=1.0) == (2.0, 2.0 + 1 + 1)


def test_theorem_3_formula() -> None:
    relu = constants("relu", 3)
    expected = math.sqrt(3) * 4**2 * math.sqrt(1 / 0.5) + math.sqrt(math.log(20) / 100)
    assert theorem_3([relu, relu], 0.5, 1.0, 100, 0.05) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(8))
def test_what_needs_no_assumption_holds(seed: int) -> None:
    rng = Random(seed)
    depth = rng.randint(3, 7)
    activations = [rng.choice(FIVE) for _ in range(depth - 1)]
    skips = [rng.randint(0, 1) for _ in range(depth - 2)]
    x = sphere(20, 30, seed)
    found = eigen_bounds(x, signs(20), activations, skips, width=64)
    assert not found.spectrum.singular
    assert found.schur <= found.spectrum.lambda_min <= found.mean_diagonal <= found.frobenius
    expected = float(torch.linalg.eigvalsh(ntk(x, activations, skips).ntk)[0])
    assert found.spectrum.lambda_min == pytest.approx(expected, rel=1e-9)
    assert found.theorem_3_labels is not None
    assert found.theorem_3 is not None
    assert found.theorem_3_labels <= found.theorem_3


@pytest.mark.parametrize("name", FIVE)
def test_theorem_1_upper_bound_contains_the_printed_kernels_mean_diagonal(name: str) -> None:
    x = sphere(10, 10)  # N/d = 1: the bound is the mean diagonal, bounded
    for skips in ([0, 0, 0], [1, 0, 1], [1, 1, 1]):
        K = ntk(x, [name] * 4, skips, form="printed").ntk
        assert float(K.diagonal().mean()) <= theorem_1([constants(name, 5)] * 4, skips, 1.0)[1] * (1 + 1e-9)


def test_judging_the_data() -> None:
    sphere_data = {a.name[0]: a.holds for a in judge(torch.from_numpy(sphere(4000, 3)), 5)}
    assert sphere_data == {"1": True, "2": True, "3": True, "N": True, "L": True}
    shifted = judge(torch.from_numpy(sphere(50, 3) + 2), 30)
    assert [a.holds for a in shifted] == [False, True, False, False, False]
    assert "d⁴ = 81" in shifted[3].found


def test_identical_inputs_give_no_number_but_a_reason() -> None:
    x = sphere(6, 4)
    x[3] = x[0]
    found = eigen_bounds(x, signs(6), ["relu", "tanh"], [1], width=32)
    assert found.spectrum.singular
    assert found.theorem_3 is None
    assert found.flags == ("inputs 0 and 3 are identical",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 0.5}, r"delta must be in \(0, 1/e\], not 0.5"),
        ({"y": np.zeros(5)}, "one label of -1 or 1 for each input"),
        ({"x": np.zeros((5, 3))}, "input 0 is zero and cannot be scaled to norm 1"),
    ],
)
def test_errors(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"x": sphere(5, 3), "y": signs(5)} | change
    with pytest.raises(InputError, match=message):
        eigen_bounds(activations=["relu"], skips=[], **arguments)  # type: ignore[arg-type]


def test_two_classes() -> None:
    assert two_classes(np.arange(10), 10).tolist() == [-1] * 5 + [1] * 5
