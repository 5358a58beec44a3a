"""The autograd functions that a recorded network is made of: layers with weights, batch norm, affine maps behind norms.

Each can carry tangents (see `tape.py`) and asks the tape's `Switch` what the running backward pass is for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from initio.autodiff import fused
from initio.autodiff.layers import Geometry

Keep = Literal["no", "yes", "copy"]  # whether a layer's output is kept for Fisher's sums
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
    wanted: frozenset[str] | None = None  # the parameters that the pass is for; None: all of them
    visit: Visit | None = None
    gradients: dict[str, Tensor] | None = None  # the dual pass leaves g here
    fisher: dict[str, Tensor] | None = None  # Σ over positions of z ∘ δ, (m, channels), by layer

    def wants(self, name: str) -> bool:
        """Whether the pass asks for this parameter; an empty name is none."""
        return bool(name) and (self.wanted is None or name in self.wanted)

    def returns(self, name: str) -> bool:
        """Whether the pass gives this parameter's gradient back, instead of showing layers to a visitor."""
        return self.visit is None and self.wants(name)

    def add_gradient(self, name: str, value: Tensor) -> None:
        """Weights that are used twice have the sum of both gradients."""
        if self.gradients is not None and name:
            old = self.gradients.get(name)
            self.gradients[name] = value if old is None else old + value


# --- the recorded functions ------------------------------------------------------------------------------------------


class Weighted(Function):
    """z = W * x + b, and if recorded with tangents ż = Ẇ * x + W * ẋ + ḃ with (Ẇ, ḃ) = (W, b)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, xt: Tensor | None, layer: Layer, switch: Switch,
        dual: bool, moves: tuple[bool, bool], keep: Keep,
    ) -> Any:  # fmt: skip
        """Value and, if asked for, tangent."""
        assert layer.geometry is not None
        ctx.layer, ctx.switch, ctx.moves, ctx.keep = layer, switch, moves, keep
        ctx.flipped = None  # the weights of the transposed map, made by the first of all backward passes
        ctx.set_materialize_grads(False)
        z = layer.geometry.apply(x, weight, bias)
        ctx.save_for_backward(x, weight, xt, None if keep == "no" else z.clone() if keep == "copy" else z)
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
        """From δ, or in a dual pass from (δ̇, δ)."""
        layer, switch = ctx.layer, ctx.switch
        geometry = layer.geometry
        x, weight, xt, z = ctx.saved_tensors
        nothing = (None,) * 6
        if dz is None and dzt is None:
            return (None, None, None, *nothing)
        delta = dz if dzt is None else dzt  # the loss gradient of z
        assert delta is not None
        if switch.fisher is not None and ctx.keep != "no":
            fisher_sums(switch.fisher, layer, z, delta)
        if switch.visit is not None:
            switch.visit(layer, x, delta, xt, dz if dzt is not None else None)
        gx = gxt = gw = gb = None
        needs_w, needs_b = switch.returns(layer.weight), switch.returns(layer.bias)
        if ctx.flipped is None:
            ctx.flipped = geometry.flipped(weight)
        if dzt is not None:
            up = dz if not ctx.moves[0] else (dzt if dz is None else dz + dzt)  # Ẇ = W: x meets δ once more
            if ctx.needs_input_grad[0] and up is not None:
                gx = geometry.transpose(up, x, weight, ctx.flipped)
            if xt is not None and ctx.needs_input_grad[3]:
                gxt = geometry.transpose(dzt, xt, weight, ctx.flipped)
            if needs_w:
                switch.add_gradient(layer.weight, geometry.outer(x, dzt, weight))
                gw = _sum(
                    None if dz is None else geometry.outer(x, dz, weight),
                    None if xt is None else geometry.outer(xt, dzt, weight),
                )
            if needs_b:
                switch.add_gradient(layer.bias, _bias_gradient(dzt, layer).sum(0))
                gb = None if dz is None else _bias_gradient(dz, layer).sum(0)
        else:
            if ctx.needs_input_grad[0]:
                gx = geometry.transpose(delta, x, weight, ctx.flipped)
            if needs_w:
                gw = geometry.outer(x, delta, weight)
            if needs_b:
                gb = _bias_gradient(delta, layer).sum(0)
        return gx, gw, gb, gxt, *nothing[1:]


class BatchNormalised(Function):
    """y = γ x̂ + β with x̂ = (z − μ)/√(v + ε), μ and v over batch and positions, summed in float64.

    Backward, coupled: δ_z = γ inv P(δ), P(u) = u − ⟨u⟩ − x̂ ⟨u x̂⟩, ⟨·⟩ the mean over batch and positions. Frozen: P = 1.
    """

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, zt: Tensor | None, gamma: Tensor | None, beta: Tensor | None, eps: float, layer: Layer,
        switch: Switch, dual: bool, moves: bool, frozen: bool,
    ) -> Any:  # fmt: skip
        """Value and, if asked for, tangent."""
        ctx.set_materialize_grads(False)
        M = z.numel() // z.shape[1]
        mu, var = _moments(z)
        inv = (var + eps).rsqrt()
        g = torch.ones_like(inv) if gamma is None else gamma.double()
        b = torch.zeros_like(inv) if beta is None else beta.double()
        ctx.layer, ctx.switch, ctx.moves, ctx.frozen, ctx.M = layer, switch, moves, frozen, M
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
        """From δ, or in a dual pass from (δ̇, δ)."""
        z, zt, mu, inv, g = ctx.saved_tensors[:5]
        switch, layer, M = ctx.switch, ctx.layer, ctx.M
        nothing = (None,) * 6
        if dy is None and dyt is None:
            return (None, None, None, None, *nothing)
        wanted = switch.wants(layer.weight) or switch.wants(layer.bias)
        frozen = ctx.frozen or switch.batch_norm == "frozen"
        scale = g * inv
        delta = dy if dyt is None else dyt
        assert delta is not None
        if frozen and dyt is None and not wanted:
            return _combine(z.shape, None, (delta, scale)), None, None, None, *nothing
        raw = _sums(delta, z, dy if dyt is not None else None, zt if dyt is not None else None)
        s1 = raw[0]  # (m, C): Σ_p δ
        s2 = inv * (raw[1] - mu * s1)  # Σ_p δ x̂
        if dyt is None:
            if switch.visit is not None and wanted:
                switch.visit(layer, s2, s1, None, None)
            S1, S2 = s1.sum(0), s2.sum(0)
            gz = _bn_transpose(z, delta, mu, inv, scale, None if frozen else (S1 / M, S2 / M))
            gamma, beta = (switch.returns(name) for name in (layer.weight, layer.bias))
            return gz, None, _like(S2, z, gamma), _like(S1, z, beta), *nothing
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
    S1, S2 = s1.sum(0), s2.sum(0)
    if frozen:
        terms = [(dyt, scale if ctx.moves else torch.zeros_like(inv))]
        if dy is not None:
            terms.append((dy, scale))
        gz = _combine(z.shape, None, *terms)
        gzt = None if zt is None else _combine(z.shape, None, (dyt, scale))
    else:
        A1, A2 = S1 / M, S2 / M
        B1, B2 = t1.sum(0) / M, t2.sum(0) / M
        A5 = x3.sum(0) / M
        moved = scale if ctx.moves else torch.zeros_like(inv)
        a = moved if zt is None else moved - scale * inv * A4  # coefficient of P(δ)
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
    dgamma = dbeta = None
    if switch.returns(layer.weight):
        switch.add_gradient(layer.weight, S2.to(z.dtype))
        dgamma = (t2 + x3).sum(0).to(z.dtype)
    if switch.returns(layer.bias):
        switch.add_gradient(layer.bias, S1.to(z.dtype))
        dbeta = t1.sum(0).to(z.dtype)
    return gz, gzt, dgamma, dbeta, *nothing


class Affine(Function):
    """y = γ ∘ x̂ + β behind a layer or group norm; γ and β are spread over x̂ by `view`."""

    @staticmethod
    def forward(
        ctx: Any, hat: Tensor, hat_t: Tensor | None, gamma: Tensor | None, beta: Tensor | None, view: tuple[int, ...],
        layer: Layer, switch: Switch, dual: bool, moves: bool,
    ) -> Any:  # fmt: skip
        """Value and, if asked for, tangent."""
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
        """From δ, or in a dual pass from (δ̇, δ)."""
        hat, hat_t, gamma = ctx.saved_tensors
        switch, layer = ctx.switch, ctx.layer
        nothing = (None,) * 5
        if dy is None and dyt is None:
            return (None, None, None, None, *nothing)
        delta = dy if dyt is None else dyt
        assert delta is not None

        def times(t: Tensor) -> Tensor:
            return t if gamma is None else t * gamma.view(ctx.view)

        first = (spread_sum(delta * hat, ctx.view), spread_sum(delta, ctx.view))
        second: tuple[Tensor | None, Tensor | None] = (None, None)
        if dyt is not None:
            zero = torch.zeros_like(first[0])
            mixed = zero if hat_t is None else spread_sum(dyt * hat_t, ctx.view)
            second = (mixed if dy is None else mixed + spread_sum(dy * hat, ctx.view),
                      zero if dy is None else spread_sum(dy, ctx.view))  # fmt: skip
        if switch.visit is not None:
            switch.visit(layer, *first, *second)
        ghat = None if dy is None else times(dy)
        ghat_t = None
        if dyt is not None:
            ghat_t = None if hat_t is None else times(dyt)
            ghat = _sum(ghat, times(dyt) if ctx.moves else None)
        if switch.visit is not None:
            return ghat, ghat_t, None, None, *nothing
        out: list[Tensor | None] = []
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


def spread_sum(t: Tensor, view: tuple[int, ...]) -> Tensor:
    """t summed to (m, parameters): over every dimension but the first where `view` is 1."""
    t = t.double()
    dims = [d for d in range(1, t.ndim) if (d - t.ndim) < -len(view) or view[d - t.ndim] == 1]
    return (t.sum(dims) if dims else t).reshape(len(t), -1)


# --- small tensor helpers --------------------------------------------------------------------------------------------


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


def fisher_sums(store: dict[str, Tensor], layer: Layer, z: Tensor, delta: Tensor) -> None:
    """Σ over positions of z ∘ δ, for each sample and channel; a layer used twice has two entries."""
    assert layer.geometry is not None
    positions_last = layer.geometry.stride
    value = _sums(delta, z)[1] if positions_last else (z * delta).reshape(len(z), -1, z.shape[-1]).sum(1)
    use = 0
    while f"{layer.weight}#{use}" in store:
        use += 1
    store[f"{layer.weight}#{use}"] = value
