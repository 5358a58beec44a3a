"""A GPU that is not there: tensors that say that they are on another device, and keep their numbers on the CPU.

Torch's own fake tensors know shapes and devices and no numbers, so that nothing which looks at a number can run on
them, and without CUDA torch differentiates nothing that says `cuda`. These have numbers, and say `meta`, a device that
every torch knows. An operation on tensors of both devices is an error, as on a real GPU; so is a result that is read
without having been moved. Whatever is made without a device is on the CPU and cannot meet the rest.
`torch.tensor(..., device=...)` does not tell whoever listens where its tensor goes, so the source writes
`torch.tensor(...).to(...)` where a test is to follow it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, return_and_correct_aliasing
from torch.utils._pytree import tree_map, tree_map_only

GPU = torch.device("meta")
aten = torch.ops.aten
PRODUCTS = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default}
MOVES = {aten._to_copy.default, aten.copy_.default, aten._has_compatible_shallow_copy_type.default}


class MixedDevicesError(RuntimeError):
    """An operation met tensors of two devices."""


class Pretended(Tensor):
    """A tensor on the device that is not there."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Pretended:
        made = Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            layout=inner.layout, device=GPU, requires_grad=False,
        )  # fmt: skip
        made.inner = inner
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __reduce_ex__(self, protocol: Any) -> Any:
        """On disk it is a tensor like any other."""
        return self.inner.__reduce_ex__(protocol)

    def tolist(self) -> Any:
        """As of any device."""
        return self.inner.tolist()

    def __repr__(self) -> str:
        return f"Pretended({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


class PretendedGpu(TorchDispatchMode):
    """Makes new tensors of the device, and counts the products of matrices and convolutions: there, and on the CPU."""

    def __init__(self, float64: bool) -> None:
        super().__init__()
        self.float64 = float64
        self.products, self.elsewhere = 0, list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = compute(func, args, kwargs or {})
        if func in PRODUCTS:
            self._count(func, out)
        if not self.float64:
            tree_map_only(Pretended, _refuse_float64, out)
        return out

    def _count(self, func: Any, out: Any) -> None:
        made: list[Tensor] = []
        tree_map_only(Tensor, made.append, out)
        if all(isinstance(t, Pretended) for t in made):
            self.products += 1
        elif any(t.numel() for t in made):  # a batch of none, by which costs are counted, is no work
            self.elsewhere.append(f"{func} {[tuple(t.shape) for t in made]}")


def _refuse_float64(made: Pretended) -> None:
    if made.dtype == torch.float64:
        raise TypeError(f"{GPU} has no float64")


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """One operation, on the CPU, with the result on the device that torch would choose."""
    leaves: list[Tensor] = []
    tree_map_only(Tensor, leaves.append, (args, kwargs))
    there = [isinstance(t, Pretended) for t in leaves]
    wide = [isinstance(t, Pretended) for t in leaves if t.ndim]  # a number of the CPU may meet anything
    if any(there) and not all(wide) and func not in MOVES:
        raise MixedDevicesError(f"{func} met tensors of the CPU and of {GPU}: {[tuple(t.shape) for t in leaves]}")
    asked = kwargs.get("device")
    target = any(there) if asked is None else torch.device(asked).type == GPU.type
    if func is aten.copy_.default:
        target = there[0]
    plain = {name: value for name, value in kwargs.items() if name != "device"}
    if asked is not None:
        plain["device"] = torch.device("cpu")
    bare, named = tree_map(lambda t: t.inner if isinstance(t, Pretended) else t, (args, plain))
    with _disable_current_modes():  # the mode would hear of itself
        out = func(*bare, **named)
    if target:
        out = tree_map(lambda t: Pretended(t) if isinstance(t, Tensor) else t, out)
        if any(there):
            out = return_and_correct_aliasing(func, args, kwargs, out)
    return out


@contextmanager
def pretended_gpu(*, float64: bool = True) -> Iterator[PretendedGpu]:
    """Inside, `meta` is a device, and no network may run on the CPU; without `float64` one like Apple's."""
    with PretendedGpu(float64) as gpu:
        yield gpu
    assert not gpu.elsewhere, f"computed on the CPU: {gpu.elsewhere[:3]}"


def moved(model: nn.Module) -> nn.Module:
    """The same model on the device, parameter by parameter."""
    for module in model.modules():
        for name, p in list(module._parameters.items()):
            if p is not None:
                module._parameters[name] = nn.Parameter(Pretended(p.detach().clone()), p.requires_grad)
        for name, b in list(module._buffers.items()):
            if b is not None:
                module._buffers[name] = Pretended(b.detach().clone())
    return model
