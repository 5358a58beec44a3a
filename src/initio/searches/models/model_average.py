"""A small exact Gaussian process on architectures that averages over its settings instead of choosing them.

    y = μ + b m(x) + z(x)ᵀδ + f(x) + ε,   f ~ GP(0, k),   k = exp(−d/ℓ),   δ ~ N(0, t² I),   μ free,

m is a prior mean, z the metrics, d a mixture of distances. What b and m are is a hypothesis about the metrics: they say
what is good (b > 0), sharply or on the whole, nothing (0), or what is bad (b < 0). Of the variance of ε, half is shared
by architectures of one class (the same graph), half is each training's own. Every combination of a hypothesis, the
mixture, ℓ, t and the noise in a small grid is one model; its weight is the belief in its hypothesis times its evidence
(the marginal likelihood, with the scale of everything and μ integrated out), and predictions are averages over the
heaviest models, of all hypotheses or of one alone. With ten observations no single setting is certain, and an average
cannot be far off where the best guess can.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm, rankdata

LENGTHS = (0.5, 1.0, 2.0, 4.0)  # ℓ, in units of the mean distance of two candidates
NOISES = (0.05, 0.3)  # variance of ε beside k(x, x) = 1
TRUSTS = (0.0, 0.5, 1.0, 2.0)  # t: 0 keeps the weights of the metrics as they are
FLAT = 100.0  # prior variance of μ
HEAVIEST = 16  # models of one hypothesis that predict


@dataclass(frozen=True)
class Hypothesis:
    """What the metrics say: b m, for observations and m of variance 1.

    Args:
        view: number of the prior mean m.
        slope: b.
        belief: in it, before anything is trained.
    """

    view: int
    slope: float
    belief: float


HYPOTHESES = (  # views: 0 is sharp, 1 is not
    Hypothesis(0, 0.3, 0.4),
    Hypothesis(1, 0.5, 0.2),
    Hypothesis(1, 0.0, 0.25),
    Hypothesis(1, -0.5, 0.15),
)
SHARP, BROAD, NOTHING, REVERSED = range(len(HYPOTHESES))


@dataclass(frozen=True)
class Model:
    """One combination of settings."""

    mixture: int  # row of the mixtures of distances
    length: float
    noise: float
    hypothesis: int
    trust: float

    def mean(self, points: Points) -> np.ndarray:
        """b m."""
        known = HYPOTHESES[self.hypothesis]
        mean: np.ndarray = known.slope * points.means[known.view]
        return mean

    @property
    def view(self) -> int:
        """Whose metrics have weights."""
        return HYPOTHESES[self.hypothesis].view


@dataclass(frozen=True, eq=False)
class Points:
    """What is known of some architectures before they are trained."""

    means: np.ndarray  # (views, n) m
    columns: np.ndarray  # (views, n, J) z
    classes: np.ndarray  # (n,) equal for isomorphic ones


def gaussianised(y: np.ndarray) -> np.ndarray:
    """Each value's rank as a quantile of N(0, 1).

    >>> gaussianised(np.array([10.0, 90.0, 91.0])).round(2)
    array([-0.97,  0.  ,  0.97])
    """
    out: np.ndarray = norm.ppf((rankdata(y) - 0.5) / len(y))
    return out


def grid(n_mixtures: int, n_columns: int) -> tuple[Model, ...]:
    """All models; without metrics there is nothing to trust."""
    believed = [(NOTHING, 0.0)]
    if n_columns:
        believed = list(product(range(len(HYPOTHESES)), TRUSTS))
    kernels = product(range(n_mixtures), LENGTHS, NOISES)
    return tuple(Model(*kernel, *what) for kernel, what in product(kernels, believed))


@dataclass(frozen=True, eq=False)
class Posterior:
    """The heaviest models of each hypothesis and their weights after some observations, and the belief in each."""

    models: tuple[Model, ...]
    weights: np.ndarray
    beliefs: np.ndarray
    points: Points
    solved: np.ndarray  # (models, n) C⁻¹ (y − b m)
    inverse: np.ndarray  # (models, n, n) C⁻¹
    scales: np.ndarray  # (models,) the variance that multiplies C

    def under(self, hypothesis: int) -> Posterior:
        """The posterior of one for whom this hypothesis is true."""
        own = np.array([k for k, model in enumerate(self.models) if model.hypothesis == hypothesis], dtype=np.intp)
        return replace(
            self,
            models=tuple(self.models[k] for k in own),
            weights=self.weights[own] / self.weights[own].sum(),
            beliefs=np.eye(len(HYPOTHESES))[hypothesis],
            solved=self.solved[own],
            inverse=self.inverse[own],
            scales=self.scales[own],
        )

    def predict(self, new: Points, D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of a training of each new point; D (mixtures, new, n) are the distances."""
        n = len(new.classes)
        mean, second = np.zeros(n), np.zeros(n)
        same = (new.classes[:, None] == self.points.classes[None, :]).astype(float)
        linear = new.columns @ self.points.columns.transpose(0, 2, 1)
        own = (new.columns**2).sum(axis=2)
        kernels: dict[tuple[int, float], np.ndarray] = {}
        for model, weight, solved, inverse, scale in zip(
            self.models, self.weights, self.solved, self.inverse, self.scales, strict=True
        ):
            if (model.mixture, model.length) not in kernels:
                kernels[model.mixture, model.length] = np.exp(-D[model.mixture] / model.length) + FLAT
            K = kernels[model.mixture, model.length] + model.noise / 2 * same
            if model.trust:
                K = K + model.trust**2 * linear[model.view]
            mu = model.mean(new) + K @ solved
            total = 1.0 + FLAT + model.trust**2 * own[model.view] + model.noise
            variance = scale * np.maximum(total - np.einsum("ij,ij->i", K @ inverse, K), 1e-9)
            mean += weight * mu
            second += weight * (variance + mu**2)
        return mean, np.sqrt(np.maximum(second - mean**2, 1e-12))


def fit(models: tuple[Model, ...], points: Points, D: np.ndarray, y: np.ndarray) -> Posterior:
    """Weighs the models by their evidence; y is of variance about 1, D (mixtures, n, n).

    With an inverse-gamma prior of shape 1 and scale 1 on the overall variance the evidence is a Student t density:
    log p = −½ log|C| − (1 + n/2) log(1 + ½ rᵀC⁻¹r) + constant.
    """
    n = len(y)
    same = (points.classes[:, None] == points.classes[None, :]).astype(float)
    linear = points.columns @ points.columns.transpose(0, 2, 1)
    kernels = {(m, ell): np.exp(-D[m] / ell) for m in {x.mixture for x in models} for ell in LENGTHS}
    C = np.stack(
        [
            kernels[x.mixture, x.length] + FLAT + x.trust**2 * linear[x.view] + x.noise / 2 * (same + np.eye(n))
            for x in models
        ]
    )
    residual = y[None, :] - np.stack([x.mean(points) for x in models])
    L = np.linalg.cholesky(C)
    log_det = 2 * np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)
    inverse = np.linalg.inv(C)
    solved = np.einsum("hij,hj->hi", inverse, residual)
    fits = np.einsum("hi,hi->h", residual, solved)
    hypotheses = np.array([x.hypothesis for x in models])
    belief = np.log([known.belief for known in HYPOTHESES])[hypotheses]
    log_p = belief - 0.5 * log_det - (1 + n / 2) * np.log1p(fits / 2)
    weights = np.exp(log_p - logsumexp(log_p))
    scales = (2 + fits) / (2 + n)
    order = np.argsort(-weights, kind="stable")
    keep = np.sort(np.concatenate([order[hypotheses[order] == h][:HEAVIEST] for h in range(len(HYPOTHESES))]))
    return Posterior(
        tuple(models[h] for h in keep), weights[keep] / weights[keep].sum(),
        np.bincount(hypotheses, weights, len(HYPOTHESES)), points, solved[keep], inverse[keep], scales[keep],
    )  # fmt: skip


def expected_improvement(mean: np.ndarray, sd: np.ndarray, best: float) -> np.ndarray:
    """E max(y − best, 0) of y ~ N(mean, sd²)."""
    u = (mean - best) / sd
    out: np.ndarray = sd * (u * norm.cdf(u) + norm.pdf(u))
    return out
