"""Regularised evolution, also ageing evolution (Real et al., 2019): REA in HNAS, Table 4."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from initio.errors import InputError, at_least
from initio.records import Architecture, Query
from initio.searches.methods.random_search import draw_some
from initio.searches.problem import Problem
from initio.searches.queries import Ahead, Proposals, QuerySearch

STALE = 50  # known children in a row, after which one more decision is changed at once


@dataclass(frozen=True)
class RegularisedEvolution(QuerySearch):
    """The best of a few replaces the oldest of all by a child that differs in one decision.

    The defaults are those of NAS-Bench-201's own baseline. There a child that was trained before is trained and paid
    for again; here it joins the population with the value that is known, for nothing. In a pool that is a small part of
    its space the neighbours of a population are soon all known: then children differ in two decisions, or more.

    Args:
        population: how many architectures are alive; the first ones are random and distinct.
        sample: how many of them, drawn with replacement, compete to be a parent.
    """

    population: int = 10
    sample: int = 3

    name: ClassVar[str] = "rea"

    def __post_init__(self) -> None:
        at_least(self, sample=1)
        if self.population < self.sample:
            raise InputError(f"population must be at least sample, {self.sample}, not {self.population}")

    def propose(self, problem: Problem, seed: int) -> Proposals:
        """Random parents first, then one child at a time, until the whole pool was trained."""
        rng, seen = Random(f"{self.name} {seed}"), set[Architecture]()
        alive: deque[tuple[float, Architecture]] = deque(maxlen=self.population)  # the oldest falls out first
        parents = draw_some(problem, rng, seen, self.population)
        yield Ahead(tuple(map(Query, parents)))
        for parent in parents:
            alive.append(((yield Query(parent)).value, parent))
        stale = 0
        while len(alive) == self.population and not (problem.pool and len(seen) == len(problem.members)):
            contest = [rng.choice(alive) for _ in range(self.sample)]
            _, parent = max(contest, key=lambda member: member[0])
            child = problem.mutate(parent, rng, mutations=1 + stale // STALE)
            stale = stale + 1 if child in seen else 0
            seen.add(child)
            alive.append(((yield Query(child)).value, child))
        return None
