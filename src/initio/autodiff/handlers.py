"""One handler for each torch function that the fast path knows; what they do not know goes to autograd."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from initio.autodiff.layers import Geometry
from initio.autodiff.norms import (
    Affine,
    BatchNormalised,
    affine,
    batch_standardised,
    group_standardised,
    is_identity,
    standardised,
    x_hat,
)
from initio.autodiff.pools import MaxPooled, Windows, picked, pooled
from initio.autodiff.recorder import Handler, Recorder, Rectified, Watched, watch


def _tuple(value: int | Sequence[int], dims: int) -> tuple[int, ...]:
    """One number a dimension: torch takes a single one, bare or in a list, for all of them."""
    if isinstance(value, int):
        return (value,) * dims
    if len(value) == 1:
        return tuple(value) * dims
    return tuple(value)


def _conv(dims: int) -> Handler:
    def handler(
        recorder: Recorder, input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1,
    ) -> Any:  # fmt: skip
        dilation = _tuple(dilation, dims)
        if padding == "valid":
            padding = 0
        elif padding == "same":
            reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
            padding = [r // 2 for r in reach]
            if any(r % 2 for r in reach):  # more zeros on one side than on the other
                sides = [side for r in reversed(reach) for side in (r // 2, r - r // 2)]
                input, padding = recorder.other(F.pad, (input, sides), {}), 0
        if input.ndim != dims + 2:
            return NotImplemented
        geometry = Geometry(_tuple(stride, dims), _tuple(padding, dims), dilation, groups)
        return recorder.weighted(input, weight, bias, geometry)

    return handler


def _linear(recorder: Recorder, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if input.ndim < 2:
        return NotImplemented
    return recorder.weighted(input, weight, bias, Geometry(()))


def _batch_norm(
    recorder: Recorder, input: Tensor, running_mean: Any = None, running_var: Any = None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """Always with the statistics of the batch; running statistics are neither read nor written."""
    if recorder.purpose.plain or input.ndim < 2:
        out = recorder.other(batch_standardised, (input, weight, bias, recorder.switch), {"eps": eps})
        recorder.normalised(out, lambda: x_hat(input, eps))
        return out
    own = recorder.knows(weight, bias)
    gamma, beta = (weight, bias) if own else (None, None)
    out = recorder.run(BatchNormalised, input, gamma, beta, recorder.use(gamma, beta), eps, recorder.purpose.frozen)
    recorder.normalised(out, lambda: out if is_identity(gamma, beta) else x_hat(input, eps))
    if own:
        return out
    recorder.nodes.add(out.grad_fn)
    return recorder.other(affine, (out, weight, bias, (-1, *(1,) * (input.ndim - 2))), {})


def _affine(recorder: Recorder, hat: Tensor, weight: Tensor | None, bias: Tensor | None, view: tuple[int, ...]) -> Any:
    if weight is None and bias is None:
        return hat
    if not recorder.knows(weight, bias):
        # Not torch's own affine norm: its backward for the weights alone ends the process where channels are last.
        return recorder.other(affine, (hat, weight, bias, view), {})
    return recorder.run(Affine, hat, weight, bias, recorder.use(weight, bias), view)


def _layer_norm(
    recorder: Recorder, input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:  # fmt: skip
    if input.ndim <= len(normalized_shape):
        return NotImplemented
    function = standardised if recorder.dual else F.layer_norm
    hat = recorder.other(function, (input, normalized_shape), {"eps": eps})
    return _affine(recorder, hat, weight, bias, tuple(normalized_shape))


def _group_norm(
    recorder: Recorder, input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:  # fmt: skip
    function = group_standardised if recorder.dual else F.group_norm
    hat = recorder.other(function, (input, num_groups), {"eps": eps})
    return _affine(recorder, hat, weight, bias, (input.shape[1], *(1,) * (input.ndim - 2)))


def _instance_norm(
    recorder: Recorder, input: Tensor, running_mean: Any = None, running_var: Any = None, weight: Tensor | None = None,
    bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    hat = recorder.other(group_standardised, (input, input.shape[1]), {"eps": eps})
    return _affine(recorder, hat, weight, bias, (input.shape[1], *(1,) * (input.ndim - 2)))


def _relu(recorder: Recorder, input: Tensor, inplace: bool = False) -> Any:
    """Never in place, since recorded layers keep their outputs; the same ReLU of the same value is computed once."""
    known = recorder.rectified.get(id(input))
    if known is not None and known.input() is input and known.versions == (input._version, known.out._version):
        recorder.patterns += known.codes
        recorder.notes.kinks += 1
        return known.out
    out = torch.relu(input)
    if (tangent := recorder.tangents.get(input)) is not None:
        recorder.tangents.set(out, torch.ops.aten.threshold_backward(tangent, out.detach(), 0))
    recorder.kink(input, out)
    if recorder.purpose.shares and recorder.purpose.shares_relus:
        codes = recorder.patterns[-1:]  # none where nobody asked for them
        recorder.rectified[id(input)] = Rectified(weakref.ref(input), (input._version, out._version), out, codes)
        recorder.fix(out)
    return out


def _add(recorder: Recorder, input: Any, other: Any, **kwargs: Any) -> Any:
    """A sum of two values, the operation that cells have most of."""
    if kwargs or not (recorder.is_value(input) and recorder.is_value(other)):
        return NotImplemented
    out = input + other
    a, b = recorder.tangents.get(input), recorder.tangents.get(other)
    if a is None and b is None:
        return out
    if a is None:
        a = torch.zeros_like(input)  # and not left out: the other may be smaller and be spread over it
    if b is None:
        b = torch.zeros_like(other)
    recorder.tangents.set(out, a + b)
    return out


def _avg_pool(
    recorder: Recorder, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Any:  # fmt: skip
    if not recorder.is_value(input):
        return NotImplemented
    pairs = (_tuple(t, 2) for t in (kernel_size, stride or kernel_size, padding))
    size, step, pad = ((t[0], t[1]) for t in pairs)
    windows = Windows(size, step, pad, ceil_mode, count_include_pad, divisor_override)
    out = pooled(input, windows, recorder.memo())
    if (tangent := recorder.tangents.get(input)) is not None:
        recorder.tangents.set(out, pooled(tangent, windows))
    return out


def _max_pool(
    recorder: Recorder, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """Only where two passes share what they find; else torch has all of it."""
    memo = recorder.memo()
    if memo is None or return_indices or input.ndim != 4 or not recorder.is_value(input):
        return NotImplemented
    pairs = tuple(_tuple(t, 2) for t in (kernel_size, stride or kernel_size, padding, dilation))
    out: Tensor = MaxPooled.apply(input, memo, (*pairs, ceil_mode))  # type: ignore[no-untyped-call]
    if (tangent := recorder.tangents.get(input)) is not None:
        recorder.tangents.set(out, picked(tangent, memo.values[1]))
    return out


def _watch(recorder: Recorder, t: Tensor) -> Tensor:
    value, tangent = _alias(t), recorder.tangents.get(t)
    if recorder.dual:
        if tangent is None:
            tangent = torch.zeros_like(t)  # zero has a gradient as well
        tangent = _alias(tangent)
    recorder.tangents.set(value, tangent)
    recorder.watched[id(value)] = Watched(value, tangent, recorder.memo())
    return value


def _alias(t: Tensor) -> Tensor:
    """The same numbers as a new node of autograd's graph, also those of a constant."""
    if t.requires_grad:
        return t.view_as(t)
    return t.detach().requires_grad_(torch.is_grad_enabled())


def _leaky_relu(recorder: Recorder, input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    out = recorder.other(F.leaky_relu, (input, negative_slope), {})
    recorder.kink(input, out)
    return out


def _relu6(recorder: Recorder, input: Tensor, inplace: bool = False) -> Any:
    out = recorder.other(F.relu6, (input,), {})
    recorder.kink(input, out)
    return out


def _dropout(recorder: Recorder, input: Tensor, *args: Any, **kwargs: Any) -> Any:
    return input


def _plain_relu(recorder: Recorder, input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """A ReLU, or one of its like, that autograd computes; its codes are noted."""
    out = recorder.other(F.relu, (input,), {})
    recorder.kink(input, out)
    return out


DROPOUTS: dict[Any, Handler] = dict.fromkeys(
    (
        F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout,
        torch.dropout, torch.dropout_, torch.feature_dropout, torch.feature_dropout_, torch.alpha_dropout,
        torch.alpha_dropout_, torch.feature_alpha_dropout, torch.feature_alpha_dropout_,
    ),
    _dropout,
)  # fmt: skip
PLAIN_HANDLERS: dict[Any, Handler] = {
    F.batch_norm: _batch_norm,
    F.relu: _plain_relu,
    torch.relu: _plain_relu,
    torch.Tensor.relu: _plain_relu,
    F.leaky_relu: _leaky_relu,
    F.relu6: _relu6,
    **DROPOUTS,
}
HANDLERS: dict[Any, Handler] = {
    watch: _watch,
    torch.conv1d: _conv(1),
    torch.conv2d: _conv(2),
    torch.conv3d: _conv(3),
    F.linear: _linear,
    F.batch_norm: _batch_norm,
    F.layer_norm: _layer_norm,
    F.group_norm: _group_norm,
    F.instance_norm: _instance_norm,
    F.relu: _relu,
    torch.relu: _relu,
    torch.Tensor.relu: _relu,
    torch.add: _add,
    torch.Tensor.add: _add,
    torch.Tensor.__add__: _add,
    F.avg_pool2d: _avg_pool,
    F.max_pool2d: _max_pool,
    F.leaky_relu: _leaky_relu,
    F.relu6: _relu6,
    **DROPOUTS,
}
