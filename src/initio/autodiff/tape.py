"""One recorded forward pass from which many backward passes are read.

`record(model, x)` runs any module once, in evaluation mode but with batch statistics, and changes nothing in it. Layers
with weights (convolutions, linear layers, normalisations) are recorded by the functions of this file; all other
operations are left to autograd. The `Tape` then gives, as often as asked and from one forward pass,

- `gradient(cotangent)`: Σ_i J_iᵀ c_i through the batch statistics, as `loss.backward()` would give;
- `per_sample(cotangent, visit)`: layer inputs x and output gradients δ, from which layer-wise kernels are made,
  with batch statistics held constant (`frozen`) or not;
- `input_gradient(cotangent)`;
- `dual_gradient(...)`: if recorded with tangents, g and Hθ together, without a double backward.

**Dual numbers.** With `tangents=True` every value x carries ẋ = d/dt x(θ + tθ) at t = 0. The scalar
T = ⟨∂ℓ/∂f, ḟ⟩ = θᵀg is then a function whose gradient, with the direction held constant, is Hθ. One backward pass of T
meets δ (the loss gradient of z) as the cotangent of ż and δ̇ as that of z, so that g = δ xᵀ and Hθ = δ̇ xᵀ + δ ẋᵀ come
from the same pass. Batch norm's Jacobian is symmetric, so its tangent is its own backward.

**Who holds what.** Functions hold the `Switch`, never the tape, and tangents live in a table beside the tensors: a
cycle through autograd's graph would never be freed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from initio.autodiff.functions import BatchNorm, Layer, Switch, Visit
from initio.autodiff.parts import Parts
from initio.autodiff.recorder import NoTangentError, Notes, Recorder, SharedValueChangedError
from initio.autodiff.spill import within
from initio.errors import InputError

__all__ = ["BatchNorm", "Layer", "NoTangentError", "Notes", "Tape", "Visit", "logits", "record"]


@dataclass
class Tape:
    """A recorded forward pass: f (m, n), perhaps ḟ, and what backward passes need."""

    x: Tensor
    f: Tensor
    ft: Tensor | None
    parameters: dict[str, Tensor]
    switch: Switch
    notes: Notes

    def _run(self, outputs: list[Tensor], cotangents: list[Tensor], inputs: list[Tensor]) -> list[Tensor | None]:
        pairs = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if o.requires_grad]
        if not pairs or not inputs:
            return [None] * len(inputs)
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
        self, cotangent: Tensor, *, fisher: dict[str, Tensor] | None = None, names: Sequence[str] | None = None,
        batch_norm: Literal["frozen", "coupled"] = "coupled",
    ) -> dict[str, Tensor]:  # fmt: skip
        """Σ_i J_iᵀ c_i by parameter; zeros where the output does not depend on one."""
        names = list(self.parameters) if names is None else list(names)
        with self._switched(fisher=fisher, batch_norm=batch_norm, wanted=frozenset(names)):
            out = self._run([self.f], [cotangent], [self.parameters[n] for n in names])
        return {
            n: torch.zeros_like(self.parameters[n]) if g is None else g.detach()
            for n, g in zip(names, out, strict=True)
        }

    def input_gradient(self, cotangent: Tensor, batch_norm: Literal["frozen", "coupled"] = "coupled") -> Tensor:
        """Σ_i (∂f_i/∂x)ᵀ c_i, in the shape of x."""
        with self._switched(batch_norm=batch_norm, wanted=frozenset()):
            (out,) = self._run([self.f], [cotangent], [self.x])
        return torch.zeros_like(self.x) if out is None else out

    def dual_gradient(
        self,
        cotangent: Tensor,
        cotangent_dot: Tensor,
        *,
        fisher: dict[str, Tensor] | None = None,
        names: Sequence[str] | None = None,
        batch_norm: Literal["frozen", "coupled"] = "coupled",
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """(g, Hθ) of a loss with ∂ℓ/∂f = cotangent and d/dt of it = cotangent_dot."""
        assert self.ft is not None
        names = list(self.parameters) if names is None else list(names)
        found: dict[str, Tensor] = {}
        with self._switched(fisher=fisher, gradients=found, batch_norm=batch_norm, wanted=frozenset(names)):
            out = self._run([self.f, self.ft], [cotangent_dot, cotangent], [self.parameters[n] for n in names])
        if unknown := sorted(self.notes.unknown.intersection(names)):
            found.update(self.gradient(cotangent, names=unknown, batch_norm=batch_norm))
        g = {n: found[n] if n in found else torch.zeros_like(self.parameters[n]) for n in names}
        Ht = {n: torch.zeros_like(g[n]) if h is None else h.detach() for n, h in zip(names, out, strict=True)}
        return g, Ht

    def visit(
        self, cotangent: Tensor, visit: Visit, batch_norm: Literal["frozen", "coupled"],
        names: Collection[str] | None = None,
    ) -> None:  # fmt: skip
        """One backward pass of Σ_i ⟨c_i, f_i⟩ that shows (x, δ) of every recorded layer, at least those of `names`."""
        names = self.parameters if names is None else names
        with self._switched(visit=visit, batch_norm=batch_norm, wanted=frozenset(names)):
            self._run([self.f], [cotangent], [p for n, p in self.parameters.items() if n in names])

    def visit_dual(self, cotangent: Tensor, cotangent_dot: Tensor, visit: Visit) -> None:
        """The same for dual numbers, statistics held constant: (x, δ, ẋ, δ̇)."""
        assert self.ft is not None
        with self._switched(visit=visit, batch_norm="frozen"):
            self._run([self.f, self.ft], [cotangent_dot, cotangent], list(self.parameters.values()))


def record(
    model: nn.Module, x: Tensor, *, dtype: torch.dtype = torch.float32, tangents: bool = False,
    theta: frozenset[str] | None = None, codes: bool = False, fisher: bool = False, frozen: bool = False,
    memory: int | None = None,
) -> Tape:  # fmt: skip
    """Runs the model once. `theta` names the parameters that tangents move along; all of them by default.

    Raises `NoTangentError` if tangents are asked for and an operation of the model has none.
    """
    try:
        return _record(model, x, dtype, tangents, theta, codes, fisher, frozen, memory, shares=True)
    except SharedValueChangedError:
        return _record(model, x, dtype, tangents, theta, codes, fisher, frozen, memory, shares=False)


def _record(
    model: nn.Module, x: Tensor, dtype: torch.dtype, tangents: bool, theta: frozenset[str] | None, codes: bool,
    fisher: bool, frozen: bool, memory: int | None, *, shares: bool,
) -> Tape:  # fmt: skip
    parts = Parts(model)
    parameters = {name: _leaf(p, dtype) for name, p in parts.parameters.items()}
    theta = frozenset(parameters) if theta is None else theta
    x = _formatted(x.to(dtype)).requires_grad_()
    switch = Switch()
    recorder = Recorder(
        parameters,
        switch,
        tangents=tangents,
        theta=theta,
        codes=codes,
        fisher=fisher,
        frozen=frozen,
        shares=shares,
        shares_relus=memory is None,  # sharing holds on to values that could wait on disk
    )
    try:
        values = {id(parts.parameters[name]): leaf for name, leaf in parameters.items()}
        values |= {id(b): b.to(dtype) if b.is_floating_point() else b.clone() for b in parts.buffers}
        with parts.evaluated(), parts.replaced(values), torch.enable_grad(), within(memory), recorder:
            f = logits(model(x))
        ft = recorder.tangents.get(f) if tangents else None
        notes = recorder.notes
        if codes and recorder.patterns:
            used = _reached(f)
            zero = torch.zeros(len(x), len(x), dtype=torch.float64)
            notes.codes = sum((K for node, K in recorder.patterns if node in used), zero)
        return Tape(x, f, ft, parameters, switch, notes)
    finally:  # tangents, and through them whole graphs, would wait for the cycle collector
        recorder.tangents.entries.clear()
        recorder.rectified.clear()
        recorder.patterns.clear()


def _leaf(p: Tensor, dtype: torch.dtype) -> Tensor:
    return _formatted(p.detach().to(dtype)).requires_grad_()


def _formatted(t: Tensor) -> Tensor:
    """Channels last, which is about twice as fast on a CPU; always a tensor of our own."""
    format = torch.channels_last if t.ndim == 4 else torch.contiguous_format
    out = t.detach().contiguous(memory_format=format)
    return out.clone() if out is t or out.data_ptr() == t.data_ptr() else out


def logits(f: Any) -> Tensor:
    """The output as a matrix (m, n); of several outputs the first."""
    f = f[0] if isinstance(f, tuple | list) else f
    if not isinstance(f, Tensor):
        raise InputError(f"the model must return a tensor of logits, not {type(f).__name__}")
    return f[:, None] if f.ndim == 1 else f.flatten(1)


def _reached(f: Tensor) -> set[Any]:
    """All nodes of autograd's graph that f depends on."""
    seen: set[Any] = set()
    todo = [f.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [n for n, _ in node.next_functions]
    return seen
