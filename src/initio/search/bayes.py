"""Bayesian optimisation of a few numbers in [0, 1]: suggest a point, observe its value, again and again.

A Gaussian process with a Matérn-5/2 kernel, one length a dimension, models the values; the next point has the largest
expected improvement (Snoek, Larochelle and Adams 2012). It is made for some tens of noisy evaluations: everything that
a larger one would fit by gradients is looked up in a small grid, so a suggestion takes milliseconds, cannot diverge,
and is the same on every machine that adds up in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import norm, qmc, rankdata

from initio.errors import InputError

Point = tuple[float, ...]

LENGTHS = (0.1, 0.2, 0.4, 0.8, 1.6)  # of the unit interval
NOISES = (0.01, 0.1, 0.4)  # variance beside a signal of variance 1
CANDIDATES = 512  # a power of two, as Sobol points want it


class Optimiser(Protocol):
    """Whoever chooses where to look next. Larger values are better; the same point may be observed more than once."""

    def suggest(self) -> Point:
        """The next point of the unit cube."""

    def observe(self, point: Point, value: float) -> None:
        """Tells what was found there."""


@dataclass
class RandomPoints:
    """Uniform points, whatever the values: the baseline.

    >>> RandomPoints(2, seed=0).suggest() == RandomPoints(2, seed=0).suggest()
    True
    """

    dimensions: int
    seed: int = 0

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def suggest(self) -> Point:
        """The next point."""
        return tuple(map(float, self._rng.random(self.dimensions)))

    def observe(self, point: Point, value: float) -> None:
        """Nothing to learn."""


@dataclass
class GaussianProcess:
    """Expected improvement under a Gaussian process.

    Values enter by their ranks, as normal scores Φ⁻¹((rank − 1/2)/n): one broken network at 10 % accuracy then does
    not hide the difference between 93 % and 94 %, and no unit of the values matters.

    Args:
        dimensions: of the cube.
        seed: of the candidates.
        start: points that are suggested first, in this order.

    >>> optimiser = GaussianProcess(1, start=((0.5,),))
    >>> for _ in range(12):
    ...     x = optimiser.suggest()
    ...     optimiser.observe(x, -((x[0] - 0.3) ** 2))
    >>> abs(max(optimiser.points, key=lambda x: -((x[0] - 0.3) ** 2))[0] - 0.3) < 0.02
    True
    """

    dimensions: int
    seed: int = 0
    start: Sequence[Point] = ()
    points: list[Point] = field(default_factory=list, init=False)
    values: list[float] = field(default_factory=list, init=False)
