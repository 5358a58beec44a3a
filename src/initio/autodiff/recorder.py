"""Watches a running forward pass and records what backward passes will need."""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from initio.autodiff import fused
from initio.autodiff.functions import Affine, BatchNormalised, Keep, Layer, Switch, Weighted
from initio.autodiff.layers import Geometry


class _Table:
    """Tangents beside their tensors; an entry dies with its tensor."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}

    def get(self, t: Tensor) -> Tensor | None:
        entry = self.entries.get(id(t))
        return entry[1] if entry is not None and entry[0]() is t else None

    def set(self, t: Tensor, tangent: Tensor | None) -> None:
        if tangent is None:
            self.entries.pop(id(t), None)
            return
        key, entries = id(t), self.entries
        self.entries[key] = (weakref.ref(t, lambda _: entries.pop(key, None)), tangent)


@dataclass
class Notes:
    """What the forward pass found out."""

    unknown: set[str] = field(default_factory=set)  # parameters used by operations the fast path does not know
    operations: set[str] = field(default_factory=set)  # those operations
    uses: Counter[str] = field(default_factory=Counter)  # how often a parameter takes part in a recorded layer
    batch_norms: int = 0
    kinks: int = 0  # ReLUs and their like
    codes: Tensor | None = None  # NASWOT's Σ over ReLUs of C Cᵀ + (1−C)(1−C)ᵀ


@dataclass(frozen=True)
class _Rectified:
    """A ReLU that was computed already."""

    input: weakref.ref[Tensor]
    versions: tuple[int, int]
    out: Tensor
    codes: Tensor


class SharedValueChangedError(Exception):
    """An operation in place met a value that stands for several ReLUs: record again without sharing."""


class NoTangentError(Exception):
    """An operation whose tangent cannot be had, or not be differentiated: second derivatives need another way."""


class Recorder(TorchFunctionMode):
    """Sends every torch function of a running forward pass to `Weighted`, `_BatchNorm`, ..., or to autograd."""

    def __init__(
        self, parameters: dict[str, Tensor], switch: Switch, *, tangents: bool, theta: frozenset[str], codes: bool,
        fisher: bool, frozen: bool = False, shares: bool = True, shares_relus: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.shares, self.shares_relus = shares, shares and shares_relus
        self.rectified: dict[int, _Rectified] = {}  # by the identity of the input
        self.fixed: dict[int, weakref.ref[Tensor]] = {}  # values that an operation in place must not meet
        self.names = {id(p): name for name, p in parameters.items()}
        self.switch, self.dual, self.theta, self.frozen = switch, tangents, theta, frozen
        self.codes, self.fisher = codes, fisher
        self.tangents = _Table()
        self.notes = Notes()
        self.patterns: list[tuple[Any, Tensor]] = []  # (graph node of a ReLU's output, its code matrix)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Dispatches on the function."""
        kwargs = kwargs or {}
        handler = _HANDLERS.get(func)
        if handler is not None:
            out = handler(self, *args, **kwargs)
            if out is not NotImplemented:
                return out
        return self.other(func, args, kwargs)

    # --- operations that nothing special is known about ----------------------------------------------------------

    def other(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs the function under autograd; marks parameters it reads; carries tangents by forward-mode derivatives."""
        name = getattr(func, "__name__", str(func))
        if name in ("__set__", "dim", "size", "__len__", "is_floating_point", "numel"):
            return func(*args, **kwargs)
        if name == "__get__":
            return self._property(func, args[0])
        leaves, spec = tree_flatten((args, kwargs))
        if in_place(name) and leaves and id(leaves[0]) in self.fixed and self.fixed[id(leaves[0])]() is leaves[0]:
            raise SharedValueChangedError
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        read = {self.names[id(t)] for t in tensors if id(t) in self.names}
        tangents = self._tangents(leaves) if self.dual else None
        if tangents is None or all(t is None for t in tangents):
            out = func(*args, **kwargs)
        else:
            out = self._with_tangents(func, name, leaves, spec, tangents, args, kwargs)
        if read and any(isinstance(o, Tensor) and o.requires_grad for o in tree_flatten(out)[0]):
            self.notes.unknown |= read
            self.notes.operations.add(name)
        return out

    def _property(self, func: Any, t: Tensor) -> Any:
        """`t.shape`, `t.T` and their like; those that are tensors with a gradient are linear."""
        out = func(t)
        if isinstance(out, Tensor) and out is not t and out.requires_grad:
            if id(t) in self.names:
                self.notes.unknown.add(self.names[id(t)])
                self.notes.operations.add("a property")
            tangent = self._tangents([t])[0] if self.dual else None
            if tangent is not None:
                self.tangents.set(out, func(tangent))
        return out

    def _tangents(self, leaves: Sequence[Any]) -> list[Tensor | None]:
        out: list[Tensor | None] = []
        for leaf in leaves:
            tangent = None
            if isinstance(leaf, Tensor):
                tangent = self.tangents.get(leaf)
                if tangent is None and self.names.get(id(leaf)) in self.theta:
                    tangent = leaf.detach()  # the direction θ, a constant
            out.append(tangent)
        return out

    def _with_tangents(
        self,
        func: Any,
        name: str,
        leaves: list[Any],
        spec: Any,
        tangents: list[Tensor | None],
        args: Any,
        kwargs: Any,
    ) -> Any:
        if func in _LINEAR and (tangent := _linear_tangent(func, args, kwargs, leaves, spec, tangents)) is not None:
            out = func(*args, **kwargs)
            self._attach(out, tangent)
            return out
        pure = _out_of_place(func, name) if in_place(name) else func
        spots = [i for i, t in enumerate(tangents) if t is not None]

        def run(*values: Tensor) -> Any:
            filled = list(leaves)
            for spot, value in zip(spots, values, strict=True):
                filled[spot] = value
            a, k = tree_unflatten(filled, spec)
            return pure(*a, **k)

        primals = tuple(leaves[i] for i in spots)
        moved = tuple(t for t in tangents if t is not None)
        if name in _WITHOUT_TANGENTS:
            raise NoTangentError(name)
        forward_mode()
        try:
            out, tangent = torch.func.jvp(run, primals, moved)[:2]
        except (RuntimeError, NotImplementedError):
            raise NoTangentError(name) from None
        if in_place(name):
            out = func(*args, **kwargs)
        for o, t in zip(tree_flatten(out)[0], tree_flatten(tangent)[0], strict=True):
            if isinstance(o, Tensor) and o.is_floating_point():
                self._attach(o, t)
        return out

    def _attach(self, out: Any, tangent: Any) -> None:
        for o, t in zip(tree_flatten(out)[0], tree_flatten(tangent)[0], strict=True):
            self.tangents.set(o, t)

    # --- what the handlers share ---------------------------------------------------------------------------------

    def is_value(self, t: Any) -> bool:
        """Whether it is a tensor of the running pass and not a parameter."""
        return isinstance(t, Tensor) and id(t) not in self.names

    def name(self, t: Tensor | None) -> str:
        """The parameter's name, or nothing."""
        return "" if t is None else self.names.get(id(t), "")

    def layer(self, weight: Tensor | None, bias: Tensor | None, geometry: Geometry | None = None) -> Layer:
        """The record of one use of these parameters."""
        names = [self.name(p) for p in (weight, bias)]
        self.notes.uses.update(n for n in names if n)
        return Layer(names[0], names[1], geometry, () if weight is None else tuple(weight.shape))

    def finish(self, out: Any) -> Any:
        """Takes a recorded function's (value, tangent) apart."""
        if not self.dual:
            return out
        value, tangent = out
        self.tangents.set(value, tangent)
        return value

    def weighted(self, x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Any:
        """A convolution or linear layer whose weights are parameters of the model."""
        name = self.name(weight)
        if not name or (bias is not None and not self.name(bias)) or self.tangents.get(weight) is not None:
            return NotImplemented
        layer = self.layer(weight, bias, geometry)
        moves = (name in self.theta, self.name(bias) in self.theta)
        keep: Keep = "no" if not self.fisher else "yes" if self.shares else "copy"
        out = self.finish(
            apply(Weighted, x, weight, bias, self.tangents.get(x), layer, self.switch, self.dual, moves, keep)
        )
        if keep == "yes":
            self.fix(out)
        return out

    def fix(self, t: Tensor) -> None:
        """Remembers a value that is needed as it is."""
        self.fixed[id(t)] = weakref.ref(t)

    def kink(self, x: Tensor, out: Tensor) -> None:
        """Notes a ReLU and, if asked, its NASWOT codes."""
        self.notes.kinks += 1
        if self.codes:
            self.patterns.append((out.grad_fn, code_matrix(x)))


def code_matrix(x: Tensor) -> Tensor:
    """C Cᵀ + (1−C)(1−C)ᵀ for the binary codes C = [x > 0] of one ReLU: how many units two inputs share.

    >>> code_matrix(torch.tensor([[1.0, -1.0, 2.0], [1.0, 1.0, 1.0]]))
    tensor([[3., 2.],
            [2., 3.]], dtype=torch.float64)
    """
    x = x.detach()
    if x[0].numel() % 64 == 0 and (lib := fused.usable(x)):
        return fused.agreement(lib, x)
    C = (x > 0).to(torch.float32)
    C = C.permute(0, 2, 3, 1).reshape(len(C), -1) if C.ndim == 4 else C.reshape(len(C), -1)
    both = (C @ C.T).double()  # whole numbers below 2^24: exact
    n = both.diagonal()
    return 2 * both - n[:, None] - n[None, :] + C.shape[1]


def _linear_tangent(
    func: Any, args: Any, kwargs: Any, leaves: list[Any], spec: Any, tangents: list[Tensor | None]
) -> Any:
    """A linear function of the tangents, which is what a linear function's tangent is; None if it is not so simple."""
    if func in _ADDITIVE or func is torch.cat:
        if func in _ADDITIVE and not (len(args) > 1 and isinstance(args[0], Tensor) and isinstance(args[1], Tensor)):
            return None
        pairs = zip(leaves, tangents, strict=True)
        filled = [a if not isinstance(a, Tensor) else torch.zeros_like(a) if t is None else t for a, t in pairs]
        a, k = tree_unflatten(filled, spec)
        return func(*a, **k)
    if tangents[0] is None or any(t is not None for t in tangents[1:]) or args[0] is not leaves[0]:
        return None
    return func(tangents[0], *args[1:], **kwargs)


@lru_cache(maxsize=1)
def forward_mode() -> None:
    """Loads torch's forward-mode derivatives, which warn of torch's own use of its deprecated parts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.func.jvp(torch.sin, (torch.zeros(()),), (torch.ones(()),))


def in_place(name: str) -> bool:
    """Whether a torch function changes its first argument, by its name.

    >>> [in_place(name) for name in ("add_", "__iadd__", "add", "__add__", "__invert__", "__index__")]
    [True, True, False, False, False, False]
    """
    if name.startswith("__"):
        return name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")
    return name.endswith("_")


def _out_of_place(func: Any, name: str) -> Any:
    plain = "__" + name[3:] if name.startswith("__i") else name[:-1]
    return getattr(torch.Tensor, plain, None) or getattr(torch, plain)


def apply(function: Any, *args: Any) -> Any:
    """`function.apply`, which torch does not annotate."""
    return function.apply(*args)


# --- handlers: one for each function that the fast path knows --------------------------------------------------------


def _tuple(value: int | Sequence[int], dims: int) -> tuple[int, ...]:
    return (value,) * dims if isinstance(value, int) else tuple(value) * (dims if len(value) == 1 else 1)


def _conv(dims: int) -> Callable[..., Any]:
    def handler(
        recorder: Recorder, input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1,
    ) -> Any:  # fmt: skip
        dilation = _tuple(dilation, dims)
        if isinstance(padding, str):
            reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
            if padding != "valid" and any(r % 2 for r in reach):
                return NotImplemented
            padding = [0 if padding == "valid" else r // 2 for r in reach]
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
    recorder.notes.batch_norms += 1
    if any(p is not None and not recorder.name(p) for p in (weight, bias)) or input.ndim < 2:
        return recorder.other(_batch_standardised, (input, weight, bias), {"eps": eps})
    layer = recorder.layer(weight, bias)
    moves = layer.weight in recorder.theta or layer.bias in recorder.theta
    return recorder.finish(
        apply(
            BatchNormalised,
            input,
            recorder.tangents.get(input),
            weight,
            bias,
            eps,
            layer,
            recorder.switch,
            recorder.dual,
            moves,
            recorder.frozen,
        )
    )


def _affine(recorder: Recorder, hat: Tensor, weight: Tensor | None, bias: Tensor | None, view: tuple[int, ...]) -> Any:
    layer = recorder.layer(weight, bias)
    moves = layer.weight in recorder.theta or layer.bias in recorder.theta
    tangent = recorder.tangents.get(hat)
    return recorder.finish(
        apply(Affine, hat, tangent, weight, bias, view, layer, recorder.switch, recorder.dual, moves)
    )


def _layer_norm(
    recorder: Recorder, input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:  # fmt: skip
    if any(p is not None and not recorder.name(p) for p in (weight, bias)) or input.ndim <= len(normalized_shape):
        return NotImplemented
    hat = recorder.other(_standardised if recorder.dual else F.layer_norm, (input, normalized_shape), {"eps": eps})
    return hat if weight is None and bias is None else _affine(recorder, hat, weight, bias, tuple(normalized_shape))


def _group_norm(
    recorder: Recorder, input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:  # fmt: skip
    if any(p is not None and not recorder.name(p) for p in (weight, bias)):
        return NotImplemented
    hat = recorder.other(_group_standardised if recorder.dual else F.group_norm, (input, num_groups), {"eps": eps})
    if weight is None and bias is None:
        return hat
    return _affine(recorder, hat, weight, bias, (input.shape[1], *(1,) * (input.ndim - 2)))


def _instance_norm(
    recorder: Recorder, input: Tensor, running_mean: Any = None, running_var: Any = None, weight: Tensor | None = None,
    bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    hat = recorder.other(_group_standardised, (input, input.shape[1]), {"eps": eps})
    if weight is None and bias is None:
        return hat
    if any(p is not None and not recorder.name(p) for p in (weight, bias)):
        return NotImplemented
    return _affine(recorder, hat, weight, bias, (input.shape[1], *(1,) * (input.ndim - 2)))


# Norms from elementary operations: torch's own forward-mode derivatives of them hold mean and deviation constant when
# they are differentiated once more.


def _standardised(input: Tensor, normalized_shape: Sequence[int], eps: float) -> Tensor:
    dims = tuple(range(-len(normalized_shape), 0))
    centred = input - input.mean(dims, keepdim=True)
    return centred * (centred.square().mean(dims, keepdim=True) + eps).rsqrt()


def _group_standardised(input: Tensor, num_groups: int, eps: float) -> Tensor:
    grouped = input.reshape(len(input), num_groups, -1)
    return _standardised(grouped, grouped.shape[-1:], eps).reshape(input.shape)


def _batch_standardised(input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    columns = input.transpose(0, 1).reshape(input.shape[1], -1)
    hat = _standardised(columns, columns.shape[-1:], eps)
    hat = hat.reshape(input.shape[1], len(input), *input.shape[2:]).transpose(0, 1)
    spread = (-1, *(1,) * (input.ndim - 2))
    hat = hat if weight is None else hat * weight.view(spread)
    return hat if bias is None else hat + bias.view(spread)


def _relu(recorder: Recorder, input: Tensor, inplace: bool = False) -> Any:
    """Never in place, since recorded layers keep their outputs; the same ReLU of the same value is computed once."""
    known = recorder.rectified.get(id(input))
    if known is not None and known.input() is input and known.versions == (input._version, known.out._version):
        if recorder.codes:
            recorder.patterns.append((known.out.grad_fn, known.codes))
        recorder.notes.kinks += 1
        return known.out
    out = torch.relu(input)
    if recorder.dual:
        tangent = recorder.tangents.get(input)
        if tangent is not None:
            recorder.tangents.set(out, torch.ops.aten.threshold_backward(tangent, out, 0))
    recorder.kink(input, out)
    if recorder.shares_relus:
        codes = recorder.patterns[-1][1] if recorder.codes else torch.empty(0)
        recorder.rectified[id(input)] = _Rectified(weakref.ref(input), (input._version, out._version), out, codes)
        recorder.fix(out)
    return out


def _add(recorder: Recorder, input: Any, other: Any, **kwargs: Any) -> Any:
    """A sum of two values, the operation that cells have most of."""
    if kwargs or not (recorder.is_value(input) and recorder.is_value(other)):
        return NotImplemented
    out = input + other
    if recorder.dual:
        a, b = recorder.tangents.get(input), recorder.tangents.get(other)
        if a is not None or b is not None:
            a, b = (torch.zeros_like(t) if dt is None else dt for t, dt in ((input, a), (other, b)))
            recorder.tangents.set(out, a + b)
    return out


def _avg_pool(recorder: Recorder, input: Tensor, *args: Any, **kwargs: Any) -> Any:
    if not recorder.is_value(input):
        return NotImplemented
    out = F.avg_pool2d(input, *args, **kwargs)
    if recorder.dual and (tangent := recorder.tangents.get(input)) is not None:
        recorder.tangents.set(out, F.avg_pool2d(tangent, *args, **kwargs))
    return out


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


_HANDLERS: dict[Any, Callable[..., Any]] = {
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
    F.leaky_relu: _leaky_relu,
    F.relu6: _relu6,
    F.dropout: _dropout,
    F.dropout1d: _dropout,
    F.dropout2d: _dropout,
    F.dropout3d: _dropout,
    F.alpha_dropout: _dropout,
    F.feature_alpha_dropout: _dropout,
}

_WITHOUT_TANGENTS = {  # their kernels hand on statistics that torch treats as constants
    "rms_norm", "scaled_dot_product_attention", "multi_head_attention_forward", "lstm", "gru", "rnn_tanh", "rnn_relu",
}  # fmt: skip
_ADDITIVE = {
    torch.add,
    torch.Tensor.add,
    torch.Tensor.__add__,
    torch.sub,
    torch.Tensor.sub,
    torch.Tensor.__sub__,
}
_LINEAR = {
    *_ADDITIVE,
    F.avg_pool1d, F.avg_pool2d, F.avg_pool3d,
    F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d,
    torch.mean, torch.Tensor.mean, torch.sum, torch.Tensor.sum,
    torch.flatten, torch.Tensor.flatten, torch.reshape, torch.Tensor.reshape, torch.Tensor.view,
    torch.permute, torch.Tensor.permute, torch.transpose, torch.Tensor.transpose,
    torch.Tensor.contiguous, torch.Tensor.__getitem__, torch.cat,
}  # fmt: skip
