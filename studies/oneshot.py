"""What one-shot searches choose after a short training, and what that costs, beside searches without training.

python -m studies.oneshot nb201 --methods enas snas drnas --seeds 3 --epochs 2 --samples 2000 --data ../shared/data
python -m studies.oneshot darts --methods gdas pc-darts --seeds 2 --epochs 2 --samples 600 --data ../shared/data

Every search has a run folder below --out: a command that was killed goes on inside the search that it was in. Test
accuracies (nb201) and a surrogate's prediction with its percentile among random cells (darts) are read off when all is
chosen. Cost is in fb: one is the forward and the backward pass of a batch through one architecture; a blend of several
options an edge is as many as it has options, and a forward pass alone a third.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from initio.networks.graphs import Graph, Mixed
from initio.networks.shared import Blend, SharedNetwork
from initio.networks.supernet import is_zero
from initio.records import Architecture
from initio.runs.search import search
from initio.searches import SearchResult
from initio.system.files import write_text
from studies.training_free import table_of

FORWARD = 1 / 3  # of a forward and a backward pass


@contextmanager
def counted() -> Iterator[list[float]]:
    """The fb of every pass through shared networks."""
    costs: list[float] = []
    forward = SharedNetwork.forward

    def noted(network: SharedNetwork, x: Tensor, blend: Blend | None = None) -> Tensor:
        costs.append(cost_of(network, blend or network.blend))
        return forward(network, x, blend)

    SharedNetwork.forward = noted  # type: ignore[method-assign]
    try:
        yield costs
    finally:
        SharedNetwork.forward = forward  # type: ignore[method-assign]


def cost_of(network: SharedNetwork, blend: Blend) -> float:
    """Options an edge, of those edges that have any; a third of it where nothing is differentiated."""
    mixed = dict(mixed_steps(network.graph))
    taken = [sum(not is_zero(mixed[k], o) for o in options) for k, options in enumerate(blend.options) if k in mixed]
    edges = max(1, sum(count > 0 for count in taken))
    return sum(taken) / edges * {True: 1.0, False: FORWARD}[torch.is_grad_enabled()]


def mixed_steps(graph: Graph) -> Iterator[tuple[int, Mixed]]:
    """Every categorical with a step that it decides."""
    for step in graph.steps:
        if isinstance(step.op, Graph):
            yield from mixed_steps(step.op)
        elif isinstance(step.op, Mixed):
            yield step.op.categorical, step.op


def run(space: str, method: str, seed: int, options: argparse.Namespace) -> tuple[Architecture, float, float]:
    """A search, from its folder if it is there: its cell, its fb and its seconds of CPU."""
    folder: Path = options.out / f"{space}-{method}-{options.epochs}x{options.samples}-seed{seed}"
    given: dict[str, Any] = {"samples": options.samples}
    whole, began = not folder.exists(), process_time()
    with counted() as costs:
        result: SearchResult = search(
            space, method, str(options.images), seed=seed, epochs=options.epochs, folder=folder, resume=True, **given
        )
    spent = folder / "fb.json"
    if whole:
        write_text(spent, json.dumps([sum(costs), process_time() - began]))
    if not spent.exists():  # it was killed, and nobody counted what was learned before
        return result.best, math.nan, math.nan
    fb, seconds = json.loads(spent.read_text())
    return result.best, fb, seconds


def main() -> None:
    """Prints a row a method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("space", choices=("nb201", "darts"))
    parser.add_argument("--methods", nargs="+", default=["darts"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/oneshot"))
    options = parser.parse_args()
    options.images = options.data / "cifar10_sub10k.npz"
    torch.set_num_threads(1)
    table = table_of(options.space, options.data)
    print(f"| search | {' | '.join(table.columns)} | fb | seconds |")
    print("|---" * (len(table.columns) + 3) + "|")
    for method in options.methods:
        found = [run(options.space, method, seed, options) for seed in range(options.seeds)]
        values = np.array([[*table.report(arch), fb, seconds] for arch, fb, seconds in found])
        means, spreads = values.mean(0), values.std(0, ddof=min(1, len(values) - 1))
        cells = [f"{mean:.2f} ± {spread:.2f}" for mean, spread in zip(means[:-2], spreads[:-2], strict=True)]
        print(f"| `{method}` | {' | '.join(cells)} | {means[-2]:,.0f} | {means[-1]:.0f} |", flush=True)


if __name__ == "__main__":
    main()
