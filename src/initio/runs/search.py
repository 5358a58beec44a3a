"""The verb: `initio.search`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from initio.autodiff.work import device_of_workers, executor_for
from initio.data import Data
from initio.data.draw import whole
from initio.data.sources import has_size, load_parts, located
from initio.errors import InputError, did_you_mean
from initio.records import Architecture, decode
from initio.runs.budget import SCORING, Ending, Ticking, TrainingSizes, pool_within, sizes_within
from initio.runs.folders.run import RunFolder, RunPlan
from initio.scores.table import ScoreTable
from initio.searches import SEARCHES, Budget, Limits, Problem, Restarts, Search, SearchResult, drive, find_search
from initio.searches.base import OnStep, SearchStep
from initio.searches.driver import versions
from initio.spaces import GraphSpace, NetworkSettings, Space, get_space
from initio.spaces.base import Size
from initio.system.clock import Deadline, OutOfTimeError
from initio.system.executors import Executor, cores
from initio.system.files import cache_folder
from initio.system.leases import leased

if TYPE_CHECKING:
    from initio.scores.pool import ScoringProgress
    from initio.training import Training

QUERIES, POOL = 10, 200  # of a search that trains
LEAST_POOL = 3  # architectures that are scored in any case
TYPICAL = 9  # random architectures, of which the one with the median of FLOPs is timed
CORES = 4  # that are taken unasked
ENDING = Ending(share=0.03, least=3.0, most=0.2)  # of a budget of time, for the pictures
TRAININGS = "trainings"  # the folder of the user's cache, and of a run
DRAWS = 20_000  # attempts to fill a pool within limits
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
    batch_size: int | None = None,
    queries: int | None = None,
    epochs: int | None = None,
    pool: int | None = None,
    budget: float | None = None,
    halving: int | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    device: str = "cpu",
    cache: bool | None = None,
    restarts: int = 1,
    limits: Limits | Mapping[str, Any] | None = None,
    target: NetworkSettings | None = None,
    channels: int | None = None,
    cells: int | None = None,
    pixels: int | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    began: float | None = None,
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
        batch_size: inputs in a batch; 64, or what a method that shares weights has published.
        queries: how many networks a search that trains may train; 10.
        epochs: length of each training; 3, or what a method that shares weights has published.
        pool: how many random architectures are scored before the first training, for a search that needs it; 200, or
            all of a smaller space.
        budget: seconds that a search that trains may take, all in all; pool, queries and epochs that are not given are
            as many as the measured speed allows, and the data are cut if that is too few.
        halving: give up trainings that, after 1, η, η², ... epochs, are not among the best in η so far; None trains
            all to their end.
        workers: processes that work at once, where a method asks for several trainings or measurements whatever they
            come to; 1 for trainings, and for measurements as many as there are cores, up to 4.
        cluster: in place of workers here, those of a Dask scheduler at tcp://host:port, which see the same folders, or
            local:8, eight processes.
        device: what computes: cpu, cuda, cuda:1, or auto, a GPU where there is one.
        cache: keep trainings in the user's cache for other runs (`initio cache`), or else in this run's folder alone.
        restarts: search this often with derived seeds, and take the choice with the largest mean objective.
        limits: on the network that is wanted: `Limits(max_params=4_000_000)`, or a mapping with its fields.
        target: the size of that network, which is also the one that a search trains; by default the limits are about
            the published one, and small ones are trained.
        channels: width of the network that scores or shares weights; by default the space's own for this purpose.
        cells: its number of cells.
        pixels: its images' side.
        folder: where the run is kept as it is made; None keeps nothing.
        resume: go on with the same run if the folder holds one.
        began: when the time began, by `time.perf_counter`; by default now.
        on_step: hears of each new step.
        on_progress: hears what is under way: a `SearchStarted`, then `ScoringProgress`, `TrainingProgress` and notes.
        settings: fields of the method.

    >>> result = search("nb201", data="noise", seed=0, first=12, rounds=0, channels=2, cells=1, pixels=8)
    >>> result.best.space, len(result.steps)
    ('nb201', 12)
    """
    began = time.perf_counter() if began is None else began
    home = get_space(space) if isinstance(space, str) else space
    chosen = make_search(method, home, settings, restarts)
    if not isinstance(limits, Limits):
        limits = make_limits(limits or {})
    relabelled = None if labels == "true" else labels
    asked = {"queries": queries, "epochs": epochs, "pool": pool, "budget": budget, "halving": halving}
    _refuse_useless(chosen, **asked, workers=workers, cluster=cluster, cache=cache, labels=relabelled, **vars(limits))
    _check_numbers(budget=budget, halving=halving)
    executor_for(1 if workers is None else workers, cluster)  # which refuses what cannot be
    if chosen.needs_scores:
        pool = _pool_of(home, pool, budget)
    size = chosen.network_size(home)
    batch_size = chosen.usual_batch if batch_size is None else batch_size
    problem = make_problem(
        home, data, labels=labels, batch_size=batch_size, limits=limits, channels=channels, cells=cells, pixels=pixels,
        size=size,
    )  # fmt: skip
    problem = replace(problem, device=device_of_workers(device, cluster, measured=device == "auto"))
    if target is not None:
        target = _learning(target, problem)
        problem = replace(problem, target=target)
    problem = problem.fitted()
    if chosen.trains and budget is None:
        queries = QUERIES if queries is None else queries
    if chosen.learns or (chosen.trains and budget is None):
        epochs = chosen.usual_epochs if epochs is None else epochs
    if chosen.learns:
        problem = replace(problem, epochs=(whole(epochs, "number of epochs", 1),))
    name, side = problem.known_data.name, None
    if isinstance(data, str):
        name, side = located(data), _side(data, pixels, size.pixels)
    network, fingerprint = problem.network, problem.batch(seed).fingerprint
    own = chosen.search if isinstance(chosen, Restarts) else chosen
    plan = RunPlan(
        space=home.name, method=_label(method), data=name, seed=seed, labels=labels, batch_size=batch_size,
        restarts=restarts, limits=limits, settings=own.settings(), queries=queries, epochs=epochs, pool=pool,
        channels=network.channels, cells=network.cells, pixels=side, target=target, budget=budget, halving=halving,
        workers=workers, cache=cache, cluster=cluster, device=problem.device, fingerprint=fingerprint,
        versions=versions(),
    )  # fmt: skip
    work = _Work(chosen, problem, plan, on_step, on_progress, began)
    return work.run(None if folder is None else Path(folder), resume)


def _pool_of(space: Space, pool: int | None, budget: float | None) -> int:
    """How many architectures are scored before the first training."""
    most = space.count()
    if pool is None:
        return min(POOL if budget is None else pool_within(budget), most)
    if pool < 0:
        raise InputError(f"the pool must not be negative, not {pool}")
    if pool > most:
        raise InputError(f"{space.name} has {most} architectures: the pool cannot have {pool}")
    return pool


def _learning(target: NetworkSettings, problem: Problem) -> NetworkSettings:
    """The network that is wanted, for the data's classes and channels; its images may have another size."""
    shape = problem.known_data.shape
    if len(shape) == len(target.shape):
        shape = (shape[0], *target.shape[1:])
    return replace(target, prune=False, classes=problem.target.classes, shape=shape)


def resume_run(
    folder: str | Path,
    *,
    began: float | None = None,
    on_step: OnStep | None = None,
    on_progress: OnProgress | None = None,
) -> SearchResult:
    """Goes on with an interrupted run, with the arguments it was started with; a finished one is read."""
    run = RunFolder.open(folder)
    if run.finished:
        return run.result()
    arguments = run.plan().arguments()
    return search(**arguments, folder=folder, resume=True, began=began, on_step=on_step, on_progress=on_progress)


@dataclass(frozen=True)
class _Work:
    """A search that was checked, what hears of it, and when it began."""

    search: Search[Any]
    problem: Problem
    plan: RunPlan
    on_step: OnStep | None
    on_progress: OnProgress | None
    began: float

    def run(self, folder: Path | None, resume: bool) -> SearchResult:
        """Bad input is refused before anything is written."""
        if folder is None:
            if resume:
                raise InputError("to resume a search, say in which folder its run is")
            self._check()
            with TemporaryDirectory() as temporary:
                return self._drive(RunFolder(Path(temporary)), (), self.on_step)
        run = RunFolder(folder)
        if not (resume and run.started):
            self._check()
        run.begin(self.plan, resume=resume)
        if run.finished:
            return replace(run.result(), home=self.problem.space)
        return self._into(run)

    def _check(self) -> None:
        self.search.check(self.problem)
        if self.search.trains:
            self._training(TrainingSizes(None, 1, self.plan.epochs or 1), None, Deadline())  # as noise cannot be
            if self.problem.limits.counted:
                self.problem.draw(Random("limits"))
        else:
            self.problem.check()

    def _into(self, run: RunFolder) -> SearchResult:
        with leased(run.folder, self._tell):
            start = self.began - run.seconds()
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

            result = self._drive(run, tuple(done), hear)
            result = replace(result, cost=replace(result.cost, seconds=time.perf_counter() - start))
            run.finish(result, self.problem.space)
        return result

    def _drive(self, run: RunFolder, done: tuple[SearchStep, ...], on_step: OnStep | None) -> SearchResult:
        """Scores the pool if that is needed, then searches; what costs time is kept in the folder as it is made."""
        if self.plan.budget is not None:
            self = replace(self, on_progress=Ticking(run.tick, self.began - run.seconds(), self.on_progress))
        used = run.seconds() + time.perf_counter() - self.began
        ending = ENDING.seconds(self.plan.budget or 0.0, self.began)
        deadline = Deadline.after(self.plan.budget, used).sooner(ending)
        problem = replace(self.problem, folder=run.folder, tell=self._tell, executor=self._measuring())
        self._tell(SearchStarted(self.search, problem, done))
        known = run.sizes()
        if self.plan.pool:
            scores = self._scores(run, known, deadline.share(SCORING))
            problem = replace(problem, scores=scores, pool=scores.architectures)
        work = partial(drive, self.search, seed=self.plan.seed, done=done, on_step=on_step, method=self.plan.method)
        if not self.search.trains:
            return work(problem)
        sizes = known or self._sizes(problem, deadline)
        if self.plan.budget is not None:
            run.write_sizes(sizes)
            self._tell(str(sizes))
        from initio.training.crew import TrainingCrew

        crew = TrainingCrew(self._training(sizes, self._trainings(run), deadline), self._asked_for())
        problem = replace(problem, budget=Budget(sizes.queries), halving=self.plan.halving, evaluate=crew)
        try:
            return work(problem)
        finally:
            crew.close()

    def _asked_for(self) -> Executor:
        return executor_for(self.plan.workers or 1, self.plan.cluster, self.problem.device)

    def _measuring(self) -> Executor:
        """Where networks are measured."""
        if self.plan.workers is not None or self.plan.cluster is not None or not self.search.parallel:
            return self._asked_for()
        return executor_for(min(cores(), CORES))

    def _tell(self, what: object) -> None:
        if self.on_progress:
            self.on_progress(what)

    # --- trainings ----------------------------------------------------------------------------------------------------

    def _sizes(self, problem: Problem, deadline: Deadline) -> TrainingSizes:
        """What was asked for, or what fits into the time."""
        plan, pool = self.plan, None
        if problem.scores is not None:
            pool = len(problem.scores)
        if plan.budget is None:
            return TrainingSizes(pool, plan.queries or QUERIES, plan.epochs or self.search.usual_epochs)
        from initio.training.pace import pace

        training = self._training(TrainingSizes(pool, 1, 1), None, deadline)
        rng = Random(f"pace {plan.seed}")
        drawn = [problem.draw(rng) for _ in range(TYPICAL)]
        typical = sorted(drawn, key=lambda arch: problem.space.cost(arch, training.network).flops)[TYPICAL // 2]
        epoch = pace(training.build(typical), training.examples, training.settings, training.machine)
        n, classes = len(training.examples), training.network.classes
        return sizes_within(deadline.left, epoch, n, classes, pool=pool, queries=plan.queries, epochs=plan.epochs)

    def _trainings(self, run: RunFolder) -> Path:
        """Where trainings are kept; what a builder of one's own makes may change between runs, so it is not shared."""
        own, shared = run.folder / TRAININGS, cache_folder(TRAININGS)
        if self.plan.cache is False or not isinstance(self.problem.space, GraphSpace):
            return own
        try:
            shared.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._tell(
                f"trainings are kept in the run, since {str(shared)!r} cannot be used: {error.strerror or error}"
            )
            return own
        return shared

    def _training(self, sizes: TrainingSizes, folder: Path | None, deadline: Deadline) -> Training:
        """Who trains."""
        from initio.training import Training, TrainingSettings

        return Training(
            self.problem.space,
            self.problem.known_data,
            self.plan.target or NetworkSettings(),
            TrainingSettings(epochs=sizes.epochs, samples=sizes.samples),
            self.plan.seed,
            folder,
            deadline,
            on_progress=self._tell,
            on_note=self._tell,
            device=self.plan.device,
        )

    # --- scores -------------------------------------------------------------------------------------------------------

    def _scores(self, run: RunFolder, known: TrainingSizes | None, deadline: Deadline) -> ScoreTable:
        """Of a random pool, at initialisation: as many as the time allows, and again those of a run that goes on."""
        from initio.metrics import Options
        from initio.scores.pool import ScoringJob, missing, pool_table, score_pool
        from initio.scores.store import Store

        space, seed = self.problem.space, self.plan.seed
        pool = self._pool()
        if known is not None:
            pool, deadline = pool[: known.pool], Deadline()
        job = ScoringJob(
            space, self.problem.batch(seed), METRICS, self.problem.network, Options(device=self.plan.device), seed
        )

        def hear(progress: ScoringProgress) -> None:
            self._tell(progress)
            if progress.phase == "scoring" and progress.done >= LEAST_POOL:
                deadline.keep()

        with Store(run.folder / "scores.db") as store:
            with suppress(OutOfTimeError):
                score_pool(job, pool, store, on_progress=hear)
            if deadline.passed:
                pool = list(takewhile(lambda arch: not missing(job, [arch], store)[0], pool))
            return pool_table(job, pool, store)

    def _pool(self) -> list[Architecture]:
        """Random connected architectures that keep the counted limits."""
        from initio.scores.pool import sample

        space, problem, count = self.problem.space, self.problem, self.plan.pool or 0
        drawn = [arch for arch in sample(space, count, self.plan.seed) if space.connected(arch)]
        if not problem.limits.counted:
            return drawn
        rng = Random(f"pool within limits {self.plan.seed}")
        kept = dict.fromkeys(arch for arch in drawn if problem.within(arch))
        for _ in range(DRAWS * (len(kept) < count)):
            if len(kept) == count:
                break
            kept[problem.draw(rng)] = None
        return [arch for arch in kept if space.connected(arch)]


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
    size: Size | None = None,
) -> Problem:
    """What `search` would search on; the arguments are its own, and `size` is that of the networks."""
    if isinstance(space, str):
        space = get_space(space)
    size = size or space.sizes.scoring
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
    """The method with its settings: those given, else the method's own for the space, by name and as an object."""
    if isinstance(method, str):
        kind = find_search(method)
        if not (isinstance(kind, type) and issubclass(kind, Search)):
            raise InputError(f"{method!r} is not a search: derive its class from initio.Search")
        made: Search[Any] = kind(**_checked(kind, settings))
    elif isinstance(method, Search):
        made = method
        if settings:
            raise InputError(f"{min(settings)} is a setting of the method: give it to {type(method).__name__}(...)")
    else:
        raise InputError(f"the method must be a name or a search such as Nasi(), not {method!r}")
    made = made.resolved(space)
    return made if restarts == 1 else made.restarted(restarts)


def _checked(kind: type[Search[Any]], settings: Mapping[str, Any]) -> dict[str, Any]:
    known, hints = [item.name for item in fields(kind) if item.init], get_type_hints(kind)
    for name, value in settings.items():
        if name not in known:
            raise InputError(f"{name} is not a setting of {kind.name}: {did_you_mean(name, known)}")
        if hints[name] in PLAIN:
            decode(hints[name], value, name)
    return dict(settings)


def make_limits(given: Mapping[str, Any]) -> Limits:
    """Limits from a mapping."""
    known = [item.name for item in fields(Limits)]
    for name in given:
        if name not in known:
            raise InputError(f"{name} is not a limit: {did_you_mean(name, known)}")
    return Limits(**given)


def _refuse_useless(search: Search[Any], **given: object) -> None:
    """Refuses options that the method would not look at; one that is None was not given."""
    useless = {}
    if search.trains or search.learns:
        useless["labels"] = "it trains on the data's own"
    if not search.trains:
        why = "it trains nothing"
        if search.learns:
            why = "it trains one network"
        useless |= dict.fromkeys(("queries", "pool", "budget", "halving", "cache"), why)
        if not search.parallel:
            useless |= dict.fromkeys(("workers", "cluster"), "it measures one network after the other")
        if search.learns:
            useless |= dict.fromkeys(("workers", "cluster"), why)
    if not (search.trains or search.learns):
        useless["epochs"] = "it trains nothing"
    if search.trains and not search.needs_scores:
        useless["pool"] = "it needs no scores"
    if not search.limited:
        useless |= dict.fromkeys((item.name for item in fields(Limits)), "it keeps no limits")
    for name, why in useless.items():
        if given[name] is not None:
            raise InputError(f"{name} is not an option of {search.name}: {why}")


def _check_numbers(*, budget: float | None, halving: int | None) -> None:
    if budget is not None and not (math.isfinite(budget) and budget > 0):
        raise InputError(f"the budget must be a positive number of seconds, not {budget}")
    if halving is not None and halving < 2:
        raise InputError(f"halving must be at least 2, not {halving}")


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
