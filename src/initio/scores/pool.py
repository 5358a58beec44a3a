"""Scores a whole pool of architectures into a store: each network once, in several processes, resumable.

The unit of work is `run_task(job, task)`: plain data in, evaluations out, nothing shared. joblib carries it to local
processes today and can carry it to a cluster. Only the calling process writes to the store, one transaction for each
architecture; so whoever is killed, and whenever, the next run goes on with what is missing.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from initio.errors import InputError
from initio.records import Architecture, Batch, Evaluation, Scalar, Settings, settings
from initio.scores.store import Store
from initio.spaces import GraphSpace, NetworkSettings, Space, get_space, parse

if TYPE_CHECKING:
    from initio.metrics import Metric, Options

DEATHS = 3  # of a worker, after which a network is given up
LARGEST_POOL = 10_000_000  # architectures
_NETWORK = ("channels", "cells", "classes", "shape", "norm", "init")  # the settings that a scored network has
_COUNTED = ("channels", "cells", "classes", "shape", "norm")  # those that parameters and FLOPs depend on


@dataclass(frozen=True)
class Job:
    """What is the same for all architectures of a pool.

    The weights of repeat r are those of seed + r, for every architecture: they depend on (seed, repeat) alone, never on
    the order or the worker. The batch is given, one for all.
    """

    space: Space
    batch: Batch = field(repr=False)
    metrics: tuple[str, ...]
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

    @property
    def seeds(self) -> range:
        """The seeds of the weights."""
        return range(self.seed, self.seed + self.repeats)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The metrics in up to two parts: those of the network that is scored for a whole class, and costs."""
        from initio.metrics import choose

        chosen = choose(self.metrics)
        costs = tuple(metric for metric in chosen if is_cost(metric))
        others = tuple(metric for metric in chosen if not is_cost(metric))
        parts = (
            Part(others, self.batch.fingerprint, tuple(self.seeds), as_written=False),
            Part(costs, "", (0,), as_written=True),
        )
        return tuple(part for part in parts if part.metrics)


@dataclass(frozen=True)
class Part:
    """Metrics that share a network, data and seeds.

    Costs are of the architecture as it is written, dead operations included, as published tables have them; they need
    neither data nor a seed. All else is measured on the canonical representative.
    """

    metrics: tuple[Metric, ...]
    data: str
    seeds: tuple[int, ...]
    as_written: bool

    def architecture(self, space: Space, arch: Architecture) -> Architecture:
        """Whose network is measured."""
        return arch if self.as_written else space.canonical(arch)

    def settings(self, job: Job, arch: Architecture) -> Settings:
        """All that a stored value depends on beside architecture, data and seed."""
        network = network_settings(job, arch)
        if self.as_written:
            return _settings(network, _COUNTED, {})
        options: dict[str, Scalar] = {**asdict(job.options), "batch_size": len(job.batch)}
        for name in ("memory", "seed"):  # how, not what; and the seed is the evaluation's own
            options.pop(name)
        return _settings(network, _NETWORK, options)


def is_cost(metric: Metric) -> bool:
    """Whether the metric counts what an architecture costs."""
    return "counting" in metric.needs


@dataclass(frozen=True)
class Task:
    """What is missing of one architecture: metrics and seeds of one part of the job."""

    architecture: Architecture
    part: int
    metrics: tuple[str, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Progress:
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
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds to the end, None as long as nobody can tell."""
        return (self.total - self.done) / self.rate if self.done else None


Results = Iterator[tuple[int, list[Evaluation]]]  # restarts so far, and what one task gave


# --- which architectures -----------------------------------------------------


def everything(space: Space) -> Iterator[Architecture]:
    """All architectures of a space that is small enough."""
    if (count := space.count()) > LARGEST_POOL:
        raise InputError(f"{space.name} has {count:.1e} architectures, too many to score all: take a sample")
    return space.architectures()


def sample(space: Space, count: int, seed: int) -> list[Architecture]:
    """The first `count` different architectures that the seed draws; of more than half a space, a choice from the list.

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


def read_architectures(path: Path, space: Space) -> list[Architecture]:
    """The architectures in a text file, one a line in any notation; empty lines and lines with # do not count."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"{str(path)!r} is not a text file") from None
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
    job: Job,
    architectures: Iterable[Architecture],
    store: Store,
    *,
    workers: int = 1,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> tuple[Progress, ...]:
    """Scores what the store lacks of these architectures; running it again goes on where it stopped.

    Returns how each phase ended: counting, if a metric is a cost, and scoring, if one is not.
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, not {workers}")
    store.describe(job.batch)
    tasks, known = missing(job, architectures, store)
    ended = []
    for number, part in sorted(enumerate(job.parts), key=lambda item: not item[1].as_written):
        mine = [task for task in tasks if task.part == number]
        progress = Progress("counting" if part.as_written else "scoring", 0, len(mine), known[number])
        alone = workers == 1 or part.as_written  # counting is too quick to be sent anywhere
        results = _in_process(job, mine) if alone else _in_workers(job, mine, workers)
        ended.append(_collect(results, progress, store, on_progress))
    return tuple(ended)


def _collect(results: Results, progress: Progress, store: Store, on_progress: Callable[[Progress], None]) -> Progress:
    start = time.perf_counter()
    on_progress(progress)
    for restarts, evaluations in results:
        store.put(evaluations)
        done = progress.done + bool(evaluations)
        progress = replace(progress, done=done, seconds=time.perf_counter() - start, restarts=restarts)
        on_progress(progress)
    return progress


def missing(job: Job, architectures: Iterable[Architecture], store: Store) -> tuple[list[Task], list[int]]:
    """The tasks that remain, each network once, and for each part how many networks need nothing any more."""
    tasks: list[Task] = []
    seen: set[tuple[int, Architecture]] = set()
    keys: dict[tuple[int, str], Settings] = {}
    complete = [0] * len(job.parts)
    for written in architectures:
        for number, part in enumerate(job.parts):
            arch = part.architecture(job.space, written)
            if (number, arch) in seen:
                continue
            seen.add((number, arch))
            if (number, arch.space) not in keys:  # they depend on the space, not on the architecture
                keys[number, arch.space] = part.settings(job, arch)
            known = store.known(arch, keys[number, arch.space], part.data)
            lacks = {(m.name, s) for m in part.metrics for s in part.seeds if (m.name, m.version, s) not in known}
            if lacks:
                names = tuple(m.name for m in part.metrics if any((m.name, s) in lacks for s in part.seeds))
                seeds = tuple(s for s in part.seeds if any((m.name, s) in lacks for m in part.metrics))
                tasks.append(Task(arch, number, names, seeds))
            complete[number] += not lacks
    return tasks, complete


def run_task(job: Job, task: Task) -> list[Evaluation]:
    """The evaluations of one architecture."""
    part, arch = job.parts[task.part], task.architecture
    versions = {metric.name: metric.version for metric in part.metrics}
    values = part.settings(job, arch)
    return [
        Evaluation(arch, name, value, seed, flag, values, part.data, versions[name])
        for seed in task.seeds
        for name, (value, flag) in _measure(job, part, arch, task.metrics, seed).items()
    ]


def _measure(
    job: Job, part: Part, arch: Architecture, metrics: tuple[str, ...], seed: int
) -> dict[str, tuple[float | None, str]]:
    from initio.metrics import evaluate

    space, network = space_of(job, arch), network_settings(job, arch)
    if part.as_written and isinstance(space, GraphSpace):
        return _counted(space, arch, replace(network, prune=False), metrics)
    model = space.build(arch, replace(network, prune=not part.as_written), seed=seed)
    values = evaluate(model, job.batch, metrics, replace(job.options, seed=seed))
    return {name: (value.value, value.flag) for name, value in values.items()}


def _counted(
    space: GraphSpace, arch: Architecture, network: NetworkSettings, metrics: tuple[str, ...]
) -> dict[str, tuple[float | None, str]]:
    """Costs from the graph: no weights are drawn and nothing is run."""
    from initio.networks.cost import count

    counts = count(space.network(arch, network), network).metrics
    return {name: (counts[name], "") for name in metrics}


def space_of(job: Job, arch: Architecture) -> Space:
    """The job's space, or the larger one that a canonical architecture lies in."""
    return job.space if arch.space == job.space.name else get_space(arch.space)


def network_settings(job: Job, arch: Architecture) -> NetworkSettings:
    """The job's, with the width and the number of cells spelled out."""
    space = space_of(job, arch)
    return space.resolve(job.network) if isinstance(space, GraphSpace) else job.network


def _settings(network: NetworkSettings, names: tuple[str, ...], options: dict[str, Scalar]) -> Settings:
    values = {item.name: getattr(network, item.name) for item in fields(network) if item.name in names}
    values["shape"] = "x".join(map(str, network.shape))
    return settings(**values, **options)


# --- where the work is done -----------------------------------------------------


def _in_process(job: Job, tasks: list[Task]) -> Results:
    with _one_thread():
        for task in tasks:
            yield 0, run_task(job, task)


def _in_workers(job: Job, tasks: list[Task], workers: int) -> Results:
    """loky gives up when a worker dies: go on with the others, then try those that were under way one by one."""
    from joblib.externals.loky.process_executor import BrokenProcessPool

    waiting, alone = deque(range(len(tasks))), deque[int]()
    deaths, restarts = Counter[int](), 0
    while waiting or alone:
        source = waiting or deque([alone.popleft()])
        running: set[int] = set()
        results = _parallel(job, tasks, source, running, workers)
        try:
            for number, evaluations in results:
                running.remove(number)
                yield restarts, evaluations
        except BrokenProcessPool:
            restarts += 1
            deaths.update(running)
            alone.extend(number for number in sorted(running) if deaths[number] < DEATHS)
            yield restarts, []
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # joblib regrets work that is thrown away when we stop early
                results.close()
    if lost := sorted(number for number, count in deaths.items() if count >= DEATHS):
        arch = tasks[lost[0]].architecture
        raise InputError(
            f"{len(lost)} of {len(tasks)} networks could not be scored, because a worker died of each {DEATHS} times: "
            f"the first is {space_of(job, arch).format(arch)}; perhaps memory ran out, so try fewer workers or a "
            f"smaller batch (all other scores are kept)"
        )


def _parallel(
    job: Job, tasks: list[Task], source: deque[int], running: set[int], workers: int
) -> Generator[tuple[int, list[Evaluation]], None, None]:
    """Sends out the tasks numbered in `source`, noting in `running` those that were sent."""
    from joblib import Parallel, delayed

    def feed() -> Iterator[Any]:
        while source:
            number = source.popleft()
            running.add(number)
            yield delayed(_worker)(job, number, tasks[number])

    parallel = Parallel(
        workers,
        backend="loky",
        return_as="generator_unordered",
        batch_size=1,
        max_nbytes=None,  # no temporary files, which a kill would leave behind
        initializer=_end_with,
        initargs=(os.getpid(),),
    )
    results: Generator[tuple[int, list[Evaluation]], None, None] = parallel(feed())
    return results


def _worker(job: Job, number: int, task: Task) -> tuple[int, list[Evaluation]]:
    with _one_thread():
        return number, run_task(job, task)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Several threads would be slower, and would add in another order."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _end_with(parent: int) -> None:
    """A worker must not outlive the process that started it, even if that one is killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# --- reading the scores of a pool -----------------------------------------------------


def rows(job: Job, architectures: Iterable[Architecture], store: Store) -> Iterator[tuple[Architecture, Evaluation]]:
    """For each architecture of the pool, in order, what the store has of it.

    The architecture of an `Evaluation` is the representative that was measured.
    """
    for written in architectures:
        for part in job.parts:
            arch = part.architecture(job.space, written)
            found = store.of(arch, part.settings(job, arch), part.data)
            for metric in part.metrics:
                for seed in part.seeds:
                    if evaluation := found.get((metric.name, metric.version, seed)):
                        yield written, evaluation
