"""Every fast path against its slow oracle (`tests/reference.py`), and float32 against float64.

python -m studies.score_exact

Seeded networks of every space, with batch norm (with and without scale and offset) and without. Oracles use stock
autograd in float64, one sample at a time; a value that does not exist must be flagged by the one and infinite or not a
number for the other.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
from collections.abc import Iterator
from random import Random

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import nn

from initio.data import noise
from initio.kernels.empirical import ntk
from initio.metrics import Options, evaluate
from initio.records import Batch
from initio.spaces import SPACES, NetworkSettings, get_space
from tests import reference

TOLERANCE = 1e-6  # fast against slow, float64
SINGLE = {"trace": 1e-3, "kappa": 1e-2}  # float32 against float64
WELL_CONDITIONED = 1e4
NORMS = ("affine", "plain", "none")
CONVENTIONS = tuple(itertools.product(("label", "sum", "all"), ("frozen", "coupled", "hooked"), ("standard", "ntk")))


def networks(name: str, count: int) -> Iterator[tuple[str, nn.Module]]:
    space, rng = get_space(name), Random(0)
    norms = NORMS if name != "mlp" else ("none",)
    for norm, number in itertools.product(norms, range(count)):
        settings = NetworkSettings(
            channels=24 if name == "mlp" else 4, cells=3 if name == "darts" else 1, shape=(3, 8, 8), norm=norm
        )
        yield norm, space.build(space.sample(rng), settings, seed=number)


def difference(fast: float | None, slow: float) -> float:
    """Relative; zero when both say that there is no number, infinite when only one does.

    The oracle knows no flags: its condition number of a singular matrix is the noise of rounding, beyond 1e12.
    """
    if fast is None or not math.isfinite(fast):
        return 0.0 if not math.isfinite(slow) or abs(slow) > 1e12 else math.inf
    return abs(fast - slow) / max(abs(slow), 1e-9)


def compare_metrics(name: str, batch: Batch, count: int) -> dict[str, float]:
    """The largest difference of every metric."""
    x, y = torch.from_numpy(batch.x.copy()), torch.from_numpy(batch.y.copy())
    worst: dict[str, float] = {}
    for _, model in networks(name, count):
        with np.errstate(divide="ignore", invalid="ignore"):
            slow = reference.metric_values(model, x, y)
        fast = evaluate(model, batch, list(slow), Options(dtype="float64"))
        for metric, value in slow.items():
            worst[metric] = max(worst.get(metric, 0.0), difference(fast[metric].value, value))
    return worst


def compare_kernels(name: str, batch: Batch) -> dict[str, float]:
    """The largest difference of any entry, relative to the largest entry, by convention."""
    x, y = torch.from_numpy(batch.x.copy()), torch.from_numpy(batch.y.copy())
    worst: dict[str, float] = {}
    for _, model in networks(name, 1):
        for reduction, batch_norm, parameterisation in CONVENTIONS:
            slow = reference.kernel(model, x, y, reduction, batch_norm, parameterisation)
            fast = ntk(
                model, x, y, reduction=reduction, batch_norm=batch_norm, parameterisation=parameterisation,
                dtype=torch.float64,
            ).gram  # fmt: skip
            key = f"{batch_norm} {reduction}"
            worst[key] = max(worst.get(key, 0.0), float(np.abs(fast - slow).max() / max(np.abs(slow).max(), 1e-300)))
    return worst


def compare_precision(name: str, count: int) -> dict[str, float]:
    """float32 against float64 on wider networks and larger batches; κ where it is below 1e4."""
    batch = noise((3, 16, 16), classes=10, batch_size=32, seed=1)
    worst = dict.fromkeys((*SINGLE, "grad", "grasp", "naswot"), 0.0)
    space, rng = get_space(name), Random(1)
    for number in range(count):
        settings = NetworkSettings(
            channels=64 if name == "mlp" else 8, cells={"darts": 4, "nb201": 3}.get(name, 1), shape=(3, 16, 16)
        )
        model = space.build(space.sample(rng), settings, seed=number)
        single, double = (evaluate(model, batch, list(worst), Options(dtype=d)) for d in ("float32", "float64"))
        for metric in worst:
            truth = double[metric].value
            if truth is None or (metric == "kappa" and truth > WELL_CONDITIONED):
                continue
            worst[metric] = max(worst[metric], difference(single[metric].value, truth))
    return worst


def table(title: str, rows: dict[str, dict[str, float]]) -> float:
    """Prints spaces by columns; returns the largest number."""
    columns = list(dict.fromkeys(c for row in rows.values() for c in row))
    print(f"\n{title}")
    print(f"{'':<16}" + "".join(f"{name:>13}" for name in rows))
    for column in columns:
        cells = (f"{row[column]:13.1e}" if column in row else f"{'':>13}" for row in rows.values())
        print(f"{column:<16}" + "".join(cells))
    return max(max(row.values()) for row in rows.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=2, help="of each space and norm")
    args = parser.parse_args()
    torch.set_num_threads(1)
    batch = noise((3, 8, 8), classes=10, batch_size=6, seed=0)
    metrics = table(
        "metrics, float64: largest relative difference from the oracle",
        {name: compare_metrics(name, batch, args.networks) for name in SPACES},
    )
    kernels = table(
        "kernels, float64: largest difference of an entry, relative to the largest entry",
        {name: compare_kernels(name, batch) for name in SPACES},
    )
    single = {name: compare_precision(name, args.networks) for name in SPACES}
    table("float32 against float64: largest relative difference", single)
    checks = [
        (f"metrics within {TOLERANCE:g} of their oracles ({metrics:.1e})", metrics <= TOLERANCE),
        (f"kernels within {TOLERANCE:g} of their oracles ({kernels:.1e})", kernels <= TOLERANCE),
    ]
    for metric, limit in SINGLE.items():
        worst = max(row[metric] for row in single.values())
        checks.append((f"float32 {metric} within {limit:g} of float64 ({worst:.1e})", worst <= limit))
    print()
    for what, good in checks:
        print(f"{'ok  ' if good else 'FAIL'} {what}")
    return int(not all(good for _, good in checks))


if __name__ == "__main__":
    sys.exit(main())
