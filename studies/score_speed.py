"""What scoring costs, in units of fb: one plain forward and backward pass (NCHW) of the same network, same process.

python -m studies.score_speed --cells 5

20 seeded nb201 networks (C=16, 32x32, batch 64) on one thread. Times are CPU times of the process, the smallest of the
repeats, so that a busy machine disturbs the ratio little. Peak memory is that of a process of its own that scores the
largest network of the space, without and with a limit.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn

from initio.autodiff import fused
from initio.data import noise
from initio.metrics import Options, evaluate
from initio.records import Batch
from initio.spaces import NB201, NetworkSettings

SET = (
    "grad", "grad_norm", "snip", "grasp", "fisher", "synflow", "naswot", "jacob_cov", "nasi", "trace", "kappa",
    "lambda_min", "eigen", "knas",
)  # fmt: skip
MORE = ("near", "meco", "expressivity", "progressivity", "trainability", "zico")  # beside the set
LIMIT_MORE = 0.8  # fb
LIMITS = {5: 3.0, 1: 3.5}  # fb, by cells a stage
MEMORY = 1500 << 20
LARGEST = (3,) * 6  # a 3x3 convolution on every edge


def cpu_time(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def plain(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """fb."""
    nn.functional.cross_entropy(model(x), y).backward()


def measure(args: argparse.Namespace) -> tuple[float, float]:
    """Prints the table; returns the cost of the set in fb, and what MORE adds to it."""
    batch = noise((3, 32, 32), classes=10, batch_size=args.batch_size, seed=0)
    x, y = torch.from_numpy(batch.x.copy()), torch.from_numpy(batch.y.copy())
    settings = NetworkSettings(cells=args.cells)
    rng = Random(0)
    fb = together = torch_only = with_more = 0.0
    single = dict.fromkeys(SET, 0.0)
    fb_single = 0.0
    ratios = []
    warm = NB201.build(NB201.architecture(*LARGEST), NetworkSettings(cells=1), seed=0)
    plain(warm, x, y)
    fused.prepare()
    evaluate(warm, batch, (*SET, *MORE))
    for number in range(args.networks):
        model = NB201.build(NB201.sample(rng), settings, seed=number).train()
        times: dict[str, list[float]] = {"fb": [], "set": [], "more": [], "torch": []}
        for _ in range(args.repeats):
            times["fb"].append(cpu_time(lambda m=model: plain(m, x, y)))
            times["set"].append(cpu_time(lambda m=model: evaluate(m, batch, SET)))
            times["more"].append(cpu_time(lambda m=model: evaluate(m, batch, (*SET, *MORE))))
            if args.torch:
                times["torch"].append(cpu_time(lambda m=model: without_fused(m, batch)))
        best = {name: min(values) for name, values in times.items() if values}
        fb, together = fb + best["fb"], together + best["set"]
        torch_only += best.get("torch", 0.0)
        with_more += best["more"]
        ratios.append(best["set"] / best["fb"])
        if number < args.singles:
            fb_single += best["fb"]
            for name in SET:
                single[name] += cpu_time(lambda m=model, n=name: evaluate(m, batch, n))
    print(f"{args.networks} nb201 networks, N={args.cells}, C=16, 32x32, batch {args.batch_size}, one thread")
    print(f"{fused.status()}; 1 fb = {fb / args.networks:.3f} s of CPU time\n")
    for name in SET if args.singles else ():
        print(f"{name:<12} alone {single[name] / fb_single:6.2f} fb")
    if args.singles:
        print(f"{'':<12} added {sum(single.values()) / fb_single:6.2f} fb   (the first {args.singles} networks)\n")
    print(f"the set together  {together / fb:6.2f} fb   (one network: {min(ratios):.2f} to {max(ratios):.2f})")
    print(f"  {', '.join(MORE)} beside it  {(with_more - together) / fb:6.2f} fb more")
    if args.torch:
        gain = torch_only / together
        print(f"  in plain torch  {torch_only / fb:6.2f} fb   (the compiled kernels gain a factor {gain:.2f})")
    return together / fb, (with_more - together) / fb


def without_fused(model: nn.Module, batch: Batch) -> None:
    with fused.switched_off():
        evaluate(model, batch, SET)


def peak(cells: int, batch_size: int, memory: int | None) -> int:
    """Bytes at most, of a new process that scores the largest network."""
    command = [sys.executable, "-m", "studies.score_speed", "--cells", str(cells), "--peak", str(memory or 0)]
    command += ["--batch-size", str(batch_size)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def score_largest(cells: int, batch_size: int, memory: int) -> None:
    batch = noise((3, 32, 32), classes=10, batch_size=batch_size, seed=0)
    model = NB201.build(NB201.architecture(*LARGEST), NetworkSettings(cells=cells), seed=0)
    evaluate(model, batch, SET, Options(memory=memory or None))
    print(own_peak())


def own_peak() -> int:
    """Bytes; not from getrusage, whose maximum a new process inherits from the one that started it."""
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=5)
    parser.add_argument("--networks", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--singles", type=int, default=3, help="networks on which every metric is also timed alone")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument(
        "--torch", action="store_true", help="also time the set without compiled kernels, and print their gain"
    )
    parser.add_argument("--peak", type=int, default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.peak is not None:
        score_largest(args.cells, args.batch_size, args.peak)
        return 0
    cost, more = measure(args)
    limit = LIMITS.get(args.cells, max(LIMITS.values()))
    free, tight = (peak(args.cells, args.batch_size, m) for m in (None, 600 * 10**6))
    print(f"\npeak memory {free / 1e9:.2f} GB; with a limit of 600 MB {tight / 1e6:.0f} MB")
    for what, good in (
        (f"the set within {limit} fb", cost <= limit),
        (f"{len(MORE)} more within {LIMIT_MORE} fb", more <= LIMIT_MORE),
        ("memory within 1.5 GB", free <= MEMORY),
        ("the limit of 600 MB is kept", tight <= 600 * 10**6),
    ):
        print(f"{'ok  ' if good else 'FAIL'} {what}")
    return int(cost > limit or more > LIMIT_MORE or free > MEMORY or tight > 600 * 10**6)


if __name__ == "__main__":
    sys.exit(main())
