"""What a long command says on stderr while it works: bars in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

from initio.records import Architecture
from initio.spaces import Space

if TYPE_CHECKING:
    from rich.progress import TaskID

    from initio.runs.compare import Outcome
    from initio.runs.search import SearchStarted
    from initio.scores.pool import Progress as ScoringProgress
    from initio.training import TrainingProgress

EVERY = 10.0  # seconds between two lines, where there is no terminal


class Reporter:
    """The one reporter: `show` takes note of how far a piece of work is."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(stderr=True)
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._last = self._start = time.monotonic()
        if console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
            self._bars = Progress(*columns, console=console, transient=True)

    def __enter__(self) -> Self:
        if self._bars:
            self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars:
            self._bars.stop()

    def show(self, work: str, done: int, total: int | None, text: str) -> None:
        """So much of the work is done; the last piece is always told."""
        if self._bars:
            if work not in self._tasks:
                self._tasks[work] = self._bars.add_task(work, total=total, text="")
            self._bars.update(self._tasks[work], completed=done, total=total, text=text)
        elif done == total or time.monotonic() - self._last > EVERY:
            self._last = time.monotonic()
            print(f"{work}: {text}", file=sys.stderr, flush=True)

    def note(self, sentence: str) -> None:
        """Something the user should know."""
        if self._bars:
            self._bars.console.print(sentence, markup=False, highlight=False)
        else:
            print(sentence, file=sys.stderr, flush=True)

    def scoring(self, at: ScoringProgress) -> None:
        """Many architectures, scored or counted."""
        self.show(at.phase, at.done, at.total, state(at))

    def training(self, number: int, at: TrainingProgress) -> None:
        """A network that is being trained."""
        done, total = (at.epoch - 1) * at.batches + at.batch, at.epochs * at.batches
        text = f"epoch {at.epoch} of {at.epochs}, loss {at.loss:.2f}, {at.accuracy:.0f} %, {duration(at.left)} left"
        self.show(f"training {number}", done, total, text)

    def outcome(self, done: int, total: int, last: Outcome) -> None:
        """A comparison of searches, run by run."""
        self.show(
            "runs", done, total, f"{done} of {total}{self.left(done, total)}; {last.search}: {last.validation:.2f}"
        )

    def left(self, done: int, total: int) -> str:
        """How long the rest takes, judged by what was done since the beginning."""
        return f", {duration((time.monotonic() - self._start) / done * (total - done))} left"


class SearchReporter(Reporter):
    """The reporter of a search: hears its steps, and whatever else is under way."""

    started: SearchStarted
    steps: list[Any]
    trained = 0

    def progress(self, what: Any) -> None:
        """What `initio.search` tells its `on_progress`."""
        from initio.runs.search import SearchStarted
        from initio.training import TrainingProgress

        if isinstance(what, SearchStarted):
            self.started, self.steps = what, list(what.done)
            self.note(f"run in {what.problem.folder}")
        elif isinstance(what, str):
            self.note(what)
        elif isinstance(what, TrainingProgress):
            self.trained += what.epoch == 1 and what.batch == 1
            self.training(self.trained, what)
        else:
            self.scoring(what)

    def step(self, step: Any) -> None:
        """A step of the search: how many, how long, what it found, which choice leads."""
        self.steps.append(step)
        search, problem = self.started.search, self.started.problem
        done, total = len(self.steps), search.n_steps(problem)
        parts = [str(done)]
        if total is not None:
            new = done - len(self.started.done)
            parts = [f"{done}/{total}" + self.left(new, total - done + new)]
        if step.restart is not None:
            parts.append(f"restart {step.restart + 1}")
        parts.append(step.told())
        if (self._bars or done == total) and (leading := search.leading(problem, self.steps)) is not None:
            parts.append("leading: " + operations(problem.space, leading))
        self.show("step", done, total, ", ".join(filter(None, parts)))


def operations(space: Space, arch: Architecture) -> str:
    """How often each operation occurs in the cells.

    >>> from initio.spaces import get_space
    >>> operations(get_space("nb201"), Architecture("nb201", (3, 3, 1, 3, 2, 3)))
    '4 nor_conv_3x3, 1 skip_connect, 1 nor_conv_1x1'
    """
    labels = Counter(edge.label for cell in space.cells(arch) for edge in cell.edges if edge.label)
    return ", ".join(f"{count} {label}" for label, count in labels.most_common())


def state(at: ScoringProgress) -> str:
    """How far, how fast, how long.

    >>> from initio.scores.pool import Progress
    >>> state(Progress("scoring", done=100, total=5260, known=3, seconds=20.0))
    '100 of 5,260, 5.0 a second, 17 min left'
    """
    text = f"{at.done:,} of {at.total:,}"
    if at.left is not None:
        text += f", {at.rate:.1f} a second, {duration(at.left)} left"
    if at.restarts:
        text += f", workers restarted {at.restarts} times"
    return text


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(42.2), duration(1000), duration(20_000)
    ('42 s', '17 min', '5.6 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
