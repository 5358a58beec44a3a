"""SVGD with regularised diversity (Shu et al., 2022; SVGD-RD): particles between high density and distance.

A particle is a row; leading axes are independent sets of particles, which move together at the cost of one. A target
is a product of mixtures of Gaussians, one a block of coordinates: of one block it is Figure 5.2's density, and with a
block a decision the relaxed posterior over architectures [NESBS 5.8].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from initio.errors import InputError

STEPS, STEP, MOMENTUM = 1000, 0.1, 0.9  # [NESBS 5.3.4]


def shares(logits: np.ndarray) -> np.ndarray:
    """The softmax along the last axis."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


@dataclass(frozen=True)
class GaussianMixture:
    """Σ_k w_k N(x | μ_k, diag(v)), normalised.

    Args:
        weights: w, positive; (k,).
        means: μ; (k, d).
        variances: v; (d,).
    """

    weights: np.ndarray
    means: np.ndarray
    variances: np.ndarray

    @property
    def size(self) -> int:
        """d."""
        return len(self.variances)

    @cached_property
    def _logs(self) -> np.ndarray:
        """log w_k and the terms of N that x does not change; (k,)."""
        logs = np.log(self.weights / self.weights.sum())
        norm = 0.5 * (self.size * np.log(2 * np.pi) + np.log(self.variances).sum())
        return np.asarray(logs - norm - 0.5 * (self.means**2 / self.variances).sum(1))

    def _terms(self, x: np.ndarray) -> np.ndarray:
        """log w_k N(x | μ_k, v) without −Σ x²/2v, which all have in common; (..., k)."""
        return np.asarray(self._logs + (x / self.variances) @ self.means.T)

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """log p(x); (...)."""
        terms = self._terms(x)
        top = terms.max(-1)
        return np.asarray(top + np.log(np.exp(terms - top[..., None]).sum(-1)) - 0.5 * (x**2 / self.variances).sum(-1))

    def score(self, x: np.ndarray) -> np.ndarray:
        """∇ log p(x) = (Σ_k r_k(x) μ_k − x)/v, r the share of each component at x; (..., d)."""
        return np.asarray((shares(self._terms(x)) @ self.means - x) / self.variances)

    @property
    def mean(self) -> np.ndarray:
        """E[x]; (d,)."""
        return np.asarray(self.weights @ self.means / self.weights.sum())

    @property
    def spread(self) -> float:
        """E‖x − E[x]‖²."""
        between = self.weights @ ((self.means - self.mean) ** 2).sum(1) / self.weights.sum()
        return float(self.variances.sum() + between)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Independent samples; (*shape, d)."""
        which = rng.choice(len(self.weights), size=shape, p=self.weights / self.weights.sum())
        return np.asarray(self.means[which] + rng.standard_normal((*shape, self.size)) * np.sqrt(self.variances))


@dataclass(frozen=True)
class Blocks:
    """A product of mixtures over blocks of coordinates.

    Args:
        parts: the density of each block, in the order of the coordinates.
    """

    parts: tuple[GaussianMixture, ...]

    def split(self, x: np.ndarray) -> list[np.ndarray]:
        """The coordinates of each block."""
        return np.split(x, np.cumsum([part.size for part in self.parts])[:-1], axis=-1)

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """log p(x)."""
        return np.asarray(
            np.sum([part.log_density(own) for part, own in zip(self.parts, self.split(x), strict=True)], axis=0)
        )

    def score(self, x: np.ndarray) -> np.ndarray:
        """∇ log p(x)."""
        return np.concatenate([part.score(own) for part, own in zip(self.parts, self.split(x), strict=True)], axis=-1)

    @property
    def spread(self) -> float:
        """E‖x − E[x]‖²."""
        return sum(part.spread for part in self.parts)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Independent samples."""
        return np.concatenate([part.draw(rng, shape) for part in self.parts], axis=-1)


def relaxed(logits: Sequence[np.ndarray], operations: Sequence[int] | None = None) -> Blocks:
    """The posterior over architectures as a density: a Gaussian of covariance |O|·I about each option [NESBS 5.8].

    Args:
        logits: of each decision, its options' log p up to a constant.
        operations: |O| of each decision; by default all of its options. A decision between edges too has fewer.
    """
    counts = operations or [len(row) for row in logits]
    return Blocks(tuple(_about_options(np.asarray(row), float(n)) for row, n in zip(logits, counts, strict=True)))


def _about_options(row: np.ndarray, variance: float) -> GaussianMixture:
    weights = np.maximum(shares(row), np.finfo(np.float64).tiny)
    return GaussianMixture(weights, np.eye(len(row)), np.full(len(row), variance))


def decoded(target: Blocks, x: np.ndarray) -> np.ndarray:
    """The option of each decision whose one-hot vector is nearest [NESBS 5.9]; the first of equals.

    ‖o − h_k‖² = ‖o‖² + 1 − 2 o_k, so it is the largest coordinate.
    """
    return np.stack([own.argmax(-1) for own in target.split(x)], axis=-1)


def bandwidth_of(target: Blocks, n: int) -> float:
    """h of the kernel: 2 E‖x − E[x]‖² / log(n + 1).

    What the rule of the median distance (Liu and Wang, 2016) tends to once n particles represent the target. It stays
    the same while they move, as the theory of the kernel asks; the rule itself would shrink it to nothing where
    δ < −1 draws all particles to one place.
    """
    return 2 * target.spread / float(np.log(n + 1))


def direction(x: np.ndarray, target: Blocks, delta: float | np.ndarray, bandwidth: float) -> np.ndarray:
    """Where Proposition 5.1 moves each particle, with the indices of its proof [NESBS B.10]; (..., n, d).

    φ(x_i) = 1/n Σ_j k(x_j, x_i) ∇ log p(x_j) + ∇_{x_j} k(x_j, x_i) − δ ∇_{x_i} k(x_j, x_i), where
    k(x, y) = exp(−‖x − y‖²/h), hence ∇_{x_j} k = −∇_{x_i} k = 2/h (x_i − x_j) k.

    Args:
        x: particles, (..., n, d).
        target: p.
        delta: δ; one number, or one for each set of particles, of the shape of the leading axes.
        bandwidth: h.
    """
    squares = (x**2).sum(-1)
    distances = squares[..., :, None] + squares[..., None, :] - 2 * x @ np.swapaxes(x, -1, -2)
    k = np.exp(-np.maximum(distances, 0.0) / bandwidth)
    apart = (2 / bandwidth) * (x * k.sum(-1, keepdims=True) - k @ x)
    force = 1 + np.asarray(delta, dtype=np.float64)[..., None, None]
    return np.asarray((k @ target.score(x) + force * apart) / x.shape[-2])


def svgd(
    target: Blocks, start: np.ndarray, delta: float | np.ndarray = 0.0, *, steps: int = STEPS
) -> Iterator[np.ndarray]:
    """Algorithm 5.3 with momentum: the particles after each step.

    Args:
        target: the density p.
        start: particles to begin with, (..., n, d).
        delta: δ, how much more than SVGD (δ = 0) they repel; one, or one for each set.
        steps: L.
    """
    h = bandwidth_of(target, start.shape[-2])
    x, velocity = start, np.zeros_like(start)
    for _ in range(steps):
        velocity = MOMENTUM * velocity + direction(x, target, delta, h)
        x = x + STEP * velocity
        if not np.isfinite(x).all():
            raise InputError(f"particles of δ {delta} ran away: steps of {STEP} are too large, take a smaller δ")
        yield x


def settled(target: Blocks, start: np.ndarray, delta: float | np.ndarray = 0.0, steps: int = STEPS) -> np.ndarray:
    """The particles after the last step of Algorithm 5.3."""
    x = start
    for x in svgd(target, start, delta, steps=steps):  # noqa: B007
        pass
    return x


def spread_of(x: np.ndarray) -> np.ndarray:
    """The mean distance of two particles of a set; (...)."""
    n = x.shape[-2]
    apart = np.linalg.norm(x[..., :, None, :] - x[..., None, :, :], axis=-1)
    return np.asarray(apart.sum((-1, -2)) / max(1, n * (n - 1)))
