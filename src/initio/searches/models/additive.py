"""Quantities that are nearly sums over the options of an architecture: ridge regression on its decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from initio.records import Architecture
from initio.searches.problem import Problem

if TYPE_CHECKING:
    from initio.spaces import Space
    from initio.spaces.base import Decision

OWN = 0.3  # prior deviation of a place's slope around the one that its operation has everywhere, if slopes are shared
DRAWN = 400  # fits that other measurements might have given, for the error of a difference


@dataclass(frozen=True, eq=False)
class Sums:
    """Several quantities, each nearly a sum over options: ridge regression, seen as a Gaussian prior on the slopes.

    Args:
        w: (quantities, options) slopes.
        x, y: the means that slopes are relative to.
        root: its product with its transpose is the slopes' covariance in units of the noise.
        noise: (quantities, quantities) covariance of what no sum explains.
        predicted: share of each quantity's variance that is predicted, every row from the others.
    """

    w: np.ndarray
    x: np.ndarray
    y: np.ndarray
    root: np.ndarray
    noise: np.ndarray
    predicted: np.ndarray

    def of(self, X: np.ndarray) -> np.ndarray:
        """The quantities, (quantities, rows of X)."""
        values: np.ndarray = self.w @ (X - self.x).T + self.y[:, None]
        return values

    def drawn(self, X: np.ndarray, count: int) -> np.ndarray:
        """Quantities as other measurements might have had them, (count, quantities, rows of X)."""
        normal = np.random.default_rng(0).normal(size=(count, *self.w.shape))
        slopes = np.linalg.cholesky(self.noise + 1e-12 * np.eye(len(self.noise))) @ normal @ self.root.T
        values: np.ndarray = self.of(X) + slopes @ (X - self.x).T
        return values


def regress(X: np.ndarray, Y: np.ndarray, ridge: float) -> Sums:
    """Of each row of Y on the options, with a free constant.

    With the slopes' prior, Y has the covariance noise ⊗ (I − H)⁻¹, H the matrix that makes predictions of Y; hence the
    estimate of the noise.
    """
    x, y, n = X.mean(axis=0), Y.mean(axis=1), len(X)
    centred, deviation = X - x, Y - y[:, None]
    root = np.linalg.inv(np.linalg.cholesky(centred.T @ centred + ridge * np.eye(X.shape[1]))).T
    w = deviation @ centred @ root @ root.T
    left = deviation - w @ centred.T
    reach = centred @ root
    own = np.square(reach).sum(axis=1) + 1 / n  # the diagonal of H
    alone = np.square(left / np.maximum(1 - own, 1e-9)).sum(axis=1)  # each row predicted from the others
    noise = deviation @ left.T / (n - 1)
    return Sums(w, x, y, root, noise, 1 - alone / np.maximum(np.square(deviation).sum(axis=1), 1e-300))


def design(
    problem: Problem, archs: Sequence[Architecture], *, shared: bool = False, canonical: bool = False
) -> np.ndarray:
    """One row an architecture: 1 for each option that it names, if only in a part that is not connected.

    `canonical` takes its representative instead, where that is of the same space.
    """
    if canonical:
        archs = [_representative(problem.space, arch) for arch in archs]
    sizes = [len(decision) for decision in problem.space.relaxation]
    starts = np.cumsum([0, *sizes[:-1]])
    X = np.zeros((len(archs), sum(sizes)))
    for row, arch in enumerate(archs):
        for categorical, option in problem.space.active(arch):
            X[row, starts[categorical] + option] = 1
    return X @ sharing(problem.space.relaxation) if shared else X


@lru_cache(maxsize=65_536)
def _representative(space: Space, arch: Architecture) -> Architecture:
    same = space.canonical(arch)
    return same if same.space == space.name else arch


@lru_cache(maxsize=8)
def sharing(decisions: tuple[Decision, ...]) -> np.ndarray:
    """Columns of a design whose slopes are shared: of each option (OWN), each operation of a cell, each categorical.

    So the slope of an option is its operation's, plus one of the place, plus a small one of its own.
    """
    options = [(place, (d.cell, d.options, option)) for place, d in enumerate(decisions) for option in d.options]
    operations = sorted({operation for _, operation in options})
    occurs = np.array([[operation == other for other in operations] for _, operation in options], float)
    there = np.array([[place == other for other in range(len(decisions))] for place, _ in options], float)
    return np.hstack([OWN * np.eye(len(options)), occurs, there])


def open_decisions(
    problem: Problem,
    chosen: Architecture,
    sums: Sums,
    objective: Callable[[np.ndarray], np.ndarray],
    *,
    shared: bool = False,
    canonical: bool = False,
) -> list[str]:
    """Decisions in which another option is predicted to lose less than the standard error of the difference.

    `objective` makes one value an architecture of the quantities, (..., quantities, architectures). The error is half
    of what holds two thirds of the differences in fits that other measurements might have given.
    """
    network = problem.space.canonical(chosen)
    near = [a for a in problem.space.neighbours(chosen) if problem.admits(a) and problem.space.canonical(a) != network]
    if not near:
        return []
    X = design(problem, [chosen, *near], shared=shared, canonical=canonical)
    values, drawn = objective(sums.of(X)), objective(sums.drawn(X, DRAWN))
    low, high = np.quantile(drawn[:, :1] - drawn[:, 1:], (0.159, 0.841), axis=0)
    close = values[0] - values[1:] < (high - low) / 2
    changed = np.array([a.choices for a in near]) != np.array(chosen.choices)
    return [problem.space.decisions[place].name for place in np.flatnonzero(changed[close].any(axis=0))]
