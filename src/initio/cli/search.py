"""`initio search [SPACE]`."""

from __future__ import annotations

import re
import shutil
import sys
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal

from initio.cli import from_settings
from initio.errors import InputError
from initio.records import SearchResult, Settings, settings
from initio.runs import Run
from initio.spaces import GraphSpace, NetworkSettings, get_space

if TYPE_CHECKING:
    from initio.search import Problem
    from initio.search import Search as Method

# channels, cells and pixels of the network that scores: thin but deep, since depth decides the ranking
SCORING = {"nb201": (8, 5, 16), "nb101": (16, 3, 16), "darts": (8, 8, 16)}


@dataclass(frozen=True)
class Search:
    """Chooses an architecture without training and saves the run.

    Args:
        space: where to search; `initio spaces` lists the spaces. It may be the first word of the command.
        method: how to search: nasi, from gradients; lambda-min, the best mlp by the smallest eigenvalue of its
            infinite-width kernel; eigen-darts, the mlp search of Eigen-NAS with training.
        data: noise, digits, a file or a folder; docs/data.md lists all kinds.
        labels: the data's own labels, or random ones.
        seed: the same seed chooses the same architecture.
        estimator: a regression on measured architectures, or NASI's Algorithm 1 to the letter.
        steps: how many architectures nasi measures, or eigen-darts' updates; by default the method's own number.
        mu: weight of the penalty on a trace above ν.
        nu: ν itself: adaptive, fixed or a number; none, the default of the regression, for no penalty.
        batch_size: inputs in a batch.
        channels: width of the network that scores; by default a thin one.
        cells: its number of cells.
        pixels: its images' side.
        max_params: upper limit on the parameters of the published network, as in 4M or 500k.
        max_flops: upper limit on its FLOPs on images of 32x32.
        depth: of an mlp.
        out: folder of the run; by default a new one below `runs`.
        resume: go on with this interrupted run, with the settings it was started with.
    """

    space: str = "darts"
    method: Literal["nasi", "lambda-min", "eigen-darts"] = "nasi"
    data: str = "noise"
    labels: Literal["true", "random"] = "true"
    seed: int = 0
    estimator: Literal["regression", "literal"] = "regression"
    steps: int | None = None
    mu: float | None = None
    nu: str | None = None
    batch_size: int = 64
    channels: int | None = None
    cells: int | None = None
    pixels: int | None = None
    max_params: str | None = None
    max_flops: str | None = None
    depth: int | None = None
    out: str | None = None
    resume: str | None = None

    FIRST: ClassVar[str] = "space"

    def run(self) -> None:
        """Searches with progress on stderr, then draws the cell and says where the run is."""
        if self.resume:
            run = Run.open(Path(self.resume))
            planned: Search = from_settings("search", dict(run.plan().settings), str(run.plan_path))
            planned._go_on(run)
        else:
            self._method()  # bad input is refused before anything is written
            problem = self.problem()
            problem.draw(Random(self.seed))
            problem.batch(self.seed)
            plan = SearchResult(self.method, self.space, self.seed, (), settings(**asdict(self)))
            self._go_on(Run.start(self._folder(), plan))

    def _go_on(self, run: Run) -> None:
        import torch

        from initio.report import draw_text

        torch.set_num_threads(1)
        problem = self.problem()
        search = self._method()
        rows = run.rows() if search.resumes else run.restart()
        progress = Progress(search.n_rows, done=len(rows))

        def on_row(row: Settings) -> None:
            run.append(row)
            progress.step(row)

        result = search.run(problem, seed=self.seed, rows=rows, on_row=on_row)
        progress.close()
        run.finish(result)
        arch, space = result.chosen[0], problem.space
        print(draw_text(space.cells(arch), width=shutil.get_terminal_size((100, 24)).columns))
        print(f"\nchosen  {space.format(arch)}")
        print(f"why     {search.summary(problem, result)}")
        print(f"run     {run.folder}  (draw it again: initio show {run.folder})")

    def _method(self) -> Method:
        from initio.search import SEARCHES

        name = self.method if self.estimator == "regression" else f"{self.method}-{self.estimator}"
        if name not in SEARCHES:
            raise InputError(f"--estimator {self.estimator} is an option of nasi, not of {self.method}")
        method = SEARCHES[name]
        given = {"steps": self.steps, "mu": self.mu, "nu": self.nu}
        given = {option: value for option, value in given.items() if value is not None}
        if unknown := given.keys() - {field.name for field in fields(method)}:  # type: ignore[arg-type]
            raise InputError(f"--{min(unknown)} is not an option of {name}")
        return method(**given)

    def problem(self) -> Problem:
        """What the options say, checked."""
        from initio.data import load
        from initio.search import Limits, Problem

        if self.depth is not None and self.space != "mlp":
            raise InputError(f"--depth is an option of mlp, not of {self.space}")
        space = get_space(self.space if self.depth is None else f"mlp-{self.depth}")
        channels, cells, pixels = _scoring(self.method, space)
        side = self._side(pixels)
        data = load(self.data if "@" in self.data or side is None else f"{self.data}@{side}")
        network = NetworkSettings(
            channels=channels if self.channels is None else self.channels,
            cells=cells if self.cells is None else self.cells,
            classes=data.classes,
            shape=data.shape,
        )
        limits = Limits(_amount("--max-params", self.max_params), _amount("--max-flops", self.max_flops))
        target = NetworkSettings(prune=False, classes=data.classes)
        return Problem(space, data, network, target, self.batch_size, self.labels, limits)

    def _side(self, default: int | None) -> int | None:
        if self.pixels is not None and self.pixels < 1:
            raise InputError(f"--pixels must be at least 1, not {self.pixels}")
        return default if self.pixels is None else self.pixels

    def _folder(self) -> Path:
        if self.out:
            return Path(self.out)
        stem = Path("runs") / f"{self.space}-{self.method}-seed{self.seed}"
        taken = (stem.with_name(f"{stem.name}-{number}") for number in range(2, 10_000))
        return next(folder for folder in (stem, *taken) if not folder.exists())


def _scoring(method: str, space: GraphSpace) -> tuple[int | None, int | None, int | None]:
    family = "nb101" if space.name.startswith("nb1shot1") else space.name
    if (method == "nasi") == (family in SCORING):
        return SCORING.get(family, (None, None, None))
    searched = f"{', '.join(SCORING)}, nb1shot1-s1" if method == "nasi" else "mlp"
    raise InputError(f"{method} does not search {space.name}: choose one of {searched}, or another --method")


def _amount(option: str, text: str | None) -> int | None:
    """`4M`, `500k`, `1.5G` or a plain number.

    >>> _amount("--max-params", "1.5M")
    1500000
    """
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([kMG]?)", text.strip())
    if not match:
        raise InputError(f"{option}: expected an amount such as 4M, 500k or 120000, got {text!r}")
    return round(float(match[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[match[2]])


class Progress:
    """One line on stderr: step, time left, the best so far; rewritten in a terminal, every ten seconds elsewhere."""

    def __init__(self, total: int | None, done: int = 0) -> None:
        self.total, self.done, self.first = total, done, done
        self.start = self.shown = time.monotonic()
        self.terminal = sys.stderr.isatty()
        self.best: float | None = None

    def step(self, row: Settings) -> None:
        """Counts a row of the trace."""
        self.done += 1
        values = dict(row)
        value = values.get("trace")
        if isinstance(value, float) and (self.best is None or value > self.best):
            self.best = value
        now = time.monotonic()
        if self.terminal or now - self.shown > 10 or self.total in (None, self.done):
            self.shown = now
            line = f"step {self.done}" + self._left(now) + (f", {values['stage']}" if "stage" in values else "")
            line += f", largest trace {self.best:.3g}" if self.best is not None else ""
            start, end = ("\r", "   ") if self.terminal else ("", "\n")
            print(start + line, end=end, file=sys.stderr, flush=True)

    def _left(self, now: float) -> str:
        if self.total is None:
            return ""
        left = (now - self.start) / (self.done - self.first) * (self.total - self.done)
        return f"/{self.total}, {left:.0f} s left"

    def close(self) -> None:
        """Ends the line."""
        if self.terminal:
            print(file=sys.stderr)
