"""How far a long work is: bars on a terminal, elsewhere a line on stderr now and then, and nothing once it is over."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Self

from initio.cli.logs import say
from initio.cli.units import duration, tell_record
from initio.records import Architecture
from initio.spaces import Space

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from initio.runs.search import SearchStarted
    from initio.scores.pool import ScoringProgress
    from initio.searches import SearchResult
    from initio.training import TrainingProgress


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

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self.bars, self.every = _bars(), REDRAWN
            self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bars is not None:
            self.bars.stop()

    def show(self, task: str, done: int, total: int | None = None, text: str = "", **facts: Any) -> None:
        """Takes note of how far a task is; the facts are what the text says, for a log."""
        now = time.monotonic()
        self.began.setdefault(task, (now, done))
        ends_what_was_shown = done == total and task in self.tasks
        if now - self.shown < self.every and not ends_what_was_shown:
            return
        self.shown = now
        state = self.state(task, done, total, text)
        if self.bars is None:
            self.tasks[task] = None
            left = self.seconds_left(task, done, total)
            say(f"{task}: {state}", task=task, done=done, total=total, seconds_left=left, **facts)
            return
        bar = self.tasks.get(task)
        if bar is None:
            bar = self.tasks[task] = self.bars.add_task(task, total=total, text="")
        self.bars.update(bar, completed=done, total=total, text=state, refresh=True)

    def counter(self, task: str, total: int) -> Callable[..., None]:
        """Shows a task one further with each call, which takes a text and facts."""
        numbers = count(1)
        return lambda text, **facts: self.show(task, next(numbers), total, text, **facts)

    def seconds_left(self, task: str, done: int, total: int | None) -> float | None:
        """As long as what was done until now tells; None where it does not."""
        start, first = self.began[task]
        if total is None or done <= first:
            return None
        return (time.monotonic() - start) / (done - first) * (total - done)

    def state(self, task: str, done: int, total: int | None, text: str = "") -> str:
        """How far, how much longer, and what there is to say."""
        parts = [f"{done:,}" if total is None else f"{done:,} of {total:,}"]
        left = self.seconds_left(task, done, total)
        if left is not None:
            parts.append(f"{duration(left)} left")
        return ", ".join(filter(None, [*parts, text]))

    def note(self, sentence: str, **facts: Any) -> None:
        """Something that the user should know, and that stays."""
        if self.bars is None:
            say(sentence, **facts)
        else:
            self.bars.console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def scoring(self, progress: ScoringProgress) -> None:
        """A pool that is being scored."""
        parts = [f"{progress.rate:.1f} a second"] * (progress.done > 0)
        if progress.restarts:
            parts.append(f"workers restarted {progress.restarts} times")
        facts = {"rate": progress.rate, "known": progress.known, "restarts": progress.restarts}
        self.show(progress.phase, progress.done, progress.total, ", ".join(parts), **facts)

    def training(self, at: TrainingProgress) -> None:
        """The network that is being trained: its epochs and batches begin anew with the next one."""
        if at.epoch == 1 and at.batch == 1:
            self.trained += 1
            self.began.pop("training", None)
        done, total = (at.epoch - 1) * at.batches + at.batch, at.epochs * at.batches
        where = f"network {self.trained}, epoch {at.epoch} of {at.epochs}, loss {at.loss:.2f}, {at.accuracy:.0f} %"
        self.show("training", done, total, where, network=self.trained, **_facts(at))


def _facts(at: TrainingProgress) -> dict[str, Any]:
    """Of a training, beside how far it is."""
    names = ("epoch", "epochs", "loss", "accuracy", "validation")
    return {name: getattr(at, name) for name in names}


def _bars() -> Bars:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[text]}", markup=False),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)


class TrainReporter(Reporter):
    """The reporter of a training: hears its updates, its epochs, and sentences."""

    def hear(self, what: Any) -> None:
        """What `initio.train` tells its `on_event`."""
        from initio.training import TrainedEpoch, TrainingProgress

        if isinstance(what, TrainingProgress):
            done, total = (what.epoch - 1) * what.batches + what.batch, what.epochs * what.batches
            where = f"epoch {what.epoch} of {what.epochs}, loss {what.loss:.3f}, {what.accuracy:.1f} %"
            if what.validation is not None:
                where += f", validation {what.validation:.2f} %"
            self.show("training", done, total, where, **_facts(what))
        elif isinstance(what, TrainedEpoch):
            text = f"epoch {what.epoch:3}  loss {what.loss:.4f}  accuracy {what.accuracy:6.2f} %"
            if what.validation is not None:
                text += f"  validation {what.validation:6.2f} %"
            sentence = f"{text}  {duration(what.seconds)}, waiting {100 * what.waited:.1f} %"
            self.note(sentence, task="epoch", **vars(what))
        else:
            self.note(str(what))


class SearchReporter(Reporter):
    """The reporter of a search: hears its steps, and whatever else is under way."""

    started: SearchStarted
    steps: list[Any]

    def progress(self, what: Any) -> None:
        """What `initio.search` tells its `on_progress`."""
        from initio.runs.search import SearchStarted
        from initio.training import TrainingProgress

        if isinstance(what, SearchStarted):
            self.started, self.steps = what, list(what.done)
            self.note(f"run in {what.problem.folder}", folder=str(what.problem.folder))
        elif isinstance(what, str):
            self.note(what)
        elif isinstance(what, TrainingProgress):
            self.training(what)
        else:
            self.scoring(what)

    def step(self, step: Any) -> None:
        """A step of the search: what it found, and which choice leads."""
        search, problem = self.started.search, self.started.problem
        self.steps.append(step)
        parts = [step.told()]
        if step.restart is not None:
            parts.insert(0, f"restart {step.restart + 1}")
        self.show("step", len(self.steps), search.n_steps(problem), ", ".join(parts), step=step)

    def state(self, task: str, done: int, total: int | None, text: str = "") -> str:
        """Asked for only when it is shown: to know who leads takes time."""
        if task == "step":
            leading = self.started.search.leading(self.started.problem, self.steps)
            if leading is not None:
                text += ", leading: " + operations(self.started.problem.space, leading)
        return super().state(task, done, total, text)


class SolveReporter(SearchReporter):
    """The reporter of all stages of `initio solve`."""

    def hear(self, what: Any) -> None:
        """What `initio.solve` tells its `on_event`."""
        from initio.runs.search import SearchStarted
        from initio.searches import SearchStep
        from initio.training import TrainedEpoch

        if isinstance(what, SearchStep):
            self.step(what)
        elif isinstance(what, SearchStarted):
            self.started, self.steps = what, list(what.done)
        elif isinstance(what, TrainedEpoch):
            if what.validation is not None:
                self.show("epoch", what.epoch, None, f"validation {what.validation:.2f} %", **vars(what))
        else:
            self.progress(what)


def resumable(command: str, folder: Path) -> AbstractContextManager[None]:
    """Whoever interrupts the block is told how to go on."""
    return on_interrupt(f"go on with: initio {command} --resume {quote(str(folder))}")


@contextmanager
def on_interrupt(sentence: str) -> Iterator[None]:
    """Says the sentence to whoever interrupts the block."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\n{sentence}", file=sys.stderr)
        raise


def watch(search: Callable[..., SearchResult], folder: Path, *, json: bool = False) -> None:
    """Runs a search into a folder with progress on stderr, then draws the cell and says where the run is."""
    import torch

    torch.set_num_threads(1)
    with resumable("search", folder), SearchReporter() as told:
        result = search(folder=folder, on_step=told.step, on_progress=told.progress)
    tell_record(f"{result}\nrun     {folder}  (draw it again: initio show {quote(str(folder))})", result, json=json)


def operations(space: Space, arch: Architecture) -> str:
    """How often each operation occurs in the cells.

    >>> from initio.spaces import get_space
    >>> operations(get_space("nb201"), Architecture("nb201", (3, 3, 1, 3, 2, 3)))
    '4 nor_conv_3x3, 1 skip_connect, 1 nor_conv_1x1'
    """
    labels = Counter(edge.label for cell in space.cells(arch) for edge in cell.edges if edge.label)
    return ", ".join(f"{count} {label}" for label, count in labels.most_common())
