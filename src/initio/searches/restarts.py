"""A search run several times: how stable is its choice, and which of its choices is the best?

Restart k searches with a seed of its own, derived from (seed, k); restart 0 has the seed itself. What each chooses, a
finalist, is then measured on batches and initialisations that no search has seen and that are the same for all
finalists, and the largest mean objective wins: log R(T) of the trace T, as the search itself defines it. Equal
objectives (every T above ν, say) go to the finalist that more restarts chose, then to the earlier one.

A search may sample networks of another kind than it chooses: on darts NASI's samples have one input a node, its choices
two, and larger traces. Then random architectures are built and measured as the finalists are, and ν is the trace that
has among these the place that the search's own ν has among its samples.

The steps are those of restart 0, its finalist, the steps of restart 1, ..., each of which names its restart, and where
they are needed the random architectures; nothing else is needed to go on after an interruption.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from initio.errors import at_least
from initio.records import Architecture, Cost, Scalar
from initio.searches.base import Search, SearchRun, SearchStep
from initio.searches.problem import Problem
from initio.searches.traces import Traces, TraceSearch, TraceStep
from initio.spaces import Space, get_space

if TYPE_CHECKING:
    from initio.searches.result import SearchResult

Pairs = list[tuple[float, float]]  # T and its rewarded part
S = TypeVar("S", bound=SearchStep)
REFERENCES = 50  # as many as NASI's fixed ν is the mean of


@dataclass(frozen=True)
class Finalist(SearchStep):
    """What a restart chose, with T and its rewarded part on each common draw that gave one."""

    architecture: Architecture
    traces: tuple[float, ...]
    rewarded: tuple[float, ...]
    flag: str = ""  # why a draw gave none

    @property
    def cost(self) -> Cost:
        """Counted by `Restarts`: a finalist that was chosen before is not measured again."""
        return Cost()

    @property
    def pairs(self) -> Pairs:
        """Draw by draw."""
        return list(zip(self.traces, self.rewarded, strict=True))

    def told(self) -> str:
        """That it is one."""
        return "finalist"


@dataclass(frozen=True)
class Reference(TraceStep):
    """A random architecture that is built as the finalists are, and its T."""

    architecture: Architecture
    rewarded: float | None = None
    flag: str = ""

    @property
    def traces(self) -> Traces:
        """T and its rewarded part."""
        return Traces(self.trace, self.rewarded, self.flag)


@dataclass(frozen=True)
class Restarts(Search[SearchStep]):
    """Several restarts of one search, under its name.

    Args:
        search: what is run.
        restarts: how often.
        repeats: fresh batches and initialisations that the finalists are compared on.
    """

    search: TraceSearch[Any]
    restarts: int = 5
    repeats: int = 8

    limited: ClassVar[bool] = True

    def __post_init__(self) -> None:
        at_least(self, restarts=1, repeats=1)
        object.__setattr__(self, "name", self.search.name)
        object.__setattr__(self, "parallel", self.search.parallel)
        object.__setattr__(self, "step_types", (*self.search.step_types, Finalist, Reference))

    def resolved(self, space: Space) -> Restarts:
        """The search is."""
        return replace(self, search=self.search.resolved(space))

    def n_steps(self, problem: Problem) -> int | None:
        """The steps of all searches, their finalists, and the architectures beside them."""
        each = self.search.n_steps(problem)
        return each and self.restarts * (each + 1) + self.references(problem)

    def references(self, problem: Problem) -> int:
        """How many random architectures are measured beside the finalists."""
        return REFERENCES * (not self.search.samples_built(problem))

    def check(self, problem: Problem) -> None:
        """What the search itself refuses."""
        self.search.check(problem)

    def run(self, problem: Problem, seed: int, done: Sequence[SearchStep]) -> SearchRun[SearchStep]:
        """Searches, measures the finalists, and takes the one with the largest mean objective."""
        steps = list(done)
        for restart in range(self.restarts):
            mine = steps_of_restart(steps, restart)
            if mine and isinstance(mine[-1], Finalist):
                continue
            search = self.search.run(problem, derived(seed, restart), mine)
            while True:
                try:
                    step = next(search)
                except StopIteration as stop:
                    chosen: Architecture = stop.value
                    break
                steps.append(replace(step, restart=restart))
                yield steps[-1]
            steps.append(replace(self.measure(problem, seed, chosen, finalists(steps)), restart=restart))
            yield steps[-1]
        for number in range(len(of_kind(Reference, steps)), self.references(problem)):
            rng = Random(f"references {seed} {number}")
            arch = problem.draw(rng)
            T, rewarded, flag = self.search.measure(problem, arch, rng.randrange(2**31))
            steps.append(Reference(number, T, arch, rewarded, flag))
            yield steps[-1]
        return self.ranking(steps)[0].architecture

    def why(self, problem: Problem, steps: Sequence[SearchStep], chosen: Architecture) -> str:
        """Who won by how much, and how often it came out."""
        first, *others = self.ranking(steps)
        margin = ""
        if others and first.objective and len(first.objective) == len(others[0].objective):
            ahead = np.array(first.objective) - np.array(others[0].objective)  # on the same draws
            error = ahead.std(ddof=1) / math.sqrt(len(ahead)) if len(ahead) > 1 else math.inf
            margin = f", {ahead.mean():.3g}±{error:.2g} ahead of the next"
        stable = agreement(problem.space, chosen, finalists(steps))
        return f"largest mean objective of {self.restarts} restarts, {first.mean:.3g}{margin}; {stable}"

    def leading(self, problem: Problem, steps: Sequence[SearchStep]) -> Architecture | None:
        """Of the restart that is running."""
        if not steps:
            return None
        mine = steps_of_restart(steps, steps[-1].restart or 0)
        return self.search.leading(problem, [step for step in mine if not isinstance(step, Finalist)])

    def cost(self, steps: Sequence[SearchStep]) -> Cost:
        """That of the searches, and `repeats` scorings of each different finalist."""
        different = {final.architecture for final in finalists(steps)}
        return super().cost(steps) + Cost(scorings=self.repeats * len(different))

    def settings(self) -> dict[str, Scalar]:
        """Those of the search, and how often it was run."""
        return self.search.settings() | {"restarts": self.restarts, "repeats": self.repeats}

    def ranking(self, steps: Sequence[SearchStep]) -> list[RankedFinalist]:
        """The finalists, best first."""
        finals = finalists(steps)
        votes = Counter(final.architecture for final in finals)
        ranked = {
            final.architecture: RankedFinalist(final.architecture, part, votes[final.architecture])
            for final, part in zip(finals, self.objectives(steps), strict=True)
        }
        return sorted(ranked.values(), key=lambda finalist: (-finalist.mean, -finalist.votes))

    def objectives(self, steps: Sequence[SearchStep]) -> list[tuple[float, ...]]:
        """Of each finalist on each common draw."""
        finals = finalists(steps)
        beside = [pair for step in steps if not isinstance(step, Finalist | Reference) for pair in _searched(step)]
        nu, known = None, [pair for step in of_kind(Reference, steps) for pair in _searched(step)]
        if known and beside:
            sampled = np.array(beside)[:, 0]
            place = float(np.mean(sampled <= self.search.nu_of(sampled)))
            nu, beside = float(np.quantile(np.array(known)[:, 0], place)), known
        T, rewarded = np.array(beside + [pair for final in finals for pair in final.pairs]).reshape(-1, 2).T
        r = self.search.objective(T, rewarded, nu)[len(beside) :]
        ends = np.cumsum([len(final.pairs) for final in finals])
        return [tuple(map(float, part)) for part in np.split(r, ends[:-1])]

    def measure(self, problem: Problem, seed: int, arch: Architecture, before: Sequence[Finalist]) -> Finalist:
        """The finalist with its traces; one that another restart chose already is not measured again."""
        for final in before:
            if final.architecture == arch:
                return final
        draws = [Random(f"finalists {seed} {repeat}").randrange(2**31) for repeat in range(self.repeats)]
        return self.measured(problem, arch, draws)

    def measured(self, problem: Problem, arch: Architecture, draws: Sequence[int]) -> Finalist:
        """T and its rewarded part on draws that are the same for every finalist."""
        found = [self.search.measure(problem, arch, draw) for draw in draws]
        kept = [(value.T, value.rewarded) for value in found if value.T and value.rewarded is not None]
        flag = next((value.flag for value in found if not value.T), "")
        return Finalist(arch, tuple(T for T, _ in kept), tuple(rewarded for _, rewarded in kept), flag)


@dataclass(frozen=True)
class RankedFinalist:
    """What some restarts chose, with its objective on each common draw."""

    architecture: Architecture
    objective: tuple[float, ...]
    votes: int

    @property
    def mean(self) -> float:
        """−inf for a finalist without a single trace."""
        return sum(self.objective) / len(self.objective) if self.objective else -math.inf


@dataclass(frozen=True)
class Stability:
    """How often the restarts of a run came to the same choices."""

    restarts: int
    same: int  # restarts that chose the same network
    agreeing: tuple[tuple[str, int], ...]  # each choice of the winner, and how many restarts made it

    @property
    def mean(self) -> float:
        """The mean share of restarts that agree with a choice."""
        return sum(count for _, count in self.agreeing) / (self.restarts * len(self.agreeing))

    def __str__(self) -> str:
        return f"{self.same} of {self.restarts} restarts chose it, on average {self.mean:.0%} agree with a choice in it"


def stability(result: SearchResult) -> Stability | None:
    """Of a finished run with restarts; None for a run without."""
    finals = finalists(result.steps)
    if not finals:
        return None
    return agreement(result.home or get_space(result.space), result.best, finals)


def agreement(space: Space, winner: Architecture, finals: Sequence[Finalist]) -> Stability:
    """How far the finalists agree with the winner.

    The choices are those of the space's relaxation: an edge of darts is compared with the same edge.
    """
    names = space.relaxation
    same = sum(space.canonical(final.architecture) == space.canonical(winner) for final in finals)
    made = Counter(choice for final in finals for choice in space.active(final.architecture))
    agreeing = tuple((f"{names[k].name}: {names[k].options[o]}", made[k, o]) for k, o in space.active(winner))
    return Stability(len(finals), same, agreeing)


def derived(seed: int, restart: int) -> int:
    """The seed of a restart; the first one is the search without restarts."""
    return Random(f"restart {seed} {restart}").randrange(2**31) if restart else seed


def steps_of_restart(steps: Sequence[SearchStep], restart: int) -> list[SearchStep]:
    """The steps of one restart as its search made them, its finalist included."""
    return [replace(step, restart=None) for step in steps if step.restart == restart]


def finalists(steps: Sequence[SearchStep]) -> list[Finalist]:
    """Those among the steps."""
    return of_kind(Finalist, steps)


def of_kind(kind: type[S], steps: Sequence[SearchStep]) -> list[S]:
    """The steps of one kind."""
    return [step for step in steps if isinstance(step, kind)]


def _searched(step: SearchStep) -> Pairs:
    """T and its rewarded part, of a step that has a T."""
    T, rewarded, _ = step.traces  # type: ignore[attr-defined]
    return [(T, rewarded)] if T else []
