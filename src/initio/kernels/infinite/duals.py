"""Dual activations: the second moments of an activation under a Gaussian, and of its derivative.

For a centred Gaussian pair (u, v) with variances a, b and correlation ρ, the kernel of a layer needs E[σ(u) σ(v)] and
E[σ'(u) σ'(v)]; skips need the mean E[σ(u)] too. The second is the first's derivative by the covariance (Price).

- identity, ReLU, LeakyReLU(η): the arc-cosine formulas, closed form.
- Erf, GELU: closed form, with h_s(x) = Φ(s x) − 1/2 as the only building block (`Mixture`).
- Sigmoid − 1/2, Tanh, Swish: the logistic distribution is a Gaussian with a random standard deviation 2κ, where κ
  follows Kolmogorov's law, so sigmoid(x) − 1/2 = E_κ[h_{1/(2κ)}(x)]. The trapezoidal rule in log κ turns that into a
  sum of 27 terms that is exact to 2e-15, relatively and for every x. Their duals are double sums of closed forms, good
  for any variance.

Nothing is singular at ρ = ±1 and every term of an odd activation's dual has the same sign, so small variances keep
their relative accuracy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from initio.errors import InputError, did_you_mean

ETA = 0.01  # LeakyReLU's slope below zero, PyTorch's default
ONE = torch.ones((), dtype=torch.float64)

Moments = tuple[Tensor, Tensor]  # E[σ(u) σ(v)], E[σ'(u) σ'(v)]
PairMoments = Callable[[slice, slice, Tensor], Moments]  # rows, columns, their correlations -> moments


class Dual(ABC):
    """The moments of one activation; variances and correlations are float64 tensors."""

    @abstractmethod
    def mean(self, q: Tensor) -> Tensor:
        """E[σ(u)] for variances q."""

    @abstractmethod
    def moments(self, a: Tensor, b: Tensor, rho: Tensor) -> Moments:
        """E[σ(u) σ(v)] and E[σ'(u) σ'(v)], elementwise in variances a, b and correlation rho, which broadcast."""

    def diagonal(self, q: Tensor) -> Moments:
        """E[σ(u)²] and E[σ'(u)²]."""
        return self.moments(q, q, torch.ones_like(q))

    def pairs(self, q_rows: Tensor, q_columns: Tensor, gain: float = 1.0) -> PairMoments:
        """`gain` times `moments` for blocks of a matrix whose rows and columns have these variances, prepared once."""

        def pairs(rows: slice, columns: slice, rho: Tensor) -> Moments:
            value, slope = self.moments(q_rows[rows, None], q_columns[None, columns], rho)
            return value.mul_(gain), slope.mul_(gain)

        return pairs


@dataclass(frozen=True)
class LeakyReLU(Dual):
    """max(ηx, x): ReLU for η = 0, the identity for η = 1.

    E[σσ'] = η√(ab)ρ + (1−η)² √(ab)/(2π) (√(1−ρ²) + ρ(π − θ)) and E[σ'σ'] = η + (1−η)² (π − θ)/(2π), θ = arccos ρ.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> LeakyReLU(0.0).moments(one, one, 0 * one)
    (tensor([0.1592], dtype=torch.float64), tensor([0.2500], dtype=torch.float64))
    """

    eta: float

    def mean(self, q: Tensor) -> Tensor:
        """(1−η) √(q/2π)."""
        return (1 - self.eta) * torch.sqrt(q / (2 * math.pi))

    def moments(self, a: Tensor, b: Tensor, rho: Tensor) -> Moments:
        """The formulas of the class."""
        return self._blocks(torch.sqrt(a), torch.sqrt(b), rho, 1.0)

    def pairs(self, q_rows: Tensor, q_columns: Tensor, gain: float = 1.0) -> PairMoments:
        """The same, with the square roots taken once."""
        if q_columns is q_rows:
            low, high = torch.aminmax(q_rows)
            if bool(high - low <= EQUAL * high):
                q = float(high)
                return lambda rows, columns, rho: self._blocks(q, None, rho, gain)
        a, b = torch.sqrt(q_rows)[:, None], torch.sqrt(q_columns)
        return lambda rows, columns, rho: self._blocks(a[rows], b[columns], rho, gain)

    def _blocks(self, a: Tensor | float, root_b: Tensor | None, rho: Tensor, gain: float) -> Moments:
        """For √a and √b, or for one variance a of all."""
        weight = gain * (1 - self.eta) ** 2 / (2 * math.pi)
        slope = torch.acos(rho).sub_(math.pi).mul_(-weight)  # (1−η)² (π − θ)/(2π)
        if self.eta:
            slope.add_(gain * self.eta)
        sine = torch.addcmul(ONE, rho, rho, value=-1.0).sqrt_()
        if root_b is None:
            assert isinstance(a, float)
            return sine.mul_(weight * a).addcmul_(rho, slope, value=a), slope
        return sine.mul_(weight).addcmul_(rho, slope).mul_(a).mul_(root_b), slope

    def diagonal(self, q: Tensor) -> Moments:
        """(1+η²)/2 times q and 1."""
        half = (1 + self.eta**2) / 2
        return half * q, torch.full_like(q, half)


@dataclass(frozen=True)
class Identity(Dual):
    """σ(x) = x."""

    def mean(self, q: Tensor) -> Tensor:
        """Zero."""
        return torch.zeros_like(q)

    def moments(self, a: Tensor, b: Tensor, rho: Tensor) -> Moments:
        """The covariance, and 1."""
        return torch.sqrt(a) * torch.sqrt(b) * rho, torch.ones_like(rho)


@dataclass(frozen=True)
class Mixture(Dual):
    """σ = Σᵢ wᵢ h_{sᵢ} (odd), or σ = x/2 + x Σᵢ wᵢ h_{sᵢ} (`gated`), where h_s(x) = Φ(sx) − 1/2.

    With A = 1 + s²a, B = 1 + t²b, c = ρ√(ab), D² = AB − s²t²c² and H' = st/(2πD):

        H = E[h_s(u) h_t(v)]     = arctan(stc / D) / 2π,              dH/dc = H'
        P = E[u h_s(u) v h_t(v)] = cH + H' (ab − c² + c²/A + c²/B),   dP/dc = H + cH' (1/A + 1/B + 1/D²)

    by Stein's lemma, applied twice, and the derivatives are the derivative kernels. A gated activation has the moments
    c/4 + P and 1/4 + dP/dc; the cross terms are odd and vanish.
    """

    weights: tuple[float, ...]
    scales: tuple[float, ...]
    gated: bool = False

    def mean(self, q: Tensor) -> Tensor:
        """Zero for odd activations; E[u h_s(u)] = q E[h_s'(u)] = qs / √(2π(1 + s²q)) otherwise."""
        if not self.gated:
            return torch.zeros_like(q)
        terms = (w * s / torch.sqrt(1 + s * s * q) for w, s in zip(self.weights, self.scales, strict=True))
        return q / math.sqrt(2 * math.pi) * sum(terms, torch.zeros_like(q))

    def moments(self, a: Tensor, b: Tensor, rho: Tensor) -> Moments:
        """The double sum of the class; slow (hundreds of arctangents an entry) and good everywhere."""
        shape = (a + b + rho).shape
        a, b, rho = a.expand(shape), b.expand(shape), rho.expand(shape)
        same = bool(torch.equal(a, b))
        flat = [tensor.reshape(-1) for tensor in (a, b, rho)]
        blocks = [self._sum(*(x[i : i + BLOCK] for x in flat), same=same) for i in range(0, rho.numel(), BLOCK)]
        value, slope = (torch.cat(part).reshape(rho.shape) for part in zip(*blocks, strict=True))
        return value, slope

    def _sum(self, a: Tensor, b: Tensor, rho: Tensor, *, same: bool) -> Moments:
        """The double sum for vectors; with a = b it is symmetric in s and t, so half the terms will do."""
        w, s = (torch.tensor(x, dtype=rho.dtype) for x in (self.weights, self.scales))
        if same:
            i, j = torch.triu_indices(len(s), len(s))
            weight = w[i] * w[j] * torch.where(i == j, 1.0, 2.0)  # (i, j) stands for (j, i) too
        else:
            i, j = torch.ones(len(s), len(s)).nonzero().T
            weight = w[i] * w[j]
        value, slope, pair = torch.zeros_like(rho), torch.zeros_like(rho), _odd_pair
        if self.gated:  # c/4 and 1/4 come from x/2 alone
            value, slope, pair = 0.25 * torch.sqrt(a) * torch.sqrt(b) * rho, slope + 0.25, _gated_pair
        for part in torch.split(torch.arange(len(i)), max(1, BLOCK // len(rho))):
            V, S = pair(s[i[part], None], s[j[part], None], a, b, rho)
            value += weight[part] @ V
            slope += weight[part] @ S
        return value, slope

    def pairs(self, q_rows: Tensor, q_columns: Tensor, gain: float = 1.0) -> PairMoments:
        """A table for equal variances, the Hermite series for different ones, the double sum where that is long."""
        from initio.kernels.infinite.fast import hermite_pairs, table_pairs

        if len(self.scales) == 1 or len(q_rows) * len(q_columns) <= FEW:
            return super().pairs(q_rows, q_columns, gain)
        low = torch.minimum(q_rows.min(), q_columns.min())
        high = torch.maximum(q_rows.max(), q_columns.max())
        if high - low <= EQUAL * high:
            return table_pairs(self, 0.5 * (low + high), gain)
        return hermite_pairs(self, q_rows, q_columns, gain) or super().pairs(q_rows, q_columns, gain)


EQUAL = 1e-13  # variances that agree to this relative difference are treated as one
FEW = 512  # entries for which no table or series pays
BLOCK = 16384  # terms of the double sum at a time, so that its temporaries stay in cache


def _odd_pair(s: Tensor, t: Tensor, a: Tensor, b: Tensor, rho: Tensor) -> Moments:
    """H and dH/dc of `Mixture`."""
    x, y = s * s * a, t * t * b
    stc = torch.sqrt(x) * torch.sqrt(y) * rho
    D = torch.sqrt(1 + x + y + x * y * ((1 - rho) * (1 + rho)))
    return torch.atan2(stc, D) / (2 * math.pi), s * t / (2 * math.pi * D)


def _gated_pair(s: Tensor, t: Tensor, a: Tensor, b: Tensor, rho: Tensor) -> Moments:
    """P and dP/dc of `Mixture`."""
    x, y = s * s * a, t * t * b
    sine2, c = (1 - rho) * (1 + rho), torch.sqrt(a) * torch.sqrt(b) * rho
    D2 = 1 + x + y + x * y * sine2
    D = torch.sqrt(D2)
    H = torch.atan2(s * t * c, D) / (2 * math.pi)
    dH = s * t / (2 * math.pi * D)
    inverse = 1 / (1 + x) + 1 / (1 + y)
    value = c * H + dH * (a * b * sine2 + c * c * inverse)
    return value, H + c * dH * (inverse + 1 / D2)


STEP = 0.12  # of the trapezoidal rule in log κ: the relative error of sigmoid − 1/2 is below 2e-15
KAPPA = (0.19, 4.2)  # outside, Kolmogorov's density is below 1e-14


@cache
def logistic_scales() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Weights wᵢ and scales sᵢ with sigmoid(x) − 1/2 = Σᵢ wᵢ (Φ(sᵢ x) − 1/2).

    κ has the density f(κ) = 8κ Σₙ (−1)ⁿ⁺¹ n² e^{−2n²κ²}, and s = 1/(2κ) (Andrews and Mallows, 1974).

    >>> weights, scales = logistic_scales()
    >>> f"{sum(weights):.14f}"
    '1.00000000000000'
    """
    low, high = (round(math.log(k) / STEP) for k in KAPPA)
    kappas = [math.exp(STEP * i) for i in range(low, high + 1)]
    weights = [STEP * k * _kolmogorov(k) for k in kappas]
    return tuple(weights), tuple(1 / (2 * k) for k in kappas)


def _kolmogorov(k: float) -> float:
    """The density of Kolmogorov's law; below 1 by the transformed series, which has no cancellation there."""
    if k >= 1.0:
        return 8 * k * math.fsum((-1.0) ** (n + 1) * n * n * math.exp(-2 * n * n * k * k) for n in range(1, 12))
    terms = ((2 * n - 1) ** 2 * math.pi**2 / (4 * k * k) for n in range(1, 12))
    return math.sqrt(2 * math.pi) / (k * k) * math.fsum((z - 1) * math.exp(-z / 2) for z in terms)


def _tanh() -> Mixture:
    weights, scales = logistic_scales()  # tanh(x) = 2 (sigmoid(2x) − 1/2)
    return Mixture(tuple(2 * w for w in weights), tuple(2 * s for s in scales))


@cache
def dual(activation: str, eta: float = ETA) -> Dual:
    """The dual of an activation by its name in the `mlp` space; also `gelu`, `erf` and `identity`.

    `sigmoid` means sigmoid − 1/2, as in [Eigen, Table 1].

    >>> dual("relu")
    LeakyReLU(eta=0.0)
    >>> dual("relux")
    Traceback (most recent call last):
    initio.errors.InputError: there is no activation 'relux': did you mean 'relu'?
    """
    makers: dict[str, Callable[[], Dual]] = {
        "relu": lambda: LeakyReLU(0.0),
        "leaky_relu": lambda: LeakyReLU(eta),
        "sigmoid": lambda: Mixture(*logistic_scales()),
        "tanh": _tanh,
        "swish": lambda: Mixture(*logistic_scales(), gated=True),
        "gelu": lambda: Mixture((1.0,), (1.0,), gated=True),
        "erf": lambda: Mixture((2.0,), (math.sqrt(2),)),
        "identity": Identity,
    }
    if activation not in makers:
        raise InputError(f"there is no activation {activation!r}: {did_you_mean(activation, list(makers))}")
    if not 0 <= eta <= 1:
        raise InputError(f"eta of leaky_relu must be between 0 and 1, not {eta}")
    return makers[activation]()
