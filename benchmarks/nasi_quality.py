"""NASI on published tables: what the chosen architectures reach, beside the paper, parameter count and chance.

python -m benchmarks.nasi_quality --space nb201 --seeds 10 --data ../shared/data
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import pearsonr, spearmanr

from initio.cli.search import Search
from initio.networks import count
from initio.records import Architecture
from initio.search import Nasi, Problem
from initio.search.literal import LiteralNasi
from initio.spaces import NB101, get_space
from initio.spaces.nb1shot1 import NB1Shot1Space

MODES = {"data": ("cifar", "true"), "random labels": ("cifar", "random"), "noise": ("noise", "true")}
PUBLISHED = {
    "nb201": [
        "NASI (T), paper                  93.08±0.24 / 69.51±0.59 / 40.87±0.85",
        "NASI (4T), paper                 93.55±0.10 / 71.20±0.14 / 44.84±1.41",
    ],
    "nb1shot1-s1": ["NASI, paper  7.3 (data), 6.8 (random labels), 6.6 (noise)"],
    "nb1shot1-s2": ["NASI, paper  7.2 (data), 7.0 (random labels), 7.5 (noise)"],
    "nb1shot1-s3": ["NASI, paper  7.2 (data), 7.5 (random labels), 7.3 (noise)"],
}
Report = Callable[[Architecture], tuple[float, ...]]


@dataclass(frozen=True)
class Table:
    """What is reported of an architecture; searches never see it."""

    columns: tuple[str, ...]
    report: Report


def nb201_table(data: Path) -> Table:
    """200-epoch test accuracy of the NAS-Bench-201 file."""
    table = np.load(data / "nb201_tss.npz", allow_pickle=False)
    row = {tuple(ops): place for place, ops in enumerate(table["ops"].tolist())}
    columns = [table[f"test_{name}_nb201"] for name in ("c10", "c100", "in16")]
    return Table(("C10", "C100", "IN16-120"), lambda arch: tuple(float(c[row[arch.choices]]) for c in columns))


def nb1shot1_table(space: NB1Shot1Space, data: Path) -> Table:
    """Test error after 108 epochs in NAS-Bench-101, mean of three trials."""
    accuracy = np.load(data / "nb101.npz", allow_pickle=False)["test_acc_108"]
    hashes = np.load(data / "nb101_hash64.npz", allow_pickle=False)["hash64"]
    scale = 100 if accuracy.max() <= 1 else 1

    def report(arch: Architecture) -> tuple[float, ...]:
        key = np.uint64(int(NB101.graph_hash(space.to_nb101(arch))[:16], 16))
        return (float(100 - scale * accuracy[np.searchsorted(hashes, key)]),)

    return Table(("test error",), report)


def problem_of(space: str, mode: str, data: Path) -> Problem:
    source, labels = MODES[mode]
    spec = "noise" if source == "noise" else str(data / "cifar10_sub10k.npz")
    return Search(space=space, data=spec, labels=labels).problem()  # type: ignore[arg-type]


def search(space: str, method: Nasi | LiteralNasi, mode: str, data: Path, seed: int) -> Architecture:
    """What one run chose."""
    import torch

    torch.set_num_threads(1)
    return method.run(problem_of(space, mode, data), seed=seed).chosen[0]


def by_parameters(space: str, data: Path, seed: int, n: int) -> Architecture:
    """The largest of n random architectures, the same pool that the search draws from."""
    problem = problem_of(space, "noise", data)
    rng = Random(f"baseline {seed}")
    pool = [problem.draw(rng) for _ in range(n)]
    return max(pool, key=lambda a: count(problem.space.network(a, problem.target), problem.target).parameters)


def line(name: str, values: list[tuple[float, ...]]) -> str:
    array = np.array(values)
    cells = " / ".join(f"{m:.2f}±{s:.2f}" for m, s in zip(array.mean(0), array.std(0), strict=True))
    return f"{name:<32} {cells}"


def relations(space: str, data: Path, n: int, jobs: int) -> None:
    """Does T rank alike on data, random labels and noise? The same n architectures and initialisations."""

    def traces(mode: str) -> list[float]:
        problem = problem_of(space, mode, data)
        return list(Parallel(n_jobs=jobs)(delayed(_measure)(Nasi(), problem, step) for step in range(n)))

    T = {mode: np.log(traces(mode)) for mode in MODES}
    for mode in list(MODES)[1:]:
        rank, linear = spearmanr(T["data"], T[mode]).statistic, pearsonr(T["data"], T[mode]).statistic
        print(f"T on data and on {mode}: Spearman {rank:.3f}, Pearson of log T {linear:.3f}")


def _measure(estimator: Nasi, problem: Problem, step: int) -> float:
    import torch

    torch.set_num_threads(1)
    return float(dict(estimator._step(problem, 0, step))["trace"] or 0)  # type: ignore[arg-type]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--space", default="nb201", choices=list(PUBLISHED))
    arguments.add_argument("--seeds", type=int, default=10)
    arguments.add_argument("--data", type=Path, default=Path("../shared/data"))
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument("--literal-steps", type=int, default=200, help="0 leaves the literal estimator out")
    options = arguments.parse_args()
    space = get_space(options.space)
    table = nb1shot1_table(space, options.data) if isinstance(space, NB1Shot1Space) else nb201_table(options.data)
    seeds = range(options.seeds)
    print(f"{space.name}, {options.seeds} seeds, mean±std of {' / '.join(table.columns)}")
    for text in PUBLISHED[space.name]:
        print(text)
    methods: dict[str, Nasi | LiteralNasi] = {"default": Nasi()}
    if options.literal_steps:
        methods[f"literal T={options.literal_steps}"] = LiteralNasi(steps=options.literal_steps)
    pool = Nasi().steps
    print(line("random", [table.report(problem_of(space.name, "noise", options.data).draw(Random(s))) for s in seeds]))
    largest = [by_parameters(space.name, options.data, seed, pool) for seed in seeds]
    print(line(f"most parameters of {pool}", [table.report(arch) for arch in largest]), flush=True)
    for name, method in methods.items():
        for mode in MODES:
            runs = Parallel(n_jobs=options.jobs)(
                delayed(search)(space.name, method, mode, options.data, seed) for seed in seeds
            )
            print(line(f"{name}, {mode}", [table.report(arch) for arch in runs]), flush=True)
    relations(space.name, options.data, 200, options.jobs)


if __name__ == "__main__":
    main()
