"""What the papers prove about wide and deep networks, computed: each function gives both sides of one statement.

Linear networks of L matrices W(i) in ℝⁿˣⁿ stand for the widest and the narrowest cell:

    wide  y(i) = W(i) x               deep  y(i) = W(i) ··· W(1) x

The kernels are those of `kernels/empirical.py` on real modules in float64, not formulas.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from initio.errors import InputError
from initio.kernels.empirical import Kernel, ntk


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


def orthonormal(n: int, m: int, seed: int = 0) -> Tensor:
    """m inputs of n numbers with XᵀX = I, as HNAS normalises them: (m, n)."""
    if m > n:
        raise InputError(f"{m} inputs of {n} numbers cannot be orthonormal: take at most {n}")
    drawn = np.random.default_rng(seed).standard_normal((n, m))
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
    """Both sides of Theorem 4 over so many draws of the weights.

    >>> found = wide_and_deep(n=8, layers=2, m=4, draws=20)
    >>> found.wide_error < 1e-10, min(found.deep_kappas) > 1
    (True, True)
    """
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
