"""The recorded function of layers with weights: convolutions of any kind and linear layers."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from initio.autodiff.channels import bias_gradient, spread, sums
from initio.autodiff.layers import Geometry
from initio.autodiff.switch import Layer, Switch, Use

Keep = Literal["no", "yes", "copy"]  # whether a layer's output is kept for Fisher's sums


class Weighted(Function):
    """z = W ∗ x + b, and if recorded with tangents ż = Ẇ ∗ x + W ∗ ẋ + ḃ."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, xt: Tensor | None, weight: Tensor, bias: Tensor | None, use: Use, keep: Keep
    ) -> Any:
        """Value and, if asked for, tangent."""
        geometry = use.layer.geometry
        assert geometry is not None
        ctx.use, ctx.of_inputs = use, x is use.switch.inputs
        ctx.flipped = None  # the weights of the transposed map, made by the first of all backward passes
        ctx.set_materialize_grads(False)
        (z,) = use.values(lambda: (geometry.apply(x, weight, bias),))
        kept = None
        if keep == "yes":
            kept = z
        elif keep == "copy":
            kept = z.clone()
        ctx.save_for_backward(x, xt, weight, kept)
        if not use.dual:
            return z
        zt = _moved(geometry, z, x, bias, use)
        if xt is not None and zt is not None and zt is not z:
            zt = geometry.add_to(zt, xt, weight)
        elif xt is not None:
            zt = geometry.apply(xt, weight, more=zt)
        elif zt is z:  # two outputs of a function must be two tensors
            zt = z.clone()
        if use.memo is not None and zt is not None:
            ctx.mark_non_differentiable(zt)
        return z, zt

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor | None, dzt: Tensor | None = None) -> Any:
        """From δ, or in a dual pass from (δ̇, δ)."""
        delta, delta_dot = ctx.use.deltas(dz, dzt)
        if delta is None:
            return (None,) * 6
        if delta_dot is None and dzt is None:
            return (*_backward(ctx, delta), None, None)
        return (*_dual_backward(ctx, delta_dot, delta), None, None)


def _moved(geometry: Geometry, z: Tensor, x: Tensor, bias: Tensor | None, use: Use) -> Tensor | None:
    """Ẇ ∗ x + ḃ; None is zero."""
    motion = use.motion
    if motion.weight is None and motion.bias is None:
        return None
    if motion.weight is None:
        assert motion.bias is not None
        return _channels(motion.bias, z, geometry).expand_as(z)
    if motion.own_weight and (bias is None or motion.own_bias):
        return z
    if motion.own_weight and motion.bias is None:
        assert bias is not None
        return z - _channels(bias, z, geometry)
    return geometry.apply(x, motion.weight, motion.bias)


def _backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, ...]:
    """δx = Wᵀ ∗ δ, g = δ xᵀ."""
    x, xt, weight, z = ctx.saved_tensors
    layer, switch = ctx.use.layer, ctx.use.switch
    geometry = layer.geometry
    _show(ctx, x, xt, z, delta, None)
    gx = gw = gb = None
    if _leads_on(ctx):
        gx = geometry.transpose(delta, x, weight, lambda: _flipped(ctx, weight))
    if switch.returns(layer.weight):
        gw = _gradient(layer, switch, x, delta, weight)
    if switch.returns(layer.bias):
        gb = bias_gradient(delta, bool(geometry.stride)).sum(0)
    return gx, None, gw, gb


def _dual_backward(ctx: Any, delta_dot: Tensor | None, delta: Tensor) -> tuple[Tensor | None, ...]:
    """The cotangents of x, ẋ, W and b of the scalar ⟨δ̇, z⟩ + ⟨δ, ż⟩, the direction held constant.

    x: Wᵀ ∗ δ̇ + Ẇᵀ ∗ δ,  ẋ: Wᵀ ∗ δ,  W: δ̇ xᵀ + δ ẋᵀ, which is the weights' part of Hv;  g = δ xᵀ is left in the switch.
    """
    x, xt, weight, z = ctx.saved_tensors
    layer, switch = ctx.use.layer, ctx.use.switch
    geometry = layer.geometry
    _show(ctx, x, xt, z, delta, delta_dot)
    gx = gxt = gw = gb = None
    if _leads_on(ctx):
        gx = _input_cotangent(ctx, x, weight, delta_dot, delta)
    if ctx.needs_input_grad[1]:
        gxt = geometry.transpose(delta, xt, weight, lambda: _flipped(ctx, weight))
    if switch.returns(layer.weight):
        switch.add_gradient(layer.weight, _gradient(layer, switch, x, delta, weight))
        if delta_dot is not None:
            gw = geometry.outer(x, delta_dot, weight)
        if xt is not None:
            gw = plus(gw, geometry.outer(xt, delta, weight))
    if switch.returns(layer.bias):
        switch.add_gradient(layer.bias, bias_gradient(delta, bool(geometry.stride)).sum(0))
        if delta_dot is not None:
            gb = bias_gradient(delta_dot, bool(geometry.stride)).sum(0)
    return gx, gxt, gw, gb


def _leads_on(ctx: Any) -> bool:
    """Whether anybody asks for the gradient of the layer's input: of the network's own input few do."""
    return bool(ctx.needs_input_grad[0]) and (ctx.use.switch.to_inputs or not ctx.of_inputs)


def _gradient(layer: Layer, switch: Switch, x: Tensor, delta: Tensor, weight: Tensor) -> Tensor:
    """g = δ xᵀ; the parts of the batch that the pass asks for are left in the switch."""
    assert layer.geometry is not None
    if switch.by_part is None:
        return layer.geometry.outer(x, delta, weight)
    g, shares = layer.geometry.outer_parts(x, delta, weight, switch.by_part.parts)
    switch.by_part.add(layer.weight, shares)
    return g


def _input_cotangent(ctx: Any, x: Tensor, weight: Tensor, delta_dot: Tensor | None, delta: Tensor) -> Tensor | None:
    """Wᵀ ∗ δ̇ + Ẇᵀ ∗ δ; where Ẇ = W that is Wᵀ ∗ (δ̇ + δ)."""
    geometry, motion = ctx.use.layer.geometry, ctx.use.motion
    out: Tensor | None = None
    if motion.own_weight:
        delta_dot = plus(delta_dot, delta)
    elif motion.weight is not None:
        own = motion.weight
        out = geometry.transpose(delta, x, own)
    if delta_dot is None:
        return out
    if out is None:
        return geometry.transpose(delta_dot, x, weight, lambda: _flipped(ctx, weight))  # type: ignore[no-any-return]
    return geometry.add_transpose(out, delta_dot, x, weight, lambda: _flipped(ctx, weight))  # type: ignore[no-any-return]


def _flipped(ctx: Any, weight: Tensor) -> Tensor | None:
    if ctx.flipped is None:
        ctx.flipped = ctx.use.layer.geometry.flipped(weight)
    return ctx.flipped  # type: ignore[no-any-return]


def _show(ctx: Any, x: Tensor, xt: Tensor | None, z: Tensor | None, delta: Tensor, delta_dot: Tensor | None) -> None:
    """What the running pass wants to see of this layer."""
    layer, switch = ctx.use.layer, ctx.use.switch
    if switch.fisher is not None and z is not None:
        fisher_sums(switch.fisher, layer, z, delta)
    if switch.visit is not None:
        switch.visit(layer, x, delta, xt, delta_dot)


def fisher_sums(store: dict[str, Tensor], layer: Layer, z: Tensor, delta: Tensor) -> None:
    """Σ over positions of z ∘ δ, for each sample and channel; a layer used twice has two entries."""
    assert layer.geometry is not None
    value = sums(delta, z)[1] if layer.geometry.stride else bias_gradient(z * delta, channels_first=False)
    use = 0
    while f"{layer.weight}#{use}" in store:
        use += 1
    store[f"{layer.weight}#{use}"] = value


def plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """a + b; None is zero."""
    if a is None:
        return b
    if b is None:
        return a
    return a + b


def _channels(bias: Tensor, z: Tensor, geometry: Geometry) -> Tensor:
    """A bias in the shape that it is added to z in."""
    if geometry.stride:
        return spread(bias, z)
    return bias
