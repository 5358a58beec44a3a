"""What the papers prove about kernels and metrics, computed: each function gives both sides of one statement.

The kernels are those of `kernels/empirical.py` on real modules in float64, not formulas. `linear_cells.py` has the
theorems about the optimisation of wide and narrow cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from initio.analysis.landscape import Hessian
from initio.errors import InputError
from initio.kernels.empirical import Kernel, ntk
from initio.metrics import Options, evaluate
from initio.metrics.gradients import LIPSCHITZ
from initio.records import Batch


class LinearSum(nn.Module):
    """f(x) = 1ᵀ Σ_i W(i) x, the wide network of [HNAS 5], or 1ᵀ W(L) ··· W(1) x, the deep one; entries are N(0, 1)."""

    def __init__(self, n: int, layers: int, *, deep: bool, seed: int = 0) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        drawn = (torch.randn(n, n, generator=rng, dtype=torch.float64) for _ in range(layers))
        self.layers = nn.ModuleList(nn.Linear(n, n, bias=False, dtype=torch.float64) for _ in range(layers))
        for layer, weight in zip(self.layers, drawn, strict=True):
            layer.weight.data = weight
        self.deep = deep

    def forward(self, x: Tensor) -> Tensor:
        """One output an input."""
        if self.deep:
            for layer in self.layers:
                x = layer(x)
            return x.sum(dim=1, keepdim=True)
        return torch.stack([layer(x) for layer in self.layers]).sum(dim=(0, 2))[:, None]


def orthonormal(n: int, m: int) -> Tensor:
    """m inputs of n numbers with XᵀX = I, as HNAS normalises them: (m, n)."""
    if m > n:
        raise InputError(f"{m} inputs of {n} numbers cannot be orthonormal: take at most {n}")
    drawn = np.random.default_rng(0).standard_normal((n, m))
    return torch.from_numpy(np.linalg.qr(drawn)[0].T.copy())


def linear_kernel(n: int, layers: int, m: int, *, deep: bool, seed: int = 0) -> Kernel:
    """Θ0 of a wide or deep linear network on m orthonormal inputs."""
    network = LinearSum(n, layers, deep=deep, seed=seed)
    return ntk(network, orthonormal(n, m), reduction="sum", dtype=torch.float64)


@dataclass(frozen=True)
class WideAndDeep:
    """[HNAS Theorem 4]: Θ = Ln·I for the wide network, E Θ' = Lnᴸ·I for the deep one."""

    n: int
    layers: int
    wide_error: float  # the largest entry of |Θ / (Ln) − I|, over all draws
    wide_kappa: float  # the largest
    deep_kappas: tuple[float, ...]  # one a draw
    deep_error: float  # the largest entry of |mean of Θ' / (Lnᴸ) − I|
    deep_spread: float  # the largest standard error of an entry of that mean


def wide_and_deep(n: int = 16, layers: int = 3, m: int = 8, draws: int = 200) -> WideAndDeep:
    """Both sides of Theorem 4 over so many draws of the weights."""
    wide = [linear_kernel(n, layers, m, deep=False, seed=seed) for seed in range(draws)]
    deep = [linear_kernel(n, layers, m, deep=True, seed=seed) for seed in range(draws)]
    eye, scaled = np.eye(m), np.stack([kernel.gram for kernel in deep]) / (layers * n**layers)
    return WideAndDeep(
        n,
        layers,
        max(float(abs(kernel.gram / (layers * n) - eye).max()) for kernel in wide),
        max(kernel.spectrum.kappa for kernel in wide),
        tuple(kernel.spectrum.kappa for kernel in deep),
        float(abs(scaled.mean(axis=0) - eye).max()),
        float(scaled.std(axis=0).max() / np.sqrt(draws)),
    )


# --- metrics are bounded by the trace ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class MetricConstants:
    """[HNAS Theorem 1]: grad, snip and grasp are O(trace); here with the constants that its proof uses.

        grad ≤ β · trace          snip ≤ β ‖θ‖ · trace          |grasp| ≤ β ‖Hθ‖ · trace

    where β = √2 is the Lipschitz constant of the cross-entropy and trace = √(‖Θ0‖_tr/m) counts all outputs and all
    parameters. The last line is what Cauchy and Schwarz give; that ‖Hθ‖ itself is bounded the theorem says with high
    probability.
    """

    grad: float  # grad / trace
    snip: float  # snip / (‖θ‖ trace)
    grasp: float  # |grasp| / (‖Hθ‖ trace)
    H_theta: float  # ‖Hθ‖
    bound: float = LIPSCHITZ


def metric_constants(model: nn.Module, batch: Batch) -> MetricConstants:
    """The ratios of one network; exact for a network without batch norm, whose samples have gradients of their own."""
    options = Options(reduction="all", parameters="all", dtype="float64")
    found = {name: one.value for name, one in evaluate(model, batch, "grad,snip,grasp,trace", options=options).items()}
    if missing := [name for name, value in found.items() if value is None]:
        raise InputError(f"the network has no {', '.join(missing)}: the theorem needs a gradient")
    grad, snip, grasp, trace = (float(found[name] or 0.0) for name in ("grad", "snip", "grasp", "trace"))
    theta = torch.cat([p.detach().double().flatten() for p in model.parameters()]).numpy()
    x, y = torch.tensor(batch.x), torch.tensor(batch.y)
    turned = float(np.linalg.norm(Hessian(model, x, y, dtype=torch.float64) @ theta))
    size = float(np.linalg.norm(theta))
    return MetricConstants(grad / trace, snip / (size * trace), abs(grasp) / (turned * trace), turned)


# --- the trace hardly depends on the data -----------------------------------------------------------------------------


@dataclass(frozen=True)
class TraceOfData:
    """[NASI Proposition 2]: |‖Θ(P)‖_tr − ‖Θ(Q)‖_tr| / (mn) ≤ Z D(γ) / n0, for inputs of norm at most 1.

    Q takes a share of its inputs from a sphere of another radius than P, so that Z = ∫ |P − Q| is twice that share.
    """

    share: float
    difference: float
    bound: float


def trace_of_data(share: float, *, n0: int = 32) -> TraceOfData:
    """Both sides for a ReLU network (γ = 1, D = L) in NTK parameterisation, wide but finite.

    P is uniform on the unit sphere; Q draws `share` of its inputs from the sphere of half its radius.
    """
    rng, layers, width, m = torch.Generator().manual_seed(0), 3, 256, 64
    sizes = [n0, *[width] * (layers - 1), 1]
    parts: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layer = nn.Linear(fan_in, fan_out, bias=False, dtype=torch.float64)
        layer.weight.data = torch.randn(fan_out, fan_in, generator=rng, dtype=torch.float64) / fan_in**0.5
        parts += [layer, nn.ReLU()]
    network = nn.Sequential(*parts[:-1])
    P, Q = (nn.functional.normalize(torch.randn(m, n0, generator=rng, dtype=torch.float64)) for _ in range(2))
    Q[: round(share * m)] *= 0.5
    traces = [ntk(network, X, reduction="sum", parameterisation="ntk", dtype=torch.float64).trace / m for X in (P, Q)]
    return TraceOfData(share, abs(traces[0] - traces[1]), 2 * share * layers / n0)
