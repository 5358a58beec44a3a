"""A run folder: what a search was asked, each of its steps as it happened, and what it chose.

| file           | what                                                                                |
|----------------|-------------------------------------------------------------------------------------|
| `run.json`     | method, space, seed and settings, written first: enough to run the search again     |
| `trace.jsonl`  | one line a step, written and flushed to disk as it happens; survives kill −9        |
| `latency.jsonl` | times that a latency limit asked for; a resumed run uses them again                |
| `clock.jsonl`  | seconds of work after each step, those before an interruption included              |
| `result.json`  | the `SearchResult`, written last                                                    |
| `cell.svg/png` | the chosen architecture                                                             |
| `architecture.txt` | the same in its space's own notation                                            |
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from initio.errors import InputError
from initio.files import add_line, read_text, whole_lines, write_text
from initio.records import (
    Architecture,
    SearchResult,
    Settings,
    decode,
    encode,
    from_json,
    settings,
    to_json,
)
from initio.spaces import NetworkSettings, get_space

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Run:
    """A folder that a search writes to, one step at a time."""

    folder: Path

    @property
    def plan_path(self) -> Path:
        """What was asked."""
        return self.folder / "run.json"

    @property
    def trace_path(self) -> Path:
        """What happened."""
        return self.folder / "trace.jsonl"

    @property
    def latency_path(self) -> Path:
        """What was timed."""
        return self.folder / "latency.jsonl"

    @property
    def clock_path(self) -> Path:
        """How long it took."""
        return self.folder / "clock.jsonl"

    @property
    def result_path(self) -> Path:
        """What was chosen."""
        return self.folder / "result.json"

    @classmethod
    def start(cls, folder: Path, plan: SearchResult) -> Run:
        """A new run; `plan` is a result that has chosen nothing yet. An existing run is never overwritten."""
        run, text = cls(folder), to_json(plan, indent=2) + "\n"
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{str(folder)!r} is a file: give another --out")
        if folder.exists() and any(folder.iterdir()):
            resume = f", or go on with it by --resume {quote(str(folder))}" if run.plan_path.is_file() else ""
            raise InputError(f"{str(folder)!r} is not empty: give another --out{resume}")
        folder.mkdir(parents=True, exist_ok=True)
        write_text(run.plan_path, text)
        return run

    @classmethod
    def open(cls, folder: Path) -> Run:
        """An existing run."""
        run = cls(folder)
        if not (run.plan_path.is_file() or run.result_path.is_file()):
            raise InputError(f"{str(folder)!r} is not a run: it has neither run.json nor result.json")
        return run

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else works on this run inside the block; the lock goes with the process, however that ends."""
        with self.plan_path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(f"another process is working on the run {str(self.folder)!r}: wait for it") from None
            yield

    @property
    def finished(self) -> bool:
        """Whether it has a result."""
        return self.result_path.is_file()

    def plan(self) -> SearchResult:
        """What was asked, as `start` wrote it."""
        return from_json(SearchResult, read_text(self.plan_path), where=str(self.plan_path))

    def rows(self) -> list[Settings]:
        """The steps so far; a last line that a crash left half-written is cut off."""
        return _read_lines(self.trace_path)

    def restart(self) -> list[Settings]:
        """Forgets the steps so far."""
        self.trace_path.unlink(missing_ok=True)
        self.clock_path.unlink(missing_ok=True)
        return []

    def append(self, row: Settings, seconds: float) -> None:
        """Adds a step, and the seconds of all work up to it; they are on disk when this returns."""
        _add_line(self.trace_path, row)
        _add_line(self.clock_path, settings(seconds=seconds))

    def seconds(self) -> float:
        """Of all work up to the last step; 0 for a run that has none yet."""
        seconds = [dict(row).get("seconds") for row in _read_lines(self.clock_path)[-1:]]
        if not all(isinstance(value, float) for value in seconds):
            raise InputError(f"the last line of {str(self.clock_path)!r} has no seconds: delete the file")
        return float(str(seconds[0])) if seconds else 0.0

    def latencies(self) -> dict[Architecture, float]:
        """Seconds of a forward pass of each architecture that was timed."""
        known = {}
        for number, row in enumerate(map(dict, _read_lines(self.latency_path)), start=1):
            try:
                choices = tuple(map(int, str(row["choices"]).split()))
                known[Architecture(str(row["space"]), choices)] = float(str(row["seconds"]))
            except (KeyError, ValueError) as error:
                raise InputError(f"line {number} of {str(self.latency_path)!r} is damaged: {error}") from None
        return known

    def add_latency(self, arch: Architecture, seconds: float) -> None:
        """Adds a time; it is on disk when this returns."""
        row = settings(space=arch.space, choices=" ".join(map(str, arch.choices)), seconds=seconds)
        _add_line(self.latency_path, row)

    def finish(self, result: SearchResult, seconds: float | None = None) -> None:
        """Writes the result, the notation and the pictures; `result.json` comes last and says that all is there.

        `seconds` are those of all work on this run, if the result knows of its last part alone.
        """
        from initio.report import is_drawable, save_picture

        if seconds is not None:
            result = replace(result, cost=replace(result.cost, seconds=seconds))
        arch = result.chosen[0]
        space = get_space(arch.space)
        write_text(self.folder / "architecture.txt", space.format(arch) + "\n")
        cells = space.cells(arch)
        for suffix in ("svg", "png") * is_drawable(cells):
            save_picture(cells, self.folder / f"cell.{suffix}")
        write_text(self.result_path, to_json(result, indent=2) + "\n")

    def result(self) -> SearchResult:
        """What was chosen; an unfinished run says how to finish it."""
        if not self.finished:
            raise InputError(
                f"the run {str(self.folder)!r} is not finished: "
                f"go on with `initio search --resume {quote(str(self.folder))}`"
            )
        return from_json(SearchResult, read_text(self.result_path), where=str(self.result_path))


def _read_lines(path: Path) -> list[Settings]:
    """The rows of a file; a last line that a crash left half-written is cut off."""
    return [_row(path, number, line) for number, line in enumerate(whole_lines(path), start=1)]


def _row(path: Path, number: int, line: bytes) -> Settings:
    try:
        row: Settings = decode(Settings, json.loads(line), "row")
    except (ValueError, AttributeError) as error:
        raise InputError(f"line {number} of {str(path)!r} is damaged: {error}") from None
    return row


def _add_line(path: Path, row: Settings) -> None:
    add_line(path, json.dumps(encode(dict(row)), allow_nan=False))


@dataclass(frozen=True)
class Loaded:
    """A finished run in Python: `initio.load("runs/nb201-0").build(classes=10)`."""

    result: SearchResult

    @property
    def architecture(self) -> Architecture:
        """The first choice."""
        if not self.result.chosen:
            raise InputError("nothing was chosen yet: the run is not finished")
        return self.result.chosen[0]

    def __str__(self) -> str:
        return get_space(self.architecture.space).format(self.architecture)

    def build(self, *, seed: int = 0, **options: Any) -> nn.Module:
        """The chosen network as a plain PyTorch module, with as many classes as the searched data have.

        The options are those of `NetworkSettings`.
        """
        settings = NetworkSettings(**{"classes": self.classes} | options)
        return get_space(self.architecture.space).build(self.architecture, settings, seed=seed)

    @property
    def classes(self) -> int:
        """Of the data that were searched on."""
        return int(str(dict(self.result.about).get("classes", NetworkSettings.classes)))


def load(folder: str | Path) -> Loaded:
    """Opens a finished run."""
    return Loaded(Run.open(Path(folder)).result())
