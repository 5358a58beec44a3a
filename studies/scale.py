"""How far one machine and one database go: rows in both stores, memory over many scorings, workers side by side.

python -m studies.scale stores --rows 1000000       insert, resume, query, export and copy, in SQLite and PostgreSQL
python -m studies.scale memory --scorings 100000    what the process holds after each tenth of them
python -m studies.scale cells --cells 10            what a cell costs, and what whole spaces would
python -m studies.scale throughput --cells 200      workers here and on a Dask cluster, as a ratio to one process

Rows are those of darts cells, eight metrics and eight seeds of each, written as `initio score` does: a transaction an
architecture. Each store has a process of its own, so that the memory is what it took.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from initio.autodiff.work import executor_for
from initio.data import load
from initio.metrics import Options
from initio.records import Architecture, Evaluation
from initio.scores.files import export
from initio.scores.pool import ScoringJob, ScoringProgress, missing, pool_table, sample, score_pool
from initio.scores.store import Store
from initio.spaces import NetworkSettings, get_space
from initio.system.files import peak_bytes
from studies.servers import postgres_server

METRICS = ("grad_norm", "snip", "grasp", "fisher", "trace", "synflow", "naswot", "jacob_cov")
SEEDS = 8
ROWS = len(METRICS) * SEEDS  # of an architecture
POOLS = {"darts": 60_000, "nb101": 423_624, "mlp-7": 10_000_000}  # the last stands for a space of one's own
PIXELS = 32  # of an image's side, where the space does not say
CHEAP = "mlp-7"  # a space of 500,000 networks that take milliseconds
T = TypeVar("T")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["stores", "memory", "cells", "throughput", "one-store"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--scorings", type=int, default=100_000)
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--store", help="of one-store: a new file or an empty database")
    args = parser.parse_args(argv)
    if args.what == "stores":
        stores(args.rows)
    elif args.what == "one-store":
        one_store(args.store, args.rows)
    elif args.what == "memory":
        memory(args.scorings)
    elif args.what == "cells":
        costs(args.cells)
    else:
        throughput(args.cells, args.workers)


# --- rows ------------------------------------------------------------------------------------------------------------


def stores(rows: int) -> None:
    """Both kinds, each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder, postgres_server() as server:
        for name, place in {"SQLite": str(Path(folder, "scores.db")), "PostgreSQL": server.create("scores")}.items():
            print(f"{name}:", flush=True)
            words = ["one-store", "--rows", str(rows), "--store", place]
            subprocess.run([sys.executable, "-m", "studies.scale", *words], check=True)


def one_store(place: str, rows: int) -> None:
    """All that a store is asked to do, with so many rows."""
    space, batch = get_space("darts"), load("noise").batch(8, seed=0)
    network = NetworkSettings(classes=batch.classes, shape=batch.shape)
    job = ScoringJob(space, batch, METRICS, network, Options(), repeats=SEEDS)
    archs = list(dict.fromkeys(space.canonical(arch) for arch in sample(space, max(1, rows // ROWS), seed=0)))
    rows = ROWS * len(archs)
    with Store(place) as store, tempfile.TemporaryDirectory() as folder:
        clock = Clock(rows)
        clock("insert", lambda: fill(store, job, archs))
        tasks, _ = clock("resume", lambda: missing(job, archs, store))
        table = clock("query", lambda: pool_table(job, archs, store))
        clock("export", lambda: export(Path(folder, "scores.csv"), space, table))
        with Store(Path(folder, "copy.db")) as copy:
            copied = clock("copy", lambda: copy.add(store))
        assert (len(tasks), len(table), copied, len(store)) == (0, len(archs), rows, rows)


def fill(store: Store, job: ScoringJob, archs: Sequence[Architecture]) -> None:
    """Made-up values under the keys that the job would give them."""
    [part] = job.parts
    made = part.settings
    store.describe(job.batch)
    for number, arch in enumerate(archs):
        store.put(
            Evaluation(arch, metric.name, number + seed / SEEDS, seed, "", made, part.data, metric.version)
            for metric in part.metrics
            for seed in part.seeds
        )


class Clock:
    """Prints how fast something was, by the clock and by what this process computed, and the most it ever held."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __call__(self, name: str, work: Callable[[], T]) -> T:
        """What the work gives."""
        start, computed = time.perf_counter(), time.process_time()
        found = work()
        seconds, computed = time.perf_counter() - start, time.process_time() - computed
        told = (
            f"{self.rows / seconds:>9,.0f} a second ({computed:.1f} s computed), {(peak_bytes() or 0) / 2**20:5.0f} MiB"
        )
        print(f"  {name:<7} {self.rows:>9,} rows in {seconds:6.1f} s, {told}", flush=True)
        return found


# --- memory ----------------------------------------------------------------------------------------------------------


def memory(scorings: int) -> None:
    """What this process holds while it scores networks that take milliseconds."""
    space, batch = get_space(CHEAP), load("noise:8").batch(4, seed=0)
    network = NetworkSettings(channels=4, classes=batch.classes, shape=batch.shape)
    job = ScoringJob(space, batch, ("grad_norm",), network, Options())
    held: list[float] = []

    def hear(progress: ScoringProgress) -> None:
        if progress.done and progress.done % max(1, progress.total // 10) == 0:
            held.append(_resident())
            rate = progress.rate
            print(f"{progress.done:>9,} scored, {rate:,.0f} a second, {held[-1]:.1f} MiB held", flush=True)

    with tempfile.TemporaryDirectory() as folder, Store(Path(folder, "scores.db")) as store:
        score_pool(job, sample(space, scorings, seed=0), store, on_progress=hear)
    print(f"from the first tenth to the last: {held[-1] - held[0]:+.1f} MiB")


def _resident() -> float:
    """MiB of this process in memory now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


# --- cells -----------------------------------------------------------------------------------------------------------


def costs(cells: int) -> None:
    """Seconds that one core computes for a cell, in networks of the size that the space is scored with."""
    for name, pool in POOLS.items():
        space = get_space(name)
        size = space.sizes.scoring
        side = size.pixels or PIXELS
        batch = load(f"noise:3x{side}x{side}").batch(64, seed=0)
        network = NetworkSettings(size.channels, size.cells, batch.classes, batch.shape)
        job = ScoringJob(space, batch, METRICS, network, Options())
        with tempfile.TemporaryDirectory() as folder, Store(Path(folder, "scores.db")) as store:
            first, *others = sample(space, cells + 1, seed=0)
            score_pool(job, [first], store)  # kernels are compiled, modules imported
            start = time.process_time()
            score_pool(job, others, store)
            each = (time.process_time() - start) / cells
        hours = each * pool / 3600
        print(
            f"{name:<6} {each:.3f} s a cell for {len(METRICS)} metrics: {pool:,} cells take {hours:,.0f} hours of one "
            f"core, {hours / 24:.1f} cores for a day, and {pool * len(METRICS):,} rows",
            flush=True,
        )


# --- workers ---------------------------------------------------------------------------------------------------------


def throughput(cells: int, workers: Sequence[int]) -> None:
    """The same cells by one process, by several, and by a Dask cluster of as many, once all have started."""
    space, batch = get_space("nb201"), load("noise").batch(64, seed=0)
    network = NetworkSettings(cells=1, classes=batch.classes, shape=batch.shape)
    job = ScoringJob(space, batch, METRICS, network, Options())
    pool, one = sample(space, cells, seed=0), 0.0
    places = [(str(n), n, None) for n in workers] + [(f"local:{n}", 1, f"local:{n}") for n in workers]
    for name, count, cluster in places:
        with tempfile.TemporaryDirectory() as folder, Store(Path(folder, "scores.db")) as store:
            heard: list[tuple[int, float]] = []
            before = _computed()
            score_pool(
                job, pool, store, workers=count, cluster=cluster,
                on_progress=lambda p, heard=heard: heard.append((p.done, time.perf_counter())),
            )  # fmt: skip
        begun = [at for at in heard if at[0] >= max(1, cells // 10)]  # the workers are there by then
        rate = (begun[-1][0] - begun[0][0]) / (begun[-1][1] - begun[0][1])
        one = one or rate
        spent = (_computed() - before) / cells
        print(
            f"{name:>8} workers: {rate:6.1f} cells a second, {rate / one:.2f} times one process; "
            f"{spent:.2f} s computed a cell, the start of processes included",
            flush=True,
        )
    dispatch()


def _computed() -> float:
    """Seconds that this process and those that have ended under it have computed."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def nothing(number: int) -> int:
    """Work that costs nothing."""
    return number


def dispatch(tasks: int = 3000) -> None:
    """How many tasks that cost nothing are sent and answered, once the workers are there, and what that costs here."""
    for name, executor in (("here", executor_for()), ("2", executor_for(2)), ("local:2", executor_for(1, "local:2"))):
        heard: list[tuple[float, float]] = []

        def note(*_: int, heard: list[tuple[float, float]] = heard) -> None:
            heard.append((time.perf_counter(), time.process_time()))

        executor.map(nothing, range(tasks), note)
        (began, cpu), (ended, spent) = heard[tasks // 10], heard[-1]
        count = len(heard) - 1 - tasks // 10
        print(
            f"{name:>8} workers: {count / (ended - began):8,.0f} empty tasks a second, "
            f"{1000 * (spent - cpu) / count:.3f} ms computed here for each",
            flush=True,
        )


if __name__ == "__main__":
    main()
