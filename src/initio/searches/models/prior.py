"""What metrics say before anything is trained: one column a metric, and one that speaks for them all.

**Ranks.** A metric counts by its rank alone, in one of two forms. As a quantile of the normal distribution, z =
Φ⁻¹(rank / (n + 1)), rank n for the best: trainings are described in the same way (`model_average.py`), so that a
metric of rank correlation ρ is a line of slope ρ, whichever end of it is the good one. Or sharply, z = −log(1 − rank /
(n + 1)): the first ones stand far apart and all others close together, for metrics that are right about their top.

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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import norm

from initio.analysis.ranking import log_ranks

Form = Callable[[np.ndarray, int], np.ndarray | None]  # values and sign -> ranks

FLOOR = 0.005  # of Λ: no metric is exact
OWN = 4  # the exponent of q
LANDMARKS = 300
BLOCK = 8192
FITTED = 4000  # rows that a smoothing is fitted on
KEPT = 4  # factorisations of such rows
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
    values: Mapping[str, np.ndarray],
    signs: Mapping[str, int],
    basis: Basis,
    ranking: np.ndarray | None = None,
    form: Form | None = None,
) -> Prior:
    """The prior of the architectures of the basis; `signs` has ±1 for each metric that is known.

    Where there is a ranking already, it is the mean. The form of ranks is `quantiles` unless another one is given.
    """
    n, form = len(basis.B), form or quantiles
    usable = {name: z for name, given in values.items() if (z := form(given, signs.get(name, 1))) is not None}
    if not usable:
        return Prior.flat(n)
    columns, J = list(usable.values()), len(usable)
    if ranking is not None and (z := form(ranking, 1)) is not None:
        columns.append(z)
    smooth, left = smoothed(np.column_stack(columns), basis)
    Z, noise = smooth[:, :J], FLOOR + left[:J]
    mean = smooth[:, -1]
    if len(columns) == J:
        mean = agreed(Z, noise, np.array([name in signs for name in usable]))
    eigenvalues, U = np.linalg.eigh(Z.T @ Z / n + np.diag(noise))
    turned = Z @ (U / np.sqrt(eigenvalues * J))
    return Prior(mean, turned, Extension.of(basis, np.column_stack([mean, turned])))


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
    return _spread(norm.ppf(np.exp(log_ranks(sign * values))))


def sharp(values: np.ndarray, sign: int) -> np.ndarray | None:
    """−log(1 − rank / (n + 1)) in the same way.

    >>> sharp(np.array([1.0, 3.0, np.nan, 2.0]), 1).round(2)
    array([-1.11,  1.32,   nan, -0.21])
    """
    return _spread(-log_ranks(-sign * values))


def _spread(column: np.ndarray) -> np.ndarray | None:
    defined = ~np.isnan(column)
    if len(np.unique(column[defined])) < 2:
        return None
    column[defined] = standardised(column[defined])
    return column


def standardised(x: np.ndarray) -> np.ndarray:
    """Mean 0 and variance 1, or zeros for a constant."""
    spread = x.std()
    result: np.ndarray = (x - x.mean()) / spread if spread > 1e-12 else np.zeros_like(x)
    return result


def smoothed(Z: np.ndarray, basis: Basis) -> tuple[np.ndarray, np.ndarray]:
    """The columns smoothed, filled and standardised, and the variance of the noise left in each."""
    out, left = np.empty_like(Z), np.empty(Z.shape[1])
    defined = ~np.isnan(Z)
    masks: dict[bytes, list[int]] = {}
    for j in range(Z.shape[1]):
        masks.setdefault(defined[:, j].tobytes(), []).append(j)
    for columns in masks.values():  # those that are defined for the same architectures share a factorisation
        there = np.flatnonzero(defined[:, columns[0]])
        ridge = basis.ridge(there)
        given = Z[:, columns]
        fitted = given[ridge.rows]
        centre = fitted.mean(axis=0)
        coefficients, error, freedom = ridge.fit(fitted - centre)
        own = np.clip(error / np.maximum(fitted.var(axis=0), 1e-12), 0.0, 1.0) ** OWN
        smooth = (1 - own) * (basis.B @ coefficients)
        smooth[there] += own * (given[there] - centre)
        remains = error * ((1 - own) ** 2 * freedom / len(ridge.rows) + own**2)
        left[columns] = remains / np.maximum(smooth.var(axis=0), 1e-12)
        out[:, columns] = np.apply_along_axis(standardised, 0, smooth)
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


class Basis:
    """Some architectures in the coordinates of landmarks, for regressions on what they are."""

    def __init__(self, features: np.ndarray) -> None:
        self.kernel = Landmarks.of(features)
        self.B = self.kernel(features)
        self._ridges: dict[bytes, Ridge] = {}

    def ridge(self, there: np.ndarray) -> Ridge:
        """The regression on these rows, at most FITTED of them; a few are kept, since most columns have the same."""
        key = there.tobytes()
        if key not in self._ridges:
            if len(self._ridges) == KEPT:
                self._ridges.pop(next(iter(self._ridges)))
            self._ridges[key] = Ridge(self.B, np.random.default_rng(0).permutation(there)[:FITTED])
        return self._ridges[key]


@dataclass(frozen=True, eq=False)
class Extension:
    """A linear fit of finished columns in the coordinates of the landmarks."""

    kernel: Landmarks
    coefficients: np.ndarray

    @classmethod
    def of(cls, basis: Basis, columns: np.ndarray) -> Extension:
        """By ridge regression, each column with its own penalty."""
        ridge = basis.ridge(np.arange(len(columns)))
        return cls(basis.kernel, ridge.fit(columns[ridge.rows])[0])

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """What the columns would be."""
        found: np.ndarray = self.kernel(features) @ self.coefficients
        return found


def _squares(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    squares: np.ndarray = np.maximum((A**2).sum(1)[:, None] + (B**2).sum(1)[None, :] - 2 * A @ B.T, 0.0)
    return squares


class Ridge:
    """Ridge regression on some rows of a basis, the penalty by generalised cross-validation."""

    def __init__(self, B: np.ndarray, rows: np.ndarray) -> None:
        A = B[rows].astype(np.float64)
        values, self.V = np.linalg.eigh(A.T @ A)
        self.rows, self.values, self.A = rows, np.maximum(values, 0.0), A @ self.V

    def fit(self, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each column: the coefficients of the basis, the cross-validated error, and the degrees of freedom."""
        target, n = self.A.T @ Z, len(Z)
        best, coefficients = np.stack([Z.var(axis=0), np.zeros(Z.shape[1])]), np.zeros_like(target)
        for penalty in PENALTIES:
            freedom = float((self.values / (self.values + penalty)).sum())
            if freedom < 0.9 * n:
                tried = target / (self.values + penalty)[:, None]
                error = np.mean((Z - self.A @ tried) ** 2, axis=0) / (1 - freedom / n) ** 2
                better = error < best[0]
                best[:, better] = np.stack([error, np.full_like(error, freedom)])[:, better]
                coefficients[:, better] = tried[:, better]
        return self.V @ coefficients, best[0], best[1]


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
