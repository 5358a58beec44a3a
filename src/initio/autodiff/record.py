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

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from initio.autodiff.audit import audit
from initio.autodiff.cells import CellUse, noted
from initio.autodiff.handlers import HANDLERS, PLAIN_HANDLERS
from initio.autodiff.parts import Parts
from initio.autodiff.recorder import (
    CurvedError,
    NoTangentError,
    Notes,
    Purpose,
    Recorder,
    SharedValueChangedError,
    Watched,
    watch,
)
from initio.autodiff.spill import within
from initio.autodiff.switch import Layer, PartGradients, Recall, Statistics, Switch, Visit
from initio.errors import InputError

__all__ = [
    "CellUse",
    "Layer",
    "NoTangentError",
    "Notes",
    "PartGradients",
    "Recall",
    "Tape",
    "Visit",
    "logits",
    "push",
    "record",
    "watch",
]


# apart: row i of every layer belongs to sample i; elsewhere: some layer's rows are other than samples, as where time
# comes first; together: an output depends on other samples, beyond the statistics of batch norm
Samples = Literal["apart", "elsewhere", "together"]


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
    watched: dict[int, Watched]
    kinks: list[tuple[Any, Tensor]]  # graph nodes of ReLUs and their code matrices, where rows need a check

    @cached_property
    def samples(self) -> Samples:
        """Whether rows of layers belong to single samples; `apart` is what layer-wise kernels rest on.

        Where the graph alone does not tell (see `audit.py`), half of the outputs are differentiated, and then the
        other half: no row of the others may have a gradient.
        """
        if self.notes.by_row:
            return "apart"
        m = len(self.x)
        generator = torch.Generator().manual_seed(0)
        cotangent = torch.randn(self.f.shape, generator=generator, dtype=self.f.dtype).to(self.f.device)
        half = torch.arange(m) % 2 == 0
        half[m // 2 :] = ~half[m // 2 :] ^ (torch.rand(m - m // 2, generator=generator) < 0.5)
        half = half.to(self.f.device)
        found: set[Samples] = {self._rows_beside(cotangent, half), self._rows_beside(cotangent, ~half)}
        if "together" in found:
            return "together"
        if "elsewhere" in found:
            return "elsewhere"
        return "apart"

    def _rows_beside(self, cotangent: Tensor, chosen: Tensor) -> Samples:
        """What rows beside the chosen ones have a gradient of the chosen outputs: none, layers', or inputs'."""
        m, moved = len(self.x), list[bool]()

        def look(rows: Tensor, gradient: Tensor) -> None:
            moved.append(not (len(rows) == len(gradient) == m) or bool(gradient[~chosen].any()))

        def visit(_layer: Layer, x: Tensor, delta: Tensor, _xt: Tensor | None, _dt: Tensor | None) -> None:
            look(x, delta)

        def hook(K: Tensor) -> Callable[..., None]:
            return lambda gradients: look(K, gradients[0]) if gradients[0] is not None else None

        hooks = [node.register_prehook(hook(K)) for node, K in self.kinks]
        try:
            *_, gx = self._run(
                [self.f], [cotangent * chosen[:, None]], [*self.parameters.values(), self.x], visit=visit,
                batch_norm="frozen", wanted=frozenset(self.parameters),
            )  # fmt: skip
        finally:
            for handle in hooks:
                handle.remove()
        if gx is not None and bool(gx[~chosen].any()):
            return "together"
        if any(moved):
            return "elsewhere"
        return "apart"

    def _run(
        self, outputs: Sequence[Tensor], cotangents: Sequence[Tensor], inputs: Sequence[Tensor], **switches: Any
    ) -> list[Tensor | None]:
        """One backward pass: Σ ⟨cotangent, ∂output/∂input⟩; None is zero."""
        pairs = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if o.requires_grad]
        if not pairs or not inputs:
            return [None] * len(inputs)
        switches["to_inputs"] = any(t is self.x for t in inputs)
        with self._switched(**switches), plain_arithmetic(), _named("torch cannot differentiate the model"):
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
        self, cotangent: Tensor, *, fisher: dict[str, Tensor] | None = None, by_part: PartGradients | None = None,
        names: Collection[str] | None = None, batch_norm: Statistics = "coupled",
    ) -> dict[str, Tensor]:  # fmt: skip
        """Σ_i J_iᵀ c_i by parameter; zeros where the output does not depend on one."""
        leaves = self._leaves(names, self.parameters)
        watched = [w for w in self.watched.values() if w.memo is not None]
        out = self._run(
            [self.f], [cotangent], [*leaves.values(), *(w.value for w in watched)],
            fisher=fisher, by_part=by_part, batch_norm=batch_norm, wanted=frozenset(leaves),
        )  # fmt: skip
        for w, delta in zip(watched, out[len(leaves) :], strict=True):
            assert w.memo is not None
            w.memo.delta = delta
        return _filled(leaves, out[: len(leaves)])

    def input_gradient(self, cotangent: Tensor) -> Tensor:
        """Σ_i (∂f_i/∂x)ᵀ c_i, in the shape of x."""
        out = self._run([self.f], [cotangent], [self.x], wanted=frozenset())
        return _filled({"x": self.x}, out)["x"]

    def dual_gradient(
        self, cotangent: Tensor, cotangent_dot: Tensor, *, fisher: dict[str, Tensor] | None = None,
        by_part: PartGradients | None = None, names: Collection[str] | None = None, batch_norm: Statistics = "coupled",
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:  # fmt: skip
        """(g, Hv) of a loss with ∂ℓ/∂f = cotangent and d/dt of it = cotangent_dot, for parameters that move."""
        leaves = self._leaves(names, self.moving)
        g: dict[str, Tensor] = {}
        Hv = self._dual_run(
            cotangent, cotangent_dot, list(leaves.values()),
            fisher=fisher, by_part=by_part, gradients=g, batch_norm=batch_norm, wanted=frozenset(leaves),
        )  # fmt: skip
        if unknown := sorted(self.notes.unknown.intersection(leaves)):
            g |= self.gradient(cotangent, names=unknown, batch_norm=batch_norm)
        return _filled(leaves, [g.get(name) for name in leaves]), _filled(leaves, Hv)

    def through(self, cell: CellUse, delta: Tensor) -> Tensor | None:
        """Jᵀδ: the gradient of a cell's input from one of its output; None where it does not depend on it."""
        if cell.source is None:
            return None
        switched = self._switched(wanted=frozenset(), to_inputs=True)
        with switched, plain_arithmetic(), _named("torch cannot differentiate a cell"):
            return torch.autograd.grad(
                [cell.target.edge], [cell.source.edge], [delta], retain_graph=True, allow_unused=True
            )[0]

    def curvature(
        self, loss_gradient: Callable[[Tensor], Tensor], direction: Mapping[str, Tensor],
        batch_norm: Statistics = "coupled",
    ) -> dict[str, Tensor]:  # fmt: skip
        """Hv by a double backward, which a `plain` pass allows; `loss_gradient` maps f to ∂L/∂f."""
        leaves = self._leaves(direction, ())
        Hv: Sequence[Tensor | None] = [None] * len(leaves)
        if self.f.requires_grad and leaves:
            with self._switched(batch_norm=batch_norm), plain_arithmetic(), torch.enable_grad():
                g = torch.autograd.grad(
                    self.f, list(leaves.values()), loss_gradient(self.f), create_graph=True, allow_unused=True
                )
                S = torch.zeros((), dtype=self.f.dtype, device=self.f.device)  # vᵀg, whose gradient is Hv
                for name, t in zip(leaves, g, strict=True):
                    if t is not None and t.requires_grad:
                        S = S + (t * direction[name].detach().to(S.dtype)).sum()
                if S.requires_grad:
                    Hv = torch.autograd.grad(S, list(leaves.values()), retain_graph=True, allow_unused=True)
        return _filled(leaves, Hv)

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
        memos = [self.watched[id(t)].memo for t in values]
        tangents = [self.tangent(t) for t, memo in zip(values, memos, strict=True) if memo is None]
        out = self._dual_run(cotangent, cotangent_dot, [*values, *tangents], wanted=frozenset())
        deltas = out[len(values) :] or [memo.delta for memo in memos if memo is not None]
        return list(zip(deltas, out[: len(values)], strict=True))

    def tangent(self, t: Tensor) -> Tensor:
        """The tangent of a watched value."""
        tangent = self.watched[id(t)].tangent
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
    """Without autocast and TF32, under which products of float32 would be rounded to fewer digits."""
    with (
        torch.autocast("cpu", enabled=False),
        torch.autocast("cuda", enabled=False),
        torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False),
    ):
        yield


def record(
    model: nn.Module, x: Tensor, *, direction: Mapping[str, Tensor] | None = None, dtype: torch.dtype = torch.float32,
    codes: bool = False, fisher: bool = False, features: bool = False, cells: Collection[nn.Module] = (),
    frozen: bool = False, memory: int | None = None, plain: bool = False, recall: Recall | None = None,
    values: Mapping[str, Tensor] | None = None,
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
        features: note how the channels of batch norms, or else of layers, go together.
        cells: modules inside of the model whose runs are noted.
        frozen: batch statistics do not move with the direction.
        memory: bytes that the process should stay below; None for no limit.
        recall: the same one for a pass without direction, from which a gradient is read, and for a second pass of the
            same model and input, whose backward passes start from the same cotangent: it computes less [see `Recall`].
        plain: leave all but batch norm and dropout to autograd: slow, for models that recorded functions disturb.
        values: of a plain pass's parameters, in the place of the model's own.
    """
    if plain:
        with sdpa_kernel(SDPBackend.MATH):  # the only one that can be differentiated twice
            purpose = Purpose(codes, features=features, shares=False, plain=True)
            return _record(model, x, None, dtype, memory, purpose, None, cells, values)
    purpose = Purpose(codes, fisher, features, frozen, shares=True, shares_relus=memory is None)
    try:
        return _record(model, x, direction, dtype, memory, purpose, recall, cells)
    except CurvedError:
        return _record(model, x, direction, dtype, memory, purpose, None, cells)
    except SharedValueChangedError:
        return _record(model, x, direction, dtype, memory, replace(purpose, shares=False), recall, cells)


def _record(
    model: nn.Module, x: Tensor, direction: Mapping[str, Tensor] | None, dtype: torch.dtype, memory: int | None,
    purpose: Purpose, recall: Recall | None, cells: Collection[nn.Module], values: Mapping[str, Tensor] | None = None,
) -> Tape:  # fmt: skip
    parts = Parts(model)
    parts.check()
    given = values or parts.parameters
    parameters = {name: _formatted(given[name].to(dtype)).requires_grad_() for name in parts.parameters}
    x = _formatted(x.to(dtype)).requires_grad_()
    v = None
    if direction is not None:
        v = {name: _direction(name, d, parts, parameters) for name, d in direction.items()}
    if recall is not None:
        recall.start()
    standing = {id(parts.parameters[name]): leaf for name, leaf in parameters.items()} | parts.buffer_copies(dtype)
    with torch.enable_grad():
        recorder = Recorder(parameters, v, PLAIN_HANDLERS if purpose.plain else HANDLERS, purpose, recall)
        recorder.switch.inputs = x
    try:
        with (
            within(memory), parts.standing_in(standing, spills=memory is not None), torch.enable_grad(),
            plain_arithmetic(), recorder, noted(cells) as runs,
        ):  # fmt: skip
            f = output(model, x.clone() if purpose.plain else x)
        notes = recorder.notes
        reached = audit(f, recorder, len(x), {id(p): name for name, p in parts.parameters.items()})
        if v is not None and notes.hidden:
            raise NoTangentError(", ".join(sorted(notes.hidden)))
        kinks = [(node, K) for node, K in recorder.patterns if node in reached]
        if recorder.patterns and all(len(K) == len(x) for _, K in kinks):
            notes.codes = sum((K for _, K in kinks), torch.zeros(len(x), len(x), dtype=torch.float64, device=x.device))
        notes.features = [G for node, G in recorder.features if node in reached]
        notes.cells = [run for run in runs if run.target.edge.node in reached]
        if notes.by_row:
            kinks = []
        return Tape(
            x, f, recorder.tangents.get(f), parameters, frozenset(v or ()), recorder.switch, notes, recorder.watched,
            kinks,
        )  # fmt: skip
    finally:
        recorder.forget()


def _direction(name: str, v: Tensor, parts: Parts, parameters: Mapping[str, Tensor]) -> Tensor:
    """v as the recorder needs it: the leaf itself where v is the model's own parameter."""
    if v is parts.parameters[name]:
        return parameters[name]
    return _laid_out(v.to(parameters[name].dtype))  # which is only read


def _laid_out(t: Tensor) -> Tensor:
    """Channels last, which is about twice as fast on a CPU."""
    format = torch.contiguous_format
    if t.ndim == 4:
        format = torch.channels_last
    return t.detach().contiguous(memory_format=format)


def _formatted(t: Tensor) -> Tensor:
    """The same, always a tensor of our own."""
    out = _laid_out(t)
    if out.data_ptr() == t.data_ptr():
        return out.clone()
    return out


def output(model: nn.Module, x: Tensor) -> Tensor:
    """The model's logits (m, n), or an `InputError` that says what is wrong with them."""
    with _named(
        f"the model does not take inputs of shape {tuple(x.shape)} and type {str(x.dtype).removeprefix('torch.')}"
    ):
        f = model(x)
    return logits(f, len(x))


def logits(f: Any, m: int) -> Tensor:
    """The output as a matrix (m, n); of several outputs the first.

    >>> logits(torch.zeros(2, 3, 4, 4), 2)
    Traceback (most recent call last):
    initio.errors.InputError: the model must return a tensor of logits (2, classes), not one of shape (2, 3, 4, 4)
    """
    if isinstance(f, tuple | list) and f:
        f = f[0]
    if not isinstance(f, Tensor):
        raise InputError(f"the model must return a tensor of logits, not {type(f).__name__}")
    if not f.is_floating_point():
        raise InputError(
            f"the model must return logits that are real numbers, not {str(f.dtype).removeprefix('torch.')}"
        )
    if f.ndim == 1 and len(f) == m:
        return f[:, None]
    if f.ndim < 2 or len(f) != m or math.prod(f.shape[2:]) != 1 or not f.numel():
        raise InputError(f"the model must return a tensor of logits ({m}, classes), not one of shape {tuple(f.shape)}")
    if f.ndim == 2:
        return f
    return f.flatten(1)


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Turns what goes wrong inside torch or the model into one sentence that begins with `what`."""
    try:
        yield
    except (InputError, CurvedError, NoTangentError, SharedValueChangedError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split("\n")[0].split())[:200]
        raise InputError(f"{what}: {type(error).__name__}: {reason}") from error


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
