"""`initio search [SPACE]`."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from initio.cli.jobs import AtInitialisation, FromTrainings, Job
from initio.cli.options import from_values
from initio.cli.progress import Clock, interruptible
from initio.cli.units import amount, seconds
from initio.errors import InputError
from initio.records import SearchResult, settings
from initio.runs.folder import Run
from initio.spaces import GraphSpace, NetworkSettings, get_space, graph_space

if TYPE_CHECKING:
    from initio.runs.hybrid import Hybrid
    from initio.searches import Problem
    from initio.searches import Search as Strategy

LIMITS = ("max_params", "max_flops", "max_latency")
ALWAYS = {"channels", "cells", "pixels", "depth", "out", "resume"}  # options of every method


@dataclass(frozen=True)
class SearchCommand:
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
        resume: go on with this interrupted run, with the settings it was started with; no other option goes with it.
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
        if self.resume is not None:
            self._resume()
            return
        job = self.job()  # bad input is refused before anything is written
        go_on(Run.start(self._folder(), self._plan(job)), job)

    def _resume(self) -> None:
        changed = [f.name for f in fields(self) if f.name != "resume" and getattr(self, f.name) != f.default]
        if changed:
            option = changed[0].replace("_", "-")
            raise InputError(f"--resume goes on with the run's own settings: leave out --{option}")
        run = Run.open(_path("--resume", self.resume))
        if run.finished:
            report(run)
            return
        plan = run.plan()
        planned: SearchCommand = from_values(SearchCommand, dict(plan.settings), str(run.plan_path))
        job = planned.job(run)
        if dict(plan.about).get("fingerprint", job.fingerprint) != job.fingerprint:
            raise InputError(
                f"{planned.data!r} has changed since the run began: bring the data back, or start a new run"
            )
        go_on(run, job)

    def _plan(self, job: Job) -> SearchResult:
        """What was asked, with every default as it is now: a resumed run has the settings of its start."""
        from initio.data.sources import located
        from initio.searches.base import versions

        asked = asdict(self) | {name: value for name, value in job.resolved().items() if getattr(self, name) is None}
        asked |= {"data": located(self.data), "out": None}
        about = settings(fingerprint=job.fingerprint)
        return SearchResult(self.method, self.space, self.seed, (), settings(**asked), versions=versions(), about=about)

    def job(self, run: Run | None = None) -> Job:
        """What the options say, checked; a run that has begun knows some latencies."""
        from initio.searches import QUERY_SEARCHES

        if self.method in QUERY_SEARCHES:
            return FromTrainings(hybrid := self.hybrid(), self._side(hybrid.space))
        strategy, problem = self.strategy(), self.problem()
        if run is None:
            getattr(strategy, "check", lambda problem: None)(problem)
            problem.check()
        else:
            problem.stopwatch.known.update(run.latencies())
        return AtInitialisation(problem, strategy, self.seed, self._side(problem.space))

    # --- what the options say -------------------------------------------------------------------------------------

    def hybrid(self) -> Hybrid:
        """What the options say, for a method that trains."""
        from initio.data import load
        from initio.runs.hybrid import Hybrid
        from initio.searches import QUERY_SEARCHES, UNSCORED
        from initio.training import TrainingSettings

        method = QUERY_SEARCHES[self.method]
        used = {"queries", "epochs"} | ({"pool"} if self.method not in UNSCORED else set())
        options = self._options(self.method, method, used)
        for option, default in (("labels", "true"), ("estimator", "regression")):
            if (given := getattr(self, option)) != default:
                raise InputError(f"--{option} {given} is not an option of {self.method}, which trains")
        space = graph_space(self.space if self.depth is None else f"mlp-{self.depth}")
        size = space.sizes.scoring
        data = load(self.data, pixels=self._side(space))
        network = NetworkSettings(self.channels or size.channels, self.cells or size.cells, data.classes, data.shape)
        pool = 0 if self.method in UNSCORED else 200 if self.pool is None else self.pool
        training = TrainingSettings(epochs=3 if self.epochs is None else self.epochs)
        queries = 10 if self.queries is None else self.queries
        return Hybrid(method(**options), space, data, network, queries, pool, training, self.seed, self.batch_size)

    def strategy(self) -> Strategy:
        """The method with its own settings, and its restarts."""
        from initio.searches import SEARCHES
        from initio.searches.restarts import Restarts

        name = self.method if self.estimator == "regression" else f"{self.method}-{self.estimator}"
        if name not in SEARCHES:
            raise InputError(f"--estimator {self.estimator} is an option of nasi, not of {self.method}")
        method = SEARCHES[name]
        given = self._options(name, method, set(LIMITS) if getattr(method, "limited", False) else set())
        search: Any = method(**getattr(method, "by_space", {}).get(_family(self.space), {}) | given)
        return search if self.restarts == 1 else Restarts(search, self.restarts)

    def _options(self, name: str, method: type[Any], used: set[str]) -> dict[str, Any]:
        """The given options that are settings of the method; one that nobody uses is refused.

        Options without a default are the method's; `used` are those that this command uses for it.
        """
        own = {field.name for field in fields(method)}
        given = {
            f.name: value for f in fields(self) if f.default is None and (value := getattr(self, f.name)) is not None
        }
        refused = given.keys() - own - used - ALWAYS
        if self.restarts != 1 and not hasattr(method, "objective"):
            refused |= {"restarts"}
        if refused:
            raise InputError(f"--{min(refused).replace('_', '-')} is not an option of {name}")
        return {option: value for option, value in given.items() if option in own}

    def problem(self) -> Problem:
        """What the options say, checked."""
        from initio.data import load
        from initio.searches import Limits, Problem

        if self.depth is not None and self.space != "mlp":
            raise InputError(f"--depth is an option of mlp, not of {self.space}")
        space = graph_space(self.space if self.depth is None else f"mlp-{self.depth}")
        _searched(self.method, space)
        size = space.sizes.scoring
        data = load(self.data, pixels=self._side(space))
        network = NetworkSettings(
            channels=size.channels if self.channels is None else self.channels,
            cells=size.cells if self.cells is None else self.cells,
            classes=data.classes,
            shape=data.shape,
        )
        limits = Limits(
            amount("--max-params", self.max_params),
            amount("--max-flops", self.max_flops),
            seconds("--max-latency", self.max_latency),
        )
        target = NetworkSettings(prune=False, classes=data.classes)
        return Problem(space, data, network, target, self.batch_size, self.labels, limits)

    def _side(self, space: GraphSpace) -> int | None:
        """Pixels of an image's side, unless the data's name has them or they stay as they are."""
        from initio.data.sources import has_size

        if self.pixels is not None and self.pixels < 1:
            raise InputError(f"--pixels must be at least 1, not {self.pixels}")
        if self.pixels is not None and has_size(self.data):
            raise InputError(f"{self.data!r} says how large its images are: leave out --pixels")
        return None if has_size(self.data) else space.sizes.scoring.pixels if self.pixels is None else self.pixels

    def _folder(self) -> Path:
        if self.out is not None:
            return _path("--out", self.out)
        stem = Path("runs") / f"{self.space}-{self.method}-seed{self.seed}"
        taken = (stem.with_name(f"{stem.name}-{number}") for number in range(2, 10_000))
        return next(folder for folder in (stem, *taken) if not folder.exists())


def go_on(run: Run, job: Job) -> None:
    """Works on a run until it is finished."""
    with run.locked(), interruptible(run):
        clock = Clock(run.seconds())
        run.finish(job.search(run, clock), clock.seconds())
    report(run)


def report(run: Run) -> None:
    """Draws what a finished run chose and says why, and where the run is."""
    from initio.report import draw_text
    from initio.searches.limits import milliseconds

    result = run.result()
    arch, about = result.chosen[0], dict(result.about)
    space = get_space(arch.space)
    print(draw_text(space.cells(arch), width=shutil.get_terminal_size((100, 24)).columns))
    print(f"\nchosen  {space.format(arch)}")
    print(f"why     {about.get('why', '')}")
    if "parameters" in about:
        asked = f"; {about['limits']} asked for" if "limits" in about else ""
        print(
            f"size    {about['parameters']:,} parameters, {about['flops']:,} FLOPs, {about['classes']} classes{asked}"
        )
    if "latency" in about:
        print(f"latency {milliseconds(float(str(about['latency'])))} measured here")
    print(f"cost    {result.cost.scorings} scorings, {result.cost.seconds:.0f} s, {result.cost.peak_bytes >> 20} MB")
    print(f"run     {run.folder}  (draw it again: initio show {quote(str(run.folder))})")


def _path(option: str, text: str | None) -> Path:
    if not text:
        raise InputError(f"{option} needs the folder of a run, not an empty name")
    return Path(text)


def _family(space: str) -> str:
    """`nb1shot1` for nb1shot1-s2: spaces that differ in a parameter share their settings."""
    return space.partition("-")[0]


def _searched(method: str, space: GraphSpace) -> None:
    """Refuses a space that the method does not search."""
    if (method == "nasi") != (space.sizes.scoring.channels is not None):
        searched = "nb201, nb101, darts, nb1shot1-s1" if method == "nasi" else "mlp"
        raise InputError(f"{method} does not search {space.name}: choose one of {searched}, or another --method")
