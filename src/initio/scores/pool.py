"""Scores a whole pool of architectures into a store: each network once, in several processes, resumable.

The unit of work is `run_task(job, task)`: plain data in, evaluations out, nothing shared. An executor carries it to
processes or to a cluster. Only the calling process writes to the store, one transaction for each architecture; so
whoever is killed, and whenever, the next run goes on with what is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from initio.autodiff.threads import one_thread
from initio.autodiff.work import device_of_workers, executor_for, is_remote
from initio.errors import InputError
from initio.records import Architecture, Batch, Evaluation, Settings, settings
from initio.scores.measure import home_of, is_cost, measure, subject
from initio.scores.read import fill
from initio.scores.store import Store
from initio.scores.table import Origin, ScoreTable
from initio.spaces import NetworkSettings, Space, parse
from initio.system.executors import DEATHS, Executor, Here, LostTasksError
from initio.system.files import read_text

if TYPE_CHECKING:
    from initio.metrics import Metric, Options

LARGEST_POOL = 10_000_000  # architectures
_COUNTED = ("channels", "cells", "classes", "norm")  # the settings that parameters and FLOPs depend on, and the shape
_HOW = ("memory", "seed", "device")  # options that say how and not what; the seed is the evaluation's own


@dataclass(frozen=True)
class ScoringJob:
    """What is the same for all architectures of a pool.

    The weights of repeat r are those of seed + r, for every architecture: they depend on (seed, repeat) alone, never on
    the order or the worker. The batch is given, one for all.
    """

    space: Space
    batch: Batch = field(repr=False)
    metrics: tuple[str | Metric, ...]
    network: NetworkSettings
    options: Options
    seed: int = 0
    repeats: int = 1

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise InputError(f"repeats must be at least 1, not {self.repeats}")
        if not 0 <= self.seed < 2**62:
            raise InputError(f"the seed must be a number from 0 to 2^62, not {self.seed}")
        if self.batch.classes != self.network.classes or self.batch.shape != self.network.shape:
            raise InputError(
                f"the network is for {self.network.classes} classes of inputs {self.network.shape}, "
                f"the batch has {self.batch.classes} classes of inputs {self.batch.shape}"
            )

    @cached_property
    def parts(self) -> tuple[ScoringPart, ...]:
        """The metrics in up to two parts: those that are measured, and costs, which need neither data nor a seed."""
        from initio.metrics import choose_metrics

        chosen = choose_metrics(self.metrics)
        network = self.space.resolve(self.network)
        size = {"shape": "x".join(map(str, network.shape))} | {name: getattr(network, name) for name in _COUNTED}
        options = {name: value for name, value in asdict(self.options).items() if name not in _HOW}
        how = settings(**size, **options, init=network.init, batch_size=len(self.batch))
        measured = tuple(metric for metric in chosen if not is_cost(metric))
        costs = tuple(metric for metric in chosen if is_cost(metric))
        seeds = tuple(range(self.seed, self.seed + self.repeats))
        parts = (
            ScoringPart(measured, self.batch.fingerprint, seeds, how, self.options.device),
            ScoringPart(costs, "", (0,), settings(**size), "cpu"),
        )
        return tuple(part for part in parts if part.metrics)


@dataclass(frozen=True)
class ScoringPart:
    """Metrics that are stored under the same data, seeds and settings."""

    metrics: tuple[Metric, ...]
    data: str  # fingerprint of the batch, empty for costs
    seeds: tuple[int, ...]
    how: Settings  # of the network and of the metrics
    device: str

    @property
    def counted(self) -> bool:
        """Whether these are costs, counted on the architecture as written."""
        return self.data == ""

    @property
    def settings(self) -> Settings:
        """All that a value depends on beside architecture, data and seed; of a measured one, whose roundings it has."""
        from initio.autodiff import fused
        from initio.autodiff.devices import check_measures, find_device

        if self.counted:
            return self.how
        how, arithmetic = dict(self.how), "torch"
        device = self.device.partition(":")[0]  # of a worker, perhaps, and not here
        if device == "auto":
            device = find_device(device, measured=True).type
        check_measures(device)
        if device != "cpu":  # one kind of device has one kind of roundings
            return settings(**how, threads=1, arithmetic=arithmetic, device=device)
        if how["dtype"] == "float32":  # all that the compiled kernels know
            with one_thread():
                arithmetic = fused.arithmetic()
        return settings(**how, threads=1, arithmetic=arithmetic)


@dataclass(frozen=True)
class ScoringTask:
    """What is missing of one architecture: metrics and seeds of one part of the job."""

    architecture: Architecture
    part: int
    metrics: tuple[str, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class ScoringProgress:
    """How far a phase of a run is: first costs are counted, then networks are scored."""

    phase: str  # "counting" or "scoring"
    done: int
    total: int  # architectures to do in this run
    known: int  # architectures that the store had already
    seconds: float = 0.0
    restarts: int = 0  # after a worker died

    @property
    def rate(self) -> float:
        """Architectures a second."""
        return self.done / self.seconds if self.seconds else 0.0


# --- which architectures -----------------------------------------------------


def everything(space: Space) -> Iterator[Architecture]:
    """All architectures of a space that is small enough."""
    if (count := space.count()) > LARGEST_POOL:
        raise InputError(f"{space.name} has {count:.1e} architectures, too many to score all: take a sample")
    return space.architectures()


def sample(space: Space, count: int, seed: int) -> list[Architecture]:
    """The first `count` different architectures that the seed draws; of more than half a space, a choice from the list.

    >>> from initio.spaces import get_space
    >>> [arch.choices for arch in sample(get_space("nb201"), 2, seed=0)]
    [(3, 3, 0, 2, 4, 3), (3, 2, 3, 2, 4, 1)]
    """
    if count < 1:
        raise InputError(f"the sample must have at least 1 architecture, not {count}")
    if count > LARGEST_POOL:
        raise InputError(f"a sample of {count} is too large: at most {LARGEST_POOL:,}")
    if (most := space.count()) < count:
        raise InputError(f"{space.name} has {most} architectures, a sample of {count} cannot be drawn")
    rng = Random(seed)
    if 2 * count > most:  # drawing until all are different would take long
        return rng.sample(list(space.architectures()), count)
    drawn: dict[Architecture, None] = {}
    while len(drawn) < count:
        drawn[space.sample(rng)] = None
    return list(drawn)


def share_of(pool: Iterable[Architecture], space: Space, number: int, shares: int) -> list[Architecture]:
    """One of so many shares of a pool, which have no network in common and are the pool together; from 1 on.

    >>> from initio.spaces import get_space
    >>> space = get_space("nb201")
    >>> [len(share_of(sample(space, 90, seed=0), space, number, 4)) for number in (1, 2, 3, 4)]
    [22, 26, 18, 24]
    """
    if not 1 <= number <= shares:
        raise InputError(f"the share must be from 1 to {shares}, not {number}")
    places: dict[Architecture, int] = {}
    return [arch for arch in pool if places.setdefault(space.canonical(arch), len(places)) % shares == number - 1]


def read_architectures(path: Path, space: Space) -> list[Architecture]:
    """The architectures in a text file, one a line in any notation; empty lines and lines with # do not count."""
    try:
        lines = read_text(path).splitlines()
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror or error}") from None
    found: dict[Architecture, None] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                found[space.check(parse(line))] = None
            except InputError as error:
                raise InputError(f"line {number} of {str(path)!r}: {error}") from None
    if not found:
        raise InputError(f"{str(path)!r} holds no architecture")
    return list(found)


# --- the work -----------------------------------------------------


def score_pool(
    job: ScoringJob,
    architectures: Iterable[Architecture],
    store: Store,
    *,
    workers: int = 1,
    cluster: str | None = None,
    on_progress: Callable[[ScoringProgress], None] = lambda progress: None,
) -> tuple[ScoringProgress, ...]:
    """Scores what the store lacks of these architectures; running it again goes on where it stopped.

    Returns how each phase ended: counting, if a metric is a cost, and scoring, if one is not.
    """
    device = device_of_workers(job.options.device, cluster, measured=True)
    if is_remote(cluster) and job.options.device == "auto":
        raise InputError(f"say which device the workers of {cluster} have: {device}, as it seems, not auto")
    executor = executor_for(workers, cluster, device)
    store.describe(job.batch)
    tasks, known = missing(job, architectures, store)
    ended = []
    for number, part in sorted(enumerate(job.parts), key=lambda item: not item[1].counted):
        mine = [task for task in tasks if task.part == number]
        phase, where = "scoring", executor
        if part.counted:  # too quick to be sent anywhere
            phase, where = "counting", Here()
        hearing = _Hearing(ScoringProgress(phase, 0, len(mine), known[number]), part.settings, store, on_progress)
        _score(job, mine, where, hearing)
        ended.append(hearing.progress)
    return tuple(ended)


def _score(job: ScoringJob, tasks: list[ScoringTask], executor: Executor, hearing: _Hearing) -> None:
    if not tasks:
        return
    try:
        executor.map(partial(run_task, job), tasks, hearing.result, on_death=hearing.death)
    except LostTasksError as lost:
        arch = tasks[lost.numbers[0]].architecture
        raise InputError(
            f"{len(lost.numbers)} of {len(tasks)} networks could not be scored, because a worker died of each "
            f"{DEATHS} times: the first is {home_of(job.space, arch).format(arch)}; perhaps memory ran out, so try "
            f"fewer workers or a smaller batch (all other scores are kept)"
        ) from None


class _Hearing:
    """Writes what workers answer, and tells how far they are."""

    def __init__(
        self,
        progress: ScoringProgress,
        made: Settings,
        store: Store,
        on_progress: Callable[[ScoringProgress], None],
    ) -> None:
        self.progress, self.made, self.store, self.on_progress = progress, made, store, on_progress
        self.start = time.perf_counter()
        on_progress(progress)

    def result(self, number: int, evaluations: list[Evaluation]) -> None:
        """Of one network: all of it becomes visible at once."""
        if wrong := [e for e in evaluations if e.settings != self.made]:
            theirs, here = (dict(made).get("arithmetic") for made in (wrong[0].settings, self.made))
            raise InputError(
                f"a worker measures with the arithmetic {theirs}, this process with {here}: give both a compiler, or "
                f"set INITIO_FUSED=0 for both"
            )
        self.store.put(evaluations)
        self.progress = replace(self.progress, done=self.progress.done + 1)
        self._tell()

    def death(self) -> None:
        """Of a worker."""
        self.progress = replace(self.progress, restarts=self.progress.restarts + 1)
        self._tell()

    def _tell(self) -> None:
        self.progress = replace(self.progress, seconds=time.perf_counter() - self.start)
        self.on_progress(self.progress)


def missing(
    job: ScoringJob, architectures: Iterable[Architecture], store: Store
) -> tuple[list[ScoringTask], list[int]]:
    """The tasks that remain, each network once, and for each part how many networks need nothing any more."""
    tasks: list[ScoringTask] = []
    complete = [0] * len(job.parts)
    keys = [part.settings for part in job.parts]
    pool = list(architectures)
    for number, part in enumerate(job.parts):
        subjects = list(dict.fromkeys(subject(job.space, written, counted=part.counted) for written in pool))
        for arch, known in zip(subjects, store.known(subjects, keys[number], part.data), strict=True):
            lacks = {(m.name, s) for m in part.metrics for s in part.seeds if (m.name, m.version, s) not in known}
            if lacks:
                names = tuple(m.name for m in part.metrics if any((m.name, s) in lacks for s in part.seeds))
                seeds = tuple(s for s in part.seeds if any((m.name, s) in lacks for m in part.metrics))
                tasks.append(ScoringTask(arch, number, names, seeds))
            complete[number] += not lacks
    return tasks, complete


def run_task(job: ScoringJob, task: ScoringTask) -> list[Evaluation]:
    """The evaluations of one architecture, computed on one thread."""
    part, arch = job.parts[task.part], task.architecture
    space, network = home_of(job.space, arch), replace(job.space.resolve(job.network), prune=True)
    versions = {metric.name: metric.version for metric in part.metrics}
    made = part.settings
    metrics = [metric for metric in part.metrics if metric.name in task.metrics]  # a worker knows no others by name
    out = []
    with one_thread():
        for seed in task.seeds:
            values = measure(arch, job.batch, metrics, space=space, network=network, options=job.options, seed=seed)
            for name, found in values.items():
                out.append(Evaluation(arch, name, found.value, seed, found.flag, made, part.data, versions[name]))
    return out


# --- reading the scores of a pool -----------------------------------------------------


def pool_table(job: ScoringJob, architectures: Iterable[Architecture], store: Store) -> ScoreTable:
    """What the store has of these architectures, as written and in order, made exactly as the job makes it."""
    pairs = [(arch, job.space.canonical(arch)) for arch in dict.fromkeys(architectures)]
    among = dict.fromkeys(arch for pair in pairs for arch in pair)
    spaces = sorted({arch.space for arch in among})
    wanted = {}
    for part in job.parts:
        made, number, source = part.settings, store.number(part.settings), job.batch.source * (not part.counted)
        draws = tuple((seed, part.data) for seed in part.seeds)
        for metric in part.metrics:
            keys = frozenset((space, number, part.data, metric.name, metric.version) for space in spaces)
            wanted[metric.name] = Origin(made, source, metric.version, draws), keys
    return fill(store, wanted, among).spread(pairs)
