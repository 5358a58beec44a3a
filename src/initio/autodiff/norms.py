"""The recorded functions of normalisations: batch norm, the affine map behind the others, and norms to differentiate.

With x̂ = (z − μ) inv, inv = 1/√(v + ε), and ⟨·⟩ the mean over batch and positions, batch norm's Jacobian at γ = 1 is

    ∂x̂/∂z · u = inv P(u),    P(u) = u − ⟨u⟩ − x̂ ⟨u x̂⟩,

which is symmetric: its tangent is its own backward. Where the statistics are constants (`frozen`), P = 1. No function
here forms x̂: all are combinations by channel of z, ż, δ and δ̇, and the sums that they need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from initio.autodiff import fused
from initio.autodiff.channels import combine, moments, sums
from initio.autodiff.switch import Motion, Switch, Use
from initio.autodiff.weighted import plus


class BatchNormalised(Function):
    """y = γ x̂ + β, statistics summed in float64; tangent ẏ = γ inv P(ż) + γ̇ x̂ + β̇."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, zt: Tensor | None, gamma: Tensor | None, beta: Tensor | None, use: Use, eps: float,
        frozen: bool,
    ) -> Any:  # fmt: skip
        """Value and, if asked for, tangent."""
        ctx.set_materialize_grads(False)
        y, stats = use.values(lambda: _normalised(z, gamma, beta, eps))
        ctx.use, ctx.frozen = use, frozen
        ctx.scale = (stats[1], eps)  # for the audit
        if not use.dual:
            ctx.save_for_backward(z, None, stats, None)
            return y
        motion = use.motion
        yt = means = None
        if zt is not None or motion.weight is not None or motion.bias is not None:
            yt, means = _moved_normalised(z, zt, stats, motion, frozen)
        ctx.save_for_backward(z, zt, stats, means)
        if use.memo is not None and yt is not None:
            ctx.mark_non_differentiable(yt)
        return y, yt

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None, dyt: Tensor | None = None) -> Any:
        """From δ, or in a dual pass from (δ̇, δ)."""
        frozen = ctx.frozen or ctx.use.switch.batch_norm == "frozen"
        delta, delta_dot = ctx.use.deltas(dy, dyt)
        if delta is None:
            return (None,) * 7
        if delta_dot is None and dyt is None:
            return (*_backward(ctx, delta, frozen), None, None, None)
        return (*_dual_backward(ctx, delta_dot, delta, frozen), None, None, None)


def _normalised(z: Tensor, gamma: Tensor | None, beta: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """y, and (μ, inv, γ) in float64."""
    if lib := fused.usable(z):
        return fused.normalise(lib, z, gamma, beta, eps)
    mu, var = moments(z)
    inv = (var + eps).rsqrt()
    g, b = torch.ones_like(inv), torch.zeros_like(inv)
    if gamma is not None:
        g = gamma.double()
    if beta is not None:
        b = beta.double()
    scale = g * inv
    return combine(b - mu * scale, (z, scale)), torch.stack((mu, inv, g))


def _moved_normalised(
    z: Tensor, zt: Tensor | None, stats: Tensor, motion: Motion, frozen: bool
) -> tuple[Tensor, Tensor]:
    """ẏ = c + γ inv ż + e z, and (A3, A4) = (⟨ż⟩, ⟨x̂ ż⟩), zeros where the statistics are constants."""
    g_dot, b_dot = (t if t is None else t.double() for t in (motion.weight, motion.bias))
    if lib := fused.usable(z, zt):
        return fused.normalise_tangent(lib, z, zt, stats, g_dot, b_dot, frozen)
    mu, inv, g = stats
    scale = g * inv
    c = e = A3 = A4 = torch.zeros_like(inv)
    terms = []
    if zt is not None:
        terms.append((zt, scale))
        if not frozen:
            M = z.numel() // z.shape[1]
            first, second = (t.sum(0) for t in sums(zt, z)[:2])
            A3 = first / M
            A4 = inv * (second / M - mu * A3)
            c = scale * (mu * inv * A4 - A3)
            e = -scale * inv * A4
    if g_dot is not None:  # γ̇ x̂
        c, e = c - mu * inv * g_dot, e + inv * g_dot
    if b_dot is not None:
        c = c + b_dot
    if not frozen or zt is None or g_dot is not None:
        terms.append((z, e))
    return combine(c, *terms), torch.stack((A3, A4))


def x_hat(z: Tensor, eps: float) -> Tensor:
    """x̂, which no pass needs."""
    mu, var = moments(z.detach())
    inv = (var + eps).rsqrt()
    return combine(-mu * inv, (z.detach(), inv))


def is_identity(gamma: Tensor | None, beta: Tensor | None) -> bool:
    """Whether y = x̂, as at initialisation."""
    return (gamma is None or bool((gamma == 1).all())) and (beta is None or not bool(beta.any()))


def _backward(ctx: Any, delta: Tensor, frozen: bool) -> tuple[Tensor | None, ...]:
    """δ_z = γ inv P(δ), and the gradients Σ δ x̂ of γ and Σ δ of β."""
    z, _, stats, _ = ctx.saved_tensors
    layer, switch = ctx.use.layer, ctx.use.switch
    wanted = switch.wants(layer.weight) or switch.wants(layer.bias)
    shown = switch.visit is not None and wanted
    if not shown and (lib := fused.usable(z, delta)):
        gz = torch.empty_like(z)
        found = fused.normalise_back(
            lib, delta, z, None, None, stats, None, None, frozen=frozen, gz=None, gzt=gz, summed=wanted or not frozen
        )  # fmt: skip
        if found is None:
            return gz, None, None, None
        return gz, None, *_parameter_gradients(ctx, found[1], found[0], z.dtype)
    mu, inv, g = stats
    scale = g * inv
    if frozen and not wanted:
        return combine(None, (delta, scale)), None, None, None
    raw = sums(delta, z)
    s1 = raw[0]  # (m, C): Σ_p δ
    s2 = inv * (raw[1] - mu * s1)  # Σ_p δ x̂
    if shown:
        switch.visit(layer, s2, s1, None, None)
    S1, S2 = s1.sum(0), s2.sum(0)
    gz = _transpose(z, delta, mu, inv, scale, S1, S2, frozen)
    return gz, None, *_parameter_gradients(ctx, S2, S1, z.dtype)


def _parameter_gradients(ctx: Any, of_gamma: Tensor, of_beta: Tensor, dtype: torch.dtype) -> tuple[Tensor | None, ...]:
    """Those that the pass returns."""
    layer, switch = ctx.use.layer, ctx.use.switch
    dgamma = dbeta = None
    if switch.returns(layer.weight):
        dgamma = of_gamma.to(dtype)
    if switch.returns(layer.bias):
        dbeta = of_beta.to(dtype)
    return dgamma, dbeta


def _transpose(
    z: Tensor, delta: Tensor, mu: Tensor, inv: Tensor, scale: Tensor, S1: Tensor, S2: Tensor, frozen: bool
) -> Tensor:
    """γ inv P(δ), or γ inv δ when the statistics are constants; S1 = Σ δ, S2 = Σ δ x̂."""
    if frozen:
        return combine(None, (delta, scale))
    M = z.numel() // z.shape[1]
    A1, A2 = S1 / M, S2 / M
    return combine(scale * (mu * inv * A2 - A1), (delta, scale), (z, -scale * inv * A2))


def _dual_backward(ctx: Any, dy: Tensor | None, dyt: Tensor, frozen: bool) -> tuple[Tensor | None, ...]:
    """Cotangents of z, ż, γ, β from δ̇ (of y) and δ (of ẏ): the tangent of batch norm's backward.

    δ̇_z = γ inv P(δ̇) + γ̇ inv P(δ) − γ inv² ⟨x̂ ż⟩ P(δ) − γ inv (x̂̇ ⟨δ x̂⟩ + x̂ ⟨δ x̂̇⟩),  x̂̇ = inv P(ż).
    """
    z, zt, stats, means = ctx.saved_tensors
    layer, switch, g_dot = ctx.use.layer, ctx.use.switch, ctx.use.motion.weight
    if g_dot is not None:
        g_dot = g_dot.double()
    if switch.visit is None and (lib := fused.usable(z, zt, dy, dyt)):
        gz, gzt = torch.empty_like(z), None
        if ctx.needs_input_grad[1]:
            gzt = torch.empty_like(z)
        found = fused.normalise_back(
            lib, dyt, z, dy, zt, stats, means, g_dot, frozen=frozen, gz=gz, gzt=gzt, summed=True
        )  # fmt: skip
        assert found is not None
        S1, S2, T1, T2 = found
    else:
        gz, gzt, (S1, S2, T1, T2) = _dual_cotangents(ctx, dy, dyt, g_dot, frozen)
    if switch.returns(layer.weight):
        switch.add_gradient(layer.weight, S2.to(z.dtype))
    if switch.returns(layer.bias):
        switch.add_gradient(layer.bias, S1.to(z.dtype))
    return gz, gzt, *_parameter_gradients(ctx, T2, T1, z.dtype)


def _dual_cotangents(
    ctx: Any, dy: Tensor | None, dyt: Tensor, g_dot: Tensor | None, frozen: bool
) -> tuple[Tensor, Tensor | None, tuple[Tensor, ...]]:
    """Those of z and ż without compiled kernels, and (S1, S2, T1, T2) = Σ (δ, δ x̂, δ̇, δ̇ x̂ + δ x̂̇)."""
    z, zt, (mu, inv, g), means = ctx.saved_tensors
    M = z.numel() // z.shape[1]
    scale = g * inv
    raw = sums(dyt, z, dy, zt)
    s1 = raw[0]  # (m, C): Σ_p δ
    s2 = inv * (raw[1] - mu * s1)  # Σ_p δ x̂
    t1 = raw[3]  # Σ_p δ̇
    t2 = inv * (raw[4] - mu * t1)  # Σ_p δ̇ x̂
    A3 = A4 = torch.zeros_like(inv)
    if zt is not None and not frozen:
        A3, A4 = means
    t2 = t2 + inv * (raw[2] - A3 * s1 - A4 * s2)  # Σ_p δ x̂̇ with x̂̇ = inv (ż − A3 − x̂ A4)
    if ctx.use.switch.visit is not None:
        ctx.use.switch.visit(ctx.use.layer, s2, s1, t2, t1)
    S1, S2, T1, T2 = (t.sum(0) for t in (s1, s2, t1, t2))
    a = torch.zeros_like(inv)  # the coefficient of P(δ)
    if g_dot is not None:
        a = g_dot * inv
    # δ̇_z as one combination: const + a δ + γ inv δ̇ + e ż + f z, where z stands for x̂ = inv (z − μ)
    const = None
    terms = [(dyt, a)]
    if dy is not None:
        terms.append((dy, scale))
    if not frozen:
        A1, A2 = S1 / M, S2 / M
        a = a - scale * inv * A4
        terms[0] = (dyt, a)
        on_hat = scale * A2 * inv * A4 - scale * T2 / M - a * A2
        if zt is not None:  # −γ inv A2 x̂̇
            terms.append((zt, -scale * A2 * inv))
        terms.append((z, on_hat * inv))
        const = scale * A2 * inv * A3 - scale * T1 / M - a * A1 - on_hat * inv * mu
    gz, gzt = combine(const, *terms), None
    if ctx.needs_input_grad[1]:
        gzt = _transpose(z, dyt, mu, inv, scale, S1, S2, frozen)
    return gz, gzt, (S1, S2, T1, T2)


# --- behind layer norm, group norm and instance norm -----------------------------------------------------------------


class Affine(Function):
    """y = γ ∘ x̂ + β with tangent γ ∘ x̂̇ + γ̇ ∘ x̂ + β̇; γ and β are spread over x̂ by `view`."""

    @staticmethod
    def forward(
        ctx: Any, hat: Tensor, hat_t: Tensor | None, gamma: Tensor | None, beta: Tensor | None, use: Use,
        view: tuple[int, ...],
    ) -> Any:  # fmt: skip
        """Value and, if asked for, tangent."""
        ctx.set_materialize_grads(False)
        ctx.use, ctx.view = use, view
        ctx.save_for_backward(hat, hat_t, gamma, beta)
        y = _affine(hat, gamma, beta, view)
        if not use.dual:
            return y
        yt = _moved(hat, use.motion, view)
        if hat_t is not None:
            yt = plus(_affine(hat_t, gamma, None, view), yt)
        return y, yt

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None, dyt: Tensor | None = None) -> Any:
        """From δ, or in a dual pass from (δ̇, δ)."""
        if dyt is not None:
            return (*_dual_affine_backward(ctx, dy, dyt), None, None)
        if dy is not None:
            return (*_affine_backward(ctx, dy), None, None)
        return (None,) * 6  # the norms before it are not piecewise linear: there is no second pass with memos


def _affine(hat: Tensor, gamma: Tensor | None, beta: Tensor | None, view: tuple[int, ...]) -> Tensor:
    """γ ∘ x̂ + β; a missing γ is one, a missing β zero."""
    if gamma is None and beta is None:
        return hat.clone()
    if gamma is not None:
        hat = hat * gamma.view(view)
    if beta is not None:
        hat = hat + beta.view(view)
    return hat


def _moved(hat: Tensor, motion: Motion, view: tuple[int, ...]) -> Tensor | None:
    """γ̇ ∘ x̂ + β̇; None is zero."""
    if motion.weight is not None:
        return _affine(hat, motion.weight, motion.bias, view)
    if motion.bias is not None:
        return motion.bias.view(view).expand_as(hat)
    return None


def _affine_backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, ...]:
    """δ_x̂ = γ δ, and the gradients Σ δ x̂ of γ and Σ δ of β."""
    hat, _, gamma, beta = ctx.saved_tensors
    layer, switch, view = ctx.use.layer, ctx.use.switch, ctx.view
    first = (spread_sum(delta * hat, view), spread_sum(delta, view))
    if switch.visit is not None:
        switch.visit(layer, *first, None, None)
    ghat = delta
    if gamma is not None:
        ghat = delta * gamma.view(view)
    if switch.visit is not None:
        return ghat, None, None, None
    return ghat, None, *(_shaped(value, p, hat) for value, p in zip(first, (gamma, beta), strict=True))


def _dual_affine_backward(ctx: Any, dy: Tensor | None, dyt: Tensor) -> tuple[Tensor | None, ...]:
    """Cotangents of x̂: γ δ̇ + γ̇ δ; of x̂̇: γ δ; of γ: Σ δ̇ x̂ + δ x̂̇; of β: Σ δ̇."""
    hat, hat_t, gamma, beta = ctx.saved_tensors
    layer, switch, view, motion = ctx.use.layer, ctx.use.switch, ctx.view, ctx.use.motion
    first = (spread_sum(dyt * hat, view), spread_sum(dyt, view))
    on_gamma, on_beta = torch.zeros_like(first[0]), torch.zeros_like(first[0])
    ghat = ghat_t = None
    if hat_t is not None:
        on_gamma = spread_sum(dyt * hat_t, view)
        ghat_t = _affine(dyt, gamma, None, view)
    if dy is not None:
        on_gamma = on_gamma + spread_sum(dy * hat, view)
        on_beta = spread_sum(dy, view)
        ghat = _affine(dy, gamma, None, view)
    if motion.weight is not None:
        ghat = plus(ghat, _affine(dyt, motion.weight, None, view))
    if switch.visit is not None:
        switch.visit(layer, *first, on_gamma, on_beta)
        return ghat, ghat_t, None, None
    for name, value, parameter in zip((layer.weight, layer.bias), first, (gamma, beta), strict=True):
        if parameter is not None:
            switch.add_gradient(name, value.sum(0).view(parameter.shape).to(hat.dtype))
    return ghat, ghat_t, _shaped(on_gamma, gamma, hat), _shaped(on_beta, beta, hat)


def _shaped(each: Tensor, parameter: Tensor | None, hat: Tensor) -> Tensor | None:
    """A parameter's gradient from those of the samples; None where there is no such parameter."""
    if parameter is None:
        return None
    return each.sum(0).view(parameter.shape).to(hat.dtype)


def spread_sum(t: Tensor, view: tuple[int, ...]) -> Tensor:
    """t summed to (m, parameters) in float64: over every dimension but the first where `view` is 1."""
    t = t.double()
    dims = [d for d in range(1, t.ndim) if (d - t.ndim) < -len(view) or view[d - t.ndim] == 1]
    if dims:
        t = t.sum(dims)
    return t.reshape(len(t), -1)


# Norms from elementary operations: torch's own forward-mode derivatives of them hold mean and deviation constant when
# they are differentiated once more.


def standardised(input: Tensor, normalized_shape: Sequence[int], eps: float) -> Tensor:
    """Layer norm without scale and offset."""
    dims = tuple(range(-len(normalized_shape), 0))
    centred = input - input.mean(dims, keepdim=True)
    return centred * (centred.square().mean(dims, keepdim=True) + eps).rsqrt()


def group_standardised(input: Tensor, num_groups: int, eps: float) -> Tensor:
    """Group norm without scale and offset."""
    grouped = input.reshape(len(input), num_groups, -1)
    return standardised(grouped, grouped.shape[-1:], eps).reshape(input.shape)


def batch_standardised(input: Tensor, weight: Tensor | None, bias: Tensor | None, switch: Switch, eps: float) -> Tensor:
    """Batch norm from elementary operations, which autograd can differentiate as often as it likes."""
    dims = [d for d in range(input.ndim) if d != 1]
    mean = _Statistic.apply(input.mean(dims, keepdim=True), switch)  # type: ignore[no-untyped-call]
    var = input.var(dims, keepdim=True, correction=0)
    inv = _Statistic.apply((var + eps).rsqrt(), switch)  # type: ignore[no-untyped-call]
    return affine((input - mean) * inv, weight, bias, (-1, *(1,) * (input.ndim - 2)))


class _Statistic(Function):
    """The identity, and a constant for passes that hold batch statistics constant."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, switch: Switch) -> Tensor:
        """t."""
        ctx.switch = switch
        return t.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """δ, or nothing."""
        if ctx.switch.batch_norm == "frozen":
            return None, None
        return gradients[0], None


def affine(hat: Tensor, weight: Tensor | None, bias: Tensor | None, view: tuple[int, ...]) -> Tensor:
    """γ ∘ x̂ + β, where γ and β are any values of the network."""
    if weight is not None:
        hat = hat * weight.view(view)
    if bias is not None:
        hat = hat + bias.view(view)
    return hat
