"""What `initio search --method nasi-fit` chooses in darts: cells, width and depth, parameters, predicted accuracy.

python -m studies.nasi_darts --data ../shared/data --pictures docs/results

Runs the search for each seed in a run folder below --out; a folder that is finished is not run again and one that is
not is resumed. Accuracies are predictions of a NAS-Bench-301 surrogate, compared with those of 20,000 random cells. The
last rows, which `--free` prints alone, are what parameter count reaches, for the same seeds: the largest of as many
cells as a search measures, and the cell that climbing ends with.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from random import Random

import numpy as np
import torch

from initio.analysis.topology import shapes
from initio.networks.cost import count
from initio.records import Architecture
from initio.runs.search import search
from initio.spaces import DARTS, NetworkSettings
from initio.tables.nb301 import EPOCHS, Surrogate
from studies.nasi_quality import by_parameters, default_of, digest, largest

RANDOM = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--free", action="store_true", help="only the rows that measure nothing")
    parser.add_argument("--pictures", type=Path, help="folder for the pictures of the cells")
    options = parser.parse_args()
    torch.set_num_threads(1)
    surrogate = Surrogate(options.data / "nb301_surrogate_yahpo_v1.npz")
    rng = Random("random darts cells")
    others = surrogate.predict([DARTS.sample(rng) for _ in range(RANDOM)], EPOCHS[-1])[0]
    print(f"random: {others.mean():.2f}±{others.std():.2f} % predicted, best of {RANDOM} {others.max():.2f} %\n")
    print("| seed | width, depth (normal) | width, depth (reduction) | parameters at C = 36 | predicted | percentile |")
    print("|---|---|---|---|---|---|")
    default, seeds = default_of("darts"), range(options.seeds)

    def reached(arch: Architecture) -> tuple[float, float]:
        value = float(surrogate.predict([arch], EPOCHS[-1])[0][0])
        return value, percentile(value, others)

    found = []
    for seed in seeds if not options.free else ():
        folder = options.out / f"nasi-darts-seed{seed}-{digest(default)}"
        arch = search("darts", "nasi-fit", seed=seed, folder=folder, resume=True).best
        found.append(reached(arch))
        cells = " | ".join(map(str, shapes(DARTS, arch).values()))
        print("| {} | {} | {:.2f}M | {:.2f} | {:.0f} |".format(seed, cells, size(arch) / 1e6, *found[-1]), flush=True)
        if options.pictures:
            shutil.copyfile(folder / "cell.svg", options.pictures / f"nasi-darts-seed{seed}.svg")
    most = [reached(by_parameters("darts", options.data, seed, default.steps)) for seed in seeds]
    climbed = [reached(largest("darts", options.data, seed)) for seed in seeds]
    named = {"mean±std": found, f"most parameters of {default.steps}": most, "most parameters, climbed to": climbed}
    for name, rows in named.items():
        if rows:
            value, place = np.array(rows).T
            print(f"| {name} | | | | {value.mean():.2f}±{value.std():.2f} | {place.mean():.1f}±{place.std():.1f} |")


def size(arch: Architecture) -> int:
    """Parameters of the published CIFAR network."""
    settings = NetworkSettings(channels=36, cells=20, prune=False)
    return int(count(DARTS.network(arch, settings), settings).parameters)


def percentile(value: float, others: np.ndarray) -> float:
    """How many percent of the others are worse."""
    return 100 * float((others < value).mean())


if __name__ == "__main__":
    main()
