"""What Eigen-NAS proves about λ_min of the infinite-width NTK, computed for one architecture and one batch.

Theorem 1 (infinite width), Theorem 2 (finite width), Theorem 3 (generalisation), and the chain λ_min ≤ mean diagonal
≤ ‖K‖_F of section 5.2 [Eigen-NAS]. Constants that the paper leaves inside Θ and O are taken as 1, so these bounds fix
an order, not a number. Two remarks:

- Theorem 1's lower bound grows like N/d. That is λ_min of the d x d covariance times N; the N x N matrix XXᵀ has rank
  d, so for N > d the step from one to the other needs more. `EigenBounds.schur` is what the argument gives without that
  step: λ_min(P ∘ Q) ≥ λ_min(P) minᵢ Qᵢᵢ (Schur) on each summand of the lemma, with the true λ_min(A^(l)).
- Its upper bound is the mean diagonal, bounded, times N/d. `EigenBounds.mean_diagonal` is that mean, without N/d.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from initio.errors import InputError
from initio.kernels.infinite import ETA, GAIN, dual, finite_ntk, ntk
from initio.kernels.infinite.finite import activation
from initio.kernels.infinite.recursion import advance, as_inputs, first_diagonal
from initio.kernels.spectrum import Spectrum

Q, POINTS = (1e-12, 1e8), 300  # the variances over which suprema are taken, and points of a grid on them


# --- the constants of Table 1 ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constants:
    """Of one activation at depth L; `lipschitz` is the largest |σ'|."""

    beta_1: float
    beta_2: float
    beta_3: float
    mu_1: float
    lipschitz: float


@cache
def constants(name: str, depth: int) -> Constants:
    """Table 1, computed.

    β₁ = sup 2E[σ(√q z)²]/q and β₂ = sup 2E[σ'(√q z)²] over variances q > 0; β₃ is the smallest 2E[σ'(√q z)²] for
    0 < q ≤ t, t = 3(1+η²)(2+η²)^(L−3); μ₁ = E[z σ(z)], the first Hermite coefficient.

    >>> constants("relu", 10)
    Constants(beta_1=1.0, beta_2=1.0, beta_3=1.0, mu_1=0.5, lipschitz=1.0)
    """
    sigma = dual(name)
    one, zero = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    x = torch.linspace(-20, 20, 400_001, dtype=torch.float64)
    return Constants(
        beta_1=_tidy(GAIN * _largest(lambda q: sigma.diagonal(q)[0] / q, *Q)),
        beta_2=_tidy(GAIN * _largest(lambda q: sigma.diagonal(q)[1], *Q)),
        beta_3=_tidy(-GAIN * _largest(lambda q: -sigma.diagonal(q)[1], Q[0], largest_variance(depth))),
        mu_1=_tidy(math.sqrt(float(sigma.moments(one, one, zero)[1]))),  # at ρ = 0: E[σ'(u)] E[σ'(v)], and E[σ'] = μ₁
        lipschitz=_tidy(float(activation(name, x)[1].abs().max())),
    )


def _largest(f: Callable[[Tensor], Tensor], low: float, high: float) -> float:
    """The maximum of a smooth function on a logarithmic scale: a grid, then a finer one around the best point."""
    for _ in range(2):
        q = torch.from_numpy(np.geomspace(low, high, POINTS))
        values = f(q)
        best = int(values.argmax())
        low, high = float(q[max(0, best - 1)]), float(q[min(POINTS - 1, best + 1)])
    return float(values.max())


def largest_variance(depth: int) -> float:
    """t of Table 1: no layer's pre-activations have a larger variance, says the paper."""
    return float(3 * (1 + ETA**2) * (2 + ETA**2) ** (depth - 3))


def _tidy(value: float) -> float:
    """Without the last digits, where the quadrature's rounding lives."""
    return float(f"{value:.10g}")


# --- the bounds ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assumption:
    """One assumption of the theorems and what the data says to it."""

    name: str
    holds: bool
    found: str


@dataclass(frozen=True)
class EigenBounds:
    """λ_min of the limiting kernel with everything the paper says about it."""

    spectrum: Spectrum
    mean_diagonal: float
    frobenius: float
    theorem_1: tuple[float, float]  # lower, upper
    schur: float
    finite: Spectrum  # of one network of width `width`
    width: int
    theorem_2: tuple[float, float]
    theorem_3: float | None  # None when λ_min cannot be told from zero
    theorem_3_labels: float | None  # the same with yᵀK⁻¹y in place of its bound yᵀy/λ_min
    table: tuple[tuple[str, Constants], ...]
    assumptions: tuple[Assumption, ...]
    flags: tuple[str, ...]


def eigen_bounds(
    x: np.ndarray | Tensor,
    y: np.ndarray | Tensor,
    activations: Sequence[str],
    skips: Sequence[int],
    *,
    width: int = 1024,
    delta: float = 0.05,
    seed: int = 0,
    unit_norm: bool = True,
) -> EigenBounds:
    """All bounds for one architecture on N inputs x with labels y of −1 and 1.

    With `unit_norm`, inputs are divided by their norms first, as Assumption 1 wants; the assumptions are judged on the
    inputs as they came.
    """
    if not 0 < delta <= math.exp(-1):
        raise InputError(f"delta must be in (0, 1/e], not {delta}")
    given = as_inputs(x)
    labels = torch.as_tensor(y).to(torch.float64)
    if labels.shape != (len(given),) or not set(labels.tolist()) <= {-1.0, 1.0}:
        raise InputError("theorem 3 needs one label of -1 or 1 for each input")
    norms = given.norm(dim=1, keepdim=True)
    inputs = given
    if unit_norm:
        if bool((norms == 0).any()):
            raise InputError(f"input {int((norms == 0).nonzero()[0, 0])} is zero and cannot be scaled to norm 1")
        inputs = given / norms
    N, d = inputs.shape
    depth = len(activations) + 1
    kernel = ntk(inputs, activations, skips)
    finite = finite_ntk(inputs, activations, skips, width=width, seed=seed, dtype=torch.float64)
    table = [constants(name, depth) for name in activations]
    risk = risk_with_labels = None
    if not kernel.spectrum.singular:
        risk = theorem_3(table, kernel.spectrum.lambda_min, 1.0, N, delta)
        energy = float(labels @ torch.linalg.solve(kernel.ntk, labels)) / N  # in place of its bound yᵀy / (λ_min N)
        risk_with_labels = theorem_3(table, 1.0, energy, N, delta)
    return EigenBounds(
        spectrum=kernel.spectrum,
        mean_diagonal=float(kernel.ntk.diagonal().mean()),
        frobenius=float(kernel.ntk.norm()),
        theorem_1=theorem_1(table, skips, N / d),
        schur=schur_bound(inputs, activations, skips),
        finite=finite.spectrum,
        width=width,
        theorem_2=theorem_2(table, skips, N / d),
        theorem_3=risk,
        theorem_3_labels=risk_with_labels,
        table=tuple(sorted(dict(zip(activations, table, strict=True)).items())),
        assumptions=judge(given, depth),
        flags=kernel.flags,
    )


def theorem_1(table: Sequence[Constants], skips: Sequence[int], ratio: float) -> tuple[float, float]:
    """Lower and upper bound of Theorem 1; `table` has σ₁ .. σ_{L−1}, `ratio` is N/d.

    The printed sum begins at l = 1 with β₁(σ₀), which is not defined; it stands for the input's own diagonal, 1.

    >>> relu = constants("relu", 3)
    >>> theorem_1([relu, relu], [0], ratio=1.0)
    (0.5, 3.0)
    """
    sigma = dict(enumerate(table, start=1))
    alpha = {0: 0} | dict(enumerate(skips, start=1))
    L = len(table) + 1
    lower = 2 * sigma[1].mu_1 ** 2 * ratio
    for p in range(3, L + 1):
        lower *= sigma[p - 1].beta_3 + alpha[p - 2]
    upper = 0.0
    beta_1 = [1.0, *(c.beta_1 for c in table)]
    for layer in range(1, L + 1):
        term = beta_1[layer - 1]
        for p in range(2, layer):
            term *= beta_1[p - 1] + alpha[p - 2]
        for p in range(layer + 1, L + 1):
            term *= sigma[p - 1].beta_2 + alpha[p - 2]
        upper += ratio * term
    return lower, upper


def theorem_2(table: Sequence[Constants], skips: Sequence[int], ratio: float) -> tuple[float, float]:
    """Lower and upper bound of Theorem 2."""
    sigma = dict(enumerate(table, start=1))
    alpha = dict(enumerate(skips, start=1))
    L = len(table) + 1
    lower = ratio * math.prod(sigma[i].beta_3 + alpha[i - 1] for i in range(2, L))
    upper = ratio * sum(math.prod(sigma[i].beta_2 + alpha[i - 1] for i in range(k + 2, L)) for k in range(L))
    return lower, upper


def theorem_3(table: Sequence[Constants], smallest: float, mean_square: float, N: int, delta: float) -> float:
    """C₂ √(yᵀy / (λ_min N)) + √(log(1/δ)/N), C₂ = √L (3 Lip + 1)^(L−1); `mean_square` is yᵀy/N."""
    L = len(table) + 1
    C2 = math.sqrt(L) * (3 * max(c.lipschitz for c in table) + 1) ** (L - 1)
    return C2 * math.sqrt(mean_square / smallest) + math.sqrt(math.log(1 / delta) / N)


def schur_bound(x: Tensor, activations: Sequence[str], skips: Sequence[int]) -> float:
    """Σ_l λ_min(A^(l)) minᵢ [Ġ^(l+1) ∘ (Ġ^(l+2) + α_l) ∘ ...]ᵢᵢ, a lower bound on λ_min(K) without assumptions."""
    diagonal = first_diagonal(x)
    fronts, factors = [x @ x.T], []
    for number, (name, skip) in enumerate(zip(activations, (0, *skips), strict=True), start=1):
        sigma = dual(name)
        factors.append((GAIN * sigma.diagonal(diagonal.A)[1], skip))
        diagonal = advance(diagonal, sigma, sigma.mean(diagonal.A), bool(skip), "exact", number)
        fronts.append(ntk(x, activations[:number], skips[: number - 1]).nngp)
    total = 0.0
    for layer, front in enumerate(fronts):
        product = torch.ones(len(x), dtype=torch.float64)
        for number, (dot, skip) in enumerate(factors[layer:], start=layer):
            product = product * (dot + skip * (number > layer))  # a skip leads past later layers, not past this one
        total += max(0.0, float(torch.linalg.eigvalsh(front)[0])) * float(product.min())
    return total


def judge(x: Tensor, depth: int) -> tuple[Assumption, ...]:
    """The theorems' assumptions on the inputs as given."""
    N, d = x.shape
    norms = x.norm(dim=1)
    unit = x / norms.clamp_min(torch.finfo(x.dtype).tiny)[:, None]
    gap = torch.linalg.matrix_norm(d / N * unit.T @ unit - torch.eye(d, dtype=x.dtype), 2)
    return (
        Assumption(
            "1: every input has norm 1",
            bool((norms - 1).abs().max() < 1e-6),
            f"norms from {float(norms.min()):.3g} to {float(norms.max()):.3g}",
        ),
        Assumption("2: activations are square integrable under a Gaussian", True, "true of all five"),
        Assumption(
            "3: E[xxᵀ] = I/d",
            bool(gap < 0.1),
            f"‖d·mean(xxᵀ) − I‖ = {float(gap):.3g} after scaling to norm 1 (0 if isotropic)",
        ),
        Assumption("N ≥ d⁴", d**4 <= N, f"N = {N:,}, d⁴ = {d**4:,}"),
        Assumption("L is not very large (L ≤ 10)", depth <= 10, f"L = {depth}"),
    )


def two_classes(y: np.ndarray, classes: int) -> np.ndarray:
    """Labels −1 for the first half of the classes and 1 for the others: the theorem's task is binary."""
    return np.where(np.asarray(y) < (classes + 1) // 2, -1.0, 1.0)
