"""A search run several times: how stable is its choice, and which of its choices is the best?

Restart k searches with a seed of its own, derived from (seed, k); restart 0 has the seed itself. What each chooses, a
finalist, is then measured on batches and initialisations that no search has seen and that are the same for all
finalists, and the largest mean objective wins: log R(T) of the trace T, as the search itself defines it. Equal
objectives (every T above ν, say) go to the finalist that more restarts chose, then to the earlier one.

The trace has the rows of restart 0, its finalist, the rows of restart 1, ...; each names its restart, and nothing else
is needed to go on after an interruption.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from typing import Any, ClassVar

import numpy as np

from initio.errors import InputError
from initio.records import Architecture, Cost, SearchResult, Settings, settings
from initio.searches.base import Estimator, OnRow, Problem, peak_bytes, versions
from initio.spaces import get_space

FINALIST = "finalist"


@dataclass(frozen=True)
class Restarts:
    """Several restarts of one search.

    Args:
        search: what is run.
        restarts: how often.
        repeats: fresh batches and initialisations that the finalists are compared on.
    """

    search: Estimator
    restarts: int = 5
    repeats: int = 8

    name: ClassVar[str] = "restarts"
    resumes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("restarts", "repeats"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")

    @property
    def n_rows(self) -> int | None:
        """The rows of all searches and their finalists."""
        return None if self.search.n_rows is None else self.restarts * (self.search.n_rows + 1)

    def check(self, problem: Problem) -> None:
        """What the search itself refuses."""
        getattr(self.search, "check", lambda problem: None)(problem)

    def run(
        self, problem: Problem, *, seed: int, rows: Sequence[Settings] = (), on_row: OnRow | None = None
    ) -> SearchResult:
        """Searches, measures the finalists, and takes the one with the largest mean objective."""
        start, done = time.perf_counter(), list(rows)

        def hear(restart: int, row: Settings) -> None:
            done.append(settings(restart=restart, **dict(row)))
            if on_row:
                on_row(done[-1])

        for restart in range(self.restarts):
            mine = rows_of(done, restart)
            if mine and _is_finalist(mine[-1]):
                continue
            own = derived(seed, restart)
            chosen = self.search.run(problem, seed=own, rows=mine, on_row=partial(hear, restart)).chosen[0]
            hear(restart, self._measure(problem, seed, chosen, done))
        steps = sum(not _is_finalist(row) for row in done)
        measured = {_architecture(problem.space.name, row) for row in done if _is_finalist(row)}
        return SearchResult(
            method=self.search.name,
            space=problem.space.name,
            seed=seed,
            chosen=(self.ranking(problem, done)[0].architecture,),
            settings=settings(**self._search_settings(), restarts=self.restarts, repeats=self.repeats),
            trace=tuple(done),
            cost=Cost(
                steps=steps,
                scorings=steps + self.repeats * len(measured),
                seconds=time.perf_counter() - start,
                peak_bytes=peak_bytes(),
            ),
            versions=versions(),
        )

    def summary(self, problem: Problem, result: SearchResult) -> str:
        """Who won by how much, and how often it came out."""
        first, *others = self.ranking(problem, result.trace)
        margin = ""
        if others and first.objective and len(first.objective) == len(others[0].objective):
            ahead = np.array(first.objective) - np.array(others[0].objective)  # on the same draws
            error = ahead.std(ddof=1) / math.sqrt(len(ahead)) if len(ahead) > 1 else math.inf
            margin = f", {ahead.mean():.3g}±{error:.2g} ahead of the next"
        stable = stability(result)
        assert stable is not None
        return f"largest mean objective of {self.restarts} restarts, {first.mean:.3g}{margin}; {stable}"

    def leading(self, problem: Problem, rows: Sequence[Settings]) -> Architecture | None:
        """Of the restart that is running."""
        mine = rows_of(rows, int(str(dict(rows[-1])["restart"]))) if rows else []
        return self.search.leading(problem, [row for row in mine if not _is_finalist(row)])

    def ranking(self, problem: Problem, rows: Sequence[Settings]) -> list[Finalist]:
        """The finalists, best first."""
        finals = [row for row in rows if _is_finalist(row)]
        searched = [pair for row in rows if not _is_finalist(row) for pair in _searched(row)]
        fresh = [_traces(row) for row in finals]
        T, rewarded = np.array(searched + [pair for pairs in fresh for pair in pairs]).reshape(-1, 2).T
        r = self.search.objective(T, rewarded)[len(searched) :]
        ends = np.cumsum([len(pairs) for pairs in fresh])
        parts = [tuple(map(float, part)) for part in np.split(r, ends[:-1])]
        chosen = [_architecture(problem.space.name, row) for row in finals]
        votes = Counter(chosen)
        finalists = {arch: Finalist(arch, part, votes[arch]) for arch, part in zip(chosen, parts, strict=True)}
        return sorted(finalists.values(), key=lambda finalist: (-finalist.mean, -finalist.votes))

    def _measure(self, problem: Problem, seed: int, arch: Architecture, done: Sequence[Settings]) -> Settings:
        """The finalist with its traces; one that another restart chose already is not measured again."""
        words = " ".join(map(str, arch.choices))
        for row in done:
            if _is_finalist(row) and dict(row)["choices"] == words:
                return untagged(row)
        values = []
        for repeat in range(self.repeats):
            draw = Random(f"finalists {seed} {repeat}").randrange(2**31)  # the same for every finalist
            values.append(self.search.measure(problem, arch, draw))
        return settings(
            kind=FINALIST,
            architecture=problem.space.format(arch),
            choices=words,
            traces=" ".join(repr(value.T) for value in values if value.T),
            rewarded=" ".join(repr(value.rewarded) for value in values if value.T),
            flag=next((value.flag for value in values if not value.T), ""),
        )

    def _search_settings(self) -> dict[str, Any]:
        return asdict(self.search)  # type: ignore[call-overload,no-any-return]


@dataclass(frozen=True)
class Finalist:
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
    """Of a finished run with restarts; None for a run without.

    The choices are those of the space's relaxation: an edge of darts is compared with the same edge.
    """
    finals = [_architecture(result.space, row) for row in result.trace if _is_finalist(row)]
    if not finals:
        return None
    space, winner = get_space(result.space), result.chosen[0]
    same = sum(space.canonical(arch) == space.canonical(winner) for arch in finals)
    made = Counter(choice for arch in finals for choice in space.active(arch))
    names = space.relaxation
    agreeing = tuple((f"{names[k].name}: {names[k].options[o]}", made[k, o]) for k, o in space.active(winner))
    return Stability(len(finals), same, agreeing)


def derived(seed: int, restart: int) -> int:
    """The seed of a restart; the first one is the search without restarts."""
    return seed if restart == 0 else Random(f"restart {seed} {restart}").randrange(2**31)


def rows_of(rows: Sequence[Settings], restart: int) -> list[Settings]:
    """The rows of one restart as its search wrote them, its finalist included."""
    return [untagged(row) for row in rows if dict(row)["restart"] == restart]


def untagged(row: Settings) -> Settings:
    """The row without the number of its restart."""
    return tuple((name, value) for name, value in row if name != "restart")


def _is_finalist(row: Settings) -> bool:
    return dict(row).get("kind") == FINALIST


def _architecture(space: str, row: Settings) -> Architecture:
    return Architecture(space, tuple(map(int, str(dict(row)["choices"]).split())))


def _searched(row: Settings) -> list[tuple[float, float]]:
    """T and its rewarded part, of a row that has a T."""
    found = dict(row)
    T = found.get("trace")
    if not isinstance(T, int | float) or T <= 0:
        return []
    rewarded = found.get("chosen_trace", T)
    assert isinstance(rewarded, int | float)
    return [(float(T), float(rewarded))]


def _traces(row: Settings) -> list[tuple[float, float]]:
    found = dict(row)
    T, rewarded = (str(found[name]).split() for name in ("traces", "rewarded"))
    return [(float(t), float(part)) for t, part in zip(T, rewarded, strict=True)]
