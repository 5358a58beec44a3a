"""The verb: `initio.search`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_type_hints

from initio.data import Data
from initio.data.sources import has_size, load_parts, located
from initio.errors import InputError, did_you_mean
from initio.records import decode
from initio.runs.folder import RunFolder, RunPlan
from initio.scores.table import ScoreTable
from initio.searches import SEARCHES, Budget, Limits, Problem, Restarts, Search, SearchResult, drive, find_search
from initio.searches.base import OnStep, SearchStep
from initio.searches.driver import versions
from initio.spaces import NetworkSettings, Space, get_space

QUERIES, EPOCHS, POOL = 10, 3, 200  # of a search that trains
METRICS = (  # of the pool
    "grad_norm", "snip", "grasp", "fisher", "trace", "kappa", "lambda_min", "lambda_relative", "knas", "synflow",
    "naswot", "jacob_cov", "params", "flops",
)  # fmt: skip
PLAIN = (int, float, str, bool)

OnProgress = Callable[[Any], None]


@dataclass(frozen=True)
class SearchStarted:
    """The first thing that `on_progress` hears: what is searched by what, and which steps are there already."""

    search: Search[Any]
    problem: Problem
    done: tuple[SearchStep, ...]


def search(
    space: Space | str = "darts",
    method: Search[Any] | str = "votes",
    data: Data | str = "noise",
    *,
    seed: int = 0,
    labels: Literal["true", "random"] = "true",
    batch_size: int = 64,
    queries: int | None = None,
    epochs: int | None = None,
    pool: int | None = None,
    restarts: int = 1,
    limits: Limits | Mapping[str, Any] | None = None,
    channels: int | None = None,
    cells: int | None = None,
    pixels: int | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    on_step: OnStep | None = None,
    on_progress: OnProgress | None = None,
    **settings: Any,
) -> SearchResult:
    """Chooses an architecture, without training or with a few short ones.

    Args:
        space: where to search, or its name.
        method: how: a name of `initio.searches.SEARCHES`, `package.module:Name`, or a search such as `Nasi(steps=40)`.
        data: noise, digits, a file or a folder, or a `Dataset`.
        seed: the same seed chooses the same architecture.
        labels: the data's own labels, or random ones.
        batch_size: inputs in a batch.
        queries: how many networks a search that trains may train; 10.
        epochs: length of each training; 3.
        pool: how many random architectures are scored before the first training, for a search that needs it; 200, or
            all of a smaller space.
        restarts: search this often with derived seeds, and take the choice with the largest mean objective.
        limits: on the published network: `Limits(max_params=4_000_000)`, or a mapping with its fields.
        channels: width of the network that scores; by default the space's own for this purpose.
        cells: its number of cells.
        pixels: its images' side.
        folder: where the run is kept as it is made; None keeps nothing.
        resume: go on with the same run if the folder holds one.
        on_step: hears of each new step.
        on_progress: hears what is under way: a `SearchStarted`, then `ScoringProgress`, `TrainingProgress` and notes.
        settings: fields of the method.

    >>> result = search("nb201", data="noise", seed=0, first=20, rounds=0, channels=2, cells=1, pixels=8)
    >>> result.best.space, len(result.steps)
    ('nb201', 20)
    """
    home = get_space(space) if isinstance(space, str) else space
    chosen = make_search(method, home, settings, restarts)
    if not isinstance(limits, Limits):
        limits = _make_limits(limits or {})
    relabelled = None if labels == "true" else labels
    _refuse_useless(chosen, queries=queries, epochs=epochs, pool=pool, labels=relabelled, **vars(limits))
    if chosen.needs_scores:
        most = home.count()
        pool = min(POOL, most) if pool is None else pool
        if pool < 0:
            raise InputError(f"the pool must not be negative, not {pool}")
        if pool > most:
            raise InputError(f"{home.name} has {most} architectures: the pool cannot have {pool}")
    problem = make_problem(
        home, data, labels=labels, batch_size=batch_size, limits=limits, channels=channels, cells=cells, pixels=pixels
    )
    if not chosen.trains:
        problem = problem.fitted()
    if chosen.trains:
        queries = QUERIES if queries is None else queries
        epochs = EPOCHS if epochs is None else epochs
        problem = replace(problem, budget=Budget(queries=queries))
    name, side = problem.known_data.name, None
    if isinstance(data, str):
        name, side = located(data), _side(data, pixels, home.sizes.scoring.pixels)
    network, fingerprint = problem.network, problem.batch(seed).fingerprint
    own = chosen.search if isinstance(chosen, Restarts) else chosen
    plan = RunPlan(
        home.name, _label(method), name, seed, labels, batch_size, restarts, limits, own.settings(), queries,
        epochs, pool, network.channels, network.cells, side, fingerprint, versions(),
    )  # fmt: skip
    return _Work(chosen, problem, plan, on_step, on_progress).run(None if folder is None else Path(folder), resume)


def resume_run(
    folder: str | Path, *, on_step: OnStep | None = None, on_progress: OnProgress | None = None
) -> SearchResult:
    """Goes on with an interrupted run, with the arguments it was started with; a finished one is read."""
    run = RunFolder.open(Path(folder))
    if run.finished:
        return run.result()
    arguments = run.plan().arguments()
    return search(**arguments, folder=folder, resume=True, on_step=on_step, on_progress=on_progress)


@dataclass(frozen=True)
class _Work:
    """A search that was checked, and what hears of it."""

    search: Search[Any]
    problem: Problem
    plan: RunPlan
    on_step: OnStep | None
    on_progress: OnProgress | None

    def run(self, folder: Path | None, resume: bool) -> SearchResult:
        """Bad input is refused before anything is written."""
        if folder is None:
            if resume:
                raise InputError("to resume a search, say in which folder its run is")
            self._check()
            with TemporaryDirectory() as temporary:
                return self._drive(Path(temporary), (), self.on_step)
        run = RunFolder(folder)
        if not (resume and run.plan_path.is_file()):
            self._check()
            return self._into(RunFolder.start(folder, self.plan))
        _same(run.plan(), self.plan)
        if run.finished:
            return replace(run.result(), home=self.problem.space)
        return self._into(run)

    def _check(self) -> None:
        self.search.check(self.problem)
        self._evaluator(None)  # noise and what else cannot be trained
        if not self.search.trains:
            self.problem.check()

    def _into(self, run: RunFolder) -> SearchResult:
        with run.locked():
            start = time.perf_counter() - run.seconds()
            watch = self.problem.stopwatch
            for arch in watch.known.keys() - run.latencies().keys():  # timed while limits were checked
                run.add_latency(arch, watch.known[arch])
            watch.known.update(run.latencies())
            watch.on_new = run.add_latency
            done = run.steps(self.search.step_types) if self.search.resumes else run.restart()

            def hear(step: SearchStep) -> None:
                run.append(step, time.perf_counter() - start)
                if self.on_step:
                    self.on_step(step)

            result = self._drive(run.folder, tuple(done), hear)
            result = replace(result, cost=replace(result.cost, seconds=time.perf_counter() - start))
            run.finish(result, self.problem.space)
        return result

    def _drive(self, folder: Path, done: tuple[SearchStep, ...], on_step: OnStep | None) -> SearchResult:
        """Scores the pool if that is needed, then searches; what costs time is kept in the folder as it is made."""
        problem = replace(self.problem, folder=folder, evaluate=self._evaluator(folder / "trainings"))
        self._tell(SearchStarted(self.search, problem, done))
        if self.plan.pool:
            scores = self._scores(folder)
            problem = replace(problem, scores=scores, pool=scores.architectures)
        result = drive(self.search, problem, seed=self.plan.seed, done=done, on_step=on_step)
        return replace(result, method=self.plan.method)

    def _tell(self, what: object) -> None:
        if self.on_progress:
            self.on_progress(what)

    def _evaluator(self, folder: Path | None) -> Any:
        """Who trains; None for a search that does not."""
        if self.plan.epochs is None:
            return None
        from initio.training import Training, TrainingSettings

        return Training(
            self.problem.space,
            self.problem.known_data,
            settings=TrainingSettings(epochs=self.plan.epochs),
            seed=self.plan.seed,
            folder=folder,
            on_progress=self._tell,
            on_note=self._tell,
        )

    def _scores(self, folder: Path) -> ScoreTable:
        """Of a random pool, at initialisation."""
        from initio.metrics import Options
        from initio.scores.pool import ScoringJob, pool_table, sample, score_pool
        from initio.scores.store import Store

        space, seed = self.problem.space, self.plan.seed
        connected = [arch for arch in sample(space, self.plan.pool or 0, seed) if space.connected(arch)]
        job = ScoringJob(space, self.problem.batch(seed), METRICS, self.problem.network, Options(), seed)
        with Store(folder / "scores.db") as store:
            score_pool(job, connected, store, on_progress=self._tell)
            return pool_table(job, connected, store)


def make_problem(
    space: Space | str,
    data: Data | str = "noise",
    *,
    labels: Literal["true", "random"] = "true",
    batch_size: int = 64,
    limits: Limits | None = None,
    channels: int | None = None,
    cells: int | None = None,
    pixels: int | None = None,
) -> Problem:
    """What `search` would search on; the arguments are its own."""
    if isinstance(space, str):
        space = get_space(space)
    size = space.sizes.scoring
    if isinstance(data, str):
        data, _, _ = load_parts(data, pixels=_side(data, pixels, size.pixels))  # what is tested on stays unseen
    elif pixels is not None:
        raise InputError("pixels is an option for data by name: resize the data set itself")
    width = size.channels if channels is None else channels
    depth = size.cells if cells is None else cells
    network = NetworkSettings(width, depth, data.classes, data.shape)
    target = NetworkSettings(prune=False, classes=data.classes)
    return Problem(space, data, network, target, batch_size, labels, limits or Limits())


# --- what the arguments mean ----------------------------------------------------------------------------------------


def make_search(method: Search[Any] | str, space: Space, settings: Mapping[str, Any], restarts: int = 1) -> Search[Any]:
    """The method with its settings: those given, those of the space's family, the method's own defaults."""
    if isinstance(method, str):
        kind = find_search(method)
        if not (isinstance(kind, type) and issubclass(kind, Search)):
            raise InputError(f"{method!r} is not a search: derive its class from initio.Search")
        family = kind.by_space.get(space.name.partition("-")[0], {})  # nb1shot1 for nb1shot1-s2
        made: Search[Any] = kind(**{**family, **_checked(kind, settings)})
    elif isinstance(method, Search):
        made = method
        if settings:
            raise InputError(f"{min(settings)} is a setting of the method: give it to {type(method).__name__}(...)")
    else:
        raise InputError(f"the method must be a name or a search such as Nasi(), not {method!r}")
    return made if restarts == 1 else made.restarted(restarts)


def _checked(kind: type[Search[Any]], settings: Mapping[str, Any]) -> dict[str, Any]:
    known, hints = [item.name for item in fields(kind) if item.init], get_type_hints(kind)
    for name, value in settings.items():
        if name not in known:
            raise InputError(f"{name} is not a setting of {kind.name}: {did_you_mean(name, known)}")
        if hints[name] in PLAIN:
            decode(hints[name], value, name)
    return dict(settings)


def _make_limits(given: Mapping[str, Any]) -> Limits:
    """Limits from a mapping."""
    known = [item.name for item in fields(Limits)]
    for name in given:
        if name not in known:
            raise InputError(f"{name} is not a limit: {did_you_mean(name, known)}")
    return Limits(**given)


def _refuse_useless(search: Search[Any], **given: object) -> None:
    """Refuses options that the method would not look at; one that is None was not given."""
    useless = {}
    if search.trains:
        useless["labels"] = "it trains on the data's own"
    else:
        useless |= dict.fromkeys(("queries", "epochs", "pool"), "it trains nothing")
    if search.trains and not search.needs_scores:
        useless["pool"] = "it needs no scores"
    if not search.limited:
        useless |= dict.fromkeys((item.name for item in fields(Limits)), "it keeps no limits")
    for name, why in useless.items():
        if given[name] is not None:
            raise InputError(f"{name} is not an option of {search.name}: {why}")


def _label(method: Search[Any] | str) -> str:
    """The name by which `find_search` finds the method again."""
    if isinstance(method, str):
        return method
    kind = type(method)
    if method.name in SEARCHES and find_search(method.name) is kind:
        return method.name
    return f"{kind.__module__}:{kind.__qualname__}"


def _side(data: str, pixels: int | None, default: int | None) -> int | None:
    """Pixels of an image's side, unless the data's name has them or they stay as they are."""
    if pixels is not None and pixels < 1:
        raise InputError(f"pixels must be at least 1, not {pixels}")
    if has_size(data):
        if pixels is not None:
            raise InputError(f"{data!r} says how large its images are: leave out pixels")
        return None
    return default if pixels is None else pixels


def _same(planned: RunPlan, now: RunPlan) -> None:
    for item in fields(RunPlan):
        before, after = getattr(planned, item.name), getattr(now, item.name)
        if item.compare and item.name != "fingerprint" and before != after:
            raise InputError(f"the run was started with {item.name} {before}, not {after}: give another folder")
    if planned.fingerprint != now.fingerprint:
        raise InputError(f"{now.data!r} has changed since the run began: bring the data back, or start a new run")
