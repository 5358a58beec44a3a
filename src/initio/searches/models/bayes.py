"""Bayesian optimisation of a few numbers in [0, 1]: suggest a point, observe its value, again and again.

A Gaussian process with a Matérn-5/2 kernel, one length a dimension, models the values; the next point has the largest
expected improvement (Snoek, Larochelle and Adams 2012) or upper confidence bound. It is made for some tens of noisy
evaluations: what larger libraries fit by gradients is looked up in a small grid, so a fit cannot diverge and takes
milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from initio.errors import InputError
from initio.searches.models.model_average import expected_improvement

Point = tuple[float, ...]

LENGTHS = (0.1, 0.2, 0.4, 0.8, 1.6)  # sides of the cube
NOISES = (0.01, 0.1, 0.4)  # variance beside a signal of variance 1
SEPARATE = 3  # up to so many dimensions each has its own length; the grid grows exponentially
ANYWHERE, NEARBY, NEAR = 512, 64, 0.05  # candidates in the cube, around the best point, and how far around


class Optimiser(Protocol):
    """Whoever chooses where to look next; larger values are better."""

    def suggest(self) -> Point:
        """The next point of the unit cube."""

    def observe(self, point: Point, value: float) -> None:
        """Tells what was found there; the same point may be observed more than once."""


@dataclass
class GaussianProcess:
    """Expected improvement under a Gaussian process; a pure function of seed and observations.

    Args:
        dimensions: of the cube.
        seed: of the candidates.
        start: points that are suggested first, in this order.
        confidence: with it, not the expected improvement decides but mean + confidence · standard deviation.

    >>> optimiser = GaussianProcess(1, start=((0.9,),))
    >>> for _ in range(10):
    ...     (x,) = optimiser.suggest()
    ...     optimiser.observe((x,), -((x - 0.3) ** 2))
    >>> max(optimiser.values) > -1e-4
    True
    """

    dimensions: int
    seed: int = 0
    start: Sequence[Point] = ()
    confidence: float | None = None
    points: list[Point] = field(default_factory=list, init=False)
    values: list[float] = field(default_factory=list, init=False)

    def observe(self, point: Point, value: float) -> None:
        """Learns a value."""
        if len(point) != self.dimensions or not math.isfinite(value):
            raise InputError(f"an observation is {self.dimensions} numbers and a finite value, not {point} and {value}")
        self.points.append(point)
        self.values.append(value)

    def suggest(self) -> Point:
        """The next given point; after these the candidate that promises most."""
        n = len(self.points)
        if n < len(self.start):
            return self.start[n]
        rng = np.random.default_rng((self.seed, n))
        if n == 0:
            return tuple(map(float, rng.random(self.dimensions)))
        X, y = np.array(self.points), standardise(np.array(self.values))
        around = X[np.argmax(y)] + NEAR * rng.standard_normal((NEARBY, self.dimensions))
        candidates = np.vstack([rng.random((ANYWHERE, self.dimensions)), np.clip(around, 0, 1)])
        gain = self._gain(best_fit(X, y), candidates)
        return tuple(map(float, candidates[np.argmax(gain)]))

    def _gain(self, model: Fit, points: np.ndarray) -> np.ndarray:
        if self.confidence is None:
            return improvement_of(model, points)
        mean, sd = model.predict(points)
        return mean + self.confidence * sd


def standardise(values: np.ndarray) -> np.ndarray:
    """Mean 0 and standard deviation 1; all 0 if there is no difference."""
    centred: np.ndarray = values - values.mean()
    return centred / (centred.std() or 1.0)


def matern(A: np.ndarray, B: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """(1 + √5 r + 5r²/3) e^{−√5 r}, r the distance in units of the lengths.

    >>> matern(np.zeros((1, 2)), np.zeros((1, 2)), np.ones(2)).item()
    1.0
    """
    r = np.sqrt(5 * (((A[:, None] - B[None]) / lengths) ** 2).sum(axis=-1))
    k: np.ndarray = (1 + r + r**2 / 3) * np.exp(-r)
    return k


@dataclass(frozen=True)
class Fit:
    """A Gaussian process given observations: k + σ² I has the Cholesky factor `factor`, `weights` = (k + σ² I)⁻¹ y."""

    X: np.ndarray
    lengths: np.ndarray
    factor: tuple[np.ndarray, bool]
    weights: np.ndarray
    variance: float  # of the signal, by maximum likelihood
    log_likelihood: float

    def predict(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the signal."""
        k = matern(points, self.X, self.lengths)
        explained = (k * cho_solve(self.factor, k.T).T).sum(axis=1)
        return k @ self.weights, np.sqrt(self.variance * np.maximum(1 - explained, 1e-12))


def fit(X: np.ndarray, y: np.ndarray, lengths: np.ndarray, noise: float) -> Fit:
    """The process with these lengths and this noise; the variance maximises the likelihood."""
    n = len(y)
    factor = cho_factor(matern(X, X, lengths) + noise * np.eye(n), lower=True)
    weights = cho_solve(factor, y)
    variance = max(float(y @ weights) / n, 1e-12)
    log_likelihood = -n / 2 * math.log(variance) - float(np.log(np.diag(factor[0])).sum())
    return Fit(X, lengths, factor, weights, variance, log_likelihood)


def best_fit(X: np.ndarray, y: np.ndarray) -> Fit:
    """The process of the grid with the largest likelihood."""
    lengths, noises = _grid(X.shape[1])
    likelihoods = _log_likelihoods(X, y, lengths, noises)
    best = int(np.argmax(likelihoods))
    return fit(X, y, lengths[best], float(noises[best]))


@cache
def _grid(dimensions: int) -> tuple[np.ndarray, np.ndarray]:
    """All lengths (rows) with all noises."""
    separate = dimensions <= SEPARATE
    scales = product(LENGTHS, repeat=dimensions) if separate else [(length,) * dimensions for length in LENGTHS]
    pairs = list(product(scales, NOISES))
    return np.array([lengths for lengths, _ in pairs]), np.array([noise for _, noise in pairs])


def _log_likelihoods(X: np.ndarray, y: np.ndarray, lengths: np.ndarray, noises: np.ndarray) -> np.ndarray:
    """What `fit` would say of each row of the grid, all at once."""
    n = len(y)
    K = matern(X, X, lengths[:, None, None]) + noises[:, None, None] * np.eye(n)
    L = np.linalg.cholesky(K)
    whitened = np.linalg.solve(L, np.broadcast_to(y[:, None], (len(K), n, 1)))[..., 0]
    variance = np.maximum((whitened**2).sum(axis=1) / n, 1e-12)
    log_likelihoods: np.ndarray = -n / 2 * np.log(variance) - np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)
    return log_likelihoods


def improvement_of(model: Fit, points: np.ndarray) -> np.ndarray:
    """E max(0, f(x) − f*), f* the largest mean at an observed point: noisy values have no exact best."""
    mean, sd = model.predict(points)
    return expected_improvement(mean, sd, model.predict(model.X)[0].max())
