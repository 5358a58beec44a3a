"""Pooling: the map of averages, its transposed, and the recorded functions of averages and of maxima."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from initio.autodiff import fused
from initio.autodiff.fused import Pair
from initio.autodiff.switch import Memo


@dataclass(frozen=True)
class Windows:
    """What `F.avg_pool2d` takes the mean over."""

    size: Pair
    step: Pair
    padding: Pair
    ceil_mode: bool
    with_padding: bool
    divisor: int | None

    def means(self, x: Tensor) -> Tensor:
        """The pooled values."""
        sides = (x.shape[-2], x.shape[-1])
        if self._is_simple(sides) and (lib := fused.usable(x)):
            return fused.pool(lib, x, sides, self.size, self.step, self.padding, with_padding=self.with_padding)
        return torch.ops.aten.avg_pool2d(x, *self._arguments)  # type: ignore[no-any-return]

    def transpose(self, delta: Tensor, x: Tensor) -> Tensor:
        """The gradient of the values x from that of their means."""
        sides = (x.shape[-2], x.shape[-1])
        if self._is_simple(sides) and (lib := fused.usable(delta, x)):
            return fused.pool(
                lib, delta, sides, self.size, self.step, self.padding, with_padding=self.with_padding, back=True
            )  # fmt: skip
        return torch.ops.aten.avg_pool2d_backward(delta, x, *self._arguments)  # type: ignore[no-any-return]

    def _is_simple(self, sides: Pair) -> bool:
        """Whether every window is whole, but for padding, and has the mean of its values."""
        left = [(n + 2 * p - k) % s for n, k, s, p in zip(sides, self.size, self.step, self.padding, strict=True)]
        return self.divisor is None and not (self.ceil_mode and any(left))

    @property
    def _arguments(self) -> tuple[Any, ...]:
        return self.size, self.step, self.padding, self.ceil_mode, self.with_padding, self.divisor


class Pooled(Function):
    """An average pooling, which a second pass need not compute again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, memo: Memo | None, windows: Windows) -> Tensor:
        """The means."""
        ctx.windows = windows
        ctx.set_materialize_grads(False)  # a tangent that has no gradient must not get zeros: they would be δ
        ctx.save_for_backward(x)
        if memo is None:
            return windows.means(x)
        if not memo.values:
            memo.values = (windows.means(x),)
        return memo.values[0].detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, delta: Tensor | None) -> Any:
        """The transposed map."""
        if delta is None:
            return None, None, None
        return ctx.windows.transpose(delta, *ctx.saved_tensors), None, None


def pooled(x: Tensor, windows: Windows, memo: Memo | None = None) -> Tensor:
    """The means over windows of x."""
    return Pooled.apply(x, memo, windows)  # type: ignore[no-any-return, no-untyped-call]


class MaxPooled(Function):
    """A maximum pooling with a memo: a second pass need not look for the maxima again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, memo: Memo, windows: tuple[Any, ...]) -> Tensor:
        """The maxima; their places are left beside them."""
        ctx.windows = windows
        ctx.set_materialize_grads(False)
        if not memo.values:
            memo.values = torch.ops.aten.max_pool2d_with_indices(x, *windows)
        y, places = memo.values
        ctx.save_for_backward(x, places)
        return y.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, delta: Tensor | None) -> Any:
        """The transposed map."""
        if delta is None:
            return None, None, None
        x, places = ctx.saved_tensors
        return torch.ops.aten.max_pool2d_with_indices_backward(delta, x, *ctx.windows, places), None, None


def picked(t: Tensor, places: Tensor) -> Tensor:
    """The values of t where an image of its shape has its maxima: (m, C, height, width), channels last."""
    m, channels, height, width = places.shape
    pixels, chosen = (u.permute(0, 2, 3, 1).flatten(1, 2) for u in (t, places))
    return pixels.gather(1, chosen).view(m, height, width, channels).permute(0, 3, 1, 2)
