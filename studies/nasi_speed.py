"""What one NASI step costs: forward, backward, and the derivative of the gradient norm, in fb of the sampled network.

fb is one plain forward and backward of the same sampled network by autograd, NCHW, in the same process. One thread;
processor seconds, the best of several, so that other processes disturb little.

python -m studies.nasi_speed
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from random import Random

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from initio.networks.graphs import ZERO
from initio.networks.supernet import Supernet
from initio.spaces import GraphSpace, NetworkSettings, get_space
from initio.spaces.darts import DARTS_BY_NODE

SIZES = {  # space, channels, cells, side, batch
    "nb201, N=5 C=16": (get_space("nb201"), 16, 5, 32, 32),
    "nb201, thin N=5 C=8": (get_space("nb201"), 8, 5, 16, 64),
    "nb1shot1-s1, C=16": (get_space("nb1shot1-s1"), 16, 3, 32, 32),
    "darts by node, 8 cells C=16": (DARTS_BY_NODE, 16, 8, 32, 32),
    "darts 14 edges, 8 cells C=16": (get_space("darts"), 16, 8, 32, 8),
}
LIMIT = 3.0


def seconds(run: Callable[[], object], repeats: int) -> float:
    run()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def measure(
    space: GraphSpace, channels: int, cells: int, side: int, batch: int, seed: int, repeats: int
) -> dict[str, float]:
    """Seconds of fb and of the steps on one random sample without `none`."""
    rng = Random(seed)
    choices = [rng.choice([o for o, word in enumerate(d.options) if word != ZERO]) for d in space.relaxation]
    supernet = Supernet(space, NetworkSettings(channels=channels, cells=cells, shape=(3, side, side)), seed=seed)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, 3, side, side, generator=generator)
    y = torch.randint(10, (batch,), generator=generator)
    supernet(x, choices)
    parameters = list(supernet.parameters())
    gates = [F.one_hot(torch.tensor(c), len(d)).float() for c, d in zip(choices, space.relaxation, strict=True)]
    last = x.contiguous(memory_format=torch.channels_last)

    def fb() -> tuple[Tensor, ...]:
        loss = F.cross_entropy(supernet(x, choices), y)
        return torch.autograd.grad(loss, parameters, allow_unused=True)

    def double_backward() -> tuple[Tensor, ...]:
        h = [gate.clone().requires_grad_() for gate in gates]
        loss = F.cross_entropy(supernet(x, choices, h), y)
        g = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
        T = torch.stack([part.square().sum() for part in g if part is not None]).sum()
        return torch.autograd.grad(T, h, allow_unused=True)

    return {
        "fb": seconds(fb, repeats),
        "path": seconds(lambda: supernet.trace_gradient(last, y, choices), repeats),
        "all": seconds(lambda: supernet.trace_gradient(last, y, choices, all_options=True), repeats),
        "double": seconds(double_backward, repeats),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2, help="random samples a row, of which the dearest is printed")
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'one NASI step, in fb':<30} {'fb, s':>8} {'path':>6} {'all':>6} {'double backward':>16}")
    worst = 0.0
    for name, size in SIZES.items():
        rows = [measure(*size, seed, options.repeats) for seed in range(options.samples)]
        ratios = {key: max(row[key] / row["fb"] for row in rows) for key in ("path", "all", "double")}
        fb = max(row["fb"] for row in rows)
        worst = max(worst, ratios["path"])
        print(f"{name:<30} {fb:8.3f} {ratios['path']:6.2f} {ratios['all']:6.2f} {ratios['double']:16.2f}", flush=True)
    print(f"path: {worst:.2f} fb at most, allowed {LIMIT:.0f}: {'ok' if worst <= LIMIT else 'TOO SLOW'}")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
