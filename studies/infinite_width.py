"""The infinite-width kernel held against finite networks, closed forms, the clock and hard inputs.

`python -m studies.infinite_width` prints everything; `--only PART` one part, `--pictures FOLDER` draws the two
figures of docs/results/infinite-width.md. Nothing is downloaded; the trained search needs Fashion-MNIST and has parts
of its own (`--only darts`, `--only training`). Times are CPU times of one thread: a shared machine disturbs them less.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.nn import functional

from initio.analysis.eigen_bounds import constants, two_classes
from initio.data import load
from initio.errors import InputError
from initio.kernels.infinite import WideKernel, finite_ntk, ntk
from initio.kernels.spectrum import Spectrum
from initio.records import Architecture
from initio.runs.search import search
from initio.searches.methods.eigen_darts import EigenDarts, LayerShares, apply, unit_scale
from initio.searches.methods.lambda_min import unit_inputs
from initio.spaces.mlp import ACTIVATIONS, MlpSpace, mlp_space

WIDTHS, SEEDS = (256, 1024, 4096), 12
ALL = (*ACTIVATIONS, "gelu", "erf", "identity")


def sphere(n: int, d: int, seed: int = 0) -> torch.Tensor:
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x / x.norm(dim=1, keepdim=True)


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


def mean_kernel(x: torch.Tensor, space: MlpSpace, arch: Architecture, width: int, seeds: int) -> torch.Tensor:
    total = torch.zeros(len(x), len(x), dtype=torch.float64)
    for seed in range(seeds):
        total += finite_ntk(x, space.activations(arch), space.skips(arch), width=width, seed=seed).ntk
    return total / seeds


# --- convergence -----------------------------------------------------------------------------------------------------


def convergence(pictures: Path | None) -> None:
    """Random architectures of depth 3 to 10: the mean of finite networks against both forms."""
    print(f"relative error (Frobenius) of the mean NTK of {SEEDS} finite networks, 12 inputs of norm 1\n")
    print("depth  form      " + "".join(f"width {w:<7}" for w in WIDTHS) + "slope   architecture")
    x = sphere(12, 20)
    curves, worst, slopes = [], 0.0, []
    for depth in range(3, 11):
        space = mlp_space(depth)
        arch = space.sample(Random(depth))
        if not any(space.skips(arch)):
            arch = space.architecture(*arch.choices[:-1], 1)
        limits = {form: _limit(x, space, arch, form) for form in ("exact", "printed")}
        means = [mean_kernel(x, space, arch, width, SEEDS) for width in WIDTHS]
        for form, limit in limits.items():
            errors = [relative(mean, limit) for mean in means]
            slope = float(np.polyfit(np.log(WIDTHS), np.log(errors), 1)[0])
            print(f"{depth:<6} {form:<9} " + "".join(f"{e:<13.4f}" for e in errors) + f"{slope:<+7.2f} "
                  + (space.format(arch) if form == "exact" else ""), flush=True)  # fmt: skip
            if form == "exact":
                curves.append((depth, errors))
                worst, slopes = max(worst, errors[-1]), [*slopes, slope]
    overall = float(np.polyfit(np.log(WIDTHS), np.log(np.mean([e for _, e in curves], axis=0)), 1)[0])
    print(f"\nexact: worst error at width {WIDTHS[-1]}: {worst:.2%} (target: below 3 %); "
          f"slope of the mean error: {overall:+.2f} (1/√width is -0.5)")  # fmt: skip
    print("\nthe same without skips, where both forms agree")
    for depth in (3, 6, 10):
        space = mlp_space(depth)
        drawn = space.sample(Random(100 + depth))
        arch = space.architecture(*drawn.choices[: depth - 1], *(0,) * (depth - 2))
        limit = _limit(x, space, arch, "printed")
        errors = [relative(mean_kernel(x, space, arch, width, SEEDS), limit) for width in WIDTHS]
        print(
            f"{depth:<6} printed   " + "".join(f"{e:<13.4f}" for e in errors) + " " * 8 + space.format(arch), flush=True
        )
    if pictures:
        _draw_convergence(curves, pictures / "infinite-width-convergence.png")


def _limit(x: torch.Tensor, space: MlpSpace, arch: Architecture, form: str) -> torch.Tensor:
    return ntk(x, space.activations(arch), space.skips(arch), form=form).ntk  # type: ignore[arg-type]


def settle(pictures: Path | None) -> None:
    """`printed` against `exact` against networks of width 8192."""
    print("relative distance of the mean NTK of 4 networks of width 8192 from each form, 12 inputs of norm 1\n")
    print("exact    printed  architecture")
    x = sphere(12, 20)
    for text in (
        "mlp:relu,relu,relu,relu;skips=1,2,3",
        "mlp:tanh,tanh,tanh,tanh;skips=1,2,3",
        "mlp:swish,relu,swish,relu;skips=2,3",
        "mlp:relu,relu,relu,relu",
    ):
        space = mlp_space(5)
        arch = space.parse(text)
        mean = mean_kernel(x, space, arch, 8192, 4)
        exact, printed = (relative(mean, _limit(x, space, arch, form)) for form in ("exact", "printed"))
        print(f"{exact:<8.4f} {printed:<8.4f} {text}", flush=True)


def _draw_convergence(curves: list[tuple[int, list[float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for depth, errors in curves:
        axes.loglog(WIDTHS, errors, marker="o", linewidth=1, label=f"depth {depth}")
    start = float(np.mean([errors[0] for _, errors in curves]))
    axes.loglog(WIDTHS, [start * math.sqrt(WIDTHS[0] / w) for w in WIDTHS], "k--", label="1/√width")
    axes.set_xlabel("width m")
    axes.set_ylabel("relative error of the NTK")
    axes.set_title("Finite networks converge to the exact form")
    axes.legend(fontsize=7, ncols=2)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    print(f"picture: {path}")


# --- closed form and speed -------------------------------------------------------------------------------------------


def closed_form(pictures: Path | None) -> None:
    """ReLU against Cho and Saul's arc-cosine kernels, in plain numpy."""
    x = sphere(200, 32).numpy()
    sigma = theta = x @ x.T
    for _ in range(9):
        rho = np.clip(sigma, -1, 1)
        angle = np.arccos(rho)
        sigma = (np.sqrt(1 - rho**2) + (np.pi - angle) * rho) / np.pi
        theta = sigma + theta * (1 - angle / np.pi)
    off = ~np.eye(len(x), dtype=bool)
    got = ntk(x, ["relu"] * 9).ntk.numpy()
    error = np.max(np.abs(got[off] / theta[off] - 1))
    diagonal = np.max(np.abs(np.diag(got) / 10 - 1))
    print(f"ReLU, depth 10, 200 inputs: largest relative difference from the arc-cosine formulas {error:.1e} off the "
          f"diagonal, {diagonal:.1e} on it (target: 1e-12)")  # fmt: skip


def cpu_time(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def speed(pictures: Path | None) -> None:
    """Time of depth 10 in units of one eigen-decomposition with vectors, one thread."""
    print("time of the kernel, depth 10, in units of one N x N float64 eigen-decomposition (values and vectors)\n")
    print("N     eigh      " + "".join(f"{name:<12}" for name in ALL) + "skips+mixed  any norms (tanh)")
    for n, repeats in ((256, 21), (1000, 4)):
        _speed_row(n, repeats)
    print("\ntargets: relu at most 1.5, tanh at most 12")


def _speed_row(n: int, repeats: int) -> None:
    x = sphere(n, 64)
    norms = x * torch.linspace(0.5, 1.5, n, dtype=torch.float64)[:, None]
    mixed = [ACTIVATIONS[i % 5] for i in range(9)]
    matrix = ntk(x, ["relu"]).ntk.numpy()

    def eigen() -> object:
        return np.linalg.eigh(matrix)

    jobs = [partial(ntk, x, [name] * 9) for name in ALL]
    jobs += [partial(ntk, x, mixed, [1] * 8), partial(ntk, norms, ["tanh"] * 9)]
    rounds = [[cpu_time(job) for job in (eigen, *jobs)] for _ in range(repeats)]  # each spread over the whole run
    unit, *seconds = (min(times) for times in zip(*rounds, strict=True))
    cells = "".join(f"{s / unit:<12.2f}" for s in seconds[:-1])
    print(f"{n:<5} {1000 * unit:5.1f} ms  {cells} {seconds[-1] / unit:.2f}", flush=True)


# --- hard inputs -----------------------------------------------------------------------------------------------------


def hard(pictures: Path | None) -> None:
    """Identical inputs, different norms, depth 200, N = 5,000."""
    x = sphere(50, 16)
    twice = torch.cat([x, x[:1]])
    kernel = ntk(twice, ["relu", "tanh", "swish"], [1, 1])
    print(f"two identical inputs: {', '.join(kernel.flags)}; {kernel.spectrum.flag}")
    norms = x * torch.logspace(-3, 3, 50, dtype=torch.float64)[:, None]
    kernel = ntk(norms, ["tanh", "relu", "swish"], [1, 1])
    print(f"norms from 0.001 to 1000: finite {bool(torch.isfinite(kernel.ntk).all())}, symmetric "
          f"{bool(torch.equal(kernel.ntk, kernel.ntk.T))}, {_smallest(kernel.ntk)}")  # fmt: skip
    for name in ACTIVATIONS:
        for skip in (0, 1):
            try:
                kernel = ntk(x, [name] * 199, [skip] * 198)
                text = f"finite {bool(torch.isfinite(kernel.ntk).all())}, {_smallest(kernel.ntk)}"
            except InputError as error:
                text = str(error)
            print(f"depth 200, {name}, skips {'everywhere' if skip else 'nowhere'}: {text}", flush=True)
    try:
        ntk(x, ["relu"] * 1200, [1] * 1199)
    except InputError as error:
        print(f"depth 1201, relu, skips everywhere: {error}")
    large = sphere(5000, 64)
    for name in ("relu", "tanh"):
        start = time.perf_counter()
        kernel = ntk(large, [name] * 9)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"N = 5,000, depth 10, {name}: {seconds:.1f} s, finite {bool(torch.isfinite(kernel.ntk).all())}, "
              f"peak memory {peak:.1f} GB", flush=True)  # fmt: skip


def _smallest(K: torch.Tensor) -> str:
    found = Spectrum(K.numpy())
    return found.flag or f"λ_min {found.lambda_min:.3g}"


def smallest(kernel: WideKernel) -> float | None:
    """λ_min, None where it cannot be told from zero."""
    if kernel.spectrum.singular:
        return None
    return kernel.spectrum.lambda_min


# --- what Eigen-NAS says about λ_min ---------------------------------------------------------------------------------


def depth(pictures: Path | None) -> None:
    """λ_min against depth, where an activation matters, what skips do: 128 digits of norm 1."""
    x = unit_inputs(load("digits").batch(128, 0).x)
    depths = range(2, 21)
    print("λ_min of the exact kernel, 128 digits scaled to norm 1\n\nagainst depth, the same activation in all layers")
    print("depth  " + "".join(f"{name:<12}" for name in ACTIVATIONS) + "with skips: " + " ".join(ACTIVATIONS))
    curves: dict[str, list[float | None]] = {}
    for L in depths:
        cells = []
        for skip in (0, 1):
            for name in ACTIVATIONS:
                value = smallest(ntk(x, [name] * (L - 1), [skip] * (L - 2)))
                curves.setdefault(f"{name} {skip}", []).append(value)
                cells.append(f"{value or 0:.3g}")
        print(f"{L:<6} " + "".join(f"{cell:<12}" for cell in cells), flush=True)
    for skip in (0, 1):
        print(f"\ndepth 10, ReLU in all layers but one, skips {'everywhere' if skip else 'nowhere'}: "
              "which activation in which layer")  # fmt: skip
        print("layer  " + "".join(f"{name:<12}" for name in ACTIVATIONS[1:]))
        for layer in range(9):
            values = []
            for name in ACTIVATIONS[1:]:
                names = ["relu"] * 9
                names[layer] = name
                values.append(smallest(ntk(x, names, [skip] * 8)) or 0.0)
            print(f"{layer + 1:<6} " + "".join(f"{value:<12.4g}" for value in values), flush=True)
        print(f"none   {smallest(ntk(x, ['relu'] * 9, [skip] * 8)) or 0.0:.4g}")
    space, rng, more = mlp_space(10), Random(0), 0
    for _ in range(100):
        arch = space.sample(rng)
        place = rng.randrange(8)
        skips = list(space.skips(arch))
        values = []
        for alpha in (0, 1):
            skips[place] = alpha
            values.append(float(torch.linalg.eigvalsh(ntk(x[:64], space.activations(arch), skips).ntk)[0]))
        more += values[1] > values[0]
    print(f"\none more skip increases λ_min in {more} of 100 random architectures of depth 10 (64 inputs)")
    print("\nTable 1, computed for depth 10 (β3 at t = 3(1+η²)(2+η²)^7)")
    for name in ACTIVATIONS:
        c = constants(name, 10)
        print(f"{name:<12} β1 {c.beta_1:<8.5g} β2 {c.beta_2:<8.5g} β3 {c.beta_3:<8.5g} μ1 {c.mu_1:<8.5g}")
    if pictures:
        _draw_depth(list(depths), curves, pictures / "infinite-width-depth.png")


def _draw_depth(depths: list[int], curves: dict[str, list[float | None]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    for skip, axes in enumerate(panels):
        for name in ACTIVATIONS:
            axes.semilogy(depths, [math.nan if v is None else v for v in curves[f"{name} {skip}"]], label=name)
        axes.set_title("skips everywhere" if skip else "no skips")
        axes.set_xlabel("depth L")
    panels[0].set_ylabel("λ_min of the NTK")
    panels[0].legend(fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    print(f"picture: {path}")


# --- the search with training ----------------------------------------------------------------------------------------


def darts(pictures: Path | None) -> None:
    """Figure 1: shares of activations and skips after the DARTS-style search on Fashion-MNIST."""
    data, space = load("fashion-mnist"), mlp_space(10)
    method = EigenDarts()
    print(
        f"DARTS-style search, Fashion-MNIST, depth 10, width {method.width} (paper: 1024), "
        f"{method.steps} steps, 5 runs\n"
    )
    runs = [search(space, method, data, seed=seed) for seed in range(5)]
    rows = np.array([[shares(step) for step in run.steps if isinstance(step, LayerShares)] for run in runs])
    mean, spread = rows.mean(0), rows.std(0)
    print("layer  " + "".join(f"{name:<16}" for name in (*ACTIVATIONS, "skip around it")))
    for layer in range(9):
        cells = [f"{m:.3f} ± {s:.3f}" for m, s in zip(mean[layer], spread[layer], strict=True)]
        print(f"{layer + 1:<6} " + "".join(f"{cell:<16}" for cell in (cells if layer else [*cells[:-1], "-"])))
    for seed, run in enumerate(runs):
        print(f"seed {seed}: {space.format(run.best)}  ({run.cost.seconds:.0f} s)")
    if pictures:
        _draw_shares(mean, pictures / "infinite-width-darts.png")


def shares(step: LayerShares) -> list[float]:
    """The activations of a layer, then its skip."""
    return [*(step.shares[name] for name in ACTIVATIONS), step.skip or 0.0]


def training(pictures: Path | None) -> None:
    """Algorithm 1's SGD on what the DARTS-style search found and on the architecture with the largest λ_min."""
    space = mlp_space(10)
    train, test = load("fashion-mnist").batch(10_000, 1), load("fashion-mnist", split="test").batch(2_000, 1)
    labels = [two_classes(part.y, 10) for part in (train, test)]
    print("Algorithm 1: one epoch of SGD over 10,000 images of Fashion-MNIST, classes 0-4 against 5-9, width 128;")
    print("0-1 error on 2,000 test images\n")
    for label, text in (("DARTS-style, seed 0", FOUND), ("largest λ_min", space.format(LARGEST))):
        trained = algorithm_1(space, space.parse(text), (train.x, labels[0]), (test.x, labels[1]))
        errors = f"iterate {trained.iterate}, drawn: {trained.error:.3f}; the last: {trained.last_error:.3f}"
        print(f"{label}: {errors}  {text}")


@dataclass(frozen=True)
class Ended:
    """What Algorithm 1's SGD ends with: 0-1 errors of the iterate it draws and of the last one."""

    iterate: int
    error: float
    last_error: float
    last_loss: float  # mean over the last tenth of the samples


def algorithm_1(
    space: MlpSpace,
    arch: Architecture,
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    *,
    width: int = 128,
    gamma: float = 0.05,
    seed: int = 0,
) -> Ended:
    """One epoch of SGD, a sample a step, constant step size γ, loss log(1 + e^{−yf}), labels y of −1 and 1.

    W_l ~ N(0, 1/m); the result is one of the N iterates, drawn uniformly.
    """
    x, y = unit_scale(train[0]), torch.tensor(np.asarray(train[1], dtype=np.float32))
    generator = torch.Generator().manual_seed(seed)
    wanted = int(torch.randint(len(x), (1,), generator=generator))
    names, skips = space.activations(arch), (0, *space.skips(arch))
    sizes = [x.shape[1], *[width] * (space.depth - 1), 1]
    weights = [(torch.randn(b, a, generator=generator) / math.sqrt(width)).requires_grad_() for a, b in pairwise(sizes)]

    def f(inputs: Tensor) -> Tensor:
        for name, skip, W in zip(names, skips, weights, strict=False):
            value = apply(name, functional.linear(inputs, W))
            inputs = value + inputs if skip else value
        return functional.linear(inputs, weights[-1])[..., 0]

    @torch.no_grad()
    def zero_one() -> float:
        outputs = f(unit_scale(test[0]))
        wrong = outputs * torch.tensor(np.asarray(test[1], dtype=np.float32)) <= 0
        return float(wrong.float().mean())

    losses: list[float] = []
    error = 1.0
    for i in range(len(x)):
        if i == wanted:
            error = zero_one()
        loss = functional.softplus(-y[i] * f(x[i]))
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for W, gradient in zip(weights, gradients, strict=True):
                W -= gamma * gradient
        losses.append(float(loss.detach()))
    tail = losses[-max(1, len(losses) // 10) :]
    return Ended(wanted + 1, error, zero_one(), sum(tail) / len(tail))


LARGEST = mlp_space(10).architecture(*(0,) * 9, *(1,) * 8)  # what `initio search mlp --method lambda-min` finds
FOUND = "mlp:leaky_relu,leaky_relu,leaky_relu,relu,tanh,leaky_relu,tanh,leaky_relu,tanh;skips=1,2,3,4,5,6,7,8"


def _draw_shares(mean: np.ndarray, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    layers = np.arange(1, 10)
    for number, name in enumerate(ACTIVATIONS):
        left.bar(layers + 0.16 * (number - 2), mean[:, number], width=0.16, label=name)
    left.set_xlabel("layer")
    left.set_ylabel("share")
    left.legend(fontsize=7)
    right.bar(layers[1:], mean[1:, -1], color="grey")
    right.axhline(0.5, color="black", linewidth=1)
    right.set_xlabel("layer")
    right.set_ylabel("α of the skip around it")
    figure.savefig(path, dpi=130)
    plt.close(figure)
    print(f"picture: {path}")


PARTS: dict[str, Callable[[Path | None], None]] = {
    "closed-form": closed_form,
    "speed": speed,
    "hard": hard,
    "depth": depth,
    "convergence": convergence,
    "settle": settle,
}
EXTRA: dict[str, Callable[[Path | None], None]] = {"darts": darts, "training": training}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[*PARTS, *EXTRA])
    parser.add_argument("--pictures", type=Path, help="folder for the pictures")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)  # numpy's own threads too: they would go on spinning, at the next kernel's cost
    parts = PARTS if arguments.only is None else {arguments.only: (PARTS | EXTRA)[arguments.only]}
    for name, part in parts.items():
        print(f"--- {name} ---")
        part(arguments.pictures)
        print(flush=True)


if __name__ == "__main__":
    main()
