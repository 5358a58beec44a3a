"""What metrics say before anything is trained: one column a metric, and one that speaks for them all.

**Ranks.** A metric counts by its rank alone, as a quantile of the normal distribution: z = Φ⁻¹(rank / (n + 1)), rank n
for the best. Trainings are described in the same way (`gaussian_process.py`), so that a metric of rank correlation ρ is
a line of slope ρ, whichever end of it is the good one.

**Smoothing.** A metric is measured with one initialisation on one batch; another draw gives another value. But
architectures that differ in one decision should have similar values, so each column is regressed on the decisions
(kernel ridge with landmarks, the penalty by generalised cross-validation). With R² the share that the decisions explain
out of sample and q = (1 − R²)⁴, a value becomes (1 − q) · prediction + q · value, and an undefined one its prediction:
where the decisions say little, a value speaks for itself.

**The mean** is the training-free ranking (`analysis/ranking.py`) where enough of its members are in the scores, ranked
and smoothed as any column. Else all metrics are combined. They repeat each other: ten gradient norms are one opinion.
If all are equally valid but their errors correlate as the metrics do, generalised least squares combines them best,

    w ∝ (C + Λ)⁻¹ sign(e),

C the correlations of the columns, Λ the variance of what noise is left in them plus 1/e² − 1, and |e| ≤ 1 the belief in
a metric: 1 for one that is known. A metric that nobody knows, or that contradicts the others, is believed as far as it
agrees with the rest, so that a column with the wrong sign is turned around and a random one is ignored.

**Architectures without scores**, in the pool or met later, have what the smoothing predicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import norm

from initio.analysis.ranking import log_ranks

FLOOR = 0.005  # of Λ: no metric is exact
OWN = 4  # the exponent of q
LANDMARKS = 300
BLOCK = 8192
FITTED = 4000  # rows that a smoothing is fitted on
PENALTIES = tuple(10.0**k for k in range(-3, 4))
REACH = 2.0  # of the smoothing kernel, in mean distances


@dataclass(frozen=True, eq=False)
class Prior:
    """Columns of n architectures.

    Args:
        mean: (n,) what metrics say is good, standardised; larger is better. Zero where nothing is known.
        columns: (n, J) the metrics in coordinates that do not correlate, of variance 1/J: what weights may change.
        extension: what the decisions say of others; None where they say nothing.
    """

    mean: np.ndarray
    columns: np.ndarray
    extension: Extension | None = field(default=None, repr=False)

    @classmethod
    def flat(cls, n: int) -> Prior:
        """Nothing is known of anyone."""
        return cls(np.zeros(n), np.zeros((n, 0)))

    def grown(self, features: np.ndarray) -> Prior:
        """With more architectures, of these rows of features."""
        J = self.columns.shape[1]
        more = np.zeros((len(features), 1 + J))
        if self.extension is not None:
            more = self.extension(features)
        return Prior(
            np.concatenate([self.mean, more[:, 0]]),
            np.concatenate([self.columns, more[:, 1:]]),
            self.extension,
        )


def combine(
    values: Mapping[str, np.ndarray], signs: Mapping[str, int], features: np.ndarray, ranking: np.ndarray | None = None
) -> Prior:
    """The prior of the architectures with these rows of features; `signs` has ±1 for each metric that is known.

    Where there is a ranking already, it is the mean.
    """
    n = len(features)
    usable = {name: z for name, given in values.items() if (z := quantiles(given, signs.get(name, 1))) is not None}
    if not usable:
        return Prior.flat(n)
    columns, J = list(usable.values()), len(usable)
    if ranking is not None and (z := quantiles(ranking, 1)) is not None:
        columns.append(z)
    kernel = Landmarks.of(features)
    B = kernel(features)
    smooth, left = smoothed(np.column_stack(columns), B)
    Z, noise = smooth[:, :J], FLOOR + left[:J]
    mean = smooth[:, -1]
    if len(columns) == J:
        mean = agreed(Z, noise, np.array([name in signs for name in usable]))
    eigenvalues, U = np.linalg.eigh(Z.T @ Z / n + np.diag(noise))
    turned = Z @ (U / np.sqrt(eigenvalues * J))
    return Prior(mean, turned, Extension.of(kernel, B, np.column_stack([mean, turned])))


def agreed(Z: np.ndarray, noise: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The combination of the columns by generalised least squares, standardised."""
    C = Z.T @ Z / len(Z)
    e = validity(C, known)
    doubt = 1 / np.maximum(e**2, 1e-6) - 1
    return standardised(Z @ np.linalg.solve(C + np.diag(noise + doubt), np.sign(e)))


def quantiles(values: np.ndarray, sign: int) -> np.ndarray | None:
    """Φ⁻¹(rank / (n + 1)) standardised, NaN where there is no value; None for a column that says nothing.

    >>> quantiles(np.array([1.0, 3.0, np.nan, 2.0]), 1).round(2)
    array([-1.22,  1.22,   nan,  0.  ])
    >>> quantiles(np.array([2.0, 2.0, 2.0]), 1) is None
    True
    """
    out: np.ndarray = norm.ppf(np.exp(log_ranks(sign * values)))
    defined = ~np.isnan(out)
    if len(np.unique(out[defined])) < 2:
        return None
    out[defined] = standardised(out[defined])
    return out


def standardised(x: np.ndarray) -> np.ndarray:
    """Mean 0 and variance 1, or zeros for a constant."""
    spread = x.std()
    result: np.ndarray = (x - x.mean()) / spread if spread > 1e-12 else np.zeros_like(x)
    return result


def smoothed(Z: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The columns smoothed, filled and standardised, and the variance of the noise left in each; B of `Landmarks`."""
    out, left = np.empty_like(Z), np.empty(Z.shape[1])
    defined = ~np.isnan(Z)
    masks: dict[bytes, list[int]] = {}
    for j in range(Z.shape[1]):
        masks.setdefault(defined[:, j].tobytes(), []).append(j)
    for columns in masks.values():  # those that are defined for the same architectures share a factorisation
        there = np.flatnonzero(defined[:, columns[0]])
        rows = np.random.default_rng(0).permutation(there)[:FITTED]
        ridge = _Ridge(B, rows)
        for j in columns:
            z, centre = Z[:, j], Z[rows, j].mean()
            coefficients, error, freedom = ridge.fit(z[rows] - centre)
            prediction = B @ coefficients
            unexplained = min(max(error / max(z[rows].var(), 1e-12), 0.0), 1.0)
            own = unexplained**OWN
            column = (1 - own) * prediction
            column[there] += own * (z[there] - centre)
            remains = error * ((1 - own) ** 2 * freedom / len(rows) + own**2)
            out[:, j], left[j] = standardised(column), remains / max(column.var(), 1e-12)
    return out, left


@dataclass(frozen=True, eq=False)
class Landmarks:
    """Coordinates in which the kernel exp(−|a − b|² / (REACH · mean)) is a product, by a few landmarks."""

    places: np.ndarray
    unit: float
    projection: np.ndarray

    @classmethod
    def of(cls, features: np.ndarray) -> Landmarks:
        """Some of these rows."""
        rows = np.random.default_rng(0).permutation(len(features))[:LANDMARKS]
        places = np.unique(features[rows], axis=0)
        between = _squares(places, places)
        unit = REACH * max(float(between.mean()), 1e-12)
        values, vectors = np.linalg.eigh(np.exp(-between / unit))
        kept = values > 1e-6 * values.max()
        return cls(places, unit, vectors[:, kept] / np.sqrt(values[kept]))

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """A row an architecture."""
        out = np.empty((len(features), self.projection.shape[1]), dtype=np.float32)
        for start in range(0, len(features), BLOCK):
            block = features[start : start + BLOCK]
            out[start : start + BLOCK] = np.exp(-_squares(block, self.places) / self.unit) @ self.projection
        return out


@dataclass(frozen=True, eq=False)
class Extension:
    """A linear fit of finished columns in the coordinates of the landmarks."""

    kernel: Landmarks
    coefficients: np.ndarray

    @classmethod
    def of(cls, kernel: Landmarks, B: np.ndarray, columns: np.ndarray) -> Extension:
        """By ridge regression, each column with its own penalty."""
        rows = np.random.default_rng(0).permutation(len(B))[:FITTED]
        ridge = _Ridge(B, rows)
        return cls(kernel, np.column_stack([ridge.fit(column[rows])[0] for column in columns.T]))

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """What the columns would be."""
        found: np.ndarray = self.kernel(features) @ self.coefficients
        return found


def _squares(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    squares: np.ndarray = np.maximum((A**2).sum(1)[:, None] + (B**2).sum(1)[None, :] - 2 * A @ B.T, 0.0)
    return squares


class _Ridge:
    """Ridge regression on some rows of a basis, the penalty by generalised cross-validation."""

    def __init__(self, B: np.ndarray, rows: np.ndarray) -> None:
        A = B[rows].astype(np.float64)
        values, self.V = np.linalg.eigh(A.T @ A)
        self.values, self.A = np.maximum(values, 0.0), A @ self.V

    def fit(self, z: np.ndarray) -> tuple[np.ndarray, float, float]:
        """The coefficients of the basis, the cross-validated error, and the degrees of freedom."""
        A, n = self.A, len(z)
        target, best = A.T @ z, (float(z.var()), 0.0, np.zeros(len(self.values)))
        for penalty in PENALTIES:
            freedom = float((self.values / (self.values + penalty)).sum())
            coefficients = target / (self.values + penalty)
            if freedom < 0.9 * n:
                error = float(np.mean((z - A @ coefficients) ** 2) / (1 - freedom / n) ** 2)
                best = min(best, (error, freedom, coefficients), key=lambda found: found[0])
        return self.V @ best[2], best[0], best[1]


def validity(C: np.ndarray, known: np.ndarray) -> np.ndarray:
    """e: the belief in each metric, negative for one that is better when smaller.

    Agreement is the mean correlation with the known metrics, in units of what is usual among those. A known metric is
    believed unless it contradicts them; any other one as far as it agrees, wholly from one half of the usual on. Where
    no metric is known, all are taken to be better when larger, and the majority decides.
    """
    judges = known if known.any() else np.ones(len(C), dtype=bool)
    e: np.ndarray
    if judges.sum() == 1:  # it is right, and the others are as good as they agree with it
        e = np.where(judges, 1.0, C[:, judges].ravel())
        return e
    others = np.where(judges[None, :], C, 0.0)
    np.fill_diagonal(others, 0.0)
    agreement = others.sum(axis=1) / (judges.sum() - judges)
    usual = np.median(agreement[judges])
    if usual <= 0:  # they do not agree on anything: believe what is known
        return judges.astype(float)
    e = np.where(known, np.clip(1 + 2 * agreement / usual, 0.0, 1.0), np.clip(2 * agreement / usual, -1.0, 1.0))
    return e
