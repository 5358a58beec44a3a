"""The robust hybrid: metrics say where to look, a few trainings say whether to believe them, and the best is exploited.

1. All metrics of the pool become a prior mean (`prior.py`): the training-free ranking, or what the metrics agree on; in
   two forms, a sharp one that says most about its first places, and one of normal quantiles.
2. There are four hypotheses: metrics are right at their top, right on the whole, say nothing, or say the reverse. Each
   has a list, the pool in the order that it recommends; that of "nothing" is a random order.
3. A Gaussian process on the architecture (`model_average.py`, `encoding.py`) starts from the mean of each
   hypothesis. Weights of the metrics, kernel and noise are averaged by their evidence, and so hypotheses are weighed.
4. The first five trainings go down lists: the best by the sharp one, two by chance, which are a fair sample of the
   pool, and two of hypotheses that are drawn by what the belief in them is then.
5. Then the model: each time one hypothesis is drawn by the belief in it and acted upon as if it were true (Thompson
   sampling): the largest expected improvement by its models, among the top of its list and the neighbours of the best
   so far. So each hypothesis gets as many trainings as it is probable.
6. Doubt: where the model has not improved on the best in as many trainings as came from lists, and every other time
   while the best came by chance, the next training is from a list again, that of a hypothesis drawn by its belief.

Nothing is trained that is isomorphic to what was, as long as there is something else. Without scores all lists are by
chance, and the same process searches by the architecture alone. Nothing depends on the budget: a longer search begins
as a shorter one does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress, takewhile
from random import Random
from typing import ClassVar

import numpy as np

from initio.analysis.ranking import RANKING, ranked
from initio.errors import InputError, at_least
from initio.metrics import is_higher_better
from initio.records import Architecture, Query
from initio.scores.table import ScoreTable
from initio.searches.models.encoding import WAYS, Encoder, one_hot
from initio.searches.models.model_average import (
    HYPOTHESES,
    NOTHING,
    SHARP,
    Model,
    Points,
    Posterior,
    expected_improvement,
    fit,
    gaussianised,
    grid,
)
from initio.searches.models.prior import Basis, Prior, combine, quantiles, sharp
from initio.searches.problem import Problem
from initio.searches.queries import Proposals, QuerySearch
from initio.spaces import Space

MIXTURES = np.array([np.full(len(WAYS), 1 / len(WAYS)), np.eye(len(WAYS))[0]])  # all ways together; decisions alone
START = (SHARP, NOTHING, NOTHING)  # whose lists the first trainings are from
LISTED = 5  # so many trainings are from lists, the later ones of a hypothesis drawn by its belief
CENTRES = 3  # of the best trained, whose neighbours are candidates
AROUND = 200  # neighbours of one of them
FULL_GRID = 32  # trainings up to which all models are weighed; then those that were not hopeless
HOPELESS = 1e-3  # of the weight of the heaviest
MEASURED = 100  # architectures that give the mean distance
ENUMERATED = 20_000  # a space without a pool is listed up to this size; beyond it, so many are drawn
DRAWN = 5_000


@dataclass(frozen=True)
class Robust(QuerySearch):
    """Gaussian process on architectures with a prior from metrics, which it doubts.

    Args:
        candidates: how many of the first of a hypothesis' list are compared at each step, together with all that
            differ in one decision from one of the best trained so far.
    """

    candidates: int = 800

    name: ClassVar[str] = "robust"
    needs_scores: ClassVar[bool] = True

    def __post_init__(self) -> None:
        at_least(self, candidates=10)

    def propose(self, problem: Problem, seed: int) -> Proposals:
        """Goes down lists first, then where the Gaussian process recommends, and back to the lists when in doubt."""
        rng = Random(f"robust {seed}")
        pool = RankedPool(problem, seed, rng)
        learner = Learner(pool)
        values: dict[int, float] = {}  # in the order of training
        listed: dict[int, int] = {}  # those that came from a list, and the hypothesis
        while left := pool.without(values, rng):
            if len(values) < len(START):
                chosen = pool.next_of(START[len(values)], values, left)
                listed[chosen] = START[len(values)]
            else:
                posterior = learner.learn(values)
                drawn = rng.choices(range(len(HYPOTHESES)), posterior.beliefs.tolist())[0]
                if len(values) < LISTED or in_doubt(values, listed):
                    chosen = pool.next_of(drawn, values, left)
                    listed[chosen] = drawn
                else:
                    candidates = self._candidates(pool, drawn, values, rng) or pool.unlike(left, values) or left
                    chosen = learner.most_promising(posterior.under(drawn), candidates, values)
            values[chosen] = (yield Query(pool.archs[chosen])).value
        return None

    def _candidates(self, pool: RankedPool, hypothesis: int, values: Mapping[int, float], rng: Random) -> list[int]:
        """The first of the list of the hypothesis and the neighbours of the best, without what was trained."""
        best = sorted(values, key=lambda k: -values[k])[:CENTRES]
        return pool.unlike([*pool.lists[hypothesis][: self.candidates], *pool.neighbours(best, rng)], values)


def in_doubt(values: Mapping[int, float], listed: Mapping[int, int]) -> bool:
    """Whether the model should leave the next training to a list.

    It has not improved on the best in as many trainings as came from lists, or the best came by chance and the last one
    was the model's.

    >>> by_chance = {5: NOTHING}
    >>> in_doubt({5: 93.0}, by_chance), in_doubt({5: 93.0, 7: 91.0}, by_chance), in_doubt({5: 93.0, 7: 94.0}, by_chance)
    (False, True, False)
    """
    best = max(values, key=lambda k: values[k])
    models = list(takewhile(lambda k: k != best and k not in listed, reversed(values)))
    return len(models) >= len(listed) or (listed.get(best) == NOTHING and len(models) > 0)


class RankedPool:
    """The architectures that may be chosen, by number, with their priors and lists. Without a given pool it grows."""

    def __init__(self, problem: Problem, seed: int, rng: Random) -> None:
        self.problem = problem
        if problem.pool:
            self.archs = list(problem.pool)
        elif problem.scores is not None and len(problem.scores):
            self.archs = list(filter(problem.within, problem.scores.architectures))
        else:
            self.archs = list(filter(problem.within, _drawn(problem.space, Random(f"robust pool {seed}"))))
        self.grows = not problem.pool
        self.number = {arch: k for k, arch in enumerate(self.archs)}
        self.views = _views(problem.space, problem.scores, tuple(self.archs))
        shuffled = np.array(rng.sample(range(len(self)), len(self)), dtype=np.intp)  # ties are at random
        self.lists = [  # of what was given: what joins later is near the best
            shuffled[np.argsort(-h.slope * self.views[h.view].mean[shuffled], kind="stable")].tolist()
            for h in HYPOTHESES
        ]
        self._classes: dict[int, int] = {}
        self._names: dict[Architecture, int] = {}

    def __len__(self) -> int:
        return len(self.archs)

    def next_of(self, hypothesis: int, trained: Collection[int], left: Sequence[int]) -> int:
        """The first of a hypothesis' list that is not isomorphic to one that was trained, where there is such."""
        known = set(self.classes(list(trained)))
        new = (k for k in self.lists[hypothesis] if k not in trained and self.classes([k])[0] not in known)
        return next(new, left[0])

    def unlike(self, numbers: Sequence[int], trained: Collection[int]) -> list[int]:
        """Those that are not isomorphic to one that was trained, once each."""
        different = list(dict.fromkeys(numbers))
        new = ~np.isin(self.classes(different), self.classes(list(trained)))
        return [k for k, is_new in zip(different, new, strict=True) if is_new]

    def without(self, trained: Collection[int], rng: Random) -> list[int]:
        """Those that were not trained; where a pool that may grow is used up, the neighbours of the trained join it."""
        if self.grows and len(trained) == len(self):
            self.neighbours(list(trained), rng)
        return [k for k in range(len(self)) if k not in trained]

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
            features = one_hot(self.problem.space, archs)
            self.views = tuple(view.grown(features) for view in self.views)

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
        self.models: tuple[Model, ...] = grid(len(MIXTURES), pool.views[0].columns.shape[1])
        self._units: np.ndarray | None = None

    def distances(self, a: Sequence[int], b: Sequence[int]) -> np.ndarray:
        """(mixtures, |a|, |b|), in units of the mean distance of two architectures at the top of the sharp list."""
        rows = [self.encoder.rows([self.pool.archs[k] for k in numbers]) for numbers in (a, b)]
        if self._units is None:
            self._units = self._mean_distances()
        D = self.encoder.distances(*rows) / self._units[:, None, None]
        return np.tensordot(MIXTURES, D, axes=1)

    def _mean_distances(self) -> np.ndarray:
        top = self.pool.lists[SHARP][: 3 * MEASURED]
        some = Random("units").sample(top, min(len(top), MEASURED))
        rows = self.encoder.rows([self.pool.archs[k] for k in some])
        means = self.encoder.distances(rows, rows).mean(axis=(1, 2))
        return np.where(means > 0, means, 1.0)

    def points(self, numbers: Sequence[int]) -> Points:
        """What is known of them."""
        views, index = self.pool.views, np.array(numbers, dtype=np.intp)
        return Points(
            np.stack([view.mean[index] for view in views]),
            np.stack([view.columns[index] for view in views]),
            self.pool.classes(numbers),
        )

    def learn(self, values: Mapping[int, float]) -> Posterior:
        """The posterior; from a certain number of trainings on only by models that were not hopeless then."""
        seen, y = list(values), gaussianised(np.array(list(values.values())))
        posterior = fit(self.models, self.points(seen), self.distances(seen, seen), y)
        if len(seen) >= FULL_GRID:
            enough = posterior.weights >= HOPELESS * posterior.weights.max()
            self.models = tuple(compress(posterior.models, enough))
        return posterior

    def most_promising(self, posterior: Posterior, candidates: Sequence[int], values: Mapping[int, float]) -> int:
        """The largest expected improvement on the best so far."""
        mean, sd = posterior.predict(self.points(candidates), self.distances(candidates, list(values)))
        best = float(gaussianised(np.array(list(values.values()))).max())
        return candidates[int(np.argmax(expected_improvement(mean, sd, best)))]


def _drawn(space: Space, rng: Random) -> list[Architecture]:
    """The whole space if it is small, else different random architectures."""
    if math.prod(len(decision) for decision in space.decisions) <= ENUMERATED:
        return list(space.architectures())
    return list(dict.fromkeys(space.sample(rng) for _ in range(DRAWN)))


def _views(space: Space, scores: ScoreTable | None, archs: tuple[Architecture, ...]) -> tuple[Prior, ...]:
    """The prior in its two forms, the sharp one first."""
    if scores is None or not len(scores) or not scores.metrics:
        return (Prior.flat(len(archs)),) * 2
    index = np.array([scores.rows.get(arch, -1) for arch in archs], dtype=np.intp)
    values = {name: np.where(index >= 0, scores[name][index], np.nan) for name in scores.metrics}
    signs = {name: sign for name in scores.metrics if (sign := _sign(name))}
    table = ranked(scores)
    ranking = None
    if RANKING in table.metrics:
        ranking = np.where(index >= 0, table[RANKING][index], np.nan)
    return tuple(combine(values, signs, _basis(space, archs), ranking, form) for form in (sharp, quantiles))


@lru_cache(maxsize=2)
def _basis(space: Space, archs: tuple[Architecture, ...]) -> Basis:
    """Many searches have one pool."""
    return Basis(one_hot(space, archs))


def _sign(metric: str) -> int | None:
    """Whether a metric, Initio's or one's own, is better when larger (1) or smaller (−1); None for one nobody knows."""
    try:
        return 1 if is_higher_better(metric) else -1
    except InputError:
        return None
