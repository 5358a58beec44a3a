"""Searches that rank before they train: zero-cost argmax, NASWOT, KNAS and Eigen-NAS.

All of them take a pool, random or all that has scores, rank it by one metric at initialisation, train the first k, and
take the best of these. They differ in metric, size of the pool and k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from initio.errors import InputError
from initio.metrics import is_higher_better
from initio.records import Architecture, Query
from initio.searches.problem import Problem
from initio.searches.queries import Proposals, QuerySearch, ask_all


@dataclass(frozen=True)
class ZeroCost(QuerySearch):
    """Trains what a metric ranks first (Abdelfattah et al., 2021; ZERO-COST in HNAS, Figure 3).

    Args:
        metric: a column of the scores; `trace` is that of the figure. On nb101 and darts larger traces are worse, as
            `initio metrics` says of each metric: take `naswot` there.
        k: how many are trained; 1 selects without any training, its one query only tells how good that was.
        sample: how many random architectures are ranked; None for all that have scores.
        higher_is_better: the metric's direction; None for the metric's own, whatever the space.
    """

    metric: str = "trace"
    k: int = 1
    sample: int | None = None
    higher_is_better: bool | None = None

    name: ClassVar[str] = "zero-cost"
    needs_scores: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check(self.k, self.sample)

    def propose(self, problem: Problem, seed: int) -> Proposals:
        """The first k."""
        return best_first(problem, seed, self.name, self.metric, self.k, self.sample, self.higher_is_better)


@dataclass(frozen=True)
class Naswot(QuerySearch):
    """NASWOT (Mellor et al., 2021; thesis Table 6.1): of N random architectures the one with the largest `naswot`.

    Args:
        sample: N; 10, 100 and 1000 in the thesis.
    """

    sample: int = 1000

    name: ClassVar[str] = "naswot"
    needs_scores: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check(1, self.sample)

    def propose(self, problem: Problem, seed: int) -> Proposals:
        """One query, of the choice."""
        return best_first(problem, seed, self.name, "naswot", 1, self.sample)


@dataclass(frozen=True)
class FullyTrained(QuerySearch):
    """Trains the first k networks by one metric to their end, and takes the best.

    Args:
        k: how many are trained; 20 and 5 in Eigen-NAS, Table 2.
        sample: how many random architectures are ranked; None for all that have scores.
        length: epochs of their trainings; None for the longest there is.
    """

    k: int = 20
    sample: int | None = None
    length: int | None = None

    needs_scores: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check(self.k, self.sample)

    @property
    def trains_fully(self) -> bool:
        """As published, unless a length is given."""
        return self.length is None

    def first(self, problem: Problem, seed: int, metric: str) -> Proposals:
        """The best of a random pool by this metric; of isomorphic architectures only one."""
        length = self.length
        if length is None and problem.epochs:
            length = problem.epochs[-1]
        networks: dict[Architecture, Query] = {}
        for arch in ranking(problem, seed, self.name, metric, self.sample):
            if len(networks) == self.k:
                break
            networks.setdefault(problem.space.canonical(arch), Query(arch, length))
        yield from ask_all(list(networks.values()))
        return None


@dataclass(frozen=True)
class Knas(FullyTrained):
    """KNAS (Xu et al., 2021; thesis 3.4): the top k by the mean of the gradients' Gram matrix, then the best trained.

    As in the authors' code a pool of 500 is ranked, and networks with the same score (isomorphic cells) count once.
    """

    sample: int | None = 500

    name: ClassVar[str] = "knas"

    def propose(self, problem: Problem, seed: int) -> Proposals:
        """The first k networks."""
        return self.first(problem, seed, "knas")


@dataclass(frozen=True)
class EigenNas(FullyTrained):
    """Eigen-NAS [Eigen, section 5.2]: the top k by the kernel's smallest eigenvalue, then the best trained.

    The paper ranks a random pool by the mean of the diagonal, an upper bound of λ_min: `metric="eigen", sample=500`,
    the pool of KNAS's code, which it follows. That bound is the size of the kernel, which a learning rate undoes; it
    ranks cells with exploding gradients first, and the larger the pool, the more of them. λ_min over the mean
    eigenvalue has no size, and needs no small pool to be of use (docs/results/eigen-nas.md has both).

    Args:
        metric: one of Initio's.
    """

    metric: str = "lambda_relative"

    name: ClassVar[str] = "eigen-nas"

    def propose(self, problem: Problem, seed: int) -> Proposals:
        """The first k networks."""
        return self.first(problem, seed, self.metric)


def best_first(
    problem: Problem, seed: int, method: str, metric: str, k: int, sample: int | None, higher: bool | None = None
) -> Proposals:
    """Trains the k best of a random pool by one metric."""
    yield from ask_all([Query(arch) for arch in ranking(problem, seed, method, metric, sample, higher)[:k]])
    return None


def ranking(
    problem: Problem, seed: int, method: str, metric: str, sample: int | None = None, higher: bool | None = None
) -> list[Architecture]:
    """A random pool of the scored architectures that may be trained, the best by the metric first.

    Ties are in random order; what has no value comes last, behind infinitely bad ones.
    """
    scores = problem.known_scores(method)
    rows = problem.scored_rows(method, seed, sample)
    values = scores[metric][rows]
    values = values if _is_higher_better(metric, higher) else -values
    defined = ~np.isnan(values)
    by_value = np.lexsort((np.where(defined, -values, 0.0), ~defined))  # stable: ties stay shuffled
    return [scores.architectures[row] for row in rows[by_value]]


def _is_higher_better(metric: str, given: bool | None = None) -> bool:
    """The direction of a metric: as given, else as the metric of this name has it, Initio's or one's own."""
    if given is not None:
        return given
    try:
        return is_higher_better(metric)
    except InputError as error:
        raise InputError(f"the direction of {metric!r} is not known, say whether higher_is_better: {error}") from None


def _check(k: int, sample: int | None) -> None:
    if k < 1:
        raise InputError(f"k must be at least 1, not {k}")
    if sample is not None and sample < k:
        raise InputError(f"sample must be at least {k}, the number to train, not {sample}")
