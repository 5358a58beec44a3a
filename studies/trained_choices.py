"""Choices of searches, trained: do they beat random cells, parameter count and a ResNet of the same size?

On one data set in nb201. Each method chooses a cell for each seed: the search without training that is Initio's
default, HNAS and the robust hybrid with a few short trainings on the training part, the cell with the most parameters
to which climbing leads, and the cell of a ResNet (two 3x3 convolutions beside an identity). They meet random cells.
Every cell is built at the width at which its network has about as many parameters as the ResNet's, and all are trained
on the whole training part by the same recipe and seed. The test part is looked at once, after the last update.

What is done is kept in the folder of --out, line by line; the same command goes on after an interruption, and a longer
one (more cells, more seeds) adds what is missing.

python -m studies.trained_choices digits --epochs 10
python -m studies.trained_choices ../shared/data/cifar10_sub10k.npz@16 --samples 3000 --epochs 8
"""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random

import numpy as np
import torch

import initio
from initio.data import Dataset
from initio.data.draw import SUBSET, generator
from initio.data.sources import load_parts
from initio.data.split import stratified
from initio.records import Architecture
from initio.runs.search import make_problem
from initio.searches.problem import climb
from initio.spaces import NetworkSettings, get_space
from initio.system.files import add_line, whole_lines
from initio.training import TrainingSettings
from initio.training.examples import HeldExamples
from initio.training.fit import fit
from initio.training.machine import laid_out

SPACE = get_space("nb201")
RESNET = "|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|skip_connect~2|"
WIDEST = 4  # times the ResNet's width, for cells of few parameters
TRAINING_FREE = inspect.signature(initio.search).parameters["method"].default
Key = tuple[str, int, int]  # method, its number among several, seed


@dataclass(frozen=True)
class Trial:
    """One data set, one size, one recipe."""

    data: str
    channels: int
    cells: int
    epochs: int
    samples: int | None
    queries: int
    query_epochs: int
    pool: int
    out: Path

    @cached_property
    def parts(self) -> tuple[Dataset, Dataset]:
        """What is learned from, and what is tested on."""
        learned, test, _ = load_parts(self.data)
        assert isinstance(learned, Dataset)
        assert test is not None
        if self.samples is not None and self.samples < len(learned):
            share = self.samples / len(learned)
            learned = learned.chosen(stratified(learned.labels, share, generator(0, SUBSET))[1])
        return learned, test

    @cached_property
    def examples(self) -> HeldExamples:
        """The test part in the place of what is held out, which `fit` measures once, in the end."""
        learned, test = self.parts
        (x, y), (x_test, y_test) = (map(torch.from_numpy, part.arrays()) for part in (learned, test))
        return HeldExamples(x, y, x_test, y_test, learned.classes)

    def size(self, channels: int) -> NetworkSettings:
        """The network of this width."""
        learned = self.parts[0]
        return NetworkSettings(channels, self.cells, learned.classes, learned.shape)

    @cached_property
    def parameters(self) -> int:
        """Of the ResNet."""
        return SPACE.cost(SPACE.parse(RESNET), self.size(self.channels)).parameters

    def width(self, arch: Architecture) -> int:
        """The number of channels that brings a cell's network nearest to the ResNet's parameters."""
        widths = range(2, WIDEST * self.channels + 1)
        return min(widths, key=lambda c: abs(SPACE.cost(arch, self.size(c)).parameters - self.parameters))

    def choose(self, method: str, number: int, seed: int) -> Architecture:
        """What a method chooses; the number tells random cells apart."""
        if method == "ResNet":
            return SPACE.parse(RESNET)
        if method == "random":
            rng = Random(f"trained choices {number}")
            return next(arch for arch in iter(lambda: SPACE.sample(rng), None) if SPACE.connected(arch))
        if method == "parameters":
            problem = make_problem(SPACE, self.parts[0])
            start = problem.draw_admitted(Random(f"parameters {seed}"))
            return climb(problem, start, lambda archs: [SPACE.cost(a, problem.target).parameters for a in archs])
        budget = {}
        if method in ("hnas", "robust"):
            budget = {"queries": self.queries, "epochs": self.query_epochs, "pool": self.pool}
        folder = self.out / f"{method}-{seed}"
        return initio.search(SPACE, method, self.parts[0], seed=seed, folder=folder, resume=True, **budget).best

    def accuracy(self, arch: Architecture, seed: int) -> tuple[float | None, float, int]:
        """On the test part in percent, seconds, and the width."""
        width = self.width(arch)
        network = laid_out(SPACE.build(arch, self.size(width), seed=seed))
        seen = fit(network, self.examples, TrainingSettings(epochs=self.epochs), seed=seed)
        return seen.value, seen.seconds, width


def wanted(methods: list[str], cells: int, seeds: int) -> Iterator[Key]:
    """Seed by seed, so that an early end has whole seeds."""
    for seed in range(seeds):
        yield from ((method, 0, seed) for method in methods)
        yield from (("random", number, seed) for number in range(cells))


def run(trial: Trial, keys: list[Key], say: Callable[[str], None]) -> dict[Key, float | None]:
    """Trains what was not trained yet."""
    trial.out.mkdir(parents=True, exist_ok=True)
    kept = trial.out / f"trained-c{trial.channels}-n{trial.cells}-e{trial.epochs}-s{trial.samples}.jsonl"
    lines = [json.loads(line) for line in whole_lines(kept)]
    known: dict[Key, float | None] = {(row["method"], row["number"], row["seed"]): row["accuracy"] for row in lines}
    trained = {(row["cell"], row["seed"]): (row["accuracy"], row["seconds"], row["channels"]) for row in lines}
    for method, number, seed in keys:
        if (method, number, seed) in known:
            continue
        arch = trial.choose(method, number, seed)
        cell = SPACE.format(SPACE.canonical(arch))
        if (cell, seed) not in trained:
            trained[cell, seed] = trial.accuracy(SPACE.canonical(arch), seed)
        accuracy, seconds, width = trained[cell, seed]
        row = {"method": method, "number": number, "seed": seed, "cell": cell, "accuracy": accuracy}
        add_line(kept, json.dumps(row | {"seconds": seconds, "channels": width}))
        known[method, number, seed] = accuracy
        say(f"{method} {number} seed {seed}: {accuracy} after {seconds:.0f} s, {width} channels")
    return {key: known[key] for key in keys}


def table(found: dict[Key, float | None], methods: list[str], seeds: int) -> str:
    """Mean accuracy with a 95 % interval over seeds, and the percentile among the random cells of the same seed."""
    rows = [
        "| choice | test accuracy in % | 95 % interval | percentile among random cells, by seed |",
        "|---|---|---|---|",
    ]
    chance = {
        seed: np.array([value or 0.0 for (name, _, s), value in found.items() if name == "random" and s == seed])
        for seed in range(seeds)
    }
    for method in methods:
        values = np.array([found[method, 0, seed] or 0.0 for seed in range(seeds)])
        percentiles = ", ".join(f"{100 * below(chance[seed], values[seed]):.0f}" for seed in range(seeds))
        rows.append(f"| {method} | {interval(values)} | {percentiles} |")
    means = np.array([values.mean() for values in chance.values()])
    rows.append(f"| random cells, mean | {interval(means)} | |")
    best = np.array([values.max() for values in chance.values()])
    return "\n".join([*rows, f"| random cells, best by test | {interval(best)} | |"])


def below(values: np.ndarray, value: float) -> float:
    """The share of values that are smaller, a tie counting as half."""
    return float(((values < value) + 0.5 * (values == value)).mean())


def interval(values: np.ndarray) -> str:
    """Mean, and Student's interval of it, which a single value does not have."""
    from scipy.stats import t

    if len(values) == 1:
        return f"{values.mean():.2f} | one seed"
    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.2f} | ± {half:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="digits, a file or a folder, perhaps with a size as @16")
    parser.add_argument("--methods", nargs="+", default=[TRAINING_FREE, "hnas", "robust", "parameters", "ResNet"])
    parser.add_argument("--random", type=int, default=20, help="how many random cells")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--channels", type=int, default=8, help="of the ResNet, whose parameters all others get")
    parser.add_argument("--cells", type=int, default=1, help="in each of three stages")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--samples", type=int, help="of the training part; all by default")
    parser.add_argument("--queries", type=int, default=8, help="trainings of HNAS and of the robust hybrid")
    parser.add_argument("--query-epochs", type=int, default=2)
    parser.add_argument("--pool", type=int, default=60, help="random cells that these score first")
    parser.add_argument("--out", type=Path, default=Path("runs/trained-choices"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    folder = args.out / Path(args.data).name.replace("@", "-")
    trial = Trial(
        args.data, args.channels, args.cells, args.epochs, args.samples, args.queries, args.query_epochs, args.pool,
        folder,
    )  # fmt: skip
    found = run(trial, list(wanted(args.methods, args.random, args.seeds)), lambda text: print(text, flush=True))
    learned, test = trial.parts
    print(f"\n{args.data}: {len(learned):,} to learn from, {len(test):,} to test on, {args.random} random cells,")
    print(f"{args.seeds} seeds, about {trial.parameters:,} parameters each, {args.epochs} epochs\n")
    print(table(found, args.methods, args.seeds))


if __name__ == "__main__":
    main()
