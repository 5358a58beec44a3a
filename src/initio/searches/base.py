"""What every search shares: the problem, the limits, and how it speaks while it works."""

from __future__ import annotations

import math
import platform
import resource
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Protocol

from initio.data import Data
from initio.errors import InputError
from initio.networks.graphs import ZERO
from initio.records import Architecture, Batch, Scalar, SearchResult, Settings, settings
from initio.searches.limits import Limits as Limits
from initio.searches.limits import Stopwatch, milliseconds
from initio.spaces import GraphSpace, NetworkSettings, get_space

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from initio.networks.cost import NetworkCost

OnRow = Callable[[Settings], None]
CONNECTED_DRAWS = 20_000
CHECKED = 50  # random architectures whose scoring network is described before a search begins
LIMITED_DRAWS = 100  # random architectures that may break a limit before one is made smaller


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
    stopwatch: Stopwatch = field(default_factory=Stopwatch, compare=False, repr=False)

    def batch(self, seed: int) -> Batch:
        """One seeded batch."""
        return self.data.batch(self.batch_size, seed, labels=self.labels)

    def build(self, arch: Architecture, seed: int) -> nn.Module:
        """The scoring network of the architecture's representative."""
        representative = self.space.canonical(arch)
        home = self.space if representative.space == self.space.name else get_space(representative.space)
        return home.build(representative, self.network, seed=seed)

    def sound(self, arch: Architecture) -> bool:
        """Connected, and without an option called `none`."""
        decisions = self.space.relaxation
        return self.space.connected(arch) and all(
            decisions[place].options[option] != ZERO for place, option in self.space.active(arch)
        )

    def accepts(self, arch: Architecture) -> bool:
        """Sound and within all limits; the latency, which has to be measured, is asked for last."""
        limit = self.limits.max_latency
        return self.admits(arch) and (limit is None or self.latency(arch) <= limit)

    def latency(self, arch: Architecture) -> float:
        """Seconds of a forward pass of the wanted network, measured once."""
        return self.stopwatch.seconds(self.space, arch, self.target)

    def draw(self, rng: Random) -> Architecture:
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

    def check(self) -> None:
        """Refuses a network that some cells do not fit in, and limits that nothing keeps.

        Under a latency limit one small architecture is timed.
        """
        rng = Random(f"limits of {self.space.name}")
        arch = self.draw(rng)
        for other in (arch, *(self.draw(rng) for _ in range(CHECKED))):
            self.space.network(other, self.network)
        if self.limits.max_latency is not None and not self.accepts(smallest := self._shrink(arch, rng, most=True)):
            raise InputError(
                f"the architecture of {self.space.name} with the fewest FLOPs that was found takes "
                f"{milliseconds(self.latency(smallest))} a forward pass here, not {self.limits}: raise the limit"
            )

    def accepted(self, ranked: Iterable[Architecture], count: int) -> list[Architecture]:
        """The first ones that keep all limits, up to `count` of them; an `InputError` if there are none."""
        found = list(islice(filter(self.accepts, ranked), count))
        if not found:
            raise InputError(f"none of the architectures that were tried has {self.limits}: raise the limit")
        return found

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

    def admits(self, arch: Architecture) -> bool:
        """Sound and within the counted limits; nothing is timed."""
        counted = self.limits.max_params is not None or self.limits.max_flops is not None
        return self.sound(arch) and (not counted or self._size(arch)[0] <= 1)

    def _size(self, arch: Architecture) -> tuple[float, int]:
        cost = self._cost(arch)
        return max(1.0, self.limits.excess(cost)), cost.flops

    def _cost(self, arch: Architecture) -> NetworkCost:
        from initio.networks.cost import count

        return count(self.space.network(arch, self.target), self.target)


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


class Search(Protocol):
    """A frozen dataclass whose fields are its settings.

    `run` is a pure function of (problem, seed): each row of the trace depends on the seed and the rows before it, so a
    search that gets the rows of an interrupted run goes on where that one stopped, to the same answer.

    Its class may also say `limited = True` (it keeps the problem's limits; the command line refuses limits otherwise)
    and `by_space = {"darts": {"mu": 2.0}}` (settings that differ from its defaults in some spaces), and have a method
    `check(problem)` that refuses what it cannot search before a run begins.
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


class Traces(NamedTuple):
    """T of one architecture on one draw, the part of it that is rewarded, and why there is none."""

    T: float | None
    rewarded: float | None
    flag: str = ""


def whole_trace(problem: Problem, arch: Architecture, draw: int) -> Traces:
    """T, all of it rewarded, as in the paper."""
    from initio.metrics import evaluate

    found = evaluate(problem.build(arch, draw), problem.batch(draw), "nasi")["nasi"]
    return Traces(found.value, found.value, found.flag)


class Estimator(Search, Protocol):
    """A search for the architecture with the largest expected objective of the trace T; `Restarts` runs it often."""

    def objective(self, T: np.ndarray, rewarded: np.ndarray | None = None) -> np.ndarray:
        """What is maximised, of each trace; ν, where it is not given, follows from all of them.

        `rewarded` is the part of each trace that is rewarded, all of it if nothing is given.
        """

    def measure(self, problem: Problem, arch: Architecture, draw: int) -> Traces:
        """T and its rewarded part, with the batch and the initialisation of one draw."""

    def leading(self, problem: Problem, rows: Sequence[Settings]) -> Architecture | None:
        """What these rows alone speak for, limits aside."""


def versions() -> Settings:
    """What a result depends on beside its seed."""
    return settings(initio=version("initio"), torch=version("torch"), python=platform.python_version())


def get(row: Settings, name: str) -> Scalar:
    """The named value of a row of a trace, which may come from a file."""
    try:
        return dict(row)[name]
    except KeyError:
        raise InputError(f"a row of the trace has no {name!r}: it is damaged, start the search again") from None


def known(rows: Sequence[Settings], *names: str) -> list[Settings]:
    """The rows of an interrupted search, if none is missing, row k being step k, and each has values of these names."""
    for number, row in enumerate(rows):
        for name in names:
            get(row, name)
        if (step := get(row, "step")) != number:
            raise InputError(f"row {number + 1} of the trace is of step {step}: it is damaged, start the search again")
    return list(rows)


def positive(name: str, text: str, words: Sequence[str] = ("adaptive", "fixed")) -> float:
    """A positive number, where one of these words could have stood."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise InputError(f"{name} must be {', '.join(map(repr, words))} or a positive number, not {text!r}")
    return value


def peak_bytes() -> int:
    """The most memory this process ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
