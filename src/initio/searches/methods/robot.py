"""RoBoT: robustifying and boosting training-free search [He et al., ICLR 2024].

Each metric is scaled to [0, 1] over the pool; the estimate of an architecture is a weighted sum of all of them,

    M(a; w) = Σⱼ wⱼ Mⱼ(a),   w ∈ [−1, 1]^J,   a(w) = argmax M(a; w),

so signs need not be known. Algorithm 1: in each of T rounds Bayesian optimisation by an upper confidence bound
chooses w, and learns the validation accuracy of a(w); one that was trained before costs no training. Algorithm 2: the
trainings that are left of T go down the ranking by the best w, in order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from initio.errors import InputError, positive
from initio.records import Query
from initio.searches.models.bayes import GaussianProcess, Point
from initio.searches.problem import Problem
from initio.searches.queries import Proposals, QuerySearch

ROUNDS = 20  # T where the budget is not a number of trainings


@dataclass(frozen=True)
class Robot(QuerySearch):
    """RoBoT (He et al., 2024): weights of all metrics by Bayesian optimisation, then greedily down the best ranking.

    Args:
        confidence: standard deviations above the mean in the upper confidence bound; that of the authors' library.
    """

    confidence: float = 2.576

    name: ClassVar[str] = "robot"
    needs_scores: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive(self, "confidence")

    def propose(self, problem: Problem, seed: int) -> Proposals:
        """Algorithms 1 and 2."""
        scores = problem.known_scores(self.name)
        rows = problem.scored_rows(self.name, seed)  # ties are broken in this order
        M = normalised({name: scores[name][rows] for name in scores.metrics})
        optimiser = GaussianProcess(M.shape[1], seed, confidence=self.confidence)
        values: dict[int, float] = {}
        best, best_weights = -math.inf, np.zeros(M.shape[1])
        for _ in range(problem.queries or ROUNDS):
            point = optimiser.suggest()
            first = int(np.argmax(M @ weights(point)))
            if first not in values:
                values[first] = (yield Query(scores.architectures[rows[first]])).value
            if values[first] > best:
                best, best_weights = values[first], weights(point)
            if values[first] > -math.inf:  # else nothing has a value yet, and there is nothing to learn
                optimiser.observe(point, values[first])
        for place in np.argsort(-(M @ best_weights), kind="stable"):
            if place not in values:
                yield Query(scores.architectures[rows[place]])
        return None


def weights(point: Point) -> np.ndarray:
    """w of a point of the unit cube.

    >>> weights((0.0, 0.5, 1.0)).tolist()
    [-1.0, 0.0, 1.0]
    """
    return 2 * np.array(point) - 1


def normalised(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """(n, J): each metric scaled to [0, 1] by its finite values, less its mean; metrics that say nothing are left out.

    An infinite value stands at its end of the scale. Where a metric has no value it does not speak: the term is 0,
    its mean over the others; without the mean, 0 would be the worst value or, with a negative weight, the best.

    >>> normalised({"a": np.array([1.0, 3.0, np.nan]), "b": np.array([0.0, 5.0, np.inf]), "c": np.ones(3)}).round(2)
    array([[-0.5 , -0.67],
           [ 0.5 ,  0.33],
           [ 0.  ,  0.33]])
    """
    kept = []
    for column in columns.values():
        finite = column[np.isfinite(column)]
        low, high = finite.min(initial=math.inf), finite.max(initial=-math.inf)
        if low < high:
            scaled = (np.clip(column, low, high) / 2 - low / 2) / (high / 2 - low / 2)  # halves cannot overflow
            kept.append(np.nan_to_num(scaled - np.nanmean(scaled)))
    if not kept:
        raise InputError("robot ranks architectures by their scores: no metric tells any two of them apart")
    return np.column_stack(kept)
