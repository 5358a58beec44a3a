"""`record`: one forward pass of any module, and the `Tape` from which many backward passes are read.

The model runs in evaluation mode but with batch statistics, and nothing in it changes. The `Tape` then gives, as often
as asked and from one forward pass,

- `gradient(cotangent)`: Σ_i J_iᵀ c_i through the batch statistics, as `loss.backward()` would give;
- `visit(cotangent, visit)`: layer inputs x and output gradients δ, from which layer-wise kernels are made, with batch
  statistics held constant (`frozen`) or not;
- `input_gradient(cotangent)`;
- recorded with a direction v: `dual_gradient`, g and Hv together; `visit_dual`, layers with their tangents; and
  `watched_gradients`, δ and δ̇ of values that the model watches.

**Dual numbers.** With a direction v every value x carries ẋ = d/dt x(θ + tv) at t = 0. The scalar
S = ⟨∂ℓ/∂f, ḟ⟩ = vᵀg is then a function whose gradient, with the direction held constant, is Hv. One backward pass of S
meets δ (the loss gradient of z) as the cotangent of ż and δ̇ as that of z, so that g = δ xᵀ and Hv = δ̇ xᵀ + δ ẋᵀ come
from the same pass, without a double backward [Pearlmutter 1994]. GraSP needs Hθ. NASI needs, for numbers h (gates, one
each) that multiply values u inside the network, the derivative of T = ‖g‖². As ∂L/∂h = ⟨δ, u⟩, and derivatives commute,

    ∂T/∂h = 2 gᵀ ∂g/∂h = 2 d/dt ∂L/∂h = 2 (⟨δ̇, u⟩ + ⟨δ, u̇⟩)    in the direction v = g.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from initio.autodiff.handlers import HANDLERS
from initio.autodiff.parts import Parts
from initio.autodiff.recorder import NoTangentError, Notes, Purpose, Recorder, SharedValueChangedError, watch
from initio.autodiff.spill import within
from initio.autodiff.switch import Layer, Statistics, Switch, Visit
from initio.errors import InputError

__all__ = ["Layer", "NoTangentError", "Notes", "Tape", "Visit", "logits", "push", "record", "watch"]


@dataclass
class Tape:
    """A recorded forward pass: f (m, n), perhaps ḟ, and what backward passes need."""

    x: Tensor
    f: Tensor
    ft: Tensor | None
    parameters: dict[str, Tensor]
    moving: frozenset[str]  # the parameters that the direction moves
    switch: Switch
    notes: Notes
    watched: dict[int, tuple[Tensor, Tensor | None]]

    def _run(
        self, outputs: Sequence[Tensor], cotangents: Sequence[Tensor], inputs: Sequence[Tensor], **switches: Any
    ) -> list[Tensor | None]:
        """One backward pass: Σ ⟨cotangent, ∂output/∂input⟩; None is zero."""
        pairs = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if o.requires_grad]
        if not pairs or not inputs:
            return [None] * len(inputs)
        with self._switched(**switches), plain_arithmetic():
            return list(
                torch.autograd.grad(
                    [o for o, _ in pairs], inputs, [c for _, c in pairs], retain_graph=True, allow_unused=True
                )
            )

    @contextmanager
    def _switched(self, **values: Any) -> Iterator[None]:
        old = dict(vars(self.switch))
        vars(self.switch).update(values)
        try:
            yield
        finally:
            vars(self.switch).update(old)

    def gradient(
        self, cotangent: Tensor, *, fisher: dict[str, Tensor] | None = None, names: Collection[str] | None = None,
        batch_norm: Statistics = "coupled",
    ) -> dict[str, Tensor]:  # fmt: skip
        """Σ_i J_iᵀ c_i by parameter; zeros where the output does not depend on one."""
        leaves = self._leaves(names, self.parameters)
        out = self._run(
            [self.f], [cotangent], list(leaves.values()), fisher=fisher, batch_norm=batch_norm, wanted=frozenset(leaves)
        )
        return _filled(leaves, out)

    def input_gradient(self, cotangent: Tensor, batch_norm: Statistics = "coupled") -> Tensor:
        """Σ_i (∂f_i/∂x)ᵀ c_i, in the shape of x."""
        out = self._run([self.f], [cotangent], [self.x], batch_norm=batch_norm, wanted=frozenset())
        return _filled({"x": self.x}, out)["x"]

    def dual_gradient(
        self, cotangent: Tensor, cotangent_dot: Tensor, *, fisher: dict[str, Tensor] | None = None,
        names: Collection[str] | None = None, batch_norm: Statistics = "coupled",
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:  # fmt: skip
        """(g, Hv) of a loss with ∂ℓ/∂f = cotangent and d/dt of it = cotangent_dot, for parameters that move."""
        leaves = self._leaves(names, self.moving)
        g: dict[str, Tensor] = {}
        Hv = self._dual_run(
            cotangent, cotangent_dot, list(leaves.values()),
            fisher=fisher, gradients=g, batch_norm=batch_norm, wanted=frozenset(leaves),
        )  # fmt: skip
        if unknown := sorted(self.notes.unknown.intersection(leaves)):
            g |= self.gradient(cotangent, names=unknown, batch_norm=batch_norm)
        return _filled(leaves, [g.get(name) for name in leaves]), _filled(leaves, Hv)

    def visit(
        self, cotangent: Tensor, visit: Visit, batch_norm: Statistics, names: Collection[str] | None = None
    ) -> None:
        """One backward pass of Σ_i ⟨c_i, f_i⟩ that shows (x, δ) of every recorded layer, at least those of `names`."""
        names = frozenset(self.parameters if names is None else names)
        leaves = [p for n, p in self.parameters.items() if n in names]
        self._run([self.f], [cotangent], leaves, visit=visit, batch_norm=batch_norm, wanted=names)

    def visit_dual(self, cotangent: Tensor, cotangent_dot: Tensor, visit: Visit) -> None:
        """The same for dual numbers, statistics held constant: (x, δ, ẋ, δ̇)."""
        leaves = list(self.parameters.values())
        self._dual_run(cotangent, cotangent_dot, leaves, visit=visit, batch_norm="frozen")

    def watched_gradients(
        self, cotangent: Tensor, cotangent_dot: Tensor, values: Sequence[Tensor]
    ) -> list[tuple[Tensor | None, Tensor | None]]:
        """(δ, δ̇) of watched values; None is zero. No parameter's gradient is computed."""
        tangents = [self.tangent(t) for t in values]
        out = self._dual_run(cotangent, cotangent_dot, [*values, *tangents], wanted=frozenset())
        return list(zip(out[len(values) :], out[: len(values)], strict=True))

    def tangent(self, t: Tensor) -> Tensor:
        """The tangent of a watched value."""
        _, tangent = self.watched[id(t)]
        assert tangent is not None
        return tangent

    def _dual_run(
        self, cotangent: Tensor, cotangent_dot: Tensor, inputs: list[Tensor], **switches: Any
    ) -> list[Tensor | None]:
        """The backward pass of ⟨δ̇, f⟩ + ⟨δ, ḟ⟩."""
        assert self.ft is not None
        return self._run([self.f, self.ft], [cotangent_dot, cotangent], inputs, **switches)

    def _leaves(self, names: Collection[str] | None, default: Collection[str]) -> dict[str, Tensor]:
        return {n: self.parameters[n] for n in (default if names is None else names)}


def _filled(leaves: Mapping[str, Tensor], found: Sequence[Tensor | None]) -> dict[str, Tensor]:
    """Gradients by name, zeros where there is none."""
    out = {}
    for (name, leaf), gradient in zip(leaves.items(), found, strict=True):
        out[name] = torch.zeros_like(leaf) if gradient is None else gradient.detach()
    return out


@contextmanager
def plain_arithmetic() -> Iterator[None]:
    """Without autocast, under which products of float32 would be rounded to fewer digits."""
    with torch.autocast("cpu", enabled=False):
        yield


def record(
    model: nn.Module, x: Tensor, *, direction: Mapping[str, Tensor] | None = None, dtype: torch.dtype = torch.float32,
    codes: bool = False, fisher: bool = False, frozen: bool = False, memory: int | None = None,
) -> Tape:  # fmt: skip
    """Runs the model once and keeps what backward passes need.

    Raises `NoTangentError` if there is a direction and an operation of the model has no tangent.

    Args:
        model: any module whose output is a tensor with one row an input.
        x: inputs.
        direction: v by parameter name, in which tangents are carried; a parameter without v stands still. Where v is
            the model's own parameter, as in GraSP's direction θ, layers cost one convolution less.
        dtype: of the arithmetic.
        codes: note NASWOT's codes.
        fisher: keep what Fisher's sums are made of.
        frozen: batch statistics do not move with the direction.
        memory: bytes that the process should stay below; None for no limit.
    """
    purpose = Purpose(codes, fisher, frozen, shares=True, shares_relus=memory is None)
    try:
        return _record(model, x, direction, dtype, memory, purpose)
    except SharedValueChangedError:
        return _record(model, x, direction, dtype, memory, Purpose(codes, fisher, frozen, shares=False))


def _record(
    model: nn.Module, x: Tensor, direction: Mapping[str, Tensor] | None, dtype: torch.dtype, memory: int | None,
    purpose: Purpose,
) -> Tape:  # fmt: skip
    parts = Parts(model)
    parameters = {name: _formatted(p.to(dtype)).requires_grad_() for name, p in parts.parameters.items()}
    x = _formatted(x.to(dtype)).requires_grad_()
    v = None
    if direction is not None:
        v = {name: _direction(name, d, parts, parameters) for name, d in direction.items()}
    recorder = Recorder(parameters, v, HANDLERS, purpose)
    values = {id(parts.parameters[name]): leaf for name, leaf in parameters.items()} | parts.buffer_copies(dtype)
    try:
        with parts.standing_in(values), torch.enable_grad(), plain_arithmetic(), within(memory), recorder:
            f = logits(model(x))
        if recorder.patterns:
            recorder.notes.codes = _codes_that_reach(f, recorder.patterns, len(x))
        moving = frozenset(v or ())
        return Tape(
            x, f, recorder.tangents.get(f), parameters, moving, recorder.switch, recorder.notes, recorder.watched
        )
    finally:
        recorder.forget()


def _direction(name: str, v: Tensor, parts: Parts, parameters: Mapping[str, Tensor]) -> Tensor:
    """v as the recorder needs it: the leaf itself where v is the model's own parameter."""
    if v is parts.parameters[name]:
        return parameters[name]
    return _formatted(v.to(parameters[name].dtype))


def _formatted(t: Tensor) -> Tensor:
    """Channels last, which is about twice as fast on a CPU; always a tensor of our own."""
    format = torch.contiguous_format
    if t.ndim == 4:
        format = torch.channels_last
    out = t.detach().contiguous(memory_format=format)
    if out.data_ptr() == t.data_ptr():
        return out.clone()
    return out


def logits(f: Any) -> Tensor:
    """The output as a matrix (m, n); of several outputs the first."""
    if isinstance(f, tuple | list):
        f = f[0]
    if not isinstance(f, Tensor):
        raise InputError(f"the model must return a tensor of logits, not {type(f).__name__}")
    if f.ndim == 1:
        return f[:, None]
    return f.flatten(1)


def _codes_that_reach(f: Tensor, patterns: list[tuple[Any, Tensor]], m: int) -> Tensor:
    """Σ of the code matrices of those ReLUs that f depends on, by autograd's graph."""
    seen: set[Any] = set()
    todo = [f.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [n for n, _ in node.next_functions]
    return sum((K for node, K in patterns if node in seen), torch.zeros(m, m, dtype=torch.float64))


@torch.no_grad()
def push(function: Callable[..., Tensor], *inputs: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor | None]:
    """(y, ẏ) of a function of values that move, from pairs (x, ẋ), while parameters stand still; None is zero.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> _ = nn.init.ones_(layer.weight)
    >>> push(layer, (torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.0]])))
    (tensor([[3.]]), tensor([[0.5000]]))
    """
    recorder = _Still({}, {}, HANDLERS, Purpose(shares=False))
    for value, tangent in inputs:
        recorder.tangents.set(value, tangent)
    try:
        with plain_arithmetic(), recorder:
            y = function(*(value for value, _ in inputs))
        return y, recorder.tangents.get(y)
    finally:
        recorder.forget()


class _Still(Recorder):
    """No parameter moves, whosever it is."""

    def name(self, t: Tensor | None) -> str:
        """Anything will do."""
        return "a parameter" * isinstance(t, nn.Parameter)
