"""The robust hybrid with bad metrics: no worse than without them?

1,000 random architectures of NAS-Bench-201 and the scores that come with Initio, for each seed another thousand. One
at a time: a metric loses 30 % of its values, a constant is added, a metric with its sign turned is added; these three
together; then a random metric, and a known one with the wrong sign.

python -m studies.robust_faults --data ../shared/data --seeds 20
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from initio.errors import InputError
from initio.records import Query
from initio.runs.bench import BenchSetup
from initio.scores.table import ScoreTable
from initio.searches import Budget, drive
from initio.searches.methods.robust import Robust

Columns = dict[str, np.ndarray]


def undefined(columns: Columns, rng: np.random.Generator) -> Columns:
    """A known metric loses 30 % of its values."""
    values = columns["naswot"]
    return columns | {"naswot": np.where(rng.random(len(values)) < 0.3, np.nan, values)}


def constant(columns: Columns, rng: np.random.Generator) -> Columns:
    """A metric that says the same of all."""
    return columns | {"constant": np.ones(len(columns["naswot"]))}


def wrong_sign(columns: Columns, rng: np.random.Generator) -> Columns:
    """A useful metric the wrong way round, under a name that nobody knows."""
    return columns | {"wrong": -columns["synflow"]}


def random(columns: Columns, rng: np.random.Generator) -> Columns:
    """Noise."""
    return columns | {"random": rng.standard_normal(len(columns["naswot"]))}


def known_but_wrong(columns: Columns, rng: np.random.Generator) -> Columns:
    """A metric that Initio knows, with the opposite of its sign."""
    return columns | {"naswot": -columns["naswot"]}


Fault = Callable[[Columns, np.random.Generator], Columns]
ASKED: tuple[Fault, ...] = (undefined, constant, wrong_sign)
CASES: dict[str, tuple[Fault, ...]] = {
    "as they are": (),
    "30 % undefined": (undefined,),
    "constant": (constant,),
    "wrong sign": (wrong_sign,),
    "these three": ASKED,
    "random": (random,),
    "known, wrong sign": (known_but_wrong,),
}


def regrets(setup: BenchSetup, faults: tuple[Fault, ...], seeds: int, size: int) -> np.ndarray:
    """Best validation accuracy of the sample minus that of the answer, for each seed."""
    benchmark, out = setup.open(), []
    for seed in range(seeds):
        scores = setup.scores(seed)
        if scores is None:
            raise InputError("there are no scores of nb201: give a --store")
        rng = np.random.default_rng(seed)
        sample = scores.subset(np.sort(rng.choice(len(scores), size, replace=False)))
        columns = {name: sample[name] for name in sample.metrics}
        for fault in faults:
            columns = fault(columns, rng)
        pool = sample.architectures
        problem = replace(setup.problem(seed), pool=pool, scores=ScoreTable.of(pool, columns), epochs=())
        answer = drive(Robust(), problem, seed=seed)
        values = {arch: benchmark.validation(Query(arch)).value or 0.0 for arch in pool}
        out.append(max(values.values()) - values[answer.best])
    return np.array(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the tables")
    parser.add_argument("--store", help="scores; by default those that come with Initio")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--size", type=int, default=1000)
    args = parser.parse_args()
    for dataset in ("c10", "c100", "in16"):
        setup = BenchSetup("nb201", Budget(queries=args.queries), args.data, dataset=dataset, store=args.store)
        print(
            f"{dataset}: validation regret after {args.queries} queries, {args.seeds} seeds, {args.size} architectures"
        )
        base = None
        for name, faults in CASES.items():
            found = regrets(setup, faults, args.seeds, args.size)
            base = found if base is None else base
            change = found - base
            error = change.std() / np.sqrt(len(change))
            line = f"{found.mean():6.3f}, best found in {(found == 0).mean():4.0%}"
            print(f"  {name:<18} {line}, {change.mean():+.3f} ± {error:.3f}", flush=True)


if __name__ == "__main__":
    main()
