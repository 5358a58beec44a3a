"""HNAS: hybrid neural architecture search [Shu et al. 2022, Algorithm 1].

In every step Bayesian optimisation chooses (μ, ν), the architecture of the pool with the smallest bound

    κ/M + μ F(M² − ν),   F(x) = x^{2t}   [HNAS 7]

is trained shortly, and its validation accuracy is what the optimiser learns for (μ, ν). The best one trained is the
choice. An architecture that was trained before gives way to the next best of the same bound.

Both numbers come without a unit from the unit square: ν is a quantile of the pool's M², and μ says how narrow the band
around ν is. Where M² is 10^{−w} times as far from ν as the median architecture is, the second term equals the median of
the first; so μ ∝ 10^{2tw}, and w has the same meaning for any t, metric and space.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from initio.analysis.hnas_bounds import TradeOff, bound
from initio.errors import InputError, at_least, positive
from initio.records import Query
from initio.searches.models.bayes import GaussianProcess, Optimiser, Point
from initio.searches.problem import Problem
from initio.searches.queries import Ahead, Proposals, QuerySearch

BAND = (-1.0, 2.0)  # w: from ten times the median distance to a hundredth of it
GRID = 5  # probes of ν if the number of queries is not known
LOGARITHMS = frozenset({"synflow"})  # metrics whose published value is the exponential of Initio's


@dataclass(frozen=True)
class Hnas(QuerySearch):
    """HNAS with any metric as M.

    Args:
        metric: M, a column of the scores; of a metric with a sign, as GraSP, the size counts [HNAS 3].
        kappa: κ, a column of the scores.
        t: F(x) = x^{2t}; 1 in the paper, 1/2 (the distance |M² − ν|) in the authors' code.
        grid: how many steps probe ν on a grid before the optimiser takes over; None for a quarter of the queries.
        growth: how many random architectures join the pool in each step (2000 in the authors' code); None for all
            at once.
    """

    metric: str = "trace"
    kappa: str = "kappa"
    t: float = 1.0
    grid: int | None = None
    growth: int | None = None

    name: ClassVar[str] = "hnas"
    needs_scores: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive(self, "t")
        at_least(self, grid=0, growth=1)

    def propose(self, problem: Problem, seed: int) -> Proposals:
        """Algorithm 1."""
        return self.steps(problem, seed, GaussianProcess(2, seed, self.start(problem)))

    def start(self, problem: Problem) -> tuple[Point, ...]:
        """The grid of ν, at the middle of μ."""
        n = self.grid
        if n is None:
            n = GRID if problem.queries is None else problem.queries // 4
        return tuple(((i + 0.5) / n, 0.5) for i in range(n))

    def trade_off(self, point: Point) -> TradeOff:
        """What a point of the unit square means.

        >>> Hnas().trade_off((0.3, 0.5))
        TradeOff(nu=0.3, s=1.0, t=1.0)
        """
        nu, width = point
        w = BAND[0] + (BAND[1] - BAND[0]) * width
        return TradeOff(nu, 2 * self.t * w, self.t)

    def steps(self, problem: Problem, seed: int, optimiser: Optimiser) -> Proposals:
        """Algorithm 1 with any optimiser, until the pool is used up."""
        scores = problem.known_scores(self.name)
        rows = problem.scored_rows(self.name, seed)  # in this order they join, and ties are broken
        M, kappa = metric_values(self.metric, scores[self.metric])[rows], scores[self.kappa][rows]
        if np.isnan(M + kappa).all():
            raise InputError(
                f"no architecture of the pool has both {self.metric!r} and {self.kappa!r}: score them first"
            )
        trained: list[int] = []

        def chosen(point: Point, known: list[int]) -> int:
            """The best by the bound of (μ, ν) that was not trained."""
            step = len(known) + 1
            size = len(rows) if self.growth is None else max(step, min(step * self.growth, len(rows)))
            values = bound("non_realisable", M[:size], kappa[:size], self.trade_off(point))
            order = np.argsort(values, kind="stable")  # infinity comes behind all numbers, NaN behind infinity
            return next(int(place) for place in order if int(place) not in known)

        first: list[int] = []
        for point in getattr(optimiser, "start", ())[: len(rows)]:  # which are probed whatever the answers
            first.append(chosen(point, first))
        yield Ahead(tuple(Query(scores.architectures[rows[place]]) for place in first))
        while len(trained) < len(rows):
            point = optimiser.suggest()
            place = chosen(point, trained)
            trained.append(place)
            value = (yield Query(scores.architectures[rows[place]])).value
            if value > -np.inf:  # else nothing has a value yet, and the point is suggested again
                optimiser.observe(point, value)
        return None


def metric_values(metric: str, values: np.ndarray) -> np.ndarray:
    """M up to a factor, which the bound does not feel; NaN where a metric has no value or an infinite one.

    >>> metric_values("synflow", np.array([0.0, 1000.0, np.inf])).tolist()
    [7.124576406741286e-218, 1.4035922178528375e+217, nan]
    """
    M = np.where(np.isfinite(values), values, np.nan)
    if metric in LOGARITHMS and not np.isnan(M).all():
        M = np.exp(np.clip(M - np.nanmedian(M), -700, 700))
    return M
