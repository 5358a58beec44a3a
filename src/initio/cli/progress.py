"""How far a long work is: bars on a terminal, elsewhere a line on stderr now and then, and nothing once it is over."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from shlex import quote
from typing import TYPE_CHECKING

from initio.cli.units import duration
from initio.records import Architecture, Settings
from initio.runs.folder import Run
from initio.spaces import GraphSpace

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from initio.scores.pool import ScoringProgress
    from initio.searches import Problem
    from initio.searches import Search as Method
    from initio.training import TrainingProgress

Leading = Callable[["Problem", list[Settings]], Architecture | None]

EVERY = 10.0  # seconds between two lines, where there is no terminal
REDRAWN = 0.1  # seconds between two drawings of the bars


class Reporter:
    """Shows the work inside a `with` block; behind it, and after Ctrl-C, the terminal is as it was."""

    def __init__(self) -> None:
        self.bars: Bars | None = None
        self.tasks: dict[str, TaskID | None] = {}  # those that were shown, with their bars
        self.began: dict[str, tuple[float, int]] = {}  # when a task began, and how far it was
        self.shown = time.monotonic()
        self.every = EVERY
        self.trained = 0

    def __enter__(self) -> Reporter:
        if sys.stderr.isatty():
            self.bars, self.every = _bars(), REDRAWN
            self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bars is not None:
            self.bars.stop()

    def show(self, task: str, done: int, total: int | None = None, text: str = "") -> None:
        """Takes note of how far a task is."""
        now = time.monotonic()
        self.began.setdefault(task, (now, done))
        ends_what_was_shown = done == total and task in self.tasks
        if now - self.shown < self.every and not ends_what_was_shown:
            return
        self.shown = now
        state = self.state(task, done, total, text)
        if self.bars is None:
            self.tasks[task] = None
            print(f"{task}: {state}", file=sys.stderr, flush=True)
            return
        bar = self.tasks.get(task)
        if bar is None:
            bar = self.tasks[task] = self.bars.add_task(task, total=total, text="")
        self.bars.update(bar, completed=done, total=total, text=state, refresh=True)

    def counter(self, task: str, total: int) -> Callable[[str], None]:
        """Shows a task one further with each call."""
        numbers = count(1)
        return lambda text: self.show(task, next(numbers), total, text)

    def state(self, task: str, done: int, total: int | None, text: str = "") -> str:
        """How far, how much longer, and what there is to say."""
        start, first = self.began[task]
        parts = [f"{done:,}"]
        if total is not None:
            parts = [f"{done:,} of {total:,}"]
            if done > first:
                left = (time.monotonic() - start) / (done - first) * (total - done)
                parts.append(f"{duration(left)} left")
        return ", ".join([*parts, *filter(None, [text])])

    def note(self, sentence: str) -> None:
        """Something that the user should know, and that stays."""
        if self.bars is None:
            print(sentence, file=sys.stderr, flush=True)
        else:
            self.bars.console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def scoring(self, progress: ScoringProgress) -> None:
        """A pool that is being scored."""
        parts = [f"{progress.rate:.1f} a second"] * (progress.done > 0)
        if progress.restarts:
            parts.append(f"workers restarted {progress.restarts} times")
        self.show(progress.phase, progress.done, progress.total, ", ".join(parts))

    def training(self, at: TrainingProgress) -> None:
        """The network that is being trained: its epochs and batches begin anew with the next one."""
        if at.epoch == 1 and at.batch == 1:
            self.trained += 1
            self.began.pop("training", None)
        done, total = (at.epoch - 1) * at.batches + at.batch, at.epochs * at.batches
        where = f"network {self.trained}, epoch {at.epoch} of {at.epochs}, loss {at.loss:.2f}, {at.accuracy:.0f} %"
        self.show("training", done, total, where)


def _bars() -> Bars:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[text]}", markup=False),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)


@contextmanager
def interruptible(run: Run) -> Iterator[None]:
    """Names the run when its search begins, and after Ctrl-C says how to go on."""
    print(f"run in {run.folder}", file=sys.stderr)
    try:
        yield
    except KeyboardInterrupt:
        print(f"\ngo on with: initio search --resume {quote(str(run.folder))}", file=sys.stderr)
        raise


class Clock:
    """Seconds of work on a run, those before an interruption included."""

    def __init__(self, before: float) -> None:
        self.start = time.perf_counter() - before

    def seconds(self) -> float:
        """Up to now."""
        return time.perf_counter() - self.start


class Line:
    """The line of a search that trains."""

    def __init__(self) -> None:
        self.terminal, self.shown, self.trained = sys.stderr.isatty(), 0.0, 0

    def scoring(self, progress: ScoringProgress) -> None:
        """The pool at initialisation."""
        self._show(f"{progress.phase}: {progress.done} of {progress.total}")

    def training(self, at: TrainingProgress) -> None:
        """The network that is being trained."""
        if at.epoch == 1 and at.batch == 1:
            self.trained += 1
        self._show(
            f"training {self.trained}: epoch {at.epoch} of {at.epochs}, batch {at.batch} of {at.batches}, "
            f"loss {at.loss:.2f}, {at.accuracy:.0f} %, {at.left:.0f} s left"
        )

    def note(self, sentence: str) -> None:
        """Something the user should know."""
        print(f"{chr(10) * self.terminal}{sentence}", file=sys.stderr)

    def close(self) -> None:
        """Leaves the terminal clean."""
        if self.terminal:
            print(file=sys.stderr)

    def _show(self, text: str) -> None:
        now = time.monotonic()
        if self.terminal or now - self.shown > 10:
            self.shown = now
            print(f"\r{text:<100}" if self.terminal else text, end="" if self.terminal else "\n", file=sys.stderr)


class Progress:
    """The line of a search at initialisation: step, time left, trace, leading choices."""

    def __init__(self, search: Method, problem: Problem, rows: list[Settings]) -> None:
        self.total, self.rows, self.first = search.n_rows, list(rows), len(rows)
        self.problem = problem
        self.leading: Leading = getattr(search, "leading", lambda problem, rows: None)
        self.start = self.shown = time.monotonic()
        self.terminal = sys.stderr.isatty()
        self.width = 0

    def step(self, row: Settings) -> None:
        """Counts a row of the trace and shows it, at most once a second in a terminal and every ten elsewhere."""
        self.rows.append(row)
        now = time.monotonic()
        if self.total in (None, len(self.rows)) or now - self.shown > (1 if self.terminal else 10):
            self.shown = now
            line = self.line(now)
            if self.terminal:
                line = line[: shutil.get_terminal_size((100, 24)).columns - 1]
                print("\r" + line.ljust(self.width), end="", file=sys.stderr, flush=True)
                self.width = len(line)
            else:
                print(line, file=sys.stderr, flush=True)

    def line(self, now: float) -> str:
        """What is known after the last row."""
        done, row = len(self.rows), dict(self.rows[-1])
        parts = [f"step {done}" + (f"/{self.total}" if self.total else "")]
        if self.total:
            parts.append(f"{(now - self.start) / (done - self.first) * (self.total - done):.0f} s left")
        if "stage" in row:
            parts.append(str(row["stage"]))
        if "restart" in row:
            parts.append(f"restart {int(str(row['restart'])) + 1}")
        if isinstance(T := row.get("trace"), float):
            parts.append(f"T {T:.3g}")
        if (arch := self.leading(self.problem, self.rows)) is not None:
            parts.append("leading: " + _operations(self.problem.space, arch))
        return ", ".join(parts)

    def close(self) -> None:
        """Ends the line."""
        if self.terminal:
            print(file=sys.stderr)


def _operations(space: GraphSpace, arch: Architecture) -> str:
    """How often each operation occurs in the cells.

    >>> from initio.spaces import get_space
    >>> _operations(get_space("nb201"), Architecture("nb201", (3, 3, 1, 3, 2, 3)))
    '4 nor_conv_3x3, 1 skip_connect, 1 nor_conv_1x1'
    """
    labels = Counter(edge.label for cell in space.cells(arch) for edge in cell.edges if edge.label)
    return ", ".join(f"{count} {label}" for label, count in labels.most_common())
