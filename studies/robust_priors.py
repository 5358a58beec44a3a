"""The robust hybrid with priors that mislead: is it ever worse than random search?

On every table the scores that come with Initio are given to the hybrid in five kinds:

- as they are;
- turned: every metric has the opposite sign;
- shuffled: the rows of the table of scores change places, so that metrics agree with each other and with nothing else;
- half: right on one half of the space (by the options of one decision), the order turned on the other;
- top: the truly best 5 % and the truly worst 5 % change places, the rest is as it is.

Each run is compared with random search of the same seed and budget, by the best validation accuracy found: the mean
difference ± its standard error over seeds. The last line counts the cells that are worse by more than two standard
errors. With the scores as they are RoBoT is compared too.

python -m studies.robust_priors --data ../shared/data

Every finished run goes to a journal, by default below `runs` and named after data, stores, shipped scores and the code
of searches: a command that was killed, or is given more seeds, tables or budgets, goes on with what is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import accumulate, count
from pathlib import Path
from typing import cast

import numpy as np

import initio
from initio.autodiff.work import executor_for
from initio.errors import InputError
from initio.records import Architecture, Query
from initio.runs.bench import BenchSetup
from initio.scores.table import ScoreTable
from initio.searches import Budget, QuerySearch, Trained, drive, find_search
from initio.system.files import add_line, whole_lines

TABLES = ("nb201/c10", "nb201/c100", "nb201/in16", "nb101/c10", "nb301/c10")
BUDGETS = (5, 10, 20, 50, 100)
SHARE = 0.05  # of the architectures that change places in `top`

Columns = dict[str, np.ndarray]


def as_they_are(
    columns: Columns, archs: Sequence[Architecture], truth: np.ndarray, rng: np.random.Generator
) -> Columns:
    """Nothing is changed."""
    return columns


def turned(columns: Columns, archs: Sequence[Architecture], truth: np.ndarray, rng: np.random.Generator) -> Columns:
    """The opposite sign."""
    return {name: -values for name, values in columns.items()}


def shuffled(columns: Columns, archs: Sequence[Architecture], truth: np.ndarray, rng: np.random.Generator) -> Columns:
    """Whole rows change places."""
    order = rng.permutation(len(archs))
    return {name: values[order] for name, values in columns.items()}


def half(columns: Columns, archs: Sequence[Architecture], truth: np.ndarray, rng: np.random.Generator) -> Columns:
    """Where one decision has one of some options, the largest value becomes the smallest, and so on."""
    wrong = a_half(np.array([arch.choices for arch in archs]), rng)
    out = {}
    for name, values in columns.items():
        rows = np.flatnonzero(wrong & ~np.isnan(values))
        rows = rows[np.argsort(values[rows], kind="stable")]
        out[name] = values.copy()
        out[name][rows] = values[rows[::-1]]
    return out


def a_half(choices: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The rows in which a random decision has one of some options: of a few tries the one nearest to one half."""
    tried = []
    for _ in range(20):
        column = choices[:, rng.integers(choices.shape[1])]
        options = rng.permutation(np.unique(column))
        tried.append(np.isin(column, options[: max(1, len(options) // 2)]))
    return min(tried, key=lambda inside: abs(inside.mean() - 0.5))


def top(columns: Columns, archs: Sequence[Architecture], truth: np.ndarray, rng: np.random.Generator) -> Columns:
    """The scores of the best are those of the worst, and the other way round."""
    order, count = np.argsort(truth, kind="stable"), max(1, round(SHARE * len(truth)))
    rows = np.arange(len(truth))
    rows[order[:count]], rows[order[-count:]] = order[-count:][::-1], order[:count][::-1]
    return {name: values[rows] for name, values in columns.items()}


KINDS: dict[str, Callable[[Columns, Sequence[Architecture], np.ndarray, np.random.Generator], Columns]] = {
    "as they are": as_they_are,
    "turned": turned,
    "shuffled": shuffled,
    "half": half,
    "top": top,
}


@dataclass(frozen=True)
class Run:
    """One search on one table with one kind of scores."""

    search: str
    table: str
    kind: str
    seed: int

    def setup(self, data: str | None, stores: str | None, budget: int) -> BenchSetup:
        """The table and its scores."""
        return _setup(self.table, data, stores, budget)

    def best(self, data: str | None, stores: str | None, budgets: Sequence[int]) -> dict[int, float]:
        """The best validation accuracy within each budget; RoBoT's plan depends on the budget, the others' does not."""
        search = cast("type[QuerySearch]", find_search(self.search))()
        if self.search != "robot":
            values = self.values(search, self.setup(data, stores, max(budgets)))
            return {budget: values[min(budget, len(values)) - 1] for budget in budgets}
        return {budget: self.values(search, self.setup(data, stores, budget))[-1] for budget in budgets}

    def values(self, search: QuerySearch, setup: BenchSetup) -> list[float]:
        """The best so far after each training."""
        problem = setup.problem(self.seed, scored=search.needs_scores)
        if search.needs_scores:
            scores = problem.known_scores(self.search)
            columns = {name: np.array(scores[name]) for name in scores.metrics}
            rng = np.random.default_rng((self.seed, *self.kind.encode()))
            changed = KINDS[self.kind](columns, scores.architectures, _truth(setup), rng)
            problem = replace(problem, scores=ScoreTable.of(scores.architectures, changed))
        steps = cast("Sequence[Trained]", drive(search, problem, seed=self.seed).steps)
        return list(accumulate((-np.inf if step.value is None else step.value for step in steps), max))


def _setup(table: str, data: str | None, stores: str | None, budget: int) -> BenchSetup:
    name, _, dataset = table.partition("/")
    setup = BenchSetup(name, Budget(queries=budget), data, dataset=dataset or "c10")
    if stores is not None:
        setup = replace(setup, store=str(Path(stores) / f"{setup.open().space.name}.db"))
    return setup


@lru_cache(maxsize=4)
def _truth(setup: BenchSetup) -> np.ndarray:
    scores, validation = setup.scores(0), setup.open().validation
    if scores is None:
        raise InputError(f"there are no scores for {setup.benchmark}: give a folder with --stores")
    return np.array([validation(Query(arch)).value or 0.0 for arch in scores.architectures])


class Journal:
    """Finished runs in a file: (run, budget) -> the best found."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[tuple[Run, int], float] = {}
        for number, line in enumerate(whole_lines(path), start=1):
            try:
                *run, best = json.loads(line)
                self.known.update({(Run(*run), int(budget)): float(value) for budget, value in best.items()})
            except (ValueError, TypeError, AttributeError):
                raise InputError(f"line {number} of {str(path)!r} is damaged: delete the file to start over") from None

    def add(self, run: Run, best: dict[int, float]) -> None:
        """Keeps a run."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        add_line(self.path, json.dumps([run.search, run.table, run.kind, run.seed, best]))
        self.known.update({(run, budget): value for budget, value in best.items()})

    def missing(self, runs: Sequence[Run], budgets: Sequence[int]) -> list[Run]:
        """Those that some budget lacks."""
        return [run for run in runs if any((run, budget) not in self.known for budget in budgets)]

    def values(self, search: str, table: str, kind: str, seeds: int, budget: int) -> np.ndarray:
        """One value a seed."""
        return np.array([self.known[Run(search, table, kind, seed), budget] for seed in range(seeds)])


@dataclass(frozen=True)
class Difference:
    """Mean over seeds of a difference of two searches, with its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, one: np.ndarray, other: np.ndarray) -> Difference:
        """Paired by seed."""
        change = one - other
        return cls(float(change.mean()), float(change.std(ddof=1) / np.sqrt(len(change))))

    @property
    def worse(self) -> bool:
        """By more than two standard errors."""
        return self.mean < -2 * self.error

    def __str__(self) -> str:
        return f"{self.mean:+.2f}±{self.error:.2f}{'!' * self.worse}"


def wanted(tables: Sequence[str], kinds: Sequence[str], seeds: int) -> list[Run]:
    """All runs; random search sees no scores, and RoBoT has them as they are."""
    pairs = [("random", "as they are"), ("robot", "as they are"), *(("robust", kind) for kind in kinds)]
    return [Run(search, table, kind, seed) for table in tables for search, kind in pairs for seed in range(seeds)]


def lines(
    journal: Journal, tables: Sequence[str], kinds: Sequence[str], budgets: Sequence[int], seeds: int
) -> Iterator[str]:
    """The tables, and how many cells are worse."""
    cells: list[Difference] = []
    for table in tables:
        chance = {budget: journal.values("random", table, "as they are", seeds, budget) for budget in budgets}
        yield f"\n|{table}|" + "|".join(f"{budget} queries" for budget in budgets) + "|"
        yield "|---" * (1 + len(budgets)) + "|"
        yield "|random search|" + "|".join(f"{chance[budget].mean():.2f}" for budget in budgets) + "|"
        for search, kind in [*(("robust", kind) for kind in kinds), ("robot", "as they are")]:
            found = [
                Difference.of(journal.values(search, table, kind, seeds, budget), chance[budget]) for budget in budgets
            ]
            cells += found * (search == "robust")
            yield f"|{search}, {kind}|" + "|".join(map(str, found)) + "|"
    worse = sum(cell.worse for cell in cells)
    yield (
        f"\n{worse} of {len(cells)} cells of the hybrid are worse than random search by more than two standard errors "
        f"({seeds} seeds; of equals one in forty would be, by chance)"
    )


def fingerprint() -> str:
    """Of what decides on a run beside its settings: other searches or other shipped scores are other runs."""
    package = Path(initio.__file__).parent
    files = sorted([*package.glob("searches/**/*.py"), *package.glob("scores/shipped/*.xz")])
    return hashlib.sha256(b"".join(map(Path.read_bytes, files))).hexdigest()


def best_of(data: str | None, stores: str | None, budgets: Sequence[int], run: Run) -> dict[int, float]:
    """What a worker does."""
    return run.best(data, stores, budgets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the tables")
    parser.add_argument("--stores", help="folder with SPACE.db of scores; by default those that come with Initio")
    parser.add_argument("--tables", nargs="+", default=TABLES, help="as in nb201/c100")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--budgets", nargs="+", type=int, default=BUDGETS)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--cluster", help="in place of workers, a Dask scheduler at tcp://host:port, or local:8")
    parser.add_argument("--journal", type=Path, help="finished runs")
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error("--seeds: a standard error needs two")
    settings = json.dumps([args.data, args.stores, fingerprint()])
    name = f"robust-priors-{hashlib.sha256(settings.encode()).hexdigest()[:8]}.jsonl"
    journal = Journal(args.journal or Path("runs") / name)
    missing = journal.missing(wanted(args.tables, args.kinds, args.seeds), args.budgets)
    done = count(1)

    def keep(number: int, found: dict[int, float]) -> None:
        run = missing[number]
        journal.add(run, found)
        told = f"{run.table}, {run.search}, {run.kind}, seed {run.seed}"
        print(f"{next(done)} of {len(missing)}: {told}", file=sys.stderr)

    executor_for(args.workers, args.cluster).map(partial(best_of, args.data, args.stores, args.budgets), missing, keep)
    for line in lines(journal, args.tables, args.kinds, args.budgets, args.seeds):
        print(line)


if __name__ == "__main__":
    from studies import robust_priors  # under its own name, by which worker processes find `Run`

    try:
        robust_priors.main()
    except InputError as error:
        sys.exit(f"error: {error}")
