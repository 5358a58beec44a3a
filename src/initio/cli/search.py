"""`initio search [SPACE]`."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from initio.cli import from_settings
from initio.errors import InputError
from initio.records import Architecture, SearchResult, Settings, settings
from initio.runs import Run
from initio.spaces import GraphSpace, NetworkSettings, get_space

if TYPE_CHECKING:
    from initio.hybrid import Hybrid
    from initio.pool import Progress as ScoringProgress
    from initio.search import Problem
    from initio.search import Search as Method
    from initio.training import TrainingProgress

Leading = Callable[["Problem", list[Settings]], Architecture | None]
# channels, cells and pixels of the network that scores: thin but deep, since depth decides the ranking
SCORING = {"nb201": (8, 5, 16), "nb101": (16, 3, 16), "darts": (8, 8, 16)}


@dataclass(frozen=True)
class Search:
    """Chooses an architecture, without training or with a few short ones, and saves the run.

    Without any argument: NASI in the darts space, from noise. An option that a method has no use for is refused.

    Args:
        space: where to search; `initio spaces` lists the spaces. It may be the first word of the command.
        method: how to search: nasi, from gradients; lambda-min, the best mlp by the smallest eigenvalue of its
            infinite-width kernel; eigen-darts, the mlp search of Eigen-NAS with training. The others train --queries
            small networks on the data for a few epochs and learn from how good they are.
        data: noise, digits, a file or a folder; docs/data.md lists all kinds.
        labels: the data's own labels, or random ones.
        seed: the same seed chooses the same architecture.
        estimator: a regression on measured architectures, or NASI's Algorithm 1 to the letter.
        steps: how many architectures nasi measures, or eigen-darts' updates; by default the method's own number.
        mu: weight of the penalty on a trace above ν; 1, for the literal estimator on darts 2.
        nu: ν itself: geometric (the regression's default), adaptive (the literal estimator's), fixed (the same on
            nb201) or a number; none for no penalty.
        counted: what the regression rewards: the part of the trace that the chosen operations hold, or all of it.
        nu_0: where the literal estimator's adaptive ν begins; 1000, on darts 500.
        restarts: search this often with derived seeds, report how far the restarts agree, and take the choice with the
            largest mean objective on common fresh batches and initialisations.
        batch_size: inputs in a batch.
        channels: width of the network that scores; by default a thin one.
        cells: its number of cells.
        pixels: its images' side.
        max_params: upper limit on the parameters of the published network, as in 4M or 500k.
        max_flops: upper limit on its FLOPs on images of 32x32.
        max_latency: upper limit on its measured time for one such image on one thread, as in 20ms or 0.5s. A time is
            noisy and belongs to this machine: the same seed may choose another architecture.
        depth: of an mlp.
        queries: how many networks a method that trains may train; 10.
        epochs: length of each training; 3.
        pool: how many random architectures are scored before the first training; 200.
        metric: the metric of hnas and zero-cost.
        k: how many of the best ranked eigen-nas, knas and zero-cost train.
        out: folder of the run; by default a new one below `runs`.
        resume: go on with this interrupted run, with the settings it was started with.
    """

    space: str = "darts"
    method: Literal[
        "nasi", "lambda-min", "eigen-darts", "robust", "hnas", "random", "rea", "reinforce", "bohb", "zero-cost",
        "naswot", "knas", "eigen-nas", "te-nas",
    ] = "nasi"  # fmt: skip
    data: str = "noise"
    labels: Literal["true", "random"] = "true"
    seed: int = 0
    estimator: Literal["regression", "literal"] = "regression"
    steps: int | None = None
    mu: float | None = None
    nu: str | None = None
    counted: Literal["chosen", "all"] | None = None
    nu_0: float | None = None
    restarts: int = 1
    batch_size: int = 64
    channels: int | None = None
    cells: int | None = None
    pixels: int | None = None
    max_params: str | None = None
    max_flops: str | None = None
    max_latency: str | None = None
    depth: int | None = None
    queries: int | None = None
    epochs: int | None = None
    pool: int | None = None
    metric: str | None = None
    k: int | None = None
    out: str | None = None
    resume: str | None = None

    FIRST: ClassVar[str] = "space"

    def run(self) -> None:
        """Searches with progress on stderr, then draws the cell and says where the run is."""
        import torch

        torch.set_num_threads(1)
        if self.resume:
            run = Run.open(Path(self.resume))
            planned: Search = from_settings("search", dict(run.plan().settings), str(run.plan_path))
            if planned._trains:
                planned._train(run, planned.hybrid())
                return
            problem = planned.problem()
            problem.stopwatch.known.update(run.latencies())
            planned._go_on(run, problem)
            return
        if self._trains:
            hybrid = self.hybrid()
            self._train(self._start(), hybrid)
            return
        self._search()  # bad input is refused before anything is written
        problem = self.problem()
        problem.check()
        problem.batch(self.seed)
        run = self._start()
        for arch, seconds in problem.stopwatch.known.items():
            run.add_latency(arch, seconds)
        self._go_on(run, problem)

    def _start(self) -> Run:
        plan = SearchResult(self.method, self.space, self.seed, (), settings(**asdict(self)))
        return Run.start(self._folder(), plan)

    # --- methods that learn from trainings ---------------------------------------------------------------------

    @property
    def _trains(self) -> bool:
        from initio.search import QUERY_SEARCHES

        return self.method in QUERY_SEARCHES

    def hybrid(self) -> Hybrid:
        """What the options say, for a method that trains."""
        from initio.data import load
        from initio.hybrid import Hybrid
        from initio.search import QUERY_SEARCHES, UNSCORED
        from initio.training import TrainingSettings

        method = QUERY_SEARCHES[self.method]
        options = self._given({"metric", "k"})
        refused = options.keys() - {field.name for field in fields(method)}  # type: ignore[arg-type]
        refused |= self._given(
            {"steps", "counted", "mu", "nu", "nu_0", "max_params", "max_flops", "max_latency"}
        ).keys()
        refused |= {"restarts"} if self.restarts != 1 else set()
        refused |= {"pool"} if self.pool is not None and self.method in UNSCORED else set()
        if refused:
            raise InputError(f"--{min(refused).replace('_', '-')} is not an option of {self.method}")
        space = get_space(self.space if self.depth is None else f"mlp-{self.depth}")
        channels, cells, pixels = SCORING.get("nb101" if _family(space.name) == "nb1shot1" else space.name, (None,) * 3)
        side = self._side(pixels)
        data = load(self.data if "@" in self.data or side is None else f"{self.data}@{side}")
        network = NetworkSettings(self.channels or channels, self.cells or cells, data.classes, data.shape)
        pool = 0 if self.method in UNSCORED else 200 if self.pool is None else self.pool
        training = TrainingSettings(epochs=3 if self.epochs is None else self.epochs)
        queries = 10 if self.queries is None else self.queries
        return Hybrid(method(**options), space, data, network, queries, pool, training, self.seed, self.batch_size)

    def _train(self, run: Run, hybrid: Hybrid) -> None:
        line, clock = Line(), Clock(run.seconds())
        result = hybrid.run(
            run.folder, rows=run.rows(), on_row=lambda row: run.append(row, clock.seconds()),
            on_scoring=line.scoring, on_training=line.training, on_note=line.note,
        )  # fmt: skip
        line.close()
        run.finish(result, clock.seconds())
        best = max(float(str(dict(row)["value"])) for row in result.trace)
        trained = f"{result.cost.queries} networks trained for {hybrid.training.epochs} epochs"
        report(run, hybrid.space, f"best validation accuracy, {best:.2f} %, of {trained}")

    # --- methods that train nothing ----------------------------------------------------------------------------

    def _go_on(self, run: Run, problem: Problem) -> None:
        search = self._search()
        problem.stopwatch.on_new = run.add_latency
        rows = run.rows() if search.resumes else run.restart()
        progress, clock = Progress(search, problem, rows), Clock(run.seconds())

        def on_row(row: Settings) -> None:
            run.append(row, clock.seconds())
            progress.step(row)

        result = search.run(problem, seed=self.seed, rows=rows, on_row=on_row)
        progress.close()
        run.finish(result, clock.seconds())
        report(run, problem.space, search.summary(problem, result), problem)

    def _search(self) -> Method:
        """The method with its own settings, and its restarts."""
        from initio.search import SEARCHES
        from initio.search.restarts import Restarts

        name = self.method if self.estimator == "regression" else f"{self.method}-{self.estimator}"
        if name not in SEARCHES:
            raise InputError(f"--estimator {self.estimator} is an option of nasi, not of {self.method}")
        method = SEARCHES[name]
        given = self._given({field.name for kind in SEARCHES.values() for field in fields(kind)})  # type: ignore[arg-type]
        refused = given.keys() - {field.name for field in fields(method)}  # type: ignore[arg-type]
        if not getattr(method, "limited", False):
            refused |= self._given({"max_params", "max_flops", "max_latency"}).keys()
        if self.restarts != 1 and not hasattr(method, "objective"):
            refused |= {"restarts"}
        if refused:
            raise InputError(f"--{min(refused).replace('_', '-')} is not an option of {name}")
        search: Any = method(**getattr(method, "by_space", {}).get(_family(self.space), {}) | given)
        return search if self.restarts == 1 else Restarts(search, self.restarts)

    def _given(self, names: set[str]) -> dict[str, Any]:
        """The options of these names that were given; options without a default of their own are the method's."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.default is None}
        return {name: value for name, value in values.items() if name in names and value is not None}

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
        limits = Limits(
            _amount("--max-params", self.max_params),
            _amount("--max-flops", self.max_flops),
            _seconds("--max-latency", self.max_latency),
        )
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


def report(run: Run, space: GraphSpace, why: str, problem: Problem | None = None) -> None:
    """Draws what a finished run chose and says why, and where the run is."""
    from initio.report import draw_text
    from initio.search.limits import milliseconds

    result = run.result()
    arch = result.chosen[0]
    print(draw_text(space.cells(arch), width=shutil.get_terminal_size((100, 24)).columns))
    print(f"\nchosen  {space.format(arch)}")
    print(f"why     {why}")
    if problem is not None and (limit := problem.limits.max_latency) is not None:
        print(f"latency {milliseconds(problem.latency(arch))} measured here, at most {milliseconds(limit)} asked for")
    print(f"cost    {result.cost.scorings} scorings, {result.cost.seconds:.0f} s, {result.cost.peak_bytes >> 20} MB")
    print(f"run     {run.folder}  (draw it again: initio show {run.folder})")


def _family(space: str) -> str:
    """`nb1shot1` for nb1shot1-s2: spaces that differ in a parameter share their settings."""
    return space.partition("-")[0]


def _scoring(method: str, space: GraphSpace) -> tuple[int | None, int | None, int | None]:
    family = "nb101" if _family(space.name) == "nb1shot1" else space.name
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


def _seconds(option: str, text: str | None) -> float | None:
    """`20ms`, `0.5s` or `300us`.

    >>> _seconds("--max-latency", "20ms")
    0.02
    """
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(us|ms|s)", text.strip())
    if not match or not float(match[1]):
        raise InputError(f"{option}: expected a time such as 20ms or 0.5s, got {text!r}")
    return float(match[1]) / {"us": 1e6, "ms": 1e3, "s": 1}[match[2]]


class Clock:
    """Seconds of work on a run, those before an interruption included."""

    def __init__(self, before: float) -> None:
        self.start = time.perf_counter() - before

    def seconds(self) -> float:
        """Up to now."""
        return time.perf_counter() - self.start


class Line:
    """One line on stderr for a search that trains, rewritten in a terminal, rare elsewhere."""

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
    """One line on stderr: step, time left, objective, leading choices; rewritten in a terminal, rare elsewhere."""

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

    >>> _operations(get_space("nb201"), Architecture("nb201", (3, 3, 1, 3, 2, 3)))
    '4 nor_conv_3x3, 1 skip_connect, 1 nor_conv_1x1'
    """
    labels = Counter(edge.label for cell in space.cells(arch) for edge in cell.edges if edge.label)
    return ", ".join(f"{count} {label}" for label, count in labels.most_common())
