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

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import Function, FunctionCtx, once_differentiable
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from initio.errors import InputError
from initio.kernels import fused
from initio.kernels.layers import Geometry
from initio.kernels.spill import within

BatchNorm = Literal["frozen", "coupled", "hooked"]


@dataclass(frozen=True)
class Layer:
    """A recorded use of weights: their names in the model, and the map they take part in (None: a normalisation)."""

    weight: str
    bias: str
    geometry: Geometry | None
    shape: tuple[int, ...] = ()  # of the weights


# visit(layer, x, δ): for a normalisation x is x̂ summed with δ already, see `_norm_gradients`
Visit = Callable[[Layer, Tensor, Tensor, Tensor | None, Tensor | None], None]


@dataclass
class Switch:
    """What the backward pass that runs now is to do; one for each tape."""

    batch_norm: Literal["frozen", "coupled"] = "coupled"
    visit: Visit | None = None
    gradients: dict[str, Tensor] | None = None  # the dual pass leaves g here
    fisher: dict[str, Tensor] | None = None  # Σ over positions of z ∘ δ, (m, channels), by layer

    def add_gradient(self, name: str, value: Tensor) -> None:
        """Weights that are used twice have the sum of both gradients."""
        if self.gradients is not None and name:
            old = self.gradients.get(name)
            self.gradients[name] = value if old is None else old + value


# --- the recorded functions --------------------------------------------------------------------------------------------


class _Weighted(Function):
    """z = W * x + b, and if recorded with tangents ż = Ẇ * x + W * ẋ + ḃ with (Ẇ, ḃ) = (W, b)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, xt: Tensor | None, layer: Layer, switch: Switch,
        dual: bool, moves: tuple[bool, bool], keep: bool,
    ) -> Any:  # fmt: skip
        assert layer.geometry is not None
        ctx.layer, ctx.switch, ctx.moves, ctx.has_bias, ctx.keep = (
            layer,
            switch,
            moves,
            bias is not None,
            keep,
        )
        ctx.set_materialize_grads(False)
        z = layer.geometry.apply(x, weight, bias)
        ctx.save_for_backward(x, weight, xt, z if keep else None)
        if not dual:
            return z
        zt = None
        if moves[0]:
            zt = z if bias is None or moves[1] else z - _channel(bias, z, layer)
        elif moves[1] and bias is not None:
            zt = _channel(bias, z, layer).expand_as(z)
        if xt is not None:
            zt = layer.geometry.apply(xt, weight) if zt is None else layer.geometry.apply(xt, weight) + zt
        elif zt is z:
            zt = z.clone()
        return z, zt

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor | None, dzt: Tensor | None = None) -> Any:
        layer, switch = ctx.layer, ctx.switch
        geometry = layer.geometry
        x, weight, xt, z = ctx.saved_tensors
        nothing = (None,) * 6
        if dz is None and dzt is None:
            return (None, None, None, *nothing)
        delta = dz if dzt is None else dzt  # the loss gradient of z
        if switch.fisher is not None and ctx.keep:
            _fisher(switch.fisher, layer, z, delta)
        if switch.visit is not None:
            switch.visit(layer, x, delta, xt, dz if dzt is not None else None)
        gx = gxt = gw = gb = None
        if dzt is not None:
            up = dz if not ctx.moves[0] else (dzt if dz is None else dz + dzt)  # Ẇ = W: x meets δ once more
            if ctx.needs_input_grad[0] and up is not None:
                gx = geometry.transpose(up, x, weight)
            if xt is not None and ctx.needs_input_grad[3]:
                gxt = geometry.transpose(dzt, xt, weight)
            if switch.visit is None and ctx.needs_input_grad[1]:
                switch.add_gradient(layer.weight, geometry.outer(x, dzt, weight))
                gw = _sum(
                    None if dz is None else geometry.outer(x, dz, weight),
                    None if xt is None else geometry.outer(xt, dzt, weight),
                )
            if switch.visit is None and ctx.has_bias and ctx.needs_input_grad[2]:
                switch.add_gradient(layer.bias, _bias_gradient(dzt, layer).sum(0))
                gb = None if dz is None else _bias_gradient(dz, layer).sum(0)
        else:
            if ctx.needs_input_grad[0]:
                gx = geometry.transpose(delta, x, weight)
            if switch.visit is None and ctx.needs_input_grad[1]:
                gw = geometry.outer(x, delta, weight)
            if switch.visit is None and ctx.has_bias and ctx.needs_input_grad[2]:
                gb = _bias_gradient(delta, layer).sum(0)
        return gx, gw, gb, gxt, *nothing[1:]


class _BatchNorm(Function):
    """y = γ x̂ + β with x̂ = (z − μ)/√(v + ε), μ and v over batch and positions, summed in float64.

    Backward, coupled: δ_z = γ inv P(δ), P(u) = u − ⟨u⟩ − x̂ ⟨u x̂⟩, ⟨·⟩ the mean over batch and positions. Frozen: P = 1.
    """

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, zt: Tensor | None, gamma: Tensor | None, beta: Tensor | None, eps: float, layer: Layer,
        switch: Switch, dual: bool, moves: bool, frozen: bool,
    ) -> Any:  # fmt: skip
        ctx.set_materialize_grads(False)
        M = z.numel() // z.shape[1]
        mu, var = _moments(z)
        inv = (var + eps).rsqrt()
        g = torch.ones_like(inv) if gamma is None else gamma.double()
        b = torch.zeros_like(inv) if beta is None else beta.double()
        ctx.layer, ctx.switch, ctx.moves, ctx.frozen, ctx.M = layer, switch, moves, frozen, M
        ctx.has_gamma, ctx.has_beta = gamma is not None, beta is not None
        scale = g * inv
        y = _combine(z.shape, b - mu * scale, (z, scale))
        yt, A3, A4 = None, None, None
        if dual:
            terms: list[tuple[Tensor, Tensor]] = []
            const = torch.zeros_like(inv)
            if zt is not None:
                terms.append((zt, scale))
                if not frozen:  # ẏ = γ inv P(ż)
                    first, second = (t.sum(0) for t in _sums(zt, z)[:2])
                    A3 = first / M
                    A4 = inv * (second / M - mu * A3)
                    terms.append((z, -scale * inv * A4))
                    const = scale * (mu * inv * A4 - A3)
            if moves:  # γ̇ x̂ + β̇ = y
                const = const + b - mu * scale
                if len(terms) == 2:
                    terms[1] = (z, terms[1][1] + scale)
                else:
                    terms.append((z, scale))
            yt = _combine(z.shape, const, *terms) if terms else None
        ctx.save_for_backward(z, zt, mu, inv, g, A3, A4)
        return (y, yt) if dual else y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None, dyt: Tensor | None = None) -> Any:
        z, zt, mu, inv, g, A3, A4 = ctx.saved_tensors
        switch, layer, M = ctx.switch, ctx.layer, ctx.M
        nothing = (None,) * 6
        if dy is None and dyt is None:
            return (None, None, None, None, *nothing)
        wanted = ctx.needs_input_grad[2] or ctx.needs_input_grad[3]
        frozen = ctx.frozen or switch.batch_norm == "frozen"
        scale = g * inv
        delta = dy if dyt is None else dyt
        if frozen and dyt is None and not wanted:
            return _combine(z.shape, None, (dy, scale)), None, None, None, *nothing
        raw = _sums(delta, z, dy if dyt is not None else None, zt if dyt is not None else None)
        s1 = raw[0]  # (m, C): Σ_p δ
        s2 = inv * (raw[1] - mu * s1)  # Σ_p δ x̂
        if dyt is None:
            if switch.visit is not None and wanted:
                switch.visit(layer, s2, s1, None, None)
            S1, S2 = s1.sum(0), s2.sum(0)
            gz = _bn_transpose(z, dy, mu, inv, scale, None if frozen else (S1 / M, S2 / M))
            if switch.visit is not None:
                return gz, None, None, None, *nothing
            return gz, None, _like(S2, z, ctx.has_gamma), _like(S1, z, ctx.has_beta), *nothing
        return _dual_norm_backward(ctx, dy, dyt, raw, s1, s2, frozen)


def _bn_transpose(
    z: Tensor, delta: Tensor, mu: Tensor, inv: Tensor, scale: Tensor, means: tuple[Tensor, Tensor] | None
) -> Tensor:
    """γ inv P(δ), or γ inv δ when the statistics are constants."""
    if means is None:
        return _combine(z.shape, None, (delta, scale))
    a1, a2 = means
    return _combine(z.shape, scale * (mu * inv * a2 - a1), (delta, scale), (z, -scale * inv * a2))


def _dual_norm_backward(
    ctx: Any, dy: Tensor | None, dyt: Tensor, raw: list[Tensor], s1: Tensor, s2: Tensor, frozen: bool
) -> Any:  # fmt: skip
    """Cotangents of z, ż, γ, β from δ̇ (of y) and δ (of ẏ): the tangent of batch norm's backward.

    δ̇_z = γ inv P(δ̇) + γ̇ inv P(δ) − γ inv² ⟨x̂ ż⟩ P(δ) − γ inv (x̂̇ ⟨δ x̂⟩ + x̂ ⟨δ x̂̇⟩),  x̂̇ = inv P(ż).
    """
    z, zt, mu, inv, g, A3, A4 = ctx.saved_tensors
    switch, layer, M = ctx.switch, ctx.layer, ctx.M
    nothing = (None,) * 6
    scale = g * inv
    zero = torch.zeros_like(inv)
    mixed, t1 = raw[2], raw[3]  # Σ_p δ ż, Σ_p δ̇
    t2 = inv * (raw[4] - mu * t1)  # Σ_p δ̇ x̂
    if zt is None:
        x3 = torch.zeros_like(s1)
    elif frozen:
        x3 = inv * mixed  # Σ_p δ x̂̇ with x̂̇ = inv ż
    else:
        x3 = inv * (mixed - A3 * s1 - A4 * s2)
    if switch.visit is not None:
        switch.visit(layer, s2, s1, t2 + x3, t1)
    # δ̇_z as one combination: c + a_t δ̇ + a δ + e z + e_t ż
    moved = scale if ctx.moves else zero
    if frozen:
        terms = [(dyt, moved)]
        if dy is not None:
            terms.append((dy, scale))
        gz = _combine(z.shape, None, *terms)
        gzt = None if zt is None else _combine(z.shape, None, (dyt, scale))
    else:
        A1, A2 = s1.sum(0) / M, s2.sum(0) / M
        B1, B2 = t1.sum(0) / M, t2.sum(0) / M
        A5 = x3.sum(0) / M
        a = moved - (zero if zt is None else scale * inv * A4)  # coefficient of P(δ)
        on_hat = -scale * B2 - a * A2 - scale * A5
        const = -scale * B1 - a * A1
        terms = [(dyt, a)]
        if dy is not None:
            terms.append((dy, scale))
        if zt is not None:  # −γ inv A2 x̂̇, x̂̇ = inv (ż − A3 − x̂ A4)
            terms.append((zt, -scale * A2 * inv))
            const = const + scale * A2 * inv * A3
            on_hat = on_hat + scale * A2 * inv * A4
        terms.append((z, on_hat * inv))
        gz = _combine(z.shape, const - on_hat * inv * mu, *terms)
        gzt = None if zt is None else _bn_transpose(z, dyt, mu, inv, scale, (A1, A2))
    if switch.visit is not None:
        return gz, gzt, None, None, *nothing
    if ctx.has_gamma:
        switch.add_gradient(layer.weight, s2.sum(0).to(z.dtype))
    if ctx.has_beta:
        switch.add_gradient(layer.bias, s1.sum(0).to(z.dtype))
    return gz, gzt, _like((t2 + x3).sum(0), z, ctx.has_gamma), _like(t1.sum(0), z, ctx.has_beta), *nothing


class _Affine(Function):
    """y = γ ∘ x̂ + β behind a layer or group norm; γ and β are spread over x̂ by `view`."""

    @staticmethod
    def forward(
        ctx: Any, hat: Tensor, hat_t: Tensor | None, gamma: Tensor | None, beta: Tensor | None, view: tuple[int, ...],
        layer: Layer, switch: Switch, dual: bool, moves: bool,
    ) -> Any:  # fmt: skip
        ctx.set_materialize_grads(False)
        ctx.view, ctx.layer, ctx.switch, ctx.moves = view, layer, switch, moves
        ctx.shapes = tuple(None if p is None else p.shape for p in (gamma, beta))
        ctx.save_for_backward(hat, hat_t, gamma)
        y = hat if gamma is None else hat * gamma.view(view)
        y = y.clone() if gamma is None and beta is None else y
        y = y if beta is None else y + beta.view(view)
        if not dual:
            return y
        yt = None if hat_t is None else (hat_t.clone() if gamma is None else hat_t * gamma.view(view))
        if moves:
            yt = y.clone() if yt is None else yt + y
        return y, yt

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None, dyt: Tensor | None = None) -> Any:
        hat, hat_t, gamma = ctx.saved_tensors
        switch, layer = ctx.switch, ctx.layer
        nothing = (None,) * 5
        if dy is None and dyt is None:
            return (None, None, None, None, *nothing)
        times = (lambda t: t) if gamma is None else (lambda t: t * gamma.view(ctx.view))
        delta = dy if dyt is None else dyt
        first = (self_sum(delta * hat, ctx.view), self_sum(delta, ctx.view))
        second: tuple[Tensor | None, Tensor | None] = (None, None)
        if dyt is not None:
            zero = torch.zeros_like(first[0])
            mixed = zero if hat_t is None else self_sum(dyt * hat_t, ctx.view)
            second = (mixed if dy is None else mixed + self_sum(dy * hat, ctx.view),
                      zero if dy is None else self_sum(dy, ctx.view))  # fmt: skip
        if switch.visit is not None:
            switch.visit(layer, *first, *second)
        ghat = None if dy is None else times(dy)
        ghat_t = None
        if dyt is not None:
            ghat_t = None if hat_t is None else times(dyt)
            ghat = _sum(ghat, times(dyt) if ctx.moves else None)
        if switch.visit is not None:
            return ghat, ghat_t, None, None, *nothing
        out = []
        for value, tangent, name, shape in zip(first, second, (layer.weight, layer.bias), ctx.shapes, strict=True):
            if shape is None:
                out.append(None)
            elif dyt is None:
                out.append(value.sum(0).view(shape).to(hat.dtype))
            else:
                switch.add_gradient(name, value.sum(0).view(shape).to(hat.dtype))
                assert tangent is not None
                out.append(tangent.sum(0).view(shape).to(hat.dtype))
        return ghat, ghat_t, *out, *nothing


def self_sum(t: Tensor, view: tuple[int, ...]) -> Tensor:
    """t summed to (m, parameters): over every dimension but the first where `view` is 1."""
    t = t.double()
    dims = [d for d in range(1, t.ndim) if (d - t.ndim) < -len(view) or view[d - t.ndim] == 1]
    return (t.sum(dims) if dims else t).reshape(len(t), -1)


# --- small tensor helpers ------------------------------------------------------------------------------------------------


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def _like(value: Tensor, z: Tensor, wanted: bool) -> Tensor | None:
    return value.to(z.dtype) if wanted else None


def _per_sample(t: Tensor) -> Tensor:
    """Σ over positions: (m, C, ...) -> (m, C) in float64; float32 sums stay short."""
    return (t.sum(tuple(range(2, t.ndim))) if t.ndim > 2 else t).double()


def _sums(a: Tensor, b: Tensor, c: Tensor | None = None, e: Tensor | None = None) -> list[Tensor]:
    """Σ over positions of a, ab, ae, c, cb, each (m, C) in float64; zeros for what is missing."""
    if lib := fused.usable(a, b, c, e):
        return list(fused.sums(lib, a, b, c, e))
    first = _per_sample(a)
    zero = torch.zeros_like(first)
    return [
        first,
        _per_sample(a * b),
        zero if e is None else _per_sample(a * e),
        zero if c is None else _per_sample(c),
        zero if c is None else _per_sample(c * b),
    ]


def _total(t: Tensor) -> Tensor:
    return _per_sample(t).sum(0)


def _moments(z: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel in float64; centred first where the mean would drown the variance."""
    M = z.numel() // z.shape[1]
    first, second = (t.sum(0) for t in _sums(z, z)[:2])
    mu = first / M
    var = second / M - mu * mu
    if z.dtype != torch.float64 and bool((mu * mu > 100 * var).any()):
        centred = z - _spread(mu, z.shape, z.dtype)
        shift = _total(centred) / M
        var = _total(centred * centred) / M - shift * shift
    elif z.dtype == torch.float64:
        centred = z - _spread(mu, z.shape, z.dtype)
        var = _total(centred * centred) / M
    return mu, var


def _spread(c: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    return c.to(dtype).view(-1, *(1,) * (len(shape) - 2))


def _combine(shape: torch.Size, const: Tensor | None, *terms: tuple[Tensor, Tensor]) -> Tensor:
    """const + Σ t ∘ coefficient, constants and coefficients by channel."""
    if len(terms) > 1 and (lib := fused.usable(*(t for t, _ in terms))):
        return fused.combine(lib, torch.zeros(shape[1]) if const is None else const, list(terms))
    t, a = terms[0]
    a = _spread(a, shape, t.dtype)
    out = t * a if const is None else torch.addcmul(_spread(const, shape, t.dtype), t, a)
    for t, a in terms[1:]:
        out.addcmul_(t, _spread(a, shape, t.dtype))
    return out


def _channel(bias: Tensor, z: Tensor, layer: Layer) -> Tensor:
    assert layer.geometry is not None
    return bias if not layer.geometry.stride else _spread(bias, z.shape, z.dtype)


def _bias_gradient(delta: Tensor, layer: Layer) -> Tensor:
    """One gradient of the bias for each sample."""
    assert layer.geometry is not None
    if layer.geometry.stride:
        return delta.flatten(2).sum(2)
    return delta.reshape(len(delta), -1, delta.shape[-1]).sum(1)


def _fisher(store: dict[str, Tensor], layer: Layer, z: Tensor, delta: Tensor) -> None:
    assert layer.geometry is not None
    if layer.geometry.stride:
        value = _sums(delta, z)[1]
    else:
        value = (z * delta).reshape(len(z), -1, z.shape[-1]).sum(1)
    key = f"{layer.weight}#{sum(name.split('#')[0] == layer.weight for name in store)}"
    store[key] = value


# --- recording -------------------------------------------------------------------------------------------------------


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


class Recorder(TorchFunctionMode):
    """Sends every torch function of a running forward pass to `_Weighted`, `_BatchNorm`, ..., or to autograd."""

    def __init__(
        self, parameters: dict[str, Tensor], switch: Switch, *, tangents: bool, theta: frozenset[str], codes: bool,
        fisher: bool, frozen: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
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
        if name in ("__get__", "__set__", "dim", "size", "__len__", "is_floating_point", "numel"):
            return func(*args, **kwargs)
        leaves, spec = tree_flatten((args, kwargs))
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
        in_place = name.endswith("_") and not name.startswith("__") or name.startswith("__i") and name != "__invert__"
        if func in _LINEAR and not in_place:
            out = func(*args, **kwargs)
            first = isinstance(args[0], Tensor)
            if func in _ADDITIVE or not first:
                tans = [
                    t if t is not None or not isinstance(a, Tensor) else torch.zeros_like(a)
                    for a, t in zip(leaves, tangents, strict=True)
                ]
                if func not in _ADDITIVE or all(isinstance(a, Tensor) for a in leaves[:2]):
                    self._attach(out, self._linear(func, leaves, tans, spec))
                    return out
                self._attach(out, next(t for t in tangents if t is not None).expand_as(out))
                return out
            if tangents[0] is not None and all(t is None for t in tangents[1:]):
                self._attach(out, func(tangents[0], *args[1:], **kwargs))
                return out
        pure = _out_of_place(func, name) if in_place else func
        spots = [i for i, t in enumerate(tangents) if t is not None]

        def run(*values: Tensor) -> Any:
            filled = list(leaves)
            for spot, value in zip(spots, values, strict=True):
                filled[spot] = value
            a, k = tree_unflatten(filled, spec)
            return pure(*a, **k)

        primals = tuple(leaves[i] for i in spots)
        moved = tuple(t for t in tangents if t is not None)
        out, tangent = torch.func.jvp(run, primals, moved)
        if in_place:
            out = func(*args, **kwargs)
        for o, t in zip(tree_flatten(out)[0], tree_flatten(tangent)[0], strict=True):
            if isinstance(o, Tensor) and o.is_floating_point():
                self._attach(o, t)
        return out

    @staticmethod
    def _linear(func: Any, leaves: list[Any], tangents: list[Tensor | None], spec: Any) -> Any:
        filled = [t if isinstance(a, Tensor) else a for a, t in zip(leaves, tangents, strict=True)]
        a, k = tree_unflatten(filled, spec)
        return func(*a, **k)

    def _attach(self, out: Any, tangent: Any) -> None:
        for o, t in zip(tree_flatten(out)[0], tree_flatten(tangent)[0], strict=True):
            self.tangents.set(o, t)

    # --- what the handlers share ---------------------------------------------------------------------------------

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
        return self.finish(
            _Weighted.apply(x, weight, bias, self.tangents.get(x), layer, self.switch, self.dual, moves, self.fisher)
        )

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


def _out_of_place(func: Any, name: str) -> Any:
    plain = "__" + name[3:] if name.startswith("__i") else name[:-1]
    return getattr(torch.Tensor, plain, None) or getattr(torch, plain)


# --- handlers: one for each function that the fast path knows ----------------------------------------------------------


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
        return recorder.other(F.batch_norm, (input, None, None, weight, bias, True, momentum, eps), {})
    layer = recorder.layer(weight, bias)
    moves = layer.weight in recorder.theta or layer.bias in recorder.theta
    return recorder.finish(
        _BatchNorm.apply(
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
        )  # fmt: skip
    )


def _affine(recorder: Recorder, hat: Tensor, weight: Tensor | None, bias: Tensor | None, view: tuple[int, ...]) -> Any:
    layer = recorder.layer(weight, bias)
    moves = layer.weight in recorder.theta or layer.bias in recorder.theta
    tangent = recorder.tangents.get(hat)
    return recorder.finish(
        _Affine.apply(hat, tangent, weight, bias, view, layer, recorder.switch, recorder.dual, moves)
    )


def _layer_norm(
    recorder: Recorder, input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:  # fmt: skip
    if any(p is not None and not recorder.name(p) for p in (weight, bias)) or input.ndim <= len(normalized_shape):
        return NotImplemented
    hat = recorder.other(F.layer_norm, (input, normalized_shape), {"eps": eps})
    return hat if weight is None and bias is None else _affine(recorder, hat, weight, bias, tuple(normalized_shape))


def _group_norm(
    recorder: Recorder, input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:  # fmt: skip
    if any(p is not None and not recorder.name(p) for p in (weight, bias)):
        return NotImplemented
    hat = recorder.other(F.group_norm, (input, num_groups), {"eps": eps})
    if weight is None and bias is None:
        return hat
    return _affine(recorder, hat, weight, bias, (input.shape[1], *(1,) * (input.ndim - 2)))


def _relu(recorder: Recorder, input: Tensor, inplace: bool = False) -> Any:
    """Never in place: the recorded layers keep their outputs."""
    out = torch.relu(input)
    if recorder.dual:
        tangent = recorder.tangents.get(input)
        if tangent is not None:
            recorder.tangents.set(out, torch.ops.aten.threshold_backward(tangent, out, 0))
    recorder.kink(input, out)
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
    F.relu: _relu,
    torch.relu: _relu,
    torch.Tensor.relu: _relu,
    F.leaky_relu: _leaky_relu,
    F.relu6: _relu6,
    F.dropout: _dropout,
    F.dropout1d: _dropout,
    F.dropout2d: _dropout,
    F.dropout3d: _dropout,
    F.alpha_dropout: _dropout,
    F.feature_alpha_dropout: _dropout,
}

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


# --- the tape ------------------------------------------------------------------------------------------------------------


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
        with self._switched(fisher=fisher, batch_norm=batch_norm):
            out = self._run([self.f], [cotangent], [self.parameters[n] for n in names])
        return {
            n: torch.zeros_like(self.parameters[n]) if g is None else g.detach()
            for n, g in zip(names, out, strict=True)
        }

    def input_gradient(self, cotangent: Tensor, batch_norm: Literal["frozen", "coupled"] = "coupled") -> Tensor:
        """Σ_i (∂f_i/∂x)ᵀ c_i, in the shape of x."""
        with self._switched(batch_norm=batch_norm):
            (out,) = self._run([self.f], [cotangent], [self.x])
        return torch.zeros_like(self.x) if out is None else out

    def dual_gradient(
        self,
        cotangent: Tensor,
        cotangent_dot: Tensor,
        *,
        fisher: dict[str, Tensor] | None = None,
        batch_norm: Literal["frozen", "coupled"] = "coupled",
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """(g, Hθ) of a loss with ∂ℓ/∂f = cotangent and d/dt of it = cotangent_dot."""
        assert self.ft is not None
        names = list(self.parameters)
        found: dict[str, Tensor] = {}
        with self._switched(fisher=fisher, gradients=found, batch_norm=batch_norm):
            out = self._run([self.f, self.ft], [cotangent_dot, cotangent], [self.parameters[n] for n in names])
        if self.notes.unknown:
            found.update(self.gradient(cotangent, names=sorted(self.notes.unknown), batch_norm=batch_norm))
        zeros = {n: torch.zeros_like(p) for n, p in self.parameters.items()}
        Ht = {n: h.detach() for n, h in zip(names, out, strict=True) if h is not None}
        return zeros | found, zeros | Ht

    def visit(self, cotangent: Tensor, visit: Visit, batch_norm: Literal["frozen", "coupled"]) -> None:
        """One backward pass of Σ_i ⟨c_i, f_i⟩ that shows every recorded layer's (x, δ)."""
        with self._switched(visit=visit, batch_norm=batch_norm):
            self._run([self.f], [cotangent], list(self.parameters.values()))

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
    """Runs the model once. `theta` names the parameters that tangents move along; all of them by default."""
    parameters = {name: _leaf(p, dtype) for name, p in model.named_parameters()}
    theta = frozenset(parameters) if theta is None else theta
    x = _formatted(x.to(dtype)).requires_grad_()
    switch = Switch()
    recorder = Recorder(parameters, switch, tangents=tangents, theta=theta, codes=codes, fisher=fisher, frozen=frozen)
    buffers = {name: b.to(dtype) if b.is_floating_point() else b.clone() for name, b in model.named_buffers()}
    with evaluation_mode(model), torch.enable_grad(), within(memory), recorder:
        f = torch.func.functional_call(model, parameters | buffers, (x,))
    f = logits(f)
    ft = recorder.tangents.get(f) if tangents else None
    notes = recorder.notes
    if codes and recorder.patterns:
        used = _reached(f)
        notes.codes = sum((K for node, K in recorder.patterns if node in used), torch.zeros(len(x), len(x)).double())
    recorder.tangents.entries.clear()  # or tangents, and through them whole graphs, would wait for the cycle collector
    recorder.patterns.clear()
    return Tape(x, f, ft, parameters, switch, notes)


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


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """`model.eval()` for a while; every module's own flag comes back."""
    flags = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in flags:
            module.training = False
        yield
    finally:
        for module, flag in flags:
            module.training = flag
