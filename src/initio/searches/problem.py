"""What a search is told: `Problem`, all of it in one object."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Literal

import numpy as np

from initio.data import Data
from initio.errors import InputError
from initio.networks.graphs import ZERO
from initio.records import Architecture, Batch, Observation, Query
from initio.scores.table import ScoreTable
from initio.searches.limits import Limits, Stopwatch, milliseconds
from initio.spaces import GraphSpace, NetworkSettings, Space, get_space
from initio.system.executors import Executor, Here

if TYPE_CHECKING:
    import torch
    from torch import nn

    from initio.networks.cost import NetworkCost

Evaluate = Callable[[Query], Observation]

CONNECTED_DRAWS = 20_000
CHECKED = 50  # random architectures whose scoring network is described before a search begins
LIMITED_DRAWS = 100  # random architectures that may break a limit before one is made smaller
SIZED = 25  # random architectures that decide on the size of the wanted network
LEAST_CELLS = 3  # with the two that reduce, in darts
STARTS = 50  # random architectures within the limits, where the heaviest one is not
DRAWS = 1000  # attempts to find a neighbour inside a pool


@dataclass(frozen=True)
class Budget:
    """When to stop: after so many trainings, or when the next one would exceed so many seconds of training."""

    queries: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.queries is None and self.seconds is None:
            raise InputError("a search that trains needs a budget: a number of queries, or of seconds of training")
        if self.queries is not None and self.queries < 1:
            raise InputError(f"the number of queries must be at least 1, not {self.queries}")
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(f"the seconds of training must be positive, not {self.seconds}")

    def spent(self, queries: int, seconds: float) -> bool:
        """Whether nothing is left."""
        return (self.queries is not None and queries >= self.queries) or (
            self.seconds is not None and seconds >= self.seconds
        )


@dataclass(frozen=True)
class Problem:
    """What to search in and on, and for a search that trains, what it may ask.

    Args:
        space: where to search.
        data: the user's, or noise; None where a table answers.
        network: the small network that scores.
        target: the network that is wanted, which the limits are about.
        batch_size: inputs in a batch.
        labels: the data's own, or random ones.
        limits: on the network that is wanted.
        stopwatch: who measures latencies.
        budget: how much may be trained; a search that plans ahead may look at it, `QuerySearch` enforces it.
        pool: the architectures that may be trained, in a fixed order; empty if all of the space may.
        scores: metrics of the pool, or of a part of it.
        epochs: lengths of training that may be asked for, shortest first; empty if there is only one.
        halving: η of successive halving: of the trainings that came as far, only the best in η go on after 1, η, η²,
            ... epochs; None trains all to their end.
        evaluate: who trains.
        executor: where networks may be measured at once.
        device: what computes, by its name.
        folder: of the run, for what a search keeps beside its steps; None keeps nothing.
        tell: hears how far a search is between two steps, and notes.
    """

    space: Space
    data: Data | None = field(default=None, repr=False)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    target: NetworkSettings = field(default_factory=lambda: NetworkSettings(prune=False))
    batch_size: int = 64
    labels: Literal["true", "random"] = "true"
    limits: Limits = field(default_factory=Limits)
    stopwatch: Stopwatch = field(default_factory=Stopwatch, compare=False, repr=False)
    budget: Budget | None = None
    pool: Sequence[Architecture] = field(default=(), repr=False)
    scores: ScoreTable | None = field(default=None, repr=False)
    epochs: tuple[int, ...] = ()
    halving: int | None = None
    evaluate: Evaluate | None = field(default=None, repr=False)
    executor: Executor = field(default=Here(), compare=False, repr=False)
    device: str = field(default="cpu", repr=False)
    folder: Path | None = None
    tell: Callable[[object], None] | None = field(default=None, compare=False, repr=False)

    # --- batches and networks at initialisation -------------------------------------------------------------------

    def batch(self, seed: int) -> Batch:
        """One seeded batch."""
        return self.known_data.batch(self.batch_size, seed, labels=self.labels)

    @property
    def known_data(self) -> Data:
        """The data, which must be there."""
        if self.data is None:
            raise InputError("this search looks at data: give it some, if only noise")
        return self.data

    @property
    def bare(self) -> Problem:
        """Space, network sizes and device alone: what another process needs to build."""
        return Problem(self.space, network=self.network, target=self.target, device=self.device)

    @property
    def computes_on(self) -> torch.device:
        """The device, which must be able to measure."""
        from initio.autodiff.devices import find_device

        return find_device(self.device, measured=True)

    @property
    def graphs(self) -> GraphSpace:
        """The space, whose networks must be described as data."""
        if not isinstance(self.space, GraphSpace):
            raise InputError(f"{self.space.name} has a builder and no graphs: take a search that learns from trainings")
        return self.space

    def build(self, arch: Architecture, seed: int) -> nn.Module:
        """The scoring network of the architecture's representative, on the device."""
        representative = self.space.canonical(arch)
        home = self.space if representative.space == self.space.name else get_space(representative.space)
        return home.build(representative, self.network, seed=seed).to(self.computes_on)

    # --- limits ---------------------------------------------------------------------------------------------------

    def sound(self, arch: Architecture) -> bool:
        """Connected, and without an option called `none`."""
        decisions = self.space.relaxation
        return self.space.connected(arch) and all(
            decisions[place].options[option] != ZERO for place, option in self.space.active(arch)
        )

    def admits(self, arch: Architecture) -> bool:
        """Sound and within the counted limits; nothing is timed."""
        return self.sound(arch) and self.within(arch)

    def within(self, arch: Architecture) -> bool:
        """Whether it keeps the counted limits."""
        return not self.limits.counted or self._size(arch)[0] <= 1

    def accepts(self, arch: Architecture) -> bool:
        """Sound and within all limits; the latency, which has to be measured, is asked for last."""
        limit = self.limits.max_latency
        return self.admits(arch) and (limit is None or self.latency(arch) <= limit)

    def accepted(self, ranked: Iterable[Architecture], count: int) -> list[Architecture]:
        """The first ones that keep all limits, up to `count` of them; an `InputError` if there are none."""
        found = list(islice(filter(self.accepts, ranked), count))
        if not found:
            raise InputError(f"none of the architectures that were tried has {self.limits}: raise the limit")
        return found

    def latency(self, arch: Architecture) -> float:
        """Seconds of a forward pass of the wanted network, measured once."""
        return self.stopwatch.seconds(self.graphs, arch, self.target)

    def check(self) -> None:
        """Refuses a network that some cells do not fit in, and limits that nothing keeps.

        Under a latency limit one small architecture is timed.
        """
        rng = Random(f"limits of {self.space.name}")
        arch = self.draw_admitted(rng)
        for other in (arch, *(self.draw_admitted(rng) for _ in range(CHECKED))):
            self._describe(other)
        if self.limits.max_latency is not None and not self.accepts(smallest := self._shrink(arch, rng, most=True)):
            raise InputError(
                f"the architecture of {self.space.name} with the fewest FLOPs that was found takes "
                f"{milliseconds(self.latency(smallest))} a forward pass here, not {self.limits}: raise the limit"
            )

    def _describe(self, arch: Architecture) -> None:
        """Says whether the cells fit in the scoring network, where networks are data before they are built."""
        if isinstance(self.space, GraphSpace):
            self.space.network(arch, self.network)

    def fitted(self) -> Problem:
        """The same with a smaller network wanted, where hardly any architecture keeps the counted limits in this one.

        Width and number of cells shrink alike until the median of random architectures keeps them. A size that was
        asked for stays as it is.
        """
        asked = self.target.channels is not None or self.target.cells is not None
        if asked or not self.limits.counted or not isinstance(self.space, GraphSpace) or not self.space.images:
            return self
        rng = Random(f"size within limits of {self.space.name}")
        drawn = [self._draw_sound(rng) for _ in range(SIZED)]
        if self._median_excess(drawn) <= 1 or any(map(self.admits, drawn)):
            return self
        width, depth = self.space.size(self.target)
        smaller = self
        for share in np.arange(0.95, 0, -0.05):
            cells = min(depth, max(LEAST_CELLS, round(depth * share)))
            size = replace(self.target, channels=max(1, round(width * share)), cells=cells)
            smaller = replace(self, target=size)
            if smaller._median_excess(drawn) <= 1:
                break
        return smaller

    def _median_excess(self, archs: Sequence[Architecture]) -> float:
        return median(self.limits.excess(self._cost(arch)) for arch in archs)

    def draw_admitted(self, rng: Random) -> Architecture:
        """A random sound architecture within the counted limits; where few are, random ones are made smaller.

        Its latency is not measured: ask `accepts` before choosing it.
        """
        for _ in range(LIMITED_DRAWS):
            if self.admits(arch := self._draw_sound(rng)):
                return arch
        arch = self._shrink(arch, rng)
        if not self.admits(arch):
            smallest = self._cost(self._shrink(arch, rng))
            raise InputError(
                f"no architecture of {self.space.name} was found that has {self.limits}: the smallest has "
                f"{smallest.parameters:,} parameters and {smallest.flops:,} FLOPs, raise the limit"
            )
        return arch

    def _draw_sound(self, rng: Random) -> Architecture:
        for _ in range(CONNECTED_DRAWS):
            if self.sound(arch := self.space.sample(rng)):
                return arch
        raise InputError(f"none of {CONNECTED_DRAWS:,} random architectures of {self.space.name} is connected")

    def _shrink(self, arch: Architecture, rng: Random, *, most: bool = False) -> Architecture:
        """Takes the smallest option, decision by decision in random order, until the limits are kept, or of all.

        Size is how far the counted limits are exceeded, then FLOPs.
        """
        places = list(range(len(self.space.decisions)))
        for place in rng.sample(places, len(places)):
            if not most and self.admits(arch):
                break
            others = (
                Architecture(arch.space, (*arch.choices[:place], option, *arch.choices[place + 1 :]))
                for option in range(len(self.space.decisions[place]))
            )
            sound = (other for other in others if self.space.contains(other) and self.sound(other))
            arch = min((arch, *sound), key=self._size)
        return arch

    def _size(self, arch: Architecture) -> tuple[float, int]:
        cost = self._cost(arch)
        return max(1.0, self.limits.excess(cost)), cost.flops

    def _cost(self, arch: Architecture) -> NetworkCost:
        return self.space.cost(arch, self.target)

    # --- trainings, and the pool ----------------------------------------------------------------------------------

    @property
    def queries(self) -> int | None:
        """How many trainings may be asked for, if that is known."""
        return None if self.budget is None else self.budget.queries

    @cached_property
    def members(self) -> Collection[Architecture]:
        """The pool, for looking up."""
        return frozenset(self.pool)

    def allows(self, arch: Architecture) -> bool:
        """Whether the architecture may be trained; a pool holds none that breaks a counted limit."""
        if self.pool:
            return arch in self.members
        return self.space.contains(arch) and self.within(arch)

    def limited(self) -> Problem:
        """The same with a pool that keeps the counted limits."""
        if not (self.pool and self.limits.counted):
            return self
        pool = tuple(filter(self.within, self.pool))
        if not pool:
            raise InputError(
                f"none of the {len(self.pool)} architectures of the pool has {self.limits}: raise the limit"
            )
        return replace(self, pool=pool)

    def draw(self, rng: Random) -> Architecture:
        """A random architecture that may be trained."""
        if self.pool:
            return rng.choice(self.pool)
        for _ in range(LIMITED_DRAWS):
            if self.within(arch := self.space.sample(rng)):
                return arch
        return self.draw_admitted(rng)

    def member(self, arch: Architecture) -> Architecture | None:
        """What may be trained in its place: itself, or its representative in a pool of distinct cells (nb101)."""
        if self.allows(arch):
            return arch
        if not self.pool:
            return None
        if arch not in self._twins:
            twin = self.space.canonical(arch) if self.space.contains(arch) else None
            self._twins[arch] = twin if twin in self.members else None
        return self._twins[arch]

    @cached_property
    def _twins(self) -> dict[Architecture, Architecture | None]:
        """Answers of `member`: a search looks around the same few cells again and again."""
        return {}

    def mutate(self, arch: Architecture, rng: Random, *, mutations: int = 1) -> Architecture:
        """So many random mutations away, one that may be trained; where the pool has none, a random architecture."""
        for _ in range(DRAWS):
            child = arch
            for _ in range(mutations):
                child = self.space.mutate(child, rng)
            found = self.member(child)
            if found is not None and found != arch:
                return found
        return self.draw(rng)

    def known_scores(self, method: str) -> ScoreTable:
        """The scores, which `method` cannot do without."""
        if self.scores is None or not len(self.scores):
            raise InputError(f"{method} ranks architectures by their scores: give it a store of scores")
        return self.scores

    def scored_rows(self, method: str, seed: int, count: int | None = None) -> np.ndarray:
        """The rows of scored architectures that may be trained, in random order, at most so many."""
        scores = self.known_scores(method)
        order = np.random.default_rng(list(f"{method} {seed}".encode())).permutation(len(scores))
        allowed = (row for row in order if not self.pool or scores.architectures[row] in self.members)
        rows = np.array(list(islice(allowed, count)), dtype=int)
        if not len(rows):
            raise InputError(f"{method} ranks architectures by their scores: none of those scored is in the pool")
        return rows


def climb(
    problem: Problem, start: Architecture, weigh: Callable[[Sequence[Architecture]], Sequence[float]]
) -> Architecture:
    """From an accepted architecture to the heaviest accepted neighbour, again and again, until none is heavier."""
    while True:
        around = [start, *problem.space.neighbours(start)]
        weights = list(weigh(around))
        order = sorted(range(len(around)), key=lambda place: -weights[place])
        heavier = (around[place] for place in order if weights[place] > weights[0])
        best = next(filter(problem.accepts, heavier), None)
        if best is None:
            return start
        start = best


def heaviest(problem: Problem, space: Space, weights: Sequence[Sequence[float]], rng: Random) -> Architecture:
    """The architecture whose options weigh most; where it breaks a limit, the best that climbing finds from others."""
    arch = space.decode(weights)
    if problem.accepts(arch):
        return arch

    def weight(arch: Architecture) -> float:
        return sum(weights[categorical][option] for categorical, option in space.active(arch))

    [start] = problem.accepted(sorted((problem.draw(rng) for _ in range(STARTS)), key=weight, reverse=True), 1)
    return climb(problem, start, lambda archs: [weight(arch) for arch in archs])
