"""The robust hybrid: metrics say where to look, a few trainings say whether to believe them, and the best is exploited.

1. All metrics of the pool become one prior mean (`prior.py`): the training-free ranking, or what the metrics agree on.
2. A Gaussian process on the architecture (`gaussian_process.py`, `encoding.py`) starts from that mean, or from none, or
   from its reverse, as far as the trainings speak for each. The weights of the metrics, the kernel and the noise are
   averaged by their evidence too.
3. The first training is the best by the prior. Then the largest expected improvement is trained next, among the best by
   the prior, the worst, some at random, and the neighbours of the best so far.
4. What is chosen so tells how good the choices are, not how good the pool is: only trainings drawn by chance do. The
   second and the third are, then the 7th, 15th, 31st, ...; and while the best so far came by chance, every other one.

Without scores the prior is flat and the same process searches by the architecture alone. Nothing depends on the budget:
a longer search begins as a shorter one does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np

from initio.analysis.ranking import RANKING, ranked
from initio.errors import InputError, at_least
from initio.records import Architecture, Query
from initio.scores.table import ScoreTable
from initio.searches.models.encoding import WAYS, Encoder, one_hot
from initio.searches.models.gaussian_process import (
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
BY_CHANCE = frozenset({2, *(2**k - 1 for k in range(2, 40))})  # numbers of trainings: 2, 3, 7, 15, 31, ...
CENTRES = 3  # of the best trained, whose neighbours are candidates
AROUND = 200  # neighbours of one of them
FULL_GRID = 32  # trainings up to which all models are weighed; then those of any weight
MEASURED = 100  # architectures that give the mean distance
ENUMERATED = 20_000  # a space without a pool is listed up to this size; beyond it, so many are drawn
DRAWN = 5_000


@dataclass(frozen=True)
class Robust(QuerySearch):
    """Gaussian process on architectures with a prior from metrics, which it doubts.

    Args:
        candidates: how many of the best by the prior are compared at each step, with half as many of the worst, as
            many at random, and all that differ in one decision from one of the best trained so far.
    """

    candidates: int = 400

    name: ClassVar[str] = "robust"
    needs_scores: ClassVar[bool] = True

    def __post_init__(self) -> None:
        at_least(self, candidates=10)

    def propose(self, problem: Problem, seed: int) -> Proposals:
        """The best by the prior, two by chance, then what the Gaussian process recommends, doubted now and then."""
        rng = Random(f"robust {seed}")
        pool = RankedPool(problem, seed)
        learner, candidates = Learner(pool), pool.candidates(self.candidates, rng)
        values: dict[int, float] = {}  # in the order of training
        by_chance: set[int] = set()
        while left := pool.without(values, rng):
            if not values:
                chosen = candidates[0]
            elif len(values) + 1 in BY_CHANCE or in_doubt(values, by_chance):
                chosen = rng.choice([k for k in left if k < pool.given] or left)
                by_chance.add(chosen)
            else:
                best = sorted(values, key=lambda k: -values[k])[:CENTRES]
                near = dict.fromkeys([*candidates, *pool.neighbours(best, rng)])
                chosen = most_promising(learner, [k for k in near if k not in values] or left, values)
            values[chosen] = (yield Query(pool.archs[chosen])).value
        return None


def in_doubt(values: Mapping[int, float], by_chance: Collection[int]) -> bool:
    """Whether the best so far came by chance and the last one did not.

    >>> in_doubt({5: 91.0, 7: 93.0}, {7}), in_doubt({5: 91.0, 7: 93.0, 2: 92.0}, {7}), in_doubt({5: 94.0, 7: 93.0}, {7})
    (False, True, False)
    """
    best = max(values, key=lambda k: values[k])
    return best in by_chance and next(reversed(values)) not in by_chance


def most_promising(learner: Learner, candidates: list[int], values: Mapping[int, float]) -> int:
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
        self.grows, self.given = not problem.pool, len(self.archs)  # what joins later is near the best, no fair sample
        self.number = {arch: k for k, arch in enumerate(self.archs)}
        self.prior = _prior(problem.space, problem.scores, self.archs)
        self._classes: dict[int, int] = {}
        self._names: dict[Architecture, int] = {}

    def __len__(self) -> int:
        return len(self.archs)

    def without(self, trained: Collection[int], rng: Random) -> list[int]:
        """Those that were not trained; where a pool that may grow is used up, the neighbours of the trained join it."""
        if self.grows and len(trained) == len(self):
            self.neighbours(list(trained), rng)
        return [k for k in range(len(self)) if k not in trained]

    def candidates(self, count: int, rng: Random) -> list[int]:
        """The best by the prior, best first; half as many of the worst, and as many of all. Ties are at random."""
        all_of_them = rng.sample(range(len(self)), len(self))
        order = sorted(all_of_them, key=self.prior.mean.__getitem__, reverse=True)
        return list(dict.fromkeys([*order[:count], *order[-(count // 2) :], *all_of_them[: count // 2]]))

    def neighbours(self, centres: Sequence[int], rng: Random) -> list[int]:
        """The architectures of the pool that differ from a centre in one decision, at most AROUND of each."""
        out = []
        for k in centres:
            found = list(self.problem.space.neighbours(self.archs[k]))
            if self.grows:
                found = rng.sample(found, min(AROUND, len(found)))
                self._add([arch for arch in found if arch not in self.number and self.problem.within(arch)])
            members = (self.problem.member(arch) for arch in found)
            inside = [self.number[arch] for arch in members if arch in self.number]
            out += rng.sample(inside, min(AROUND, len(inside)))
        return out

    def _add(self, archs: Sequence[Architecture]) -> None:
        for arch in archs:
            self.number[arch] = len(self.archs)
            self.archs.append(arch)
        if archs:
            self.prior = self.prior.grown(one_hot(self.problem.space, archs))

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
        """(mixtures, |a|, |b|), in units of the mean distance of two architectures of the pool."""
        rows = [self.encoder.rows([self.pool.archs[k] for k in numbers]) for numbers in (a, b)]
        if self._units is None:
            self._units = self._mean_distances()
        D = self.encoder.distances(*rows) / self._units[:, None, None]
        return np.tensordot(MIXTURES, D, axes=1)

    def _mean_distances(self) -> np.ndarray:
        some = Random("units").sample(range(len(self.pool)), min(len(self.pool), MEASURED))
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
            self.models = posterior.models
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
        return Prior.flat(len(archs))
    index = np.array([scores.rows.get(arch, -1) for arch in archs], dtype=np.intp)
    values = {name: np.where(index >= 0, scores[name][index], np.nan) for name in scores.metrics}
    signs = {name: sign for name in scores.metrics if (sign := _sign(name))}
    table = ranked(scores)
    ranking = None
    if RANKING in table.metrics:
        ranking = np.where(index >= 0, table[RANKING][index], np.nan)
    return combine(values, signs, one_hot(space, archs), ranking)


def _sign(metric: str) -> int | None:
    """Whether a metric, Initio's or one's own, is better when larger (1) or smaller (−1); None for one nobody knows."""
    from initio.metrics import get_metric

    try:
        return 1 if get_metric(metric).higher_is_better else -1
    except InputError:
        return None
