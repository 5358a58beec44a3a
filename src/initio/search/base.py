"""What every search shares: the problem, the limits, and how it speaks while it works."""

from __future__ import annotations

import math
import platform
import resource
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from initio.data import Data
from initio.errors import InputError
from initio.graphs import ZERO
from initio.records import Architecture, Batch, Scalar, SearchResult, Settings, settings
from initio.spaces import GraphSpace, NetworkSettings, get_space

if TYPE_CHECKING:
    from torch import nn

OnRow = Callable[[Settings], None]
FEASIBLE_DRAWS = 20_000


@dataclass(frozen=True)
class Limits:
    """Upper limits on the network that will be trained: the space's published size, dead operations included."""

    max_params: int | None = None
    max_flops: int | None = None

    def allow(self, space: GraphSpace, arch: Architecture, network: NetworkSettings) -> bool:
        """Whether the architecture keeps all limits."""
        if self.max_params is None and self.max_flops is None:
            return True
        from initio.networks import count

        cost = count(space.network(arch, network), network)
        return (self.max_params is None or cost.parameters <= self.max_params) and (
            self.max_flops is None or cost.flops <= self.max_flops
        )

    def __str__(self) -> str:
        parts = [(self.max_params, "parameters"), (self.max_flops, "FLOPs")]
        return " and ".join(f"at most {limit:,} {what}" for limit, what in parts if limit is not None)


@dataclass(frozen=True)
class Problem:
    """What to search in and on: a space, data (or noise), the network that scores, the network that is wanted."""

    space: GraphSpace
    data: Data
    network: NetworkSettings  # the small one, for scoring
    target: NetworkSettings = field(default_factory=lambda: NetworkSettings(prune=False))  # for the limits
    batch_size: int = 64
    labels: Literal["true", "random"] = "true"
    limits: Limits = field(default_factory=Limits)

    def batch(self, seed: int) -> Batch:
        """One seeded batch."""
        return self.data.batch(self.batch_size, seed, labels=self.labels)

    def build(self, arch: Architecture, seed: int) -> nn.Module:
        """The scoring network of the architecture's representative."""
        representative = self.space.canonical(arch)
        home = self.space if representative.space == self.space.name else get_space(representative.space)
        return home.build(representative, self.network, seed=seed)

    def accepts(self, arch: Architecture) -> bool:
        """Connected, within the limits, and without an option called `none`."""
        decisions = self.space.relaxation
        return (
            all(decisions[place].options[option] != ZERO for place, option in self.space.active(arch))
            and self.space.connected(arch)
            and self.limits.allow(self.space, arch, self.target)
        )

    def draw(self, rng: Random) -> Architecture:
        """A random architecture that is accepted."""
        for _ in range(FEASIBLE_DRAWS):
            if self.accepts(arch := self.space.sample(rng)):
                return arch
        raise InputError(
            f"none of {FEASIBLE_DRAWS:,} random architectures of {self.space.name} has {self.limits}: raise the limit"
        )


def climb(
    problem: Problem, start: Architecture, weigh: Callable[[Sequence[Architecture]], Sequence[float]]
) -> Architecture:
    """From an accepted architecture to the heaviest accepted neighbour, again and again, until none is heavier."""
    while True:
        around = [start, *filter(problem.accepts, problem.space.neighbours(start))]
        weights = list(weigh(around))
        heaviest = max(range(len(around)), key=weights.__getitem__)
        if weights[heaviest] <= weights[0]:
            return start
        start = around[heaviest]


class Search(Protocol):
    """A frozen dataclass whose fields are its settings.

    `run` is a pure function of (problem, seed): each row of the trace depends on the seed and the rows before it, so a
    search that gets the rows of an interrupted run goes on where that one stopped, to the same answer.
    """

    name: ClassVar[str]
    resumes: ClassVar[bool]  # False for a short search that starts over instead

    @property
    def n_rows(self) -> int | None:
        """How many rows the trace will have, if that is known."""

    def summary(self, problem: Problem, result: SearchResult) -> str:
        """Why this architecture, in one sentence."""

    def run(
        self, problem: Problem, *, seed: int, rows: Sequence[Settings] = (), on_row: OnRow | None = None
    ) -> SearchResult:
        """Searches; `on_row` hears of each new row of the trace."""


def versions() -> Settings:
    """What a result depends on beside its seed."""
    return settings(initio=version("initio"), torch=version("torch"), python=platform.python_version())


def get(row: Settings, name: str) -> Scalar:
    """The named value of a row."""
    return dict(row)[name]


def positive(name: str, text: str) -> float:
    """A positive number that may also be one of two words."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise InputError(f"{name} must be 'adaptive', 'fixed' or a positive number, not {text!r}")
    return value


def peak_bytes() -> int:
    """The most memory this process ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
