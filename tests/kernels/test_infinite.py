"""The infinite-width kernel against slow and obvious definitions, invariances, and wide finite networks."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import numpy as np
import pytest
import torch
from torch import Tensor

from initio.errors import InputError
from initio.kernels.infinite import dual, finite_ntk, ntk
from initio.kernels.infinite.duals import Mixture, logistic_scales
from initio.kernels.infinite.fast import hermite_pairs, table_pairs, terms_needed
from initio.kernels.infinite.finite import activation

NAMES = ["relu", "leaky_relu", "sigmoid", "tanh", "swish", "gelu", "erf", "identity"]
SMOOTH = ["sigmoid", "tanh", "swish", "gelu", "erf"]
FIVE = ["relu", "leaky_relu", "sigmoid", "tanh", "swish"]


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def sphere(n: int, d: int, seed: int = 0) -> Tensor:
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x / x.norm(dim=1, keepdim=True)


def by_quadrature(name: str, a: float, b: float, rho: float, points: int) -> tuple[float, float, float]:
    """E[σσ], E[σ'σ'] and E[σ] by the trapezoidal rule in two dimensions, exact to rounding where σ is analytic."""
    z = torch.linspace(-9, 9, points, dtype=torch.float64)
    phi = torch.exp(-z * z / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    u = math.sqrt(a) * z[:, None]
    v = math.sqrt(b) * (rho * z[:, None] + math.sqrt(1 - rho * rho) * z[None])
    (f, df), (g, dg) = activation(name, u), activation(name, v)
    weight = phi[:, None] * phi[None]
    return float((weight * f * g).sum()), float((weight * df * dg).sum()), float((phi[:, None] * f).sum())


# --- dual activations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.3, 2.0), (1e-4, 1e-4), (4.0, 0.5)])
def test_smooth_duals_are_their_integrals(name: str, a: float, b: float) -> None:
    sigma = dual(name)
    for rho in (-1.0, -0.9, 0.0, 0.3, 0.99, 1.0):
        value, slope = sigma.moments(doubles(a), doubles(b), doubles(rho))
        expected = by_quadrature(name, a, b, rho, points=301)
        size = math.sqrt(float(sigma.diagonal(doubles(a))[0] * sigma.diagonal(doubles(b))[0]))
        assert abs(float(value) - expected[0]) <= 1e-12 * size
        assert float(slope) == pytest.approx(expected[1], rel=1e-11, abs=1e-12)
        assert float(sigma.mean(doubles(a))) == pytest.approx(expected[2], abs=1e-13)


@pytest.mark.parametrize("name", ["relu", "leaky_relu"])
def test_piecewise_linear_duals_are_their_integrals(name: str) -> None:
    for a, b, rho in [(1.0, 1.0, 0.4), (0.5, 3.0, -0.7), (2.0, 2.0, 0.0)]:
        value, slope = dual(name).moments(doubles(a), doubles(b), doubles(rho))
        expected = by_quadrature(name, a, b, rho, points=1201)
        assert float(value) == pytest.approx(expected[0], rel=1e-3)  # the kink costs the oracle digits
        assert float(slope) == pytest.approx(expected[1], rel=2e-2)
        assert float(dual(name).mean(doubles(a))) == pytest.approx(expected[2], rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_at_correlation_one_the_pair_is_the_diagonal(name: str) -> None:
    sigma = dual(name)
    q = doubles(1e-12, 0.1, 1.0, 7.0, 1e4)
    value, slope = sigma.moments(q, q, torch.ones_like(q))
    torch.testing.assert_close(value, sigma.diagonal(q)[0], rtol=1e-13, atol=0)
    torch.testing.assert_close(slope, sigma.diagonal(q)[1], rtol=1e-13, atol=0)
    for rho in (-1.0, 1.0):
        assert all(bool(torch.isfinite(m).all()) for m in sigma.moments(q, q, rho * torch.ones_like(q)))


@pytest.mark.parametrize("name", NAMES)
def test_the_second_kernel_is_the_derivative_of_the_first(name: str) -> None:
    """Price's theorem: d/dc E[σ(u)σ(v)] = E[σ'(u)σ'(v)]."""
    a, b, h = doubles(1.3), doubles(0.8), 1e-4
    up, down = (dual(name).moments(a, b, doubles(0.37 + shift))[0] for shift in (h, -h))
    derivative = (up - down) / (2 * h) / torch.sqrt(a * b)
    assert float(derivative) == pytest.approx(float(dual(name).moments(a, b, doubles(0.37))[1]), rel=1e-7)


def test_sigmoid_is_a_mixture_of_gaussian_distributions() -> None:
    weights, scales = logistic_scales()
    x = torch.logspace(-6, 2, 500, dtype=torch.float64)
    mixture = sum(w * torch.erf(s * x / math.sqrt(2)) / 2 for w, s in zip(weights, scales, strict=True))
    torch.testing.assert_close(mixture, torch.tanh(x / 2) / 2, rtol=4e-15, atol=0)


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "swish"])
@pytest.mark.parametrize("q", [1e-100, 1e-6, 0.1, 1.0, 5.0, 100.0, 1e4])
def test_the_table_is_the_double_sum(name: str, q: float) -> None:
    sigma = dual(name)
    assert isinstance(sigma, Mixture)
    rho = torch.cat(
        [torch.linspace(-1, 1, 301, dtype=torch.float64), 1 - torch.logspace(-12, -2, 50, dtype=torch.float64)]
    )
    value, slope = table_pairs(sigma, doubles(q)[0])(slice(0, 1), slice(None), rho[None])
    expected = sigma.moments(doubles(q), doubles(q), rho)
    g, g_dot = sigma.diagonal(doubles(q))
    assert float((value - expected[0]).abs().max()) <= 1e-12 * float(g)
    assert float((slope - expected[1]).abs().max()) <= (1e-12 + 1e-14 * q) * float(g_dot)  # ρ near 1 is rounded


@pytest.mark.parametrize("name", SMOOTH)
def test_the_series_is_the_double_sum_for_different_variances(name: str) -> None:
    sigma = dual(name)
    assert isinstance(sigma, Mixture)
    a, b = doubles(0.01, 0.5, 1.7), doubles(0.3, 2.0)
    rho = doubles(-1, -0.2, 0.5, 0.9, 0.999, 1).reshape(3, 2)
    pairs = hermite_pairs(sigma, a, b)
    assert pairs is not None
    value, slope = pairs(slice(None), slice(None), rho)
    expected = sigma.moments(a[:, None], b[None], rho)
    torch.testing.assert_close(value, expected[0], rtol=0, atol=2e-13)
    torch.testing.assert_close(slope, expected[1], rtol=0, atol=2e-13)


def test_the_series_says_when_it_would_be_too_long() -> None:
    sigma = dual("tanh")
    assert isinstance(sigma, Mixture)
    assert terms_needed(sigma, doubles(1.0)[0]) in range(30, 120)
    assert hermite_pairs(sigma, doubles(1.0), doubles(500.0)) is None


# --- the recursion ---------------------------------------------------------------------------------------------------


def lemma_1(x: np.ndarray, activations: list[str], skips: list[int], exact: bool) -> np.ndarray:
    """[Eigen, Lemma 1] written out as its sum of products; `exact` puts in the chain rule's A and means."""
    L = len(activations) + 1
    A = {1: x @ x.T}
    G = {1: x @ x.T}
    dot: dict[int, np.ndarray] = {}
    mean = {1: np.zeros(len(x))}
    alpha = dict(enumerate(skips, start=1))  # α_1 .. α_{L−2}
    for layer in range(2, L + 1):
        q = np.diag(A[layer - 1])
        a, b = np.meshgrid(q, q, indexing="ij")
        rho = np.clip(A[layer - 1] / np.sqrt(a * b), -1, 1)
        sigma = dual(activations[layer - 2])
        value, slope = sigma.moments(*(torch.as_tensor(m) for m in (a, b, rho)))
        G[layer], dot[layer] = 2 * value.numpy(), 2 * slope.numpy()
        s = sigma.mean(torch.as_tensor(q.copy())).numpy()
        skip = alpha.get(layer - 2, 0)
        cross = 2 * (np.outer(s, mean[layer - 1]) + np.outer(mean[layer - 1], s)) if exact else 0.0
        A[layer] = G[layer] + skip * (A[layer - 1] + cross)
        mean[layer] = s + skip * mean[layer - 1]
    front = A if exact else G
    K = front[L].copy()
    for layer in range(1, L):
        term = front[layer] * dot[layer + 1]
        for p in range(layer + 2, L + 1):
            term = term * (dot[p] + alpha.get(p - 2, 0))
        K += term
    return K


@pytest.mark.parametrize("form", ["exact", "printed"])
@pytest.mark.parametrize("seed", range(6))
def test_recursion_is_the_lemmas_sum(form: str, seed: int) -> None:
    rng = Random(seed)
    depth = 3 + seed
    activations = [rng.choice(FIVE) for _ in range(depth - 1)]
    skips = [rng.randint(0, 1) for _ in range(depth - 2)]
    x = sphere(7, 5, seed)
    if seed % 2:  # different norms take another way through the code
        x = x * torch.linspace(0.5, 1.5, 7, dtype=torch.float64)[:, None]
    expected = lemma_1(x.numpy(), activations, skips, form == "exact")
    got = ntk(x, activations, skips, form=form).ntk.numpy()  # type: ignore[arg-type]
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12 * np.abs(expected).max())


def test_relu_is_the_arc_cosine_recursion() -> None:
    """Cho and Saul's κ₀ and κ₁, in plain numpy."""
    x = sphere(20, 8).numpy()
    theta = sigma = x @ x.T
    for _ in range(9):
        angle = np.arccos(np.clip(sigma, -1, 1))
        kappa_0 = 1 - angle / np.pi
        sigma = (np.sqrt(1 - np.clip(sigma, -1, 1) ** 2) + (np.pi - angle) * sigma) / np.pi
        theta = sigma + theta * kappa_0
    off = ~np.eye(20, dtype=bool)
    got = ntk(x, ["relu"] * 9)
    np.testing.assert_allclose(got.ntk.numpy()[off], theta[off], rtol=1e-12)
    np.testing.assert_allclose(got.nngp.numpy()[off], sigma[off], rtol=1e-12)
    np.testing.assert_allclose(np.diag(got.ntk.numpy()), 10.0, rtol=1e-13)


def test_forms_agree_without_skips_and_only_then() -> None:
    x = sphere(6, 4)
    activations = ["swish", "relu", "tanh"]
    assert torch.equal(ntk(x, activations).ntk, ntk(x, activations, form="printed").ntk)
    exact, printed = (ntk(x, activations, [1, 1], form=form).ntk for form in ("exact", "printed"))  # type: ignore[arg-type]
    assert float((exact - printed).norm() / exact.norm()) > 0.1


def test_printed_differs_with_odd_activations_only_by_what_stands_in_front() -> None:
    """For σ with mean zero there is no cross term, so A is the same and the NTK differs by the skipped fronts."""
    x = sphere(6, 4)
    exact, printed = (ntk(x, ["tanh", "tanh"], [1], form=form) for form in ("exact", "printed"))  # type: ignore[arg-type]
    first = ntk(x, ["tanh"]).nngp
    torch.testing.assert_close(exact.nngp - printed.nngp, first, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("activations", [["relu"] * 3, ["tanh", "swish", "sigmoid"]])
def test_blocks_do_not_matter(activations: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from initio.kernels.infinite import recursion

    x = sphere(150, 6)
    whole = ntk(x, activations, [1, 0]).ntk
    monkeypatch.setattr(recursion, "TILE", 64 * 7)
    torch.testing.assert_close(ntk(x, activations, [1, 0]).ntk, whole, rtol=1e-13, atol=1e-14)
    parts = torch.cat([ntk(x[:40], activations, [1, 0], other=x).ntk, ntk(x[40:], activations, [1, 0], other=x).ntk])
    torch.testing.assert_close(parts, whole, rtol=1e-7, atol=1e-9)  # on the diagonal arccos(1) is lost to rounding


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "identity"])
def test_homogeneous_networks_scale_with_their_inputs(name: str) -> None:
    x = sphere(9, 4)
    torch.testing.assert_close(ntk(3 * x, [name] * 4, [1, 0, 1]).ntk, 9 * ntk(x, [name] * 4, [1, 0, 1]).ntk)


@pytest.mark.parametrize("name", NAMES)
def test_rotating_the_inputs_changes_nothing(name: str) -> None:
    x = sphere(9, 4)
    rotation = torch.linalg.qr(sphere(4, 4, seed=3))[0]
    torch.testing.assert_close(ntk(x @ rotation, [name] * 3, [1, 1]).ntk, ntk(x, [name] * 3, [1, 1]).ntk)


def test_numpy_and_images_are_inputs_too() -> None:
    x = sphere(5, 12)
    images = x.reshape(5, 3, 2, 2).numpy()
    assert torch.equal(ntk(images, ["relu"]).ntk, ntk(x, ["relu"]).ntk)


# --- hard inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_identical_inputs_are_flagged_and_give_equal_rows(name: str) -> None:
    x = sphere(6, 5)
    x[4] = x[1]
    kernel = ntk(x, [name] * 5, [1, 0, 1, 0])
    assert kernel.flags == ("inputs 1 and 4 are identical",)
    assert kernel.ntk[1, 4] == kernel.ntk[1, 1]
    torch.testing.assert_close(kernel.ntk[1], kernel.ntk[4], rtol=1e-12, atol=0)
    assert kernel.spectrum.singular
    assert "is zero beside the largest" in kernel.spectrum.flag


@pytest.mark.parametrize("name", NAMES)
def test_a_zero_input_is_flagged_and_has_a_zero_row(name: str) -> None:
    x = sphere(5, 4)
    x[2] = 0
    kernel = ntk(x, [name] * 4, [1, 1, 0])
    assert kernel.flags == ("input 2 is zero",)
    assert float(kernel.ntk[2].abs().max()) == 0
    assert bool(torch.isfinite(kernel.ntk).all())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("skip", [0, 1])
def test_depth_200_is_finite(name: str, skip: int) -> None:
    x = sphere(3, 5)
    kernel = ntk(x, [name] * 199, [skip] * 198)
    assert bool(torch.isfinite(kernel.ntk).all())
    assert bool((kernel.ntk.diagonal() > 0).all())
    torch.testing.assert_close(kernel.ntk, kernel.ntk.T)


def test_what_float64_cannot_hold_is_an_error_that_names_the_layer() -> None:
    x = sphere(3, 2)
    with pytest.raises(InputError, match=r"too large for float64 behind layer \d+: use fewer layers or skips"):
        ntk(x, ["relu"] * 1200, [1] * 1199)
    with pytest.raises(InputError, match=r"too small for float64 behind layer \d+: use fewer layers"):
        ntk(x, ["sigmoid"] * 600)


def test_large_and_different_norms_are_right() -> None:
    x = sphere(6, 5) * torch.linspace(1, 60, 6, dtype=torch.float64)[:, None]
    got = ntk(x, ["tanh", "swish", "relu"], [1, 1]).ntk.numpy()
    np.testing.assert_allclose(got, lemma_1(x.numpy(), ["tanh", "swish", "relu"], [1, 1], True), rtol=1e-10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ntk(x, []), "at least one activation"),
        (lambda x: ntk(x, ["relu", "tahn"]), "no activation 'tahn': did you mean 'tanh'"),
        (lambda x: ntk(x, ["relu", "tanh"], [1, 1]), "2 activations go with 1 skips of 0 or 1"),
        (lambda x: ntk(x, ["relu"], form="wrong"), "form must be 'exact' or 'printed', not 'wrong'"),
        (lambda x: ntk(x * torch.nan, ["relu"]), "input 0 of x is not finite"),
        (lambda x: ntk(x, ["relu"], other=x[:, :2]), "x has 3 features and other has 2"),
        (lambda x: ntk(x[:0], ["relu"]), "at least one input"),
        (lambda x: ntk(x, ["leaky_relu"], eta=-1.0), "eta of leaky_relu must be between 0 and 1, not -1.0"),
        (lambda x: finite_ntk(x, ["relu"], width=0, seed=0), "width must be at least 1, not 0"),
    ],
)
def test_errors(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=message):
        call(sphere(2, 3))


# --- finite networks decide ------------------------------------------------------------------------------------------


def autograd_ntk(x: Tensor, activations: list[str], skips: list[int], width: int, seed: int) -> Tensor:
    """JJᵀ with the Jacobian taken by autograd; the weights are drawn in the order of `finite_ntk`."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [x.shape[1], *[width] * len(activations)]
    weights = [torch.randn(a, b, generator=generator, dtype=x.dtype, requires_grad=True) for a, b in pairwise(sizes)]
    weights.append(torch.randn(width, generator=generator, dtype=x.dtype, requires_grad=True))
    f = x
    for number, (name, skip) in enumerate(zip(activations, [0, *skips], strict=True)):
        z = f @ weights[number] * (math.sqrt(2 / width) if number else 1.0)
        value = {"relu": torch.relu, "tanh": torch.tanh, "swish": torch.nn.functional.silu}[name](z)
        f = value + skip * f if skip else value
    out = f @ weights[-1] * math.sqrt(2 / width)
    rows = [torch.cat([g.reshape(-1) for g in torch.autograd.grad(o, weights, retain_graph=True)]) for o in out]
    J = torch.stack(rows)
    return J @ J.T


def test_finite_kernel_is_the_jacobians_gram() -> None:
    x, activations, skips = sphere(5, 4), ["relu", "tanh", "swish"], [1, 1]
    got = finite_ntk(x, activations, skips, width=7, seed=3, dtype=torch.float64).ntk
    torch.testing.assert_close(got, autograd_ntk(x, activations, skips, 7, 3))


def distance(x: Tensor, activations: list[str], skips: list[int], width: int, form: str, seeds: int = 8) -> float:
    mean = sum(finite_ntk(x, activations, skips, width=width, seed=seed).ntk for seed in range(seeds)) / seeds
    limit = ntk(x, activations, skips, form=form).ntk  # type: ignore[arg-type]
    return float((mean - limit).norm() / limit.norm())


@pytest.mark.parametrize(
    ("activations", "skips"),
    [(["relu", "swish", "leaky_relu", "relu"], [1, 1, 1]), (["tanh", "relu", "tanh"], [1, 1])],
)
def test_a_wide_network_decides_for_exact(activations: list[str], skips: list[int]) -> None:
    x = sphere(8, 6)
    narrow, wide = (distance(x, activations, skips, width, "exact") for width in (64, 2048))
    assert wide < 0.03
    assert wide < narrow
    assert distance(x, activations, skips, 2048, "printed") > 0.1


def test_without_skips_both_are_the_limit() -> None:
    x = sphere(8, 6)
    assert distance(x, ["tanh", "swish", "sigmoid", "relu"], [0, 0, 0], 2048, "printed") < 0.03
