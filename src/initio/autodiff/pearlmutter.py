"""Pearlmutter's R-operator for networks of convolutions, batch norms, ReLUs, poolings and sums (Pearlmutter, 1994).

NASI needs the derivative of T = ‖g‖², g = ∇θ L, with respect to numbers h (gates) that multiply values u inside the
network. Since ∂L/∂h = ⟨δ, u⟩ at h = 1, with δ the loss gradient of the gated value, and derivatives commute,

    ∂T/∂h = 2 gᵀ ∂g/∂h = 2 R{∂L/∂h} = 2 (⟨R{δ}, u⟩ + ⟨δ, R{u}⟩),    R{·} = d/dε · at θ + εg, ε = 0.

Four passes over one tape give all of them, and no double backward:

| pass               | of                                 | for z = W∗x              |
|--------------------|------------------------------------|--------------------------|
| `record`           | values                             | z = W∗x                  |
| `Tape.backward`    | loss gradients δ and g             | δx = Wᵀδ, g = δxᵀ        |
| `Tape.tangent`     | R{values}, in the direction g      | ż = W∗ẋ + g∗x            |
| `Tape.tangent_backward` | R{δ}                          | R{δx} = WᵀR{δ} + gᵀδ     |

Seven convolutions where forward and backward alone need three. Batch norm's Jacobian is symmetric, so its tangent is
its own backward. A value that is alternatively added at the same place (another operation of a supernet, with gate
zero) has the same δ and R{δ} and needs only its own value and tangent: `dual`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import TorchFunctionMode

from initio.autodiff.nodes import (
    Alias,
    BatchNorm,
    Convolution,
    Dense,
    Linear,
    Node,
    Parameters,
    PiecewiseLinear,
    Sum,
    Value,
    pair,
)

aten = torch.ops.aten


class Tape(TorchFunctionMode):
    """Records every operation of a forward pass that runs inside `with tape:`.

    Batch norms always use the statistics of the batch. An operation that has no rule here raises `TypeError`.
    """

    def __init__(self, *leaves: Value) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self.values: dict[int, Value] = {}
        self.parameters = Parameters()
        for leaf in leaves:
            self._keep(leaf)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Dispatches on the function; what touches no recorded value and no parameter just runs."""
        kwargs = kwargs or {}
        rule = _RULES.get(func)
        with torch.no_grad():  # the mode itself is off in here
            if rule is not None:
                node = rule(self, *args, **kwargs)
                return func(*args, **kwargs) if node is None else self._append(node)
            out = func(*args, **kwargs)
        touched = [t for t in _flat(args) if isinstance(t, Tensor) and id(t) in self.values]
        if touched and isinstance(out, Tensor):
            raise TypeError(f"no rule for the tangent of {getattr(func, '__name__', func)}")
        return out

    def _keep(self, value: Value) -> Value:
        self.values[id(value.tensor)] = value
        return value

    def _append(self, node: Node) -> Tensor:
        self.nodes.append(node)
        return self._keep(node.output).tensor

    def value(self, t: Tensor) -> Value | None:
        """The record of a tensor, None for a constant."""
        return self.values.get(id(t))

    def keep(self, *tensors: Tensor) -> None:
        """Their derivatives stay to be read after the passes."""
        for t in tensors:
            self.values[id(t)].kept = True

    def alias(self, t: Tensor) -> Tensor:
        """The same tensor as a new value."""
        value = self.value(t)
        assert value is not None
        with torch._C.DisableTorchFunction():
            return self._append(Alias(value))

    def zeros(self, like: Tensor) -> Tensor:
        """Zeros that have a δ."""
        with torch._C.DisableTorchFunction():
            return self._keep(Value(torch.zeros_like(like))).tensor

    def backward(self, output: Tensor, delta: Tensor) -> None:
        """δ of all values and g of all parameters, from δ of the output."""
        self.values[id(output)].delta = delta
        with torch.no_grad():
            for node in reversed(self.nodes):
                node.backward(self.parameters)
                if not (node.needs_delta or node.output.kept):
                    node.output.delta = None

    def tangent(self) -> None:
        """R{·} of all values in the direction g."""
        last = {id(value): node for node in self.nodes for value in node.reads}
        with torch.no_grad():
            for node in self.nodes:
                node.tangent(self.parameters)
                for value in node.reads:
                    if last[id(value)] is node and not value.kept:
                        value.dot = None

    def tangent_backward(self, output: Tensor, delta_dot: Tensor) -> None:
        """R{δ} of all values, from that of the output."""
        self.values[id(output)].delta_dot = delta_dot
        with torch.no_grad():
            for node in reversed(self.nodes):
                node.tangent_backward(self.parameters)
                if not node.output.kept:
                    node.output.delta = node.output.delta_dot = None


def dual(function: Callable[..., Tensor], *inputs: Value) -> Value:
    """A function of values with its tangent, its parameters held constant."""
    leaves = [Value(value.tensor, value.dot) for value in inputs]
    tape = Tape(*leaves)
    with tape:
        out = function(*[leaf.tensor for leaf in leaves])
    tape.tangent()
    value = tape.value(out)
    assert value is not None
    return value


def _convolution(
    tape: Tape, input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Node:  # fmt: skip
    return Convolution(tape.value(input), input, weight, bias, stride, padding, dilation, groups)


def _dense(tape: Tape, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Node:
    return Dense(tape.value(input), input, weight, bias)


def _batch_norm(
    tape: Tape, input: Tensor, running_mean: Any = None, running_var: Any = None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Node:  # fmt: skip
    return BatchNorm(tape.value(input) or Value(input), weight, bias, eps)


def _relu(tape: Tape, input: Tensor, inplace: bool = False) -> Node | None:
    value = tape.value(input)
    if value is None:
        return None
    y = torch.relu(input)

    def mask(t: Tensor) -> Tensor:
        return aten.threshold_backward(t, y, 0)  # type: ignore[no-any-return]

    return PiecewiseLinear(value, y, mask, mask)


def _max_pool(
    tape: Tape, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Node | None:  # fmt: skip
    value = tape.value(input)
    if value is None:
        return None
    window = (pair(kernel_size), pair(stride or kernel_size), pair(padding), pair(dilation), ceil_mode)
    y, index = aten.max_pool2d_with_indices(input, *window)

    def apply(t: Tensor) -> Tensor:
        return t.flatten(2).gather(2, index.flatten(2)).view_as(y)

    def transpose(t: Tensor) -> Tensor:
        return aten.max_pool2d_with_indices_backward(t, input, *window, index)  # type: ignore[no-any-return]

    return PiecewiseLinear(value, y, apply, transpose)


def _avg_pool(
    tape: Tape, input: Tensor, kernel_size: Any, stride: Any = None, *args: Any, **kwargs: Any
) -> Node | None:
    value = tape.value(input)
    if value is None:
        return None
    stride = kernel_size if stride is None else stride

    def apply(t: Tensor) -> Tensor:
        return F.avg_pool2d(t, kernel_size, stride, *args, **kwargs)

    return Linear([value], apply)


def _add(tape: Tape, a: Any, b: Any) -> Node | None:
    values = [tape.value(t) for t in (a, b) if isinstance(t, Tensor)]
    if len(values) == 2 and values[0] is not None and values[1] is not None:
        return Sum(values[0], values[1])
    if any(value is not None for value in values):
        raise TypeError("no rule for a sum of a recorded value and a constant")
    return None


def _cat(tape: Tape, tensors: Sequence[Tensor], dim: int = 0) -> Node | None:
    values = [tape.value(t) for t in tensors]
    known = [value for value in values if value is not None]
    if not known:
        return None
    if len(known) < len(values):
        raise TypeError("no rule for a concatenation of recorded values and constants")
    return Linear(known, lambda *ts: torch.cat(ts, dim))


def _unary(function: Callable[..., Tensor]) -> Callable[..., Node | None]:
    def rule(tape: Tape, input: Tensor, *args: Any, **kwargs: Any) -> Node | None:
        value = tape.value(input)
        return None if value is None else Linear([value], lambda t: function(t, *args, **kwargs))

    return rule


_RULES: dict[Any, Callable[..., Node | None]] = {
    torch.conv2d: _convolution,
    F.linear: _dense,
    F.batch_norm: _batch_norm,
    F.relu: _relu,
    torch.relu: _relu,
    F.max_pool2d: _max_pool,
    F.avg_pool2d: _avg_pool,
    torch.Tensor.add: _add,
    torch.Tensor.__add__: _add,
    torch.add: _add,
    torch.cat: _cat,
    torch.Tensor.mean: _unary(torch.Tensor.mean),
    torch.Tensor.__getitem__: _unary(torch.Tensor.__getitem__),
    torch.Tensor.flatten: _unary(torch.Tensor.flatten),
    F.pad: _unary(F.pad),
    torch.zeros_like: lambda tape, *args, **kwargs: None,  # a constant
}


def _flat(args: Any) -> list[Any]:
    return [t for a in args for t in (a if isinstance(a, list | tuple) else (a,))]
