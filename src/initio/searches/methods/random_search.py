"""Random search: the baseline that a search has to beat (RS without weight sharing in HNAS, Table 4)."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from initio.errors import at_least
from initio.records import Architecture, Query
from initio.searches.problem import DRAWS, Problem
from initio.searches.queries import Proposals, QuerySearch, ask_all

AHEAD = 16  # architectures that are drawn at a time, so that several workers have something to do
LISTABLE = 100_000  # a space of at most so many choices is listed to find what is left of it


@dataclass(frozen=True)
class RandomSearch(QuerySearch):
    """Trains distinct random architectures until the budget or the pool is used up.

    Args:
        k: how many; None for as many as the budget allows.
        full: train them as long as the problem allows, as searches do that rank first.
    """

    k: int | None = None
    full: bool = False

    name: ClassVar[str] = "random"

    def __post_init__(self) -> None:
        if self.k is not None:
            at_least(self, k=1)

    @property
    def trains_fully(self) -> bool:
        """If it is asked to."""
        return self.full

    def propose(self, problem: Problem, seed: int) -> Proposals:
        """Uniform over the pool without replacement; without a pool, new draws of the space."""
        rng, seen = Random(f"{self.name} {seed}"), set[Architecture]()
        length = problem.epochs[-1] if self.full and problem.epochs else None
        while len(seen) != self.k:
            drawn = draw_some(problem, rng, seen, min(AHEAD, (self.k or math.inf) - len(seen)))
            if not drawn:
                return None
            yield from ask_all([Query(arch, length) for arch in drawn])
        return None


def draw_some(problem: Problem, rng: Random, seen: set[Architecture], count: float) -> list[Architecture]:
    """Up to `count` random architectures that are not in `seen`, which they join."""
    drawn: list[Architecture] = []
    while len(drawn) < count and (arch := draw_new(problem, rng, seen)) is not None:
        seen.add(arch)
        drawn.append(arch)
    return drawn


def draw_new(problem: Problem, rng: Random, seen: Collection[Architecture]) -> Architecture | None:
    """A random architecture that is not in `seen`, or None when there is none left.

    Drawing again is fast until nearly everything was seen; then what is left is listed, if it can be.
    """
    for _ in range(DRAWS):
        if (arch := problem.draw(rng)) not in seen:
            return arch
    return rng.choice(left) if (left := [arch for arch in _all(problem) if arch not in seen]) else None


def _all(problem: Problem) -> list[Architecture]:
    if problem.pool:
        return list(problem.pool)
    few = math.prod(len(decision) for decision in problem.space.decisions) <= LISTABLE
    return list(problem.space.architectures()) if few else []
