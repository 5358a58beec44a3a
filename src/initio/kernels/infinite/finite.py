"""The same networks at finite width: what the infinite-width kernel is the limit of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from initio.errors import InputError
from initio.kernels.infinite.duals import ETA
from initio.kernels.infinite.recursion import GAIN, WideKernel, as_inputs, check_architecture

if TYPE_CHECKING:
    import numpy as np


def finite_ntk(
    x: Tensor | np.ndarray,
    activations: Sequence[str],
    skips: Sequence[int] | None = None,
    *,
    width: int,
    seed: int,
    eta: float = ETA,
    dtype: torch.dtype = torch.float32,
) -> WideKernel:
    """The kernel JJᵀ of one random network, and the covariance of its outputs over the last layer's weights.

    Layer l's gradient is an outer product of what it reads, a, and what reaches its output, δ, so its share of the
    kernel is (aaᵀ) ∘ (δδᵀ) and no gradient is ever stored. Weights are i.i.d. N(0, 1) in the scaling of `recursion`.
    """
    names, alphas = check_architecture(activations, skips)
    if width < 1:
        raise InputError(f"width must be at least 1, not {width}")
    generator = torch.Generator().manual_seed(seed)
    inputs = as_inputs(x, dtype=dtype)
    scale = (GAIN / width) ** 0.5
    factors = [1.0] + [scale] * (len(names) - 1)  # the first layer reads the inputs unscaled
    skipped = (False, *alphas)

    reads, weights, slopes = [inputs], [], []
    f = inputs
    for name, factor, skip in zip(names, factors, skipped, strict=True):
        W = torch.randn(f.shape[1], width, generator=generator, dtype=dtype)
        value, slope = activation(name, factor * (f @ W), eta)
        f = value + f if skip else value
        reads.append(f)
        weights.append(W)
        slopes.append(slope)

    gradient = torch.randn(width, generator=generator, dtype=dtype).mul_(scale).expand_as(f)  # ∂f/∂f_{L−1}
    nngp = GAIN / width * _gram(f)
    K = nngp.clone()
    for number in reversed(range(len(names))):
        delta = factors[number] * gradient * slopes[number]
        K += _gram(reads[number]) * _gram(delta)
        if number == 0:
            break
        through = delta @ weights[number].T
        gradient = through + gradient if skipped[number] else through
    return WideKernel(nngp, K)


def _gram(a: Tensor) -> Tensor:
    return (a @ a.T).to(torch.float64)


def activation(name: str, x: Tensor, eta: float = ETA) -> tuple[Tensor, Tensor]:
    """σ(x) and σ'(x) for the names of `dual`."""
    below_zero = {"relu": 0.0, "leaky_relu": eta, "identity": 1.0}
    if name in below_zero:
        slope = torch.where(x > 0, 1.0, below_zero[name]).to(x.dtype)
        return slope * x, slope
    if name == "tanh":
        value = torch.tanh(x)
        return value, 1 - value * value
    if name == "sigmoid":
        value = torch.tanh(x / 2) / 2
        return value, 0.25 - value * value
    if name == "swish":
        gate = torch.sigmoid(x)
        return x * gate, gate * (1 + x * (1 - gate))
    if name == "erf":
        return torch.erf(x), torch.exp(-x * x) * (2 / torch.pi**0.5)
    if name == "gelu":
        gate = torch.special.ndtr(x)
        return x * gate, gate + x * torch.exp(-x * x / 2) / (2 * torch.pi) ** 0.5
    raise InputError(f"there is no activation {name!r}")
