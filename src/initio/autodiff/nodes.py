"""Operations of a forward pass, each with the three later passes of Pearlmutter's R-operator (see `pearlmutter`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

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
    """A layer z = W·x + b; `inputs` is None for the network's input, whose δ nobody needs."""

    needs_delta = True

    def __init__(self, inputs: Value | None, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self.inputs, self.x, self.weight, self.bias = inputs, x, weight, bias

    @property
    def reads(self) -> tuple[Value, ...]:
        """The layer's input."""
        return () if self.inputs is None else (self.inputs,)

    @abstractmethod
    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """W·x + b."""

    @abstractmethod
    def transpose(self, delta: Tensor, weight: Tensor) -> Tensor:
        """Wᵀδ."""

    @abstractmethod
    def gradients(self, delta: Tensor) -> tuple[Tensor | None, Tensor]:
        """Wᵀδ, if the input has a δ, and δxᵀ."""

    def backward(self, parameters: Parameters) -> None:
        """δx = Wᵀδ, g = δxᵀ."""
        if (delta := self.output.delta) is None:
            return
        dx, dw = self.gradients(delta)
        parameters.add(self.weight, dw)
        if self.bias is not None:
            parameters.add(self.bias, delta.sum([axis for axis in range(delta.ndim) if axis != 1]))
        if self.inputs is not None:
            self.inputs.add_delta(dx)

    def tangent(self, parameters: Parameters) -> None:
        """ż = W·ẋ + Ẇ·x + ḃ."""
        moved, b = parameters.get(self.weight), parameters.get(self.bias)
        z = None if moved is None else self.apply(self.x, moved, b)
        if self.inputs is not None and self.inputs.dot is not None:
            z = _plus_(z, self.apply(self.inputs.dot, self.weight))
        self.output.dot = z

    def tangent_backward(self, parameters: Parameters) -> None:
        """R{δx} = WᵀR{δ} + Ẇᵀδ."""
        if self.inputs is None:
            return
        moved, dx = parameters.get(self.weight), None
        if self.output.delta_dot is not None:
            dx = self.transpose(self.output.delta_dot, self.weight)
        if self.output.delta is not None and moved is not None:
            dx = _plus_(dx, self.transpose(self.output.delta, moved))
        self.inputs.add_delta_dot(dx)


class Convolution(Weighted):
    """z = W∗x (+ b)."""

    def __init__(
        self, inputs: Value | None, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any,
        dilation: Any, groups: int,
    ) -> None:  # fmt: skip
        super().__init__(inputs, x, weight, bias)
        self.geometry = (pair(stride), pair(padding), pair(dilation))
        self.groups = groups
        self.output = Value(self.apply(x, weight, bias))

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """W∗x + b."""
        return torch.conv2d(x, weight, bias, *self.geometry, self.groups)

    def transpose(self, delta: Tensor, weight: Tensor) -> Tensor:
        """The transposed convolution."""
        dx, _ = self._backward(delta, weight, inputs=True, weights=False)
        assert dx is not None
        return dx

    def gradients(self, delta: Tensor) -> tuple[Tensor | None, Tensor]:
        """Both in one call."""
        dx, dw = self._backward(delta, self.weight, inputs=self.inputs is not None, weights=True)
        assert dw is not None
        return dx, dw

    def _backward(
        self, delta: Tensor, weight: Tensor, *, inputs: bool, weights: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        sizes = None if self.bias is None else [len(self.bias)]
        dx, dw, _ = aten.convolution_backward(
            delta, self.x, weight, sizes, *self.geometry, False, (0, 0), self.groups, [inputs, weights, False]
        )
        return dx, dw


class Dense(Weighted):
    """z = xWᵀ + b."""

    def __init__(self, inputs: Value | None, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(inputs, x, weight, bias)
        self.output = Value(self.apply(x, weight, bias))

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """xWᵀ + b."""
        return F.linear(x, weight, bias)

    def transpose(self, delta: Tensor, weight: Tensor) -> Tensor:
        """δW."""
        return delta @ weight

    def gradients(self, delta: Tensor) -> tuple[Tensor | None, Tensor]:
        """δW and δᵀx."""
        return None if self.inputs is None else delta @ self.weight, delta.T @ self.x


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


def pair(value: int | Sequence[int]) -> tuple[int, int]:
    """Height and width."""
    if isinstance(value, int):
        return value, value
    first, second = value
    return first, second
