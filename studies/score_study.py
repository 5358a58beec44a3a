"""How metrics rank nb201 under every convention: the evidence for the defaults (docs/results/correlation.md).

    python -m studies.score_study --data ../shared/data                         # prints, from the shipped scores
    python -m studies.score_study --data ../shared/data --store s.db --score    # scores first: about 40 core-minutes

Each line is one way to score the same seeded 300 architectures (198 networks); a number is Spearman's correlation with
test accuracy on CIFAR-10 / CIFAR-100 / ImageNet16-120.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from initio.analysis.relate import Relation, relate
from initio.cli import main as initio
from initio.errors import InputError
from initio.records import Architecture
from initio.scores.pool import sample
from initio.scores.store import Store, find_store
from initio.spaces import NB201
from initio.tables import CompactTable, open_compact

TARGETS = ("test_c10_nb201", "test_c100_nb201", "test_in16_nb201")
KERNEL = ("trace", "kappa", "lambda_min", "eigen", "knas")
FAST = ("grad", "grad_norm", "snip", "grasp", "fisher", "synflow", "naswot", "jacob_cov", "nasi")
COSTS = ("params", "flops")
SHOWN = (
    "grad",
    "grad_norm",
    "snip",
    "grasp",
    "fisher",
    "trace",
    "kappa",
    "lambda_min",
    "knas",
    "synflow",
    "naswot",
    "jacob_cov",
)
BASE = {
    "cells": "5", "channels": "8", "batch_norm": "frozen", "reduction": "label", "init": "lecun",
    "source": "cifar10_sub10k train at 16x16",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One way to score: what differs from the default, as `initio score` and `--where` say it."""

    label: str
    options: tuple[str, ...] = ()
    where: tuple[tuple[str, str], ...] = ()
    data: str = "cifar10_sub10k.npz@16"
    metrics: tuple[str, ...] = FAST + KERNEL + COSTS


CASES = (
    Case("default: C = 8, N = 5, 16x16, frozen, label, lecun, CIFAR-10"),
    Case("N = 1", ("--cells", "1"), (("cells", "1"),)),
    Case("C = 4", ("--channels", "4"), (("channels", "4"),)),
    Case(
        "C = 16, 32x32 (the published size)", ("--channels", "16"),
        (("channels", "16"), ("source", "cifar10_sub10k train")), "cifar10_sub10k.npz",
    ),
    Case("batch norm hooked", ("--batch-norm", "hooked"), (("batch_norm", "hooked"),), metrics=KERNEL),
    Case("batch norm coupled", ("--batch-norm", "coupled"), (("batch_norm", "coupled"),), metrics=KERNEL),
    Case("reduction sum", ("--reduction", "sum"), (("reduction", "sum"),), metrics=KERNEL),
    Case("reduction all", ("--reduction", "all"), (("reduction", "all"),), metrics=KERNEL),
    Case("init he", ("--init", "he"), (("init", "he"),)),
    Case("init xavier", ("--init", "xavier"), (("init", "xavier"),)),
    Case("init torch", ("--init", "torch"), (("init", "torch"),)),
    Case("metrics from noise", (), (("source", "noise"),), "noise@16"),
    Case("metrics from CIFAR-100", (), (("source", "cifar100_sub10k train at 16x16"),), "cifar100_sub10k.npz@16"),
    Case(
        "metrics from the partial ImageNet16-120", (), (("source", "imagenet16_120_partial train at 16x16"),),
        "imagenet16_120_partial.npz@16",
    ),
)  # fmt: skip


def score(case: Case, folder: Path, store: Path, sample: int, workers: int) -> None:
    """Scores what the store does not have yet."""
    data = case.data if case.data.startswith("noise") else str(folder / case.data)
    how = ["--sample", str(sample), "--seed", "0", "--cells", "5", "--channels", "8", *case.options]
    what = ["--metrics", ",".join(case.metrics), "--data", data, "--workers", str(workers), "--store", str(store)]
    code = initio(["score", "nb201", *how, *what])
    if code:
        raise SystemExit(code)


def relations(case: Case, store: Store, table: CompactTable, only: list[Architecture]) -> list[Relation] | None:
    """The case beside the three targets, None when the store does not have it."""
    where = {**BASE, **dict(case.where)}
    metrics = [metric for metric in SHOWN if metric in case.metrics]
    try:
        return [relate(store, table, target, where=where, metrics=metrics, only=only) for target in TARGETS]
    except InputError:
        return None


def line(case: Case, found: list[Relation] | None) -> str:
    """One row of the table."""
    if found is None:
        return f"| {case.label} | not scored |" + " |" * (len(SHOWN) - 1)
    each = [relation.agreements() for relation in found]
    cells = []
    for metric in SHOWN:
        values = [agreement[metric].spearman for agreement in each if metric in agreement]
        cells.append(" / ".join("-" if v is None else f"{v:.2f}" for v in values) if values else "")
    return f"| {case.label} | " + " | ".join(cells) + " |"


def main() -> None:
    """Scores if asked to, then prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the table (and, to score, the images)")
    parser.add_argument("--store", default="nb201-study", help="scores, by default those that come with Initio")
    parser.add_argument("--score", action="store_true", help="score first; goes on where it was interrupted")
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    if args.score:
        for case in CASES:
            score(case, args.data, Path(args.store), args.sample, args.workers)
    table = open_compact("nb201_tss.npz", args.data)
    only = sample(NB201, args.sample, 0)
    with Store(find_store(args.store), read_only=True) as store:
        print(f"Spearman with test accuracy C10 / C100 / IN16-120 on {len(only)} architectures of nb201\n")
        print("| scored how | " + " | ".join(SHOWN) + " |\n|---" + "|---" * len(SHOWN) + "|")
        for case in CASES:
            print(line(case, relations(case, store, table, only)), flush=True)


if __name__ == "__main__":
    main()
