"""Many searches on one benchmark, under one budget, for many seeds: what `initio bench` runs.

One run is `run_one(setup, name, search, seed)`: plain data in, an `Outcome` out. Seed s draws the search's own random
numbers and takes draw s of the scores, each with its own weights and batch; when there are more seeds than draws, each
metric takes one of its draws at random. Finished runs are kept in a journal, so a command that was killed goes on with
what is missing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from threadpoolctl import threadpool_limits

from initio.autodiff.threads import one_thread
from initio.autodiff.work import executor_for
from initio.data.sources import data_in
from initio.errors import InputError
from initio.records import Query, decode, load_json
from initio.report.curves import Curves
from initio.runs.folders.base import add_record
from initio.runs.folders.run import RunFolder
from initio.runs.search import search as make_run
from initio.scores.database import StorePlace
from initio.scores.read import read_table
from initio.scores.store import SHIPPED, Store, find_store
from initio.scores.table import ScoreTable
from initio.searches import Budget, Problem, Search, SearchResult, Trained, drive
from initio.system.executors import DEATHS, Executor, LostTasksError
from initio.system.files import whole_lines
from initio.system.leases import leased
from initio.tables import Table, open_table

if TYPE_CHECKING:
    from initio.searches.oneshot import SharedEpoch

CURVE_POINTS = 400
SHARED_EPOCHS = 8
IMAGES = {"c10": "cifar10", "c100": "cifar100"}


@dataclass(frozen=True)
class BenchSetup:
    """What is the same for all runs.

    Args:
        benchmark: its name.
        folder: with the tables.
        dataset: whose validation accuracy selects.
        epochs: length of a training; None for the benchmark's default.
        store: scores of the pool; None for those that come with Initio, if any do.
        where: which scores, if the store has several kinds.
        budget: of one run.
        images: what searches that share weights learn from; None finds those of `dataset` in the folder.
        shared_epochs: how long they do; None for 8, far from what is published.
        shared_batch: samples an update of theirs; None for what each of them has published.
        device: what computes, by its name.
    """

    benchmark: str
    budget: Budget
    folder: str | None = None
    dataset: str = "c10"
    epochs: int | None = None
    store: str | None = None
    where: tuple[tuple[str, str], ...] = ()
    images: str | None = None
    shared_epochs: int | None = None
    shared_batch: int | None = None
    device: str = "cpu"

    def open(self) -> Table:
        """The benchmark; opened once in a process."""
        return _benchmark(self.benchmark, self.folder, self.dataset, self.epochs)

    @property
    def draws(self) -> int:
        """How many draws the scores have; 0 without scores."""
        table = _table(self)
        return 0 if table is None else table.draws

    def scores(self, seed: int) -> ScoreTable | None:
        """The scores that the run of this seed gets."""
        return _draw(self, seed)

    def problem(self, seed: int, *, scored: bool = True) -> Problem:
        """What a search with this seed is told."""
        validation = self.open().validation
        return Problem(
            self.open().space,
            budget=self.budget,
            pool=validation.architectures or (),
            scores=self.scores(seed) if scored else None,
            epochs=validation.epochs,
            evaluate=validation,
            device=self.device,
        )

    def pictures(self) -> str:
        """Where the images are that shared weights learn from."""
        if self.images is not None:
            return self.images
        if self.dataset not in IMAGES:
            raise InputError(f"there are no images of {self.dataset} to learn from: say which by --images")
        return data_in(self.folder, IMAGES[self.dataset])

    def _store(self) -> StorePlace | None:
        if self.store is not None:
            return find_store(self.store)
        shipped = SHIPPED / f"{self.open().space.name}.db.xz"
        return shipped if shipped.is_file() else None


@lru_cache(maxsize=4)
def _benchmark(name: str, folder: str | None, dataset: str, epochs: int | None) -> Table:
    return open_table(name, folder, dataset=dataset, epochs=epochs)


@lru_cache(maxsize=4)
def _table(setup: BenchSetup) -> ScoreTable | None:
    path, benchmark = setup._store(), setup.open()
    if path is None:
        return None
    with Store(path, read_only=True) as store:
        return read_table(store, benchmark.space, pool=benchmark.architectures or (), where=dict(setup.where))


@lru_cache(maxsize=32)
def _draw(setup: BenchSetup, number: int) -> ScoreTable | None:
    table = _table(setup)
    if table is None or not table.draws:
        return None
    return table.draw(number)


@dataclass(frozen=True)
class CurvePoint:
    """What a run had found when it had spent so much."""

    queries: int  # or epochs of a network that shares weights
    seconds: float
    report: dict[str, float]


@dataclass(frozen=True)
class Outcome:
    """One search's run with one seed, seen with the eyes of the report."""

    search: str
    seed: int
    choices: tuple[int, ...]
    validation: float
    regret: float | None  # by the validation that the search may see; None where the best is not known
    rank: int | None
    report: dict[str, float]
    queries: int
    found_at: int  # the query that gave the final answer
    published_seconds: float
    seconds: float
    curve: tuple[CurvePoint, ...] = field(repr=False)  # a point each time the best changes, and one at the end
    epochs: int | None = None  # of the network that shares weights, whose curve has a point after each


def run_one(setup: BenchSetup, name: str, search: Search[Any], seed: int, folder: Path | None = None) -> Outcome:
    """One run; with a folder, one that trains a network goes on from what is there."""
    benchmark = setup.open()
    if search.learns:
        result, clock = _shared(setup, name, search, seed, folder)
        steps = cast("Sequence[SharedEpoch]", result.steps)
        found_at, n_epochs = len(steps), len(steps)
        while found_at > 1 and steps[found_at - 2].architecture == result.best:
            found_at -= 1
        timed = zip(steps, clock, strict=True)
        curve = [CurvePoint(step.number + 1, at, benchmark.report(step.architecture)) for step, at in timed]
    else:
        result = drive(search, setup.problem(seed, scored=search.needs_scores), seed=seed)
        trained = cast("Sequence[Trained]", result.steps)
        found = [step.number for step in trained if step.architecture == result.best]
        found_at, n_epochs = max(found, default=len(trained)), None
        curve = list(_curve(benchmark, result))
    value, best = benchmark.validation(Query(result.best)).value, result.best
    assert value is not None  # a published table has one for every architecture
    return Outcome(
        search=name,
        seed=seed,
        choices=best.choices,
        validation=value,
        regret=benchmark.report.regret(best),
        rank=benchmark.report.rank(best),
        report=benchmark.report(best),
        queries=result.cost.queries,
        found_at=found_at,
        published_seconds=result.cost.published_seconds,
        seconds=result.cost.seconds,
        curve=tuple(curve),
        epochs=n_epochs,
    )


def _shared(
    setup: BenchSetup, name: str, search: Search[Any], seed: int, folder: Path | None
) -> tuple[SearchResult, list[float]]:
    """A run of a search that trains one network on images, and the seconds after each epoch: the table only reports."""
    benchmark, run = setup.open(), None
    if folder is not None:
        run = folder / re.sub(r"\W+", "-", f"{name} seed {seed}")
    began, clock = time.perf_counter(), list[float]()
    result = make_run(
        benchmark.space,
        search,
        setup.pictures(),
        seed=seed,
        epochs=setup.shared_epochs or SHARED_EPOCHS,
        batch_size=setup.shared_batch,
        device=setup.device,
        folder=run,
        resume=run is not None,
        on_step=lambda step: clock.append(time.perf_counter() - began),
    )
    if run is not None:
        clock = RunFolder(run).clock()
    return result, clock


def _curve(benchmark: Table, result: SearchResult) -> Iterator[CurvePoint]:
    best, seconds, last = (-np.inf, -np.inf), 0.0, None
    for step in cast("Sequence[Trained]", result.steps):
        seconds += step.seconds
        if step.strength > best:
            best, last = step.strength, benchmark.report(step.architecture)
            yield CurvePoint(step.number, seconds, last)
    if last is not None:
        yield CurvePoint(len(result.steps), seconds, last)


# --- all of them -----------------------------------------------------------------------------------------------


def run_all(
    setup: BenchSetup,
    searches: dict[str, Search[Any]],
    seeds: Sequence[int],
    *,
    workers: int = 1,
    cluster: str | None = None,
    journal: Path | None = None,
    on_outcome: Callable[[Outcome], None] | None = None,
    on_note: Callable[[str], object] | None = None,
) -> list[Outcome]:
    """Every search with every seed, those in the journal not again; in the order of searches, then seeds.

    One process at a time works in the journal's folder.
    """
    executor = executor_for(workers, cluster)  # which refuses what cannot be
    setup.scores(0)  # bad input is refused before anything starts
    if journal is None:
        return _run_missing(setup, searches, seeds, executor, None, on_outcome)
    journal.parent.mkdir(parents=True, exist_ok=True)
    with leased(journal.parent, on_note):
        return _run_missing(setup, searches, seeds, executor, journal, on_outcome)


def _run_missing(
    setup: BenchSetup,
    searches: dict[str, Search[Any]],
    seeds: Sequence[int],
    executor: Executor,
    journal: Path | None,
    on_outcome: Callable[[Outcome], None] | None,
) -> list[Outcome]:
    done = _read(journal)
    wanted = [(name, seed) for name in searches for seed in seeds]
    missing = [pair for pair in wanted if pair not in done]
    runs = None
    if journal is not None:
        runs = journal.parent / journal.stem.replace("unfinished", "shared")

    def hear(outcome: Outcome) -> None:
        if journal is not None:
            add_record(journal, outcome)
        done[outcome.search, outcome.seed] = outcome
        if on_outcome:
            on_outcome(outcome)

    _run(setup, searches, missing, executor, runs, hear)
    return [done[pair] for pair in wanted]


def _run(
    setup: BenchSetup,
    searches: dict[str, Search[Any]],
    pairs: Sequence[tuple[str, int]],
    executor: Executor,
    runs: Path | None,
    hear: Callable[[Outcome], None],
) -> None:
    try:
        executor.map(partial(_run_pair, setup, searches, runs), pairs, lambda _, one: hear(one))
    except LostTasksError as lost:
        first = " with seed ".join(map(str, pairs[lost.numbers[0]]))
        raise InputError(
            f"{len(lost.numbers)} of {len(pairs)} runs could not be done, because a worker died of each {DEATHS} "
            f"times: the first is {first} (the other runs are kept)"
        ) from None


def _run_pair(setup: BenchSetup, searches: dict[str, Search[Any]], runs: Path | None, pair: tuple[str, int]) -> Outcome:
    """On one thread, here as in every worker."""
    name, seed = pair
    with one_thread(), threadpool_limits(1):
        return run_one(setup, name, searches[name], seed, runs)


def _read(journal: Path | None) -> dict[tuple[str, int], Outcome]:
    """The finished runs; a last line that a crash left half-written is forgotten."""
    found: dict[tuple[str, int], Outcome] = {}
    if journal is None:
        return found
    for number, line in enumerate(whole_lines(journal), start=1):
        where = f"line {number} of {str(journal)!r}"
        try:
            outcome: Outcome = decode(Outcome, load_json(line, where))
        except InputError:
            raise InputError(f"{where} is damaged: delete the file to start over") from None
        found[outcome.search, outcome.seed] = outcome
    return found


# --- summaries ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """One search over all its seeds."""

    search: str
    seeds: int
    report: dict[str, tuple[float, float | None]]  # mean and standard deviation
    validation: tuple[float, float | None]
    regret: float | None
    in_top_two: int | None  # seeds whose answer is one of the two best by the validation that a search may see
    queries: float
    found_at: float  # median
    published_seconds: float
    seconds: float


def summarise(outcomes: Sequence[Outcome]) -> list[Summary]:
    """One row a search, in the order of their first run."""
    names = dict.fromkeys(outcome.search for outcome in outcomes)
    return [_summary(name, [o for o in outcomes if o.search == name]) for name in names]


def _summary(name: str, runs: Sequence[Outcome]) -> Summary:
    columns = [column for column in runs[0].report if all(column in run.report for run in runs)]
    regrets = [run.regret for run in runs if run.regret is not None]
    ranks = [run.rank for run in runs if run.rank is not None]
    return Summary(
        search=name,
        seeds=len(runs),
        report={column: _mean_std([run.report[column] for run in runs]) for column in columns},
        validation=_mean_std([run.validation for run in runs]),
        regret=float(np.mean(regrets)) if len(regrets) == len(runs) else None,
        in_top_two=sum(rank <= 2 for rank in ranks) if len(ranks) == len(runs) else None,
        queries=float(np.mean([run.queries for run in runs])),
        found_at=float(np.median([run.found_at for run in runs])),
        published_seconds=float(np.mean([run.published_seconds for run in runs])),
        seconds=float(np.mean([run.seconds for run in runs])),
    )


def _mean_std(values: Sequence[float]) -> tuple[float, float | None]:
    """One value has no deviation."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def curves_by_epoch(outcomes: Sequence[Outcome], best: Mapping[str, float] | None = None) -> Curves:
    """What every search that shares weights would have chosen after each of its epochs."""
    runs: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        runs.setdefault(outcome.search, []).append(outcome)
    columns = [column for column in outcomes[0].report if all(column in o.report for o in outcomes)]
    grid = np.arange(1, 1 + max(o.epochs or 0 for o in outcomes))
    panels = {column: {name: mean_curve(runs[name], column, grid, by="queries") for name in runs} for column in columns}
    return Curves(grid, "epochs of the shared network", panels, best or {}, changes="choice so far")


def curves(outcomes: Sequence[Outcome], best: Mapping[str, float] | None = None) -> Curves:
    """The best so far of every search against what it cost, in the columns that all runs report."""
    runs: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        runs.setdefault(outcome.search, []).append(outcome)
    columns = [column for column in outcomes[0].report if all(column in o.report for o in outcomes)]
    by, cost = "queries", "queries"
    if all(o.published_seconds > 0 for o in outcomes):
        by, cost = "seconds", "seconds of training, as published"
    costs = [getattr(point, by) for o in outcomes for point in o.curve]
    grid = np.geomspace(max(min(costs), 1e-9), max(costs), CURVE_POINTS)
    panels = {column: {name: mean_curve(runs[name], column, grid, by=by) for name in runs} for column in columns}
    return Curves(grid, cost, panels, best or {})


def mean_curve(runs: Sequence[Outcome], column: str, grid: np.ndarray, *, by: str = "seconds") -> np.ndarray:
    """The best-so-far value of a column on a grid of costs, one row a run.

    NaN before a run's first training ends, and after the last of all the runs has ended.
    """
    rows = np.full((len(runs), len(grid)), np.nan)
    for row, run in zip(rows, runs, strict=True):
        for point in run.curve:
            row[grid >= getattr(point, by)] = point.report[column]
    end = max(getattr(point, by) for run in runs for point in run.curve)
    rows[:, grid > end * (1 + 1e-9)] = np.nan
    return rows
