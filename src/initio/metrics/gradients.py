"""Metrics of the batch loss's gradient: grad, snip, grasp, nasi, fisher [HNAS 2, 3; NASI 11, 12].

g = (1/m) Σ_i ∇θ ℓ_i is the gradient through the batch statistics, as training would see it; the variants with a sum
over single samples hold the statistics constant.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from initio.autodiff.layers import fan_in
from initio.autodiff.tape import Layer, NoTangentError, Tape, record
from initio.kernels.empirical import is_weight, share
from initio.metrics.base import Measurement, Metric, UndefinedValue, Value, needs

LIPSCHITZ = math.sqrt(2)  # ‖softmax(f) − e_y‖ <= √2: γ of the cross-entropy


def grad(at: Measurement) -> Value:
    """‖g‖₂."""
    return at.with_doubt(math.sqrt(at.dot(at.g, at.g)), _no_gradient(at))


def grad_norm(at: Measurement) -> Value:
    """Σ over layers of ‖g_layer‖₂, weights of convolutions and linear layers only."""
    weights = {n: t for n, t in at.g.items() if is_weight(n, t)}
    total = sum(math.sqrt(at.dot({n: t}, {n: t})) for n, t in weights.items())
    return at.with_doubt(total, _no_gradient(at))


def snip(at: Measurement) -> Value:
    """Σ |θ ∘ g|."""
    total = sum(float((at.tape.parameters[n].detach() * t).abs().sum(dtype=torch.float64)) for n, t in at.g.items())
    return at.with_doubt(total, _no_gradient(at))


def snip_printed(at: Measurement) -> Value:
    """|θᵀg|, the equation as printed."""
    total = sum(float((at.tape.parameters[n].detach() * t).sum(dtype=torch.float64)) for n, t in at.g.items())
    return at.with_doubt(abs(total), _no_gradient(at))


def grasp(at: Measurement) -> Value:
    """−θᵀHg = −⟨g, Hθ⟩, from one pass of dual numbers in the direction θ."""
    g, H_theta = at.g, at.loss_pass.H_theta
    assert H_theta is not None
    note = f"Hθ took a double backward, since {at.no_tangent} carries no tangents" if at.no_tangent else ""
    return at.with_doubt(-at.dot(g, H_theta), _no_gradient(at), note)


def nasi(at: Measurement) -> Value:
    """‖g‖₂²."""
    return at.with_doubt(at.dot(at.g, at.g), _no_gradient(at))


def nasi_sum(at: Measurement) -> Value:
    """γ⁻¹ Σ_x ‖∇ℓ_x‖², γ = √2 for the cross-entropy (1 for `mse`, which has no such constant)."""
    v, _ = at.loss_derivatives(None)
    total = sum(_per_sample_dots(at, v, None))
    return at.with_doubt(total / (LIPSCHITZ if at.options.loss == "cross_entropy" else 1.0))


def grasp_printed(at: Measurement) -> Value:
    """|(1/m) Σ_i θᵀH_i g_i|, the equation as printed: every sample has its own gradient and Hessian."""
    v, _ = at.loss_derivatives(None)
    return at.with_doubt(abs(sum(_per_sample_dots(at, v, "tangents"))) / at.m)


def fisher(at: Measurement) -> Value:
    """Σ over layers and channels of fan_in · (1/2m) Σ_i (Σ_positions z ∘ δ)², z the layer's output."""
    _ = at.g
    sums = at.loss_pass.fisher
    if not sums:
        raise UndefinedValue("no convolution or linear layer was recorded")
    total = 0.0
    for name, s in sums.items():
        weight = at.tape.parameters[name.split("#")[0]]
        total += fan_in(tuple(weight.shape)) * float((s.double() ** 2).sum()) / (2 * at.m)
    return at.with_doubt(total)


def _no_gradient(at: Measurement) -> str:
    if any(bool(t.any()) for t in at.g.values()):
        return ""
    return "the gradient is zero: the loss does not depend on any parameter"


def _per_sample_dots(at: Measurement, v: Tensor, second: str | None) -> list[float]:
    """⟨g_i, g_i⟩, or with tangents ⟨g_i, H_iθ⟩, for each sample, statistics held constant."""
    dual = second is not None
    tape = at.tape
    if dual:
        try:
            tape = record(
                at.model, at.x, dtype=at.dtype, tangents=True, theta=at.theta, frozen=True, memory=at.options.memory
            )
        except NoTangentError as error:
            raise UndefinedValue(f"{error} carries no tangents, so single samples have no H_i θ here") from None
    total = torch.zeros(at.m, dtype=torch.float64)
    waiting: dict[str, list[Tensor]] = {}  # the gradients of parameters that are used more than once

    def add(name: str, G: Tensor, H: Tensor) -> None:
        if name not in at.theta or name in tape.notes.unknown:
            return
        if tape.notes.uses[name] > 1:
            old = waiting.get(name)
            waiting[name] = [G, H] if old is None else [old[0] + G, old[1] + H]
            return
        scale = share(tuple(tape.parameters[name].shape), at.options.parameterisation)
        total.add_(scale * (G.double() * H.double()).flatten(1).sum(1))

    def visit(layer: Layer, x: Tensor, delta: Tensor, xt: Tensor | None, dt: Tensor | None) -> None:
        if layer.geometry is None:
            add(layer.weight, x, x if not dual else torch.zeros_like(x) if xt is None else xt)
            add(layer.bias, delta, delta if not dual else torch.zeros_like(delta) if dt is None else dt)
            return
        if layer.weight in at.theta:
            G = layer.geometry.per_sample(x, delta, layer.shape)
            H = G
            if dual:
                H = torch.zeros_like(G)
                H = H if dt is None else H + layer.geometry.per_sample(x, dt, layer.shape)
                H = H if xt is None else H + layer.geometry.per_sample(xt, delta, layer.shape)
            add(layer.weight, G, H)
        if layer.bias:
            G = _bias(delta, bool(layer.geometry.stride))
            H = G if not dual else torch.zeros_like(G) if dt is None else _bias(dt, bool(layer.geometry.stride))
            add(layer.bias, G, H)

    if dual and tape.ft is None:
        return [0.0] * at.m
    if dual:
        assert tape.ft is not None
        _, u = at.loss_derivatives(tape.ft.detach())
        tape.visit_dual(v, u, visit)
    else:
        u = v
        tape.visit(v, visit, "frozen")
    for name, (G, H) in waiting.items():
        scale = share(tuple(tape.parameters[name].shape), at.options.parameterisation)
        total += scale * (G.double() * H.double()).flatten(1).sum(1)
    slow = sorted(at.theta & tape.notes.unknown)
    for i in range(at.m if slow else 0):
        total[i] += _one_dot(at, tape, v, u if dual else None, i, slow)
    return [float(t) for t in total]


def _one_dot(at: Measurement, tape: Tape, v: Tensor, u: Tensor | None, i: int, names: list[str]) -> float:
    """The share of parameters that the fast path does not know, for one sample."""
    only = torch.zeros_like(v)
    only[i] = v[i]
    g = tape.gradient(only, names=names, batch_norm="frozen")
    H = g
    if u is not None:
        moved = torch.zeros_like(u)
        moved[i] = u[i]
        H = tape.dual_gradient(only, moved, batch_norm="frozen")[1]
    return sum(at.scale(n) * float((g[n].double() * H[n].double()).sum()) for n in names)


def _bias(delta: Tensor, convolution: bool) -> Tensor:
    if convolution:
        return delta.flatten(2).sum(2)
    return delta.reshape(len(delta), -1, delta.shape[-1]).sum(1)


GRADIENTS = (
    Metric("grad", "‖(1/m) Σ_i ∇θ ℓ_i‖₂", "HNAS, Eq. 2", True, needs("labels", "gradients"), grad,
           "The norm of the gradient of the batch loss."),
    Metric("grad_norm", "Σ_layers ‖g_layer‖₂", "Abdelfattah et al. 2021", True, needs("labels", "gradients"), grad_norm,
           "The norms of the single layers added up, weights of convolutions and linear layers only."),
    Metric("snip", "Σ |θ ∘ g|", "HNAS, Eq. 3; Lee et al. 2019", True, needs("labels", "gradients"), snip,
           "How much the loss would change if single weights were removed, added up."),
    Metric("snip_printed", "|θᵀg|", "HNAS, Eq. 3 as printed", True, needs("labels", "gradients"), snip_printed,
           "Zero but for the weights without a batch norm behind them, along which the loss does not change."),
    Metric("grasp", "−θᵀHg", "HNAS, Eq. 3; Wang et al. 2020", True, needs("labels", "gradients", "second order"), grasp,
           "How the gradient's norm changes along the weights; behind batch norm nearly ‖g‖²."),
    Metric("grasp_printed", "|(1/m) Σ_i θᵀH_i g_i|", "HNAS, Eq. 3 as printed", True,
           needs("labels", "per-sample gradients"), grasp_printed,
           "Every sample with its own gradient and Hessian, batch statistics held constant."),
    Metric("nasi", "‖b⁻¹ Σ_x ∇θ ℓ_x‖₂²", "NASI, Eq. 12", True, needs("labels", "gradients"), nasi,
           "NASI's approximation of the kernel's trace from one mini-batch: grad squared."),
    Metric("nasi_sum", "γ⁻¹ Σ_x ‖∇θ ℓ_x‖₂²", "NASI, Eq. 11", True, needs("labels", "per-sample gradients"), nasi_sum,
           "NASI's approximation of the kernel's trace from single samples, γ = √2."),
    Metric("fisher", "Σ_channels fan_in · (1/2m) Σ_i (Σ_p z ∘ ∂ℓ/∂z)²", "Abdelfattah et al. 2021", True,
           needs("labels", "gradients", "fisher"), fisher,
           "What removing channels would cost, to second order, weighted by each channel's weights as published."),
)  # fmt: skip
