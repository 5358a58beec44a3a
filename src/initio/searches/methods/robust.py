"""The robust hybrid: metrics say where to look, a few trainings say which of them to trust, and the best is exploited.

1. All metrics of the pool become one prior mean (`prior.py`): ranks only, redundancy and wrong signs taken care of.
2. A Gaussian process on the architecture (`gaussian_process.py`, `encoding.py`) starts from that mean. Its slope, the
   weights of the metrics, the kernel and the noise are averaged by their evidence, so that metrics which turn out to be
   useless lose their influence.
3. The first trainings are the best by the prior; then the largest expected improvement is trained next, among the top
   of the prior and the neighbours of the best so far.

Without scores the prior is flat and the same process searches by the architecture alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np

from initio.errors import InputError, at_least
from initio.records import Architecture, Query
from initio.scores.table import ScoreTable
from initio.searches.models.encoding import WAYS, Encoder, one_hot
from initio.searches.models.gaussian_process import (
    FULL_GRID,
    KEPT,
    Model,
    Points,
    Posterior,
    expected_improvement,
    fit,
    gaussianised,
    grid,
)
from initio.searches.models.prior import Prior, combine
from initio.searches.problem import Problem
from initio.searches.queries import Proposals, QuerySearch
from initio.spaces import Space

MIXTURES = np.array([np.full(len(WAYS), 1 / len(WAYS)), np.eye(len(WAYS))[0]])  # all ways together; decisions alone
CENTRES = 3  # of the best trained, whose neighbours are candidates
AROUND = 200  # neighbours of one of them
WIDENS = 20  # trainings after which the top of the prior widens in proportion to them
MEASURED = 100  # architectures of the top that give the mean distance
ENUMERATED = 20_000  # a space without a pool is listed up to this size; beyond it, so many are drawn
DRAWN = 5_000


@dataclass(frozen=True)
class Robust(QuerySearch):
    """Gaussian process on architectures with a prior from metrics.

    Args:
        start: the best by the prior that are trained before anything is learnt from, at most a third of the budget.
        top: share of the pool that counts as its top.
        candidates: the top has at least so many architectures; they are compared at each step, together with all that
            differ in one decision from one of the best trained so far.
    """

    start: int = 3
    top: float = 0.05
    candidates: int = 300

    name: ClassVar[str] = "robust"
    needs_scores: ClassVar[bool] = True

    def __post_init__(self) -> None:
        at_least(self, start=1, candidates=10)
        if not 0 < self.top <= 1:
            raise InputError(f"top must be a share in (0, 1], not {self.top}")

    def propose(self, problem: Problem, seed: int) -> Proposals:
        """Trains the first few of the prior, then what the Gaussian process recommends."""
        pool = RankedPool(problem, seed)
        learner = Learner(pool)
        values: dict[int, float] = {}  # in the order of training
        first = self.start
        if problem.queries is not None:
            first = max(1, min(first, problem.queries // 3))
        while True:
            rng = Random(f"robust {seed} {len(values)}")
            if not (candidates := self._candidates(pool, values, rng)):
                return None
            if len(values) < first:
                chosen = pool.first(candidates, values)
            else:
                chosen = self._most_promising(learner, candidates, values)
            values[chosen] = (yield Query(pool.archs[chosen])).value

    def _candidates(self, pool: RankedPool, values: Mapping[int, float], rng: Random) -> list[int]:
        """What may come next, best by the prior first; the top widens in long searches, and ends with the pool."""
        size = max(round(self.top * len(pool)), self.candidates)
        top = pool.best(max(size, round(size * len(values) / WIDENS)), rng)
        best = sorted(values, key=lambda k: -values[k])[:CENTRES]
        exhausted = all(k in values for k in top)
        around = pool.neighbours(best, rng) if exhausted or len(values) >= self.start else []
        return [k for k in dict.fromkeys([*top, *around]) if k not in values] or [
            k for k in range(len(pool)) if k not in values
        ]

    @staticmethod
    def _most_promising(learner: Learner, candidates: list[int], values: Mapping[int, float]) -> int:
        """The largest expected improvement on the best so far."""
        seen, y = list(values), gaussianised(np.array(list(values.values())))
        mean, sd = learner.predict(learner.learn(seen, y), candidates, seen)
        return candidates[int(np.argmax(expected_improvement(mean, sd, float(y.max()))))]


class RankedPool:
    """The architectures that may be chosen, by number, with their prior. Without a given pool it grows."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem = problem
        if problem.pool:
            self.archs = list(problem.pool)
        elif problem.scores is not None and len(problem.scores):
            self.archs = list(filter(problem.within, problem.scores.architectures))
        else:
            self.archs = list(filter(problem.within, _drawn(problem.space, Random(f"robust pool {seed}"))))
        self.grows = not problem.pool
        self.number = {arch: k for k, arch in enumerate(self.archs)}
        self.prior = _prior(problem.space, problem.scores, self.archs)
        self._classes: dict[int, int] = {}
        self._names: dict[Architecture, int] = {}

    def __len__(self) -> int:
        return len(self.archs)

    def best(self, count: int, rng: Random) -> list[int]:
        """The numbers of the best by the prior, ties at random."""
        ties = np.random.default_rng(rng.getrandbits(64)).random(len(self))
        return [int(k) for k in np.lexsort((ties, -self.prior.mean))[:count]]

    def first(self, candidates: Sequence[int], trained: Collection[int]) -> int:
        """The first of the candidates that is no other name for one that was trained."""
        known = set(self.classes(list(trained)))
        return next((k for k in candidates if self.classes([k])[0] not in known), candidates[0])

    def neighbours(self, centres: Sequence[int], rng: Random) -> list[int]:
        """The architectures of the pool that differ from a centre in one decision, at most AROUND of each."""
        out = []
        for k in centres:
            found = list(self.problem.space.neighbours(self.archs[k]))
            if self.grows:
                found = rng.sample(found, min(AROUND, len(found)))
                self._add([arch for arch in found if arch not in self.number and self.problem.within(arch)])
            inside = [self.number[arch] for arch in found if arch in self.number]
            out += rng.sample(inside, min(AROUND, len(inside)))
        return out

    def _add(self, archs: Sequence[Architecture]) -> None:
        for arch in archs:
            self.number[arch] = len(self.archs)
            self.archs.append(arch)
        n, J = len(archs), self.prior.columns.shape[1]
        self.prior = Prior(
            np.concatenate([self.prior.mean, np.zeros(n)]), np.concatenate([self.prior.columns, np.zeros((n, J))])
        )

    def classes(self, numbers: Sequence[int]) -> np.ndarray:
        """For each architecture the number of its class of isomorphic ones."""
        for k in numbers:
            if k not in self._classes:
                representative = self.problem.space.canonical(self.archs[k])
                self._classes[k] = self._names.setdefault(representative, len(self._names))
        return np.array([self._classes[k] for k in numbers], dtype=np.intp)


class Learner:
    """The Gaussian process over the pool's numbers."""

    def __init__(self, pool: RankedPool) -> None:
        self.pool, self.encoder = pool, Encoder(pool.problem.space)
        self.models: tuple[Model, ...] = grid(len(MIXTURES), pool.prior.columns.shape[1])
        self._units: np.ndarray | None = None

    def distances(self, a: Sequence[int], b: Sequence[int]) -> np.ndarray:
        """(mixtures, |a|, |b|), in units of the mean distance of two architectures of the pool's top."""
        rows = [self.encoder.rows([self.pool.archs[k] for k in numbers]) for numbers in (a, b)]
        if self._units is None:
            self._units = self._mean_distances()
        D = self.encoder.distances(*rows) / self._units[:, None, None]
        return np.tensordot(MIXTURES, D, axes=1)

    def _mean_distances(self) -> np.ndarray:
        rng = Random("units")
        top = self.pool.best(3 * MEASURED, rng)
        some = rng.sample(top, min(len(top), MEASURED))
        rows = self.encoder.rows([self.pool.archs[k] for k in some])
        means = self.encoder.distances(rows, rows).mean(axis=(1, 2))
        return np.where(means > 0, means, 1.0)

    def points(self, numbers: Sequence[int]) -> Points:
        """What is known of them."""
        prior = self.pool.prior
        index = np.array(numbers, dtype=np.intp)
        return Points(prior.mean[index], prior.columns[index], self.pool.classes(numbers))

    def learn(self, seen: Sequence[int], y: np.ndarray) -> Posterior:
        """The posterior; from a certain number of observations on only by models that were not hopeless then."""
        posterior = fit(self.models, self.points(seen), self.distances(seen, seen), y)
        if len(seen) >= FULL_GRID:
            heaviest = np.argsort(-posterior.weights, kind="stable")[:KEPT]
            self.models = tuple(posterior.models[h] for h in sorted(heaviest))
        return posterior

    def predict(
        self, posterior: Posterior, numbers: Sequence[int], seen: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each."""
        return posterior.predict(self.points(numbers), self.distances(numbers, seen))


def _drawn(space: Space, rng: Random) -> list[Architecture]:
    """The whole space if it is small, else different random architectures."""
    if math.prod(len(decision) for decision in space.decisions) <= ENUMERATED:
        return list(space.architectures())
    return list(dict.fromkeys(space.sample(rng) for _ in range(DRAWN)))


def _prior(space: Space, scores: ScoreTable | None, archs: Sequence[Architecture]) -> Prior:
    if scores is None or not len(scores) or not scores.metrics:
        return Prior(np.zeros(len(archs)), np.zeros((len(archs), 0)))
    index = np.array([scores.rows.get(arch, -1) for arch in archs], dtype=np.intp)
    values = {name: np.where(index >= 0, scores[name][index], np.nan) for name in scores.metrics}
    signs = {name: sign for name in scores.metrics if (sign := _sign(name))}
    return combine(values, signs, one_hot(space, archs))


def _sign(metric: str) -> int | None:
    """Whether a metric, Initio's or one's own, is better when larger (1) or smaller (−1); None for one nobody knows."""
    from initio.metrics import get_metric

    try:
        return 1 if get_metric(metric).higher_is_better else -1
    except InputError:
        return None
