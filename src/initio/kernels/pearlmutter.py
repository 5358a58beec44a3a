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

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import TorchFunctionMode

aten = torch.ops.aten


class Value:
    """A tensor of the forward pass with its loss gradient δ, its tangent, and the tangent of δ; None is zero.

    Derivatives are dropped when no later pass needs them, unless `kept` is set.
    """

    __slots__ = ("delta", "delta_dot", "dot", "kept", "tensor")

    def __init__(self, tensor: Tensor, dot: Tensor | None = None) -> None:
        self.tensor, self.dot, self.kept = tensor, dot, False
        self.delta: Tensor | None = None
        self.delta_dot: Tensor | None = None

    def add_delta(self, t: Tensor | None) -> None:
        """One more use of the value."""
        self.delta = _plus(self.delta, t)

    def add_delta_dot(self, t: Tensor | None) -> None:
        """One more use of the value."""
        self.delta_dot = _plus(self.delta_dot, t)


class Parameters:
    """Gradients g by parameter; they are the direction of the tangents."""

    def __init__(self) -> None:
        self.g: dict[int, Tensor] = {}

    def add(self, parameter: Tensor | None, gradient: Tensor) -> None:
        """Parameters that are used twice have the sum of both gradients."""
        if parameter is not None:
            old = self.g.get(id(parameter))
            self.g[id(parameter)] = gradient if old is None else old + gradient

    def get(self, parameter: Tensor | None) -> Tensor | None:
        """The direction in which a parameter moves."""
        return None if parameter is None else self.g.get(id(parameter))

    def squared_norm(self) -> float:
        """‖g‖², summed in float64."""
        return sum(float(g.double().square().sum()) for g in self.g.values())


class Node(ABC):
    """One operation of the forward pass; the three later passes read and write the values around it."""

    output: Value
    needs_delta = False  # whether δ of the output is read again when its tangent is computed

    @property
    @abstractmethod
    def reads(self) -> tuple[Value, ...]:
        """The recorded values that it is a function of."""

    @abstractmethod
    def backward(self, parameters: Parameters) -> None:
        """δ of the inputs, g of the parameters."""

    @abstractmethod
    def tangent(self, parameters: Parameters) -> None:
        """R{output}."""

    @abstractmethod
    def tangent_backward(self, parameters: Parameters) -> None:
        """R{δ} of the inputs."""


# --- operations ------------------------------------------------------------------------------------------------------


class Weighted(Node):
    """What convolutions and dense layers share; `inputs` is None for the network's input, whose δ nobody needs."""

    needs_delta = True

    def __init__(self, inputs: Value | None, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self.inputs, self.x, self.weight, self.bias = inputs, x, weight, bias

    @property
    def reads(self) -> tuple[Value, ...]:
        """The layer's input."""
        return () if self.inputs is None else (self.inputs,)


class Convolution(Weighted):
    """z = W∗x (+ b)."""

    def __init__(
        self, inputs: Value | None, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any,
        dilation: Any, groups: int,
    ) -> None:  # fmt: skip
        super().__init__(inputs, x, weight, bias)
        self.geometry = (_pair(stride), _pair(padding), _pair(dilation))
        self.groups = groups
        self.output = Value(self._apply(x, weight, bias))

    def _apply(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return torch.conv2d(x, weight, bias, *self.geometry, self.groups)

    def _transpose(self, delta: Tensor, weight: Tensor, *, weights: bool = False) -> tuple[Tensor | None, Tensor]:
        sizes = None if self.bias is None else [len(self.bias)]
        mask = [self.inputs is not None or not weights, weights, False]
        dx, dw, _ = aten.convolution_backward(
            delta, self.x, weight, sizes, *self.geometry, False, (0, 0), self.groups, mask
        )
        return dx, dw

    def backward(self, parameters: Parameters) -> None:
        """δx = Wᵀδ, g = δxᵀ."""
        if self.output.delta is None:
            return
        dx, dw = self._transpose(self.output.delta, self.weight, weights=True)
        parameters.add(self.weight, dw)
        if self.bias is not None:
            parameters.add(self.bias, self.output.delta.sum((0, 2, 3)))
        if self.inputs is not None:
            self.inputs.add_delta(dx)

    def tangent(self, parameters: Parameters) -> None:
        """ż = W∗ẋ + Ẇ∗x + ḃ."""
        moved, b = parameters.get(self.weight), parameters.get(self.bias)
        z = None if moved is None else self._apply(self.x, moved, b)
        if self.inputs is not None and self.inputs.dot is not None:
            z = _plus_(z, self._apply(self.inputs.dot, self.weight))
        self.output.dot = z

    def tangent_backward(self, parameters: Parameters) -> None:
        """R{δx} = WᵀR{δ} + Ẇᵀδ."""
        if self.inputs is None:
            return
        moved, dx = parameters.get(self.weight), None
        if self.output.delta_dot is not None:
            dx, _ = self._transpose(self.output.delta_dot, self.weight)
        if self.output.delta is not None and moved is not None:
            dx = _plus(dx, self._transpose(self.output.delta, moved)[0])
        self.inputs.add_delta_dot(dx)


class Dense(Weighted):
    """z = xWᵀ + b."""

    def __init__(self, inputs: Value | None, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(inputs, x, weight, bias)
        self.output = Value(F.linear(x, weight, bias))

    def backward(self, parameters: Parameters) -> None:
        """δx = δW, g = δᵀx."""
        if (delta := self.output.delta) is None:
            return
        parameters.add(self.weight, delta.T @ self.x)
        parameters.add(self.bias, delta.sum(0))
        if self.inputs is not None:
            self.inputs.add_delta(delta @ self.weight)

    def tangent(self, parameters: Parameters) -> None:
        """ż = ẋWᵀ + xẆᵀ + ḃ."""
        moved, b = parameters.get(self.weight), parameters.get(self.bias)
        z = None if moved is None else F.linear(self.x, moved, b)
        if self.inputs is not None and self.inputs.dot is not None:
            z = _plus_(z, F.linear(self.inputs.dot, self.weight))
        self.output.dot = z

    def tangent_backward(self, parameters: Parameters) -> None:
        """R{δx} = R{δ}W + δẆ."""
        if self.inputs is None:
            return
        moved, dx = parameters.get(self.weight), None
        if self.output.delta_dot is not None:
            dx = self.output.delta_dot @ self.weight
        if self.output.delta is not None and moved is not None:
            dx = _plus_(dx, self.output.delta @ moved)
        self.inputs.add_delta_dot(dx)


class BatchNorm(Node):
    """y = γẑ + β with ẑ = (z − mean)/s, s² = var + ε over the batch. Its Jacobian at γ = 1 is symmetric:

    B(u) = (u − mean(u) − ẑ mean(ẑu)) / s.
    """

    needs_delta = True

    def __init__(self, inputs: Value, weight: Tensor | None, bias: Tensor | None, eps: float) -> None:
        self.inputs, self.weight, self.bias, self.eps = inputs, weight, bias, eps
        z = inputs.tensor
        y, self.mean, self.invstd = aten.native_batch_norm(z, weight, bias, None, None, True, 0.0, eps)
        self.count = z.numel() // z.shape[1]
        self.output = Value(y)
        self.delta_z: Tensor | None = None  # B(γδ)
        self.g_gamma: Tensor | None = None  # Σ ẑδ
        self.B_dot: Tensor | None = None  # B(ż)
        self.zz: Tensor | None = None  # Σ ẑż

    @property
    def reads(self) -> tuple[Value, ...]:
        """z."""
        return (self.inputs,)

    def _jacobian(self, u: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """B(γu), Σ ẑu, Σ u."""
        out: tuple[Tensor, Tensor, Tensor] = aten.native_batch_norm_backward(
            u, self.inputs.tensor, weight, None, None, self.mean, self.invstd, True, self.eps, [True, True, True]
        )
        return out

    def backward(self, parameters: Parameters) -> None:
        """δz = B(γδ), g of γ and β."""
        if self.output.delta is None:
            return
        self.delta_z, self.g_gamma, g_beta = self._jacobian(self.output.delta, self.weight)
        parameters.add(self.weight, self.g_gamma)
        parameters.add(self.bias, g_beta)
        self.inputs.add_delta(self.delta_z)

    def tangent(self, parameters: Parameters) -> None:
        """ẏ = γB(ż) + γ̇ẑ + β̇."""
        z, gamma, beta = self.inputs.tensor, parameters.get(self.weight), parameters.get(self.bias)
        y = None
        if self.inputs.dot is not None:
            self.B_dot, self.zz, _ = self._jacobian(self.inputs.dot, None)
            y = self.B_dot * _spread(self.weight) if self.weight is not None else self.B_dot
        if gamma is not None:
            shift = -gamma * self.invstd * self.mean + (0 if beta is None else beta)
            scaled = torch.addcmul(_spread(shift), z, _spread(gamma * self.invstd))
            y = scaled if y is None else scaled.add_(y)
        self.output.dot = y

    def tangent_backward(self, parameters: Parameters) -> None:
        """R{δz} = B(γR{δ} + γ̇δ) − (ṡ/s) δz − (mean(ẑw)/s) B(ż) − (mean(B(ż)w)/s) ẑ, w = γδ, ṡ = mean(ẑż)."""
        delta, delta_dot, gamma_dot = self.output.delta, self.output.delta_dot, parameters.get(self.weight)
        q = delta_dot
        if q is not None and self.weight is not None:
            q = q * _spread(self.weight)
        if delta is not None and gamma_dot is not None:
            q = delta * _spread(gamma_dot) if q is None else torch.addcmul(q, delta, _spread(gamma_dot))
        out = None if q is None else self._jacobian(q, None)[0]
        if delta is not None and self.B_dot is not None:
            assert self.delta_z is not None
            assert self.g_gamma is not None
            assert self.zz is not None
            gamma = torch.ones_like(self.mean) if self.weight is None else self.weight
            s_dot = self.zz * self.invstd / self.count
            k = (self.B_dot * delta).sum((0, 2, 3)) * gamma * self.invstd / self.count
            out = self.delta_z * _spread(-s_dot) if out is None else out.addcmul_(self.delta_z, _spread(-s_dot))
            out.addcmul_(self.B_dot, _spread(-gamma * self.g_gamma * self.invstd / self.count))
            out.addcmul_(self.inputs.tensor, _spread(-k * self.invstd)).add_(_spread(k * self.invstd * self.mean))
        self.inputs.add_delta_dot(out)
        self.delta_z = self.B_dot = None


class PiecewiseLinear(Node):
    """y = Mx, with M fixed by the sign pattern of x: ReLU and max-pooling."""

    def __init__(
        self, inputs: Value, y: Tensor, apply: Callable[[Tensor], Tensor], transpose: Callable[[Tensor], Tensor]
    ):
        self.inputs, self.output, self.apply, self.transpose = inputs, Value(y), apply, transpose

    @property
    def reads(self) -> tuple[Value, ...]:
        """x."""
        return (self.inputs,)

    def backward(self, parameters: Parameters) -> None:
        """δx = Mᵀδ."""
        self.inputs.add_delta(_map(self.transpose, self.output.delta))

    def tangent(self, parameters: Parameters) -> None:
        """ẏ = Mẋ."""
        self.output.dot = _map(self.apply, self.inputs.dot)

    def tangent_backward(self, parameters: Parameters) -> None:
        """R{δx} = MᵀR{δ}."""
        self.inputs.add_delta_dot(_map(self.transpose, self.output.delta_dot))


class Linear(Node):
    """y = M(x₁, x₂, ...) without parameters: sums, concatenations, slices, means, padding; autograd transposes it."""

    def __init__(self, inputs: Sequence[Value], function: Callable[..., Tensor]) -> None:
        self.inputs, self.function = tuple(inputs), function
        self.leaves = [value.tensor.detach().requires_grad_() for value in inputs]
        with torch.enable_grad():
            self.graph = function(*self.leaves)
        self.output = Value(self.graph.detach())

    @property
    def reads(self) -> tuple[Value, ...]:
        """x₁, x₂, ..."""
        return self.inputs

    def _transpose(self, delta: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self.graph, self.leaves, delta, retain_graph=True)

    def backward(self, parameters: Parameters) -> None:
        """δ = Mᵀδ."""
        if self.output.delta is not None:
            for value, delta in zip(self.inputs, self._transpose(self.output.delta), strict=True):
                value.add_delta(delta)

    def tangent(self, parameters: Parameters) -> None:
        """ẏ = M(ẋ₁, ẋ₂, ...)."""
        if any(value.dot is not None for value in self.inputs):
            dots = [torch.zeros_like(v.tensor) if v.dot is None else v.dot for v in self.inputs]
            self.output.dot = self.function(*dots)

    def tangent_backward(self, parameters: Parameters) -> None:
        """R{δ} = MᵀR{δ}."""
        if self.output.delta_dot is not None:
            for value, delta in zip(self.inputs, self._transpose(self.output.delta_dot), strict=True):
                value.add_delta_dot(delta)


class Sum(Node):
    """y = x₁ + x₂."""

    def __init__(self, a: Value, b: Value) -> None:
        self.inputs = (a, b)
        self.output = Value(a.tensor + b.tensor)

    @property
    def reads(self) -> tuple[Value, ...]:
        """x₁ and x₂."""
        return self.inputs

    def backward(self, parameters: Parameters) -> None:
        """Both get δ."""
        for value in self.inputs:
            value.add_delta(self.output.delta)

    def tangent(self, parameters: Parameters) -> None:
        """ẏ = ẋ₁ + ẋ₂."""
        self.output.dot = _plus(self.inputs[0].dot, self.inputs[1].dot)

    def tangent_backward(self, parameters: Parameters) -> None:
        """Both get R{δ}."""
        for value in self.inputs:
            value.add_delta_dot(self.output.delta_dot)


class Alias(Node):
    """A value under a second name, so that one of its uses has a δ of its own."""

    def __init__(self, inputs: Value) -> None:
        self.inputs, self.output = inputs, Value(inputs.tensor.view_as(inputs.tensor))

    @property
    def reads(self) -> tuple[Value, ...]:
        """The value itself."""
        return (self.inputs,)

    def backward(self, parameters: Parameters) -> None:
        """The same δ."""
        self.inputs.add_delta(self.output.delta)

    def tangent(self, parameters: Parameters) -> None:
        """The same tangent."""
        self.output.dot = self.inputs.dot

    def tangent_backward(self, parameters: Parameters) -> None:
        """The same R{δ}."""
        self.inputs.add_delta_dot(self.output.delta_dot)


# --- recording -------------------------------------------------------------------------------------------------------


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
    window = (_pair(kernel_size), _pair(stride or kernel_size), _pair(padding), _pair(dilation), ceil_mode)
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


# --- tensors ---------------------------------------------------------------------------------------------------------


def _plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def _plus_(mine: Tensor | None, b: Tensor) -> Tensor:
    """As `_plus`, in a tensor that nobody else holds."""
    return b if mine is None else mine.add_(b)


def _map(function: Callable[[Tensor], Tensor], t: Tensor | None) -> Tensor | None:
    return None if t is None else function(t)


def _spread(per_channel: Tensor) -> Tensor:
    return per_channel.view(1, -1, 1, 1)


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    first, second = value
    return first, second


def _flat(args: Any) -> list[Any]:
    return [t for a in args for t in (a if isinstance(a, list | tuple) else (a,))]
