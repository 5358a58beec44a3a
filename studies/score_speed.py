"""What scoring costs, in units of fb: one plain forward and backward pass (NCHW) of the same network, same process.

python -m studies.score_speed --cells 5
python -m studies.score_speed --cells 5 --profile --networks 6

20 seeded nb201 networks (C=16, 32x32, batch 64) on one thread. Times are CPU times of the process, the smallest of the
repeats, so that a busy machine disturbs the ratio little. Peak memory is that of a process of its own that scores the
largest network of the space, without and with a limit. `--profile` says instead where the time of the set goes, by
pass and by kind of work; `--channels 8 --side 16` are the thin networks that searches and pools use.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn
from torch.profiler import ProfilerActivity, record_function

from initio.autodiff import fused
from initio.autodiff.record import Tape
from initio.data import noise
from initio.metrics import Options, base, evaluate, synflow
from initio.records import Batch
from initio.spaces import NB201, NetworkSettings

SET = (
    "grad", "grad_norm", "snip", "grasp", "fisher", "synflow", "naswot", "jacob_cov", "nasi", "trace", "kappa",
    "lambda_min", "eigen", "knas",
)  # fmt: skip
MORE = ("near", "meco", "expressivity", "progressivity", "trainability", "zico")  # beside the set
LIMIT_MORE = 0.8  # fb
LIMITS = {5: 1.5, 1: 1.9}  # fb, by cells a stage: goals, which depend on how fast torch is on a processor
MEMORY = 1500 << 20
LARGEST = (3,) * 6  # a 3x3 convolution on every edge
PASSES = (  # what is called, and what it is called here
    (base, "record", "forward, with tangents"),
    (Tape, "dual_gradient", "backward of the loss, with tangents: g, Hθ, fisher"),
    (Tape, "input_gradient", "backward of the outputs' sum: jacob_cov"),
    (Tape, "visit", "backward of the labels' outputs: the kernel"),
    (synflow, "positive_flow", "synflow, forward and backward"),
)
KINDS = {  # by the name of a compiled kernel or of torch's operation
    "3x3 convolutions": "convolve",
    "1x1 and depthwise convolutions": "pointwise depthwise",
    "gradients of weights": "outer outer_depthwise",
    "batch norms": "normalise normalise_tangent normalise_back sums combine",
    "pooling": "pool",
    "activation patterns": "agreement",
    "other convolutions, by torch": "aten::mkldnn_convolution aten::convolution_backward aten::_slow_conv2d_forward "
    "aten::_slow_conv2d_backward",
    "matrix products, by torch": "aten::mm aten::bmm aten::addmm",
    "ReLUs and sums of values, by torch": "aten::add aten::add_ aten::clamp_min aten::relu aten::threshold_backward",
}
REST = "small operations of torch", "Python and autograd"


def cpu_time(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def plain(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """fb."""
    nn.functional.cross_entropy(model(x), y).backward()


def measure(args: argparse.Namespace) -> tuple[float, float]:
    """Prints the table; returns the cost of the set in fb, and what MORE adds to it."""
    batch = noise((3, args.side, args.side), classes=10, batch_size=args.batch_size, seed=0)
    x, y = torch.from_numpy(batch.x.copy()), torch.from_numpy(batch.y.copy())
    fb = together = torch_only = with_more = 0.0
    single = dict.fromkeys(SET, 0.0)
    fb_single = 0.0
    ratios = []
    warm = NB201.build(NB201.architecture(*LARGEST), NetworkSettings(cells=1, shape=(3, args.side, args.side)), seed=0)
    plain(warm, x, y)
    fused.prepare()
    evaluate(warm, batch, (*SET, *MORE))
    for number, model in enumerate(networks(args)):
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
    print(
        f"{args.networks} nb201 networks, N={args.cells}, C={args.channels}, {args.side}x{args.side}, batch "
        f"{args.batch_size}, one thread"
    )
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


def networks(args: argparse.Namespace) -> Iterator[nn.Module]:
    """Seeded nb201 networks."""
    settings = NetworkSettings(cells=args.cells, channels=args.channels, shape=(3, args.side, args.side))
    rng = Random(0)
    for number in range(args.networks):
        yield NB201.build(NB201.sample(rng), settings, seed=number).train()


def profile(args: argparse.Namespace) -> None:
    """Prints where the time of the set goes: CPU seconds by pass, and the profiler's shares by kind of work."""
    batch = noise((3, args.side, args.side), classes=10, batch_size=args.batch_size, seed=0)
    fused.prepare()
    evaluate(next(networks(args)), batch, SET)
    spent: Counter[str] = Counter()
    with timed_passes(spent):
        total = sum(cpu_time(lambda m=m: evaluate(m, batch, SET)) for m in networks(args))
    spent["what is left: eigenvalues, sums over gradients, the model's parts"] = total - spent.total()
    print(f"{args.networks} nb201 networks, N={args.cells}, C={args.channels}, {args.side}x{args.side}\n")
    table("pass", spent, total)
    with named_kernels(), torch.profiler.profile(activities=[ProfilerActivity.CPU]) as seen:
        for m in networks(args):
            evaluate(m, batch, SET)
    kinds = {name: kind for kind, names in KINDS.items() for name in names.split()}
    work: Counter[str] = Counter()
    for event in seen.key_averages():
        work[kinds.get(event.key, REST[not event.key.startswith("aten::")])] += event.self_cpu_time_total
    table("kind of work", work, work.total())


def table(what: str, spent: Counter[str], total: float) -> None:
    print(f"| {what} | share |\n|---|---|")
    for name, seconds in spent.most_common():
        print(f"| {name} | {100 * seconds / total:.0f} % |")
    print()


@contextmanager
def timed_passes(spent: Counter[str]) -> Iterator[None]:
    """Adds up the CPU seconds of the passes."""

    def timed(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            out = function(*args, **kwargs)
            spent[name] += time.process_time() - start
            return out

        return run

    with ExitStack() as stack:
        for owner, attribute, name in PASSES:
            stack.enter_context(patch.object(owner, attribute, timed(getattr(owner, attribute), name)))
        yield


@contextmanager
def named_kernels() -> Iterator[None]:
    """Torch's profiler sees the compiled kernels, under their names."""

    def named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with record_function(name):
                return function(*args, **kwargs)

        return run

    with ExitStack() as stack:
        for names in KINDS.values():
            for name in names.split():
                if not name.startswith("aten::"):
                    stack.enter_context(patch.object(fused, name, named(getattr(fused, name), name)))
        yield


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
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--side", type=int, default=32, help="of the images")
    parser.add_argument("--profile", action="store_true", help="say where the time of the set goes, instead")
    parser.add_argument(
        "--torch", action="store_true", help="also time the set without compiled kernels, and print their gain"
    )
    parser.add_argument("--peak", type=int, default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.peak is not None:
        score_largest(args.cells, args.batch_size, args.peak)
        return 0
    if args.profile:
        profile(args)
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
