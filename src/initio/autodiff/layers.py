"""Layers with weights, as the bilinear maps that they are: z = W * x, and everything their gradients need.

`Geometry` says what `*` is (a convolution of any stride, dilation and grouping, or a linear layer). From the layer's
input x and the gradient δ of its output come

    W * x          `apply`       the output
    Wᵀ * δ         `transpose`   the gradient of the input
    Σ_i δ_i x_iᵀ   `outer`       the gradient of the weights, summed over the batch
    δ_i x_iᵀ       `per_sample`  the gradient of the weights, one for each sample
    ⟨δ_i x_iᵀ, δ_j x_jᵀ⟩  `gram` the layer's share of the neural tangent kernel

>>> geometry = Geometry(())
>>> x, delta = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0]])
>>> geometry.per_sample(x, delta, (1, 2))
tensor([[[3., 6.]]])
>>> geometry.gram(x, delta, (1, 2))
tensor([[45.]], dtype=torch.float64)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from ctypes import CDLL
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from initio.autodiff import fused

Ints = tuple[int, ...]
Flipped = Callable[[], Tensor | None]
PARTS = 8  # of a batch, over which compiled kernels add up first: sums of float32 stay shorter
CHUNK_BYTES = 64 << 20  # per-sample gradients of one layer are made in slices of this size


@dataclass(frozen=True)
class Geometry:
    """What joins weights and inputs: a linear layer if `stride` is empty, else a convolution.

    With `free` roundings 1x1 kernels are matrix products, and depthwise convolutions are transposed by convolutions,
    where there are no compiled kernels for them: faster, but rounded otherwise than by torch.
    """

    stride: Ints
    padding: Ints = ()
    dilation: Ints = ()
    groups: int = 1
    free: bool = False

    # --- the maps ------------------------------------------------------------------------------------------------

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None = None, more: Tensor | None = None) -> Tensor:
        """W * x + b, plus `more` in the shape of the output."""
        if not self.stride:
            z = F.linear(x, weight, bias)
        elif bias is None and (lib := self._pointwise(x, weight)):
            return fused.pointwise(lib, x, weight, more, transposed=False)
        elif bias is None and (lib := self._tiled(x, weight)):
            return fused.convolve(lib, x, weight, more, transposed=False)
        elif bias is None and (lib := self._by_channel(weight, x)):
            z = fused.depthwise(lib, x, weight, (x.shape[2], x.shape[3]), *self._pairs(tuple(weight.shape))[1:])
        elif bias is None and self._is_product(weight, x):
            z = _product(x, weight.flatten(1).T)
        else:
            z = torch.convolution(
                x, weight, bias, self.stride, self.padding, self.dilation, False, [0] * len(self.stride), self.groups
            )
        if more is None:
            return z
        return z.add_(more)

    def add_to(self, out: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """out + W * x; `out` is nobody else's, and may be changed."""
        if not self._pointwise(x, weight) and self._is_product(weight, x, out):
            return _product(x, weight.flatten(1).T, out)
        return self.apply(x, weight, more=out)

    def transpose(self, delta: Tensor, x: Tensor, weight: Tensor, flipped: Flipped | None = None) -> Tensor:
        """Wᵀ * δ, in the shape of x; those who need it often keep `flipped(weight)` and say where."""
        if not self.stride:
            return delta @ weight
        if lib := self._pointwise(delta, weight):
            return fused.pointwise(lib, delta, weight, transposed=True)
        if lib := self._tiled(delta, weight):
            return fused.convolve(lib, delta, weight, transposed=True)
        if lib := self._by_channel(weight, delta):
            sides = x.shape[2], x.shape[3]
            return fused.depthwise(lib, delta, weight, sides, *self._pairs(tuple(weight.shape))[1:], back=True)
        if self._is_product(weight, delta):
            return _product(delta, weight.flatten(1))
        turned = self.flipped(weight) if flipped is None else flipped()
        if turned is None:
            return self._backward(delta, x, weight, (True, False, False))[0]
        return Geometry(self.stride, self._reach(weight), self.dilation, self.groups).apply(delta, turned)

    def _reach(self, weight: Tensor) -> Ints:
        """The padding of the transposed map."""
        return tuple(d * (k - 1) - p for d, k, p in zip(self.dilation, weight.shape[2:], self.padding, strict=True))

    def add_transpose(
        self, out: Tensor, delta: Tensor, x: Tensor, weight: Tensor, flipped: Flipped | None = None
    ) -> Tensor:
        """out + Wᵀ * δ; `out` is nobody else's, and may be changed."""
        if lib := self._pointwise(delta, weight):
            return fused.pointwise(lib, delta, weight, out, transposed=True)
        if self._is_product(weight, delta, out):
            return _product(delta, weight.flatten(1), out)
        return self.transpose(delta, x, weight, flipped).add_(out)

    def _is_product(self, weight: Tensor, *pixels: Tensor) -> bool:
        """Whether it may be taken as one matrix at every pixel of these images."""
        return (
            self.free
            and self._is_matrix(weight)
            and all(t.is_contiguous(memory_format=torch.channels_last) for t in pixels)
        )

    def _is_matrix(self, weight: Tensor) -> bool:
        """Whether it is one matrix at every pixel."""
        return tuple(weight.shape[2:]) == self.stride == (1, 1) and self.padding == (0, 0) and self.groups == 1

    def _pointwise(self, x: Tensor, weight: Tensor) -> CDLL | None:
        """The library where it has a faster way for 1x1 kernels."""
        if len(weight) % fused.LANES or not self._is_matrix(weight):
            return None
        return fused.usable(x, weight)

    def _by_channel(self, weight: Tensor, *images: Tensor) -> CDLL | None:
        """The library where it has a faster way for depthwise kernels."""
        if not self._is_depthwise(weight) or min(self._reach(weight)) < 0 or not weight.is_contiguous():
            return None
        return fused.usable(*images)

    def _tiled(self, x: Tensor, weight: Tensor) -> CDLL | None:
        """The library where it has a faster way for 3x3 kernels."""
        if self.stride != (1, 1) or self.groups != 1 or len(weight) % fused.LANES:
            return None
        if not fused.tiled(tuple(weight.shape[2:]), self.padding, self.dilation, self.stride):
            return None
        return fused.usable(x, weight)

    def flipped(self, weight: Tensor) -> Tensor | None:
        """The weights with which `transpose` is a forward convolution, for which kernels are faster, if it is one."""
        if set(self.stride) != {1} or min(self._reach(weight)) < 0:
            return None
        if self.free and self.groups == len(weight) and weight.shape[1] == 1:
            return weight.flip(tuple(range(2, weight.ndim)))
        if self.groups != 1:
            return None
        flipped = weight.flip(tuple(range(2, weight.ndim))).transpose(0, 1)
        if flipped.ndim == 4:
            return flipped.contiguous(memory_format=torch.channels_last)
        return flipped

    def outer(self, x: Tensor, delta: Tensor, weight: Tensor) -> Tensor:
        """Σ_i δ_i x_iᵀ, in the shape of W."""
        if not self.stride:
            return delta.flatten(0, -2).T @ x.flatten(0, -2)
        if lib := self._fused(x, delta):
            sizes = self._pairs(tuple(weight.shape))
            return fused.outer(lib, x, delta, *sizes, min(PARTS, len(x)), together=True).permute(2, 3, 0, 1)
        if lib := self._by_channel(weight, x, delta):
            return fused.outer_depthwise(lib, x, delta, *self._pairs(tuple(weight.shape))).permute(2, 0, 1)[:, None]
        return self._backward(delta, x, weight, (False, True, False))[1]

    def outer_parts(self, x: Tensor, delta: Tensor, weight: Tensor, parts: int) -> tuple[Tensor, Tensor]:
        """`outer`, and what equal parts of the rows have of it: (parts, *shape of W)."""
        if parts == min(PARTS, len(x)) and (lib := self._fused(x, delta)):
            found = self._fused_outer(lib, x, delta, tuple(weight.shape), parts)
            return fused.added(found), found
        edges = [len(x) * k // parts for k in range(parts + 1)]
        shares = [self.outer(x[a:b], delta[a:b], weight) for a, b in itertools.pairwise(edges)]
        return self.outer(x, delta, weight), torch.stack(shares)

    def _fused(self, x: Tensor, delta: Tensor) -> CDLL | None:
        if len(self.stride) == 2 and self.groups == 1:
            return fused.usable(x, delta)
        return None

    def _fused_outer(self, lib: CDLL, x: Tensor, delta: Tensor, shape: Ints, parts: int) -> Tensor:
        """(parts, *shape)."""
        return fused.outer(lib, x, delta, *self._pairs(shape), parts, together=False).permute(0, 3, 4, 1, 2)

    def _pairs(self, shape: Ints) -> tuple[fused.Pair, fused.Pair, fused.Pair, fused.Pair]:
        """Kernel, padding, dilation and stride of an image's layer."""
        kernel, padding, dilation, stride = (
            (t[0], t[1]) for t in (shape[2:], self.padding, self.dilation, self.stride)
        )
        return kernel, padding, dilation, stride

    def _is_depthwise(self, weight: Tensor) -> bool:
        """Whether each channel of an image has one kernel of its own."""
        return len(self.stride) == 2 and self.groups == len(weight) and weight.shape[1] == 1

    def _backward(
        self, delta: Tensor, x: Tensor, weight: Tensor, mask: tuple[bool, bool, bool]
    ) -> tuple[Tensor, Tensor, Tensor]:
        if mask[1] and not mask[0] and set(weight.shape[2:]) == {1} and not any(self.padding):
            # A 1x1 kernel of stride s reads every s-th pixel. Torch 2.13 writes out of bounds when it is asked for the
            # weights' gradient of such a layer with less than 8 channels, channels last; so take the pixels first.
            x = x[(slice(None), slice(None), *(slice(None, None, s) for s in self.stride))]
            format = torch.contiguous_format
            if x.ndim == 4:
                format = torch.channels_last
            dense = Geometry((1,) * len(self.stride), self.padding, self.dilation, self.groups)
            return dense._backward_as_is(delta, x.contiguous(memory_format=format), weight, mask)
        return self._backward_as_is(delta, x, weight, mask)

    def _backward_as_is(
        self, delta: Tensor, x: Tensor, weight: Tensor, mask: tuple[bool, bool, bool]
    ) -> tuple[Tensor, Tensor, Tensor]:
        out: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
            delta, x, weight, None, self.stride, self.padding, self.dilation, False, [0] * len(self.stride),
            self.groups, mask,
        )  # fmt: skip
        return out

    # --- one gradient for each sample ----------------------------------------------------------------------------

    def per_sample(self, x: Tensor, delta: Tensor, shape: Ints) -> Tensor:
        """δ_i x_iᵀ for every sample i: (m, *shape), `shape` that of the weights."""
        if not self.stride:
            return torch.bmm(_rows(delta).transpose(1, 2), _rows(x))
        if lib := self._fused(x, delta):
            return self._fused_outer(lib, x, delta, shape, len(x))
        offsets = list(itertools.product(*(range(k) for k in shape[2:])))
        parts = torch.stack(list(self._shifted(x, delta, shape, offsets)), dim=-1)
        return parts.reshape(len(x), *shape)

    def gram(self, x: Tensor, delta: Tensor, shape: Ints, chunk: int = CHUNK_BYTES) -> Tensor:
        """K_ij = ⟨δ_i x_iᵀ, δ_j x_jᵀ⟩ in float64, the weights' gradients never all at once."""
        m = len(x)
        if not self.stride and _rows(x).shape[1] == 1:  # (a_i·a_j)(δ_i·δ_j): no gradient is formed at all
            a, d = x.reshape(m, -1), delta.reshape(m, -1)
            return (a @ a.T).double() * (d @ d.T).double()
        K = torch.zeros(m, m, dtype=torch.float64, device=x.device)
        for G in self._slices(x, delta, shape, chunk):
            K += _symmetric(G.reshape(m, -1))
        return K

    def _slices(self, x: Tensor, delta: Tensor, shape: Ints, chunk: int) -> Iterator[Tensor]:
        """The per-sample gradients in slices of at most `chunk` bytes (or one output channel), samples first.

        There may be zeros between them: the compiled kernels take few channels, as those of images are, as LANES.
        """
        if not self.stride:
            a, d = _rows(x), _rows(delta)
            step = max(1, chunk // (len(x) * shape[1] * x.element_size()))
            for start in range(0, shape[0], step):
                yield torch.bmm(d[..., start : start + step].transpose(1, 2), a)
            return
        if len(self.stride) == 2 and self.groups == 1 and fused.usable(delta):
            x = _widened(x)
            shape = (shape[0], x.shape[1], *shape[2:])
        lib = self._fused(x, delta)
        if lib and len(x) * math.prod(shape) * 4 <= chunk:
            yield self._fused_outer(lib, x, delta, shape, len(x)).permute(0, 3, 4, 1, 2)  # as it lies in memory
            return
        offsets = list(itertools.product(*(range(k) for k in shape[2:])))
        step = max(1, chunk // (len(x) * shape[0] * shape[1] * x.element_size()))
        for start in range(0, len(offsets), step):
            parts = list(self._shifted(x, delta, shape, offsets[start : start + step]))
            yield torch.cat([part.reshape(len(x), -1) for part in parts], dim=1)

    def _shifted(self, x: Tensor, delta: Tensor, shape: Ints, offsets: list[Ints]) -> Iterator[Tensor]:
        """For each kernel position the matrices Σ_p δ_i(p) x_i(p + position)ᵀ: (m, c_out, c_in/groups)."""
        m, groups = len(x), self.groups
        for d, a in self._aligned(x, delta, offsets):
            if groups == 1:
                yield torch.bmm(d.transpose(1, 2), a)
            elif groups == shape[0] and shape[1] == 1:  # depthwise: elementwise, no matrices
                yield (d * a).sum(1).unsqueeze(2)
            else:
                d = d.reshape(m, -1, groups, shape[0] // groups).permute(0, 2, 3, 1).flatten(0, 1)
                a = a.reshape(m, -1, groups, shape[1]).transpose(1, 2).flatten(0, 1)
                yield torch.bmm(d, a).reshape(m, shape[0], shape[1])

    def _aligned(self, x: Tensor, delta: Tensor, offsets: list[Ints]) -> Iterator[tuple[Tensor, Tensor]]:
        """(δ, x shifted) as matrices (m, positions, channels), channels last."""
        dims = len(self.stride)
        last = (0, *range(2, 2 + dims), 1)
        a, d = x.permute(last), delta.permute(last)
        out = d.shape[1:-1]
        if any(self.padding):
            pad = [0, 0]
            for p in reversed(self.padding):
                pad += [p, p]
            a = F.pad(a, pad)
        if dims == 2 and max(self.stride) == 1 and len(offsets) > 1:
            yield from self._aligned_flat(a, d, offsets)
            return
        d = d.reshape(len(x), -1, d.shape[-1])
        for offset in offsets:
            window = [slice(None)]
            for o, dil, s, n in zip(offset, self.dilation, self.stride, out, strict=True):
                window.append(slice(o * dil, o * dil + s * (n - 1) + 1, s))
            yield d, a[tuple(window)].reshape(len(x), -1, a.shape[-1])

    def _aligned_flat(self, a: Tensor, d: Tensor, offsets: list[Ints]) -> Iterator[tuple[Tensor, Tensor]]:
        """Stride 1: with δ padded to the rows of the padded x, every shift is a view and nothing is copied."""
        m, height, width = a.shape[:3]
        d = F.pad(d, (0, 0, 0, width - d.shape[2])).reshape(m, -1, d.shape[-1])
        positions = d.shape[1]
        flat = a.reshape(m, height * width, a.shape[-1])
        for o, p in offsets:
            start = o * self.dilation[0] * width + p * self.dilation[1]
            length = min(positions, height * width - start)  # what is cut off lies under padding of δ
            yield d[:, :length], flat[:, start : start + length]


def _product(x: Tensor, matrix: Tensor, out: Tensor | None = None) -> Tensor:
    """The pixels of x, channels last, times a matrix; added to those of `out`, which are changed, if it is given."""
    m, _, height, width = x.shape
    X = x.permute(0, 2, 3, 1).flatten(0, 2)
    if out is not None:
        out.permute(0, 2, 3, 1).flatten(0, 2).addmm_(X, matrix)
        return out
    return (X @ matrix).view(m, height, width, -1).permute(0, 3, 1, 2)


def _widened(x: Tensor) -> Tensor:
    """An image with channels of zeros behind its own, up to a multiple of LANES, channels last."""
    missing = -x.shape[1] % fused.LANES
    if not missing:
        return x
    return F.pad(x, (0, 0, 0, 0, 0, missing)).contiguous(memory_format=torch.channels_last)


def _rows(t: Tensor) -> Tensor:
    """(m, ..., features) -> (m, positions, features)."""
    return t.reshape(len(t), -1, t.shape[-1])


def _symmetric(G: Tensor) -> Tensor:
    """G Gᵀ in float64; rows are summed in blocks of columns, so that float32 sums stay short."""
    if lib := fused.usable_rows(G):
        return fused.products(lib, G)
    return (G @ G.T).double()


def fan_in(shape: Ints) -> int:
    """Weights behind one output: input channels of the group times kernel positions; 1 for vectors.

    >>> fan_in((16, 8, 3, 3)), fan_in((16,))
    (72, 1)
    """
    return math.prod(shape[1:])
