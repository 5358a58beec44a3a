"""A run folder: what a search was asked, each of its steps as it happened, and what it chose.

| file           | what                                                                                |
|----------------|-------------------------------------------------------------------------------------|
| `run.json`     | all that the verb was asked, written first: enough to run the search again          |
| `steps.jsonl`  | one line a step, written and flushed to disk as it happens; survives kill −9        |
| `latency.jsonl` | times that a latency limit asked for; a resumed run uses them again                |
| `clock.jsonl`  | seconds of work after each step, those before an interruption included              |
| `scores.db`    | scores of the pool, for a search that needs them                                    |
| `ticks.jsonl`  | the same between steps, for a run with a budget of time                              |
| `sizes.json`   | pool, trainings and epochs that fit into the run's time, if it has a budget of time  |
| `trainings/`   | finished and interrupted trainings of a search that trains, where there is no cache |
| `result.json`  | the `SearchResult`, written last                                                    |
| `cell.svg/png` | the chosen architecture                                                             |
| `architecture.txt` | the same in its space's own notation                                            |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar, Self

from initio.errors import InputError
from initio.records import Architecture, Scalar, decode, later
from initio.runs.budget import TrainingSizes
from initio.runs.folders.base import Folder, add_record, read_lines, read_record, write_record
from initio.searches import find_search, name_today
from initio.searches.base import SearchStep, decode_step, encode_step
from initio.searches.limits import Limits
from initio.searches.result import SearchResult
from initio.spaces import NetworkSettings, Space, get_space
from initio.system.files import write_text

NONE: Mapping[Scalar, str] = {None: "none"}  # as it is typed


@dataclass(frozen=True)
class RunPlan:
    """What the verb was asked, with every default as it was then; the fields are the verb's arguments."""

    space: str
    method: str
    data: str
    seed: int
    labels: str
    batch_size: int
    restarts: int
    limits: Limits
    settings: dict[str, Scalar]
    queries: int | None = None
    epochs: int | None = None
    pool: int | None = None
    channels: int | None = None
    cells: int | None = None
    pixels: int | None = None
    target: NetworkSettings | None = None
    budget: float | None = None
    halving: int | None = None
    workers: int | None = field(default=None, compare=False)
    cache: bool | None = field(default=None, compare=False)
    cluster: str | None = field(default=None, compare=False, kw_only=True)
    device: str = later("cpu", kw_only=True)
    fingerprint: str = ""  # of the first batch
    versions: dict[str, str] = field(default_factory=dict, compare=False)

    kind: ClassVar[str] = "run"
    oldest: ClassVar[int] = 2

    def arguments(self) -> dict[str, Any]:
        """For the verb."""
        unasked = ("settings", "fingerprint", "versions")
        return {name: value for name, value in vars(self).items() if name not in unasked} | self.settings

    def command(self) -> str:
        """The same for the command line."""
        asked = self.arguments() | limit_words(self.limits)
        space, _ = asked.pop("space"), asked.pop("limits")
        if self.budget is not None:
            asked["budget"] = time_word(self.budget)
        if self.target is not None:
            asked["target"] = network_word(self.target)
        usual = {item.name: item.default for item in fields(find_search(self.method))}
        given = {name: value for name, value in asked.items() if value is not None or usual.get(name) is not None}
        return f"initio search {quote(space)} {option_words(given)}"


@dataclass(frozen=True)
class TimedNetwork:
    """A line of `latency.jsonl`."""

    architecture: Architecture
    seconds: float


@dataclass(frozen=True)
class Clock:
    """A line of `clock.jsonl`: seconds of all work up to a step."""

    seconds: float


class RunFolder(Folder[RunPlan, SearchResult]):
    """A folder that a search writes to, one step at a time."""

    kind = "run"
    verb = "search"
    plan_name = "run.json"
    plan_type = RunPlan
    result_type = SearchResult

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder)
        self.steps_path = self.folder / "steps.jsonl"
        self.latency_path = self.folder / "latency.jsonl"
        self.clock_path = self.folder / "clock.jsonl"
        self.ticks_path = self.folder / "ticks.jsonl"
        self.sizes_path = self.folder / "sizes.json"

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """An existing run; its result is enough."""
        run = cls(folder)
        if not (run.started or run.finished):
            raise InputError(
                f"{str(folder)!r} is not a run: it has neither run.json nor result.json; start the search anew"
            )
        return run

    def plan(self) -> RunPlan:
        """What was asked; the search has the name of today."""
        plan = super().plan()
        return replace(plan, method=name_today(plan.method, plan.settings))

    def steps(self, kinds: Sequence[type[SearchStep]]) -> list[SearchStep]:
        """The steps so far; a last line that a crash left half-written is cut off."""
        return read_lines(self.steps_path, lambda data: decode_step(kinds, data))

    def restart(self) -> list[SearchStep]:
        """Forgets the steps so far."""
        self.steps_path.unlink(missing_ok=True)
        self.clock_path.unlink(missing_ok=True)
        return []

    def append(self, step: SearchStep, seconds: float) -> None:
        """Adds a step, and the seconds of all work up to it; they are on disk when this returns."""
        add_record(self.steps_path, encode_step(step))
        add_record(self.clock_path, Clock(seconds))

    def tick(self, seconds: float) -> None:
        """Notes the seconds of all work so far, between two steps."""
        add_record(self.ticks_path, Clock(seconds))

    def sizes(self) -> TrainingSizes | None:
        """What was decided to fit into the run's time, if that was decided."""
        if not self.sizes_path.is_file():
            return None
        return read_record(TrainingSizes, self.sizes_path)

    def write_sizes(self, sizes: TrainingSizes) -> None:
        """Keeps what was decided: a run that goes on keeps to it."""
        write_record(self.sizes_path, sizes)

    def clock(self) -> list[float]:
        """Seconds of all work up to each step."""
        return [clock.seconds for clock in read_lines(self.clock_path, partial(decode, Clock))]

    def seconds(self) -> float:
        """Of all work up to the last step, or the last note of a run that has a budget of time; 0 if there is none."""
        ticks = [clock.seconds for clock in read_lines(self.ticks_path, partial(decode, Clock))]
        return max([*self.clock(), *ticks], default=0.0)

    def latencies(self) -> dict[Architecture, float]:
        """Seconds of a forward pass of each architecture that was timed."""
        timed = read_lines(self.latency_path, partial(decode, TimedNetwork))
        return {network.architecture: network.seconds for network in timed}

    def add_latency(self, arch: Architecture, seconds: float) -> None:
        """Adds a time; it is on disk when this returns."""
        add_record(self.latency_path, TimedNetwork(arch, seconds))

    def finish(self, result: SearchResult, space: Space | None = None) -> None:
        """Writes the result, the notation and the pictures; `result.json` comes last and says that all is there."""
        from initio.report import is_drawable, save_picture

        home = space or get_space(result.space)
        write_text(self.folder / "architecture.txt", home.format(result.best) + "\n")
        cells = home.cells(result.best)
        for suffix in ("svg", "png") * is_drawable(cells):
            save_picture(cells, self.folder / f"cell.{suffix}")
        write_record(self.result_path, result)


def option_words(values: Mapping[str, Scalar]) -> str:
    """Options as they are typed.

    >>> option_words({"batch_size": 8, "shared": True, "nu": None, "data": "my photos"})
    "--batch-size 8 --shared --nu none --data 'my photos'"
    """
    words = []
    for name, value in values.items():
        option = name.replace("_", "-")
        spelled = {True: f"--{option}", False: f"--no-{option}"}
        if isinstance(value, bool):
            words.append(spelled[value])
        else:
            words.append(f"--{option} {quote(NONE.get(value, str(value)))}")
    return " ".join(words)


def limit_words(limits: Limits) -> dict[str, Scalar]:
    """Limits by the names of their options, as they are typed."""
    words: dict[str, Scalar] = dict(vars(limits))
    if limits.max_latency is not None:
        words["max_latency"] = time_word(limits.max_latency)
    return words


def time_word(seconds: float) -> str:
    """A time as it is typed, which has no exponent.

    >>> time_word(90.0), time_word(2e-05), time_word(1e22)
    ('90s', '0.00002s', '10000000000000000000000s')
    """
    return f"{Decimal(str(float(seconds))).normalize():f}s"


def network_word(network: NetworkSettings) -> str:
    """A network's size as it is typed; pruning and classes are not asked for.

    >>> network_word(NetworkSettings(16, 2, shape=(1, 28, 28), norm="plain"))
    'channels=16,cells=2,shape=1x28x28,norm=plain'
    """
    usual, unasked = NetworkSettings(), ("classes", "prune", "auxiliary", "shape")
    own = {name: value for name, value in vars(network).items() if value != getattr(usual, name)}
    words = [f"{name}={value}" for name, value in own.items() if name not in unasked]
    words.insert(len({"channels", "cells"} & own.keys()), "shape=" + "x".join(map(str, network.shape)))
    return ",".join(words)


def typed(notation: str) -> str:
    """An architecture's notation as it is typed in a shell; the quotes of a genotype stay as they are."""
    if set('"$`\\!') & set(notation):
        return quote(notation)
    return f'"{notation}"'


def load_run(folder: str | Path) -> SearchResult:
    """What a finished run chose: `initio.load("runs/nb201-nasi-seed0").build(classes=10)`."""
    return RunFolder.open(folder).result()
