"""Forward passes for metrics that need no tape: the flow of absolute weights, activation patterns, redrawn networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from initio.autodiff.handlers import DROPOUTS
from initio.autodiff.parts import Parts
from initio.autodiff.record import output, plain_arithmetic

_BATCH_NORMS = {F.batch_norm}
_RELUS = {F.relu, torch.relu, torch.Tensor.relu, torch.relu_, F.leaky_relu, F.relu6}


class _Statistics(TorchFunctionMode):
    """Batch norm with the statistics of the batch; running statistics are neither read nor written."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _BATCH_NORMS:
            return _batch_norm(*args, **kwargs)
        if func in DROPOUTS:
            return args[0] if args else kwargs["input"]
        return func(*args, **kwargs)


class _Patterns(_Statistics):
    """Collects the signs of every ReLU's input."""

    def __init__(self) -> None:
        super().__init__()
        self.signs: list[np.ndarray] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _RELUS:
            signs = (args[0] > 0).reshape(len(args[0]), -1)
            self.signs.append(np.packbits(signs.cpu().numpy(), axis=1))
        return super().__torch_function__(func, types, args, kwargs)


class _WithoutNorm(TorchFunctionMode):
    """Batch norm is the identity."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _BATCH_NORMS or func in DROPOUTS:
            return args[0] if args else kwargs["input"]
        return func(*args, **kwargs)


def _batch_norm(
    input: Tensor, running_mean: Any = None, running_var: Any = None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    if input.numel() == input.shape[1]:  # one value a channel: its own mean
        if bias is None:
            return torch.zeros_like(input)
        return bias.expand_as(input.movedim(1, -1)).movedim(-1, 1)
    return F.batch_norm(input, None, None, weight, bias, True, momentum, eps)


def _run(parts: Parts, values: Mapping[int, Tensor], x: Tensor, mode: TorchFunctionMode) -> Tensor:
    """f(x) with values[id(t)] in the place of a parameter or buffer t."""
    model = parts.modules[0]
    with parts.standing_in(values), plain_arithmetic(), mode:
        return output(model, x.clone())  # which the model may write into


def positive_flow(model: nn.Module, shape: tuple[int, ...]) -> tuple[float, dict[str, Tensor], dict[str, Tensor]]:
    """R = Σ f(1) with |θ| for θ and without batch norm, its gradient, and |θ|: all in float64."""
    parts = Parts(model)
    own = parts.parameters
    parameters = {n: p.detach().double().abs().requires_grad_() for n, p in own.items()}
    values = {id(own[n]): p for n, p in parameters.items()}
    buffers = parts.buffer_copies(torch.float64)
    values |= {key: b.abs() if b.is_floating_point() else b for key, b in buffers.items()}
    ones = torch.ones(1, *shape, dtype=torch.float64, device=parts.device)
    with torch.enable_grad():
        R = _run(parts, values, ones, _WithoutNorm()).sum()
    if not R.requires_grad:
        return float(R), {}, parameters
    gradients = torch.autograd.grad(R, list(parameters.values()), allow_unused=True)
    found = {n: g for n, g in zip(parameters, gradients, strict=True) if g is not None}
    return float(R.detach()), found, {n: p.detach() for n, p in parameters.items()}


@torch.no_grad()
def activation_patterns(model: nn.Module, x: Tensor, dtype: torch.dtype = torch.float32) -> np.ndarray | None:
    """The signs of all ReLU inputs, packed in bytes: one row for each input, or None without ReLUs."""
    mode, parts = _Patterns(), Parts(model)
    _run(parts, _values(parts, dtype), x.to(dtype), mode)
    if not mode.signs:
        return None
    return np.concatenate(mode.signs, axis=1)


@torch.no_grad()
def outputs_of_redrawn(
    model: nn.Module, x: Tensor, networks: int, seed: int, dtype: torch.dtype = torch.float32
) -> Iterator[Tensor]:
    """Outputs of the model with its weights drawn again, N(0, variance of each weight tensor)."""
    generator = torch.Generator().manual_seed(seed)
    parts = Parts(model)
    values = _values(parts, dtype)
    weights = [id(p) for p in parts.parameters.values() if p.ndim >= 2]
    deviation = {w: float(values[w].double().pow(2).mean().sqrt()) for w in weights}
    x = x.to(dtype)
    if x.ndim == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    for _ in range(networks):
        drawn = {
            w: torch.randn(values[w].shape, generator=generator, dtype=dtype).to(parts.device) * deviation[w]
            for w in weights
        }
        yield _run(parts, values | drawn, x, _Statistics())


def _values(parts: Parts, dtype: torch.dtype) -> dict[int, Tensor]:
    """The model's own parameters and buffers, for `_run`."""
    return {id(p): p.detach().to(dtype) for p in parts.parameters.values()} | parts.buffer_copies(dtype)


@torch.no_grad()
def outputs(model: nn.Module, x: Tensor, dtype: torch.dtype) -> Tensor:
    """f(x), batch norm with the statistics of these inputs."""
    parts = Parts(model)
    return _run(parts, _values(parts, dtype), x.to(dtype), _Statistics())
