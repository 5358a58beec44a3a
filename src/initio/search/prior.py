"""What metrics say before anything is trained: one standardised column a metric, and one that combines them.

A metric counts by its rank alone: z = −log(rank / (n + 1)), rank 1 for the best, standardised. So no scale is needed,
and an architecture at the very top of one metric is worth more than one that is slightly above the middle in all.

Metrics repeat each other: ten gradient norms are one opinion. If every metric is equally valid but their errors
correlate as the metrics do, the best combination is that of generalised least squares,

    w ∝ (C + λ I)⁻¹ e,

with C the correlations of the columns and e the validity, 1 for a metric that is believed. λ is the share of a
metric's variance that is its own noise. A metric that nobody knows, or that contradicts the others, has
e = its agreement with the rest, so a column with the wrong sign is turned around and a random one is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

NOISE = 0.1  # λ: the share of a metric's variance that another initialisation and batch would change


@dataclass(frozen=True, eq=False)
class Prior:
    """Columns of n architectures.

    Args:
        mean: (n,) the combination, standardised; larger is better. Zero where no metric is defined.
        columns: (n, J) the metrics in coordinates that do not correlate, of variance 1/J: what weights may change.
    """

    mean: np.ndarray
    columns: np.ndarray


def combine(values: Mapping[str, np.ndarray], signs: Mapping[str, int], n: int) -> Prior:
    """The prior of n architectures from their metrics; `signs` has ±1 for each metric whose direction is known."""
    usable = {name: z for name, given in values.items() if (z := log_rank(given, signs.get(name, 1))) is not None}
    if not usable:
        return Prior(np.zeros(n), np.zeros((n, 0)))
    Z, known = np.column_stack(list(usable.values())), np.array([name in signs for name in usable])
    C = correlations(Z)
    e = validity(C, known)
    defined = ~np.isnan(Z)
    J = len(e)
    eigenvalues, U = np.linalg.eigh(C + NOISE * np.eye(J))
    eigenvalues = np.maximum(eigenvalues, NOISE)  # C of incomplete columns may fall short of semi-definite
    w = U @ ((U.T @ e) / eigenvalues)
    filled = np.where(defined, Z, 0.0)
    filled = np.where(defined, Z, _guess(filled, defined, C))
    mean = standardised(filled @ w)
    columns = filled @ (U / np.sqrt(eigenvalues)) / np.sqrt(J)
    return Prior(mean, columns - columns.mean(axis=0))


def log_rank(values: np.ndarray, sign: int) -> np.ndarray | None:
    """−log(rank / (n + 1)) standardised, NaN where there is no value; None for a column that says nothing.

    >>> log_rank(np.array([1.0, 3.0, np.nan, 2.0]), 1).round(2)
    array([-1.05,  1.34,   nan, -0.29])
    >>> log_rank(np.array([2.0, 2.0, 2.0]), 1) is None
    True
    """
    defined = ~np.isnan(values)
    if len(np.unique(values[defined])) < 2:
        return None
    out = np.full(len(values), np.nan)
    out[defined] = standardised(-np.log(rankdata(-sign * values[defined]) / (defined.sum() + 1)))
    return out


def standardised(x: np.ndarray) -> np.ndarray:
    """Mean 0 and variance 1, or zeros for a constant."""
    spread = x.std()
    result: np.ndarray = (x - x.mean()) / spread if spread > 1e-12 else np.zeros_like(x)
    return result


def correlations(Z: np.ndarray) -> np.ndarray:
    """Of the columns, each pair where both are defined."""
    defined = (~np.isnan(Z)).astype(float)
    filled = np.nan_to_num(Z)
    count = np.maximum(defined.T @ defined, 1.0)
    mean_a, mean_b = filled.T @ defined / count, defined.T @ filled / count
    covariance = filled.T @ filled / count - mean_a * mean_b
    var_a = (filled**2).T @ defined / count - mean_a**2
    C: np.ndarray = covariance / np.sqrt(np.maximum(var_a * var_a.T, 1e-12))
    return np.clip(C, -1.0, 1.0)


def validity(C: np.ndarray, known: np.ndarray) -> np.ndarray:
    """e: 1 for a metric that agrees with the known ones at least half as much as they do with each other, less below.

    Where no metric is known, all are taken to be better when larger, and the majority decides.
    """
    judges = known if known.any() else np.ones(len(C), dtype=bool)
    others = np.where(judges[None, :], C, 0.0)
    np.fill_diagonal(others, 0.0)
    n_others = np.maximum(judges.sum() - judges, 1)
    agreement = others.sum(axis=1) / n_others
    usual = np.median(agreement[judges])
    if judges.sum() == 1 and known.any():  # one known metric: it is right, and the others are as good as they agree
        return np.where(known, 1.0, agreement)
    if usual <= 0:
        return np.where(known, 1.0, 0.0)
    e: np.ndarray = np.clip(2 * agreement / usual, np.where(known, 0.0, -1.0), 1.0)
    return e


def _guess(filled: np.ndarray, defined: np.ndarray, C: np.ndarray) -> np.ndarray:
    """For each missing value the regression on the row's defined ones, as if those agreed among themselves."""
    weights = np.where(defined, 1.0, 0.0)
    guess: np.ndarray = filled @ C / np.maximum(weights @ np.abs(C), 1e-12)
    return guess
