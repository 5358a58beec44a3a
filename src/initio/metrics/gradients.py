"""Metrics of the batch loss's gradient: grad, snip, grasp, nasi, fisher [HNAS 2, 3; NASI 11, 12].

g = (1/m) Σ_i ∇θ ℓ_i is the gradient through the batch statistics, as training would see it; the variants with a sum
over single samples hold the statistics constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from initio.autodiff.channels import bias_gradient
from initio.autodiff.layers import fan_in
from initio.autodiff.record import Layer, NoTangentError, Tape, record
from initio.autodiff.weighted import plus
from initio.errors import InputError
from initio.kernels.empirical import is_weight
from initio.metrics.base import DEEP_SPACES, Measurement, Metric, UndefinedValue, Value, needs

LIPSCHITZ = math.sqrt(2)  # ‖softmax(f) − e_y‖ <= √2: γ of the cross-entropy


def grad(at: Measurement) -> Value:
    """‖g‖₂."""
    return at.with_doubt(math.sqrt(at.dot(at.g, at.g)), _no_gradient(at))


def grad_norm(at: Measurement) -> Value:
    """Σ over layers of ‖g_layer‖₂, weights of convolutions and linear layers only."""
    weights = {n: t for n, t in at.g.items() if is_weight(t)}
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
    g, H_theta = at.g, at.H_theta
    note = ""
    if at.no_tangent:
        note = f"Hθ took a double backward, since {at.no_tangent} carries no tangents"
    return at.with_doubt(-at.dot(g, H_theta), _no_gradient(at), note)


def nasi(at: Measurement) -> Value:
    """‖g‖₂²."""
    return at.with_doubt(at.dot(at.g, at.g), _no_gradient(at))


def nasi_sum(at: Measurement) -> Value:
    """γ⁻¹ Σ_x ‖∇ℓ_x‖², γ = √2 for the cross-entropy (1 for `mse`, which has no such constant)."""
    gamma = {"cross_entropy": LIPSCHITZ, "mse": 1.0}[at.options.loss]
    products = _Products(at, at.tape, dual=False)
    at.tape.visit(at.loss_gradient(), products, "frozen")
    total = sum(products.finished())
    return at.with_doubt(total / gamma, at.together, _zero(at, total))


def grasp_printed(at: Measurement) -> Value:
    """|(1/m) Σ_i θᵀH_i g_i|, the equation as printed: every sample has its own gradient and Hessian."""
    delta = at.loss_gradient()
    try:
        tape = record(
            at.model, at.x, direction=at.direction, dtype=at.dtype, frozen=True, memory=at.options.memory
        )  # fmt: skip
    except (NoTangentError, InputError) as error:
        at.no_tangent = at.no_tangent or str(error)
        total = sum(_double_backwards(at, delta))
    else:
        total = 0.0
        if tape.ft is not None:  # something moves along θ
            products = _Products(at, tape, dual=True)
            tape.visit_dual(delta, at.loss_tangent(tape.ft.detach()), products)
            total = sum(products.finished())
    return at.with_doubt(abs(total) / at.m, at.together, _zero(at, total))


def _double_backwards(at: Measurement, delta: Tensor) -> Iterator[float]:
    """⟨g_i, H_iθ⟩ for each sample i, where no tangents can be carried."""
    _ = at.double_backward  # which is checked
    for i in range(at.m):
        row = _only(i, torch.ones_like(delta))

        def cotangent(f: Tensor, row: Tensor = row) -> Tensor:
            return at.loss_gradient_of(f) * row

        with at.second_derivatives():
            H = at.plain_tape.curvature(cotangent, at.direction, "frozen")
        yield at.dot(at.plain_tape.gradient(delta * row, names=H, batch_norm="frozen"), H)


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
    return at.with_doubt(total, _outside(at), at.elsewhere)


def zico(at: Measurement) -> Value:
    """Σ over weights W of log Σ_w mean|g_w| / std(g_w), mean and deviation over parts of the batch.

    The paper takes two batches; here it is eight parts of one, from one pass whose batch statistics they share. Entries
    that do not change from part to part do not count, as published.
    """
    if at.m == 1:
        raise UndefinedValue("a batch of one has no parts to compare")
    _ = at.g
    total = 0.0
    for name, g in at.loss_pass.by_part.items():
        g = g.double()
        deviation = g.std(0, correction=0)
        changes = deviation > 0
        if is_weight(at.tape.parameters[name]) and bool(changes.any()):
            total += math.log(float((g.abs().mean(0)[changes] / deviation[changes]).sum()))
    if not at.loss_pass.by_part:
        raise UndefinedValue("the network has no convolution or linear layer whose gradients could be compared")
    return at.with_doubt(total, _outside(at), at.elsewhere, _no_gradient(at))


def _outside(at: Measurement) -> str:
    """A note on weights that layers do not account for."""
    outside = [n for n in at.tape.notes.unknown if is_weight(at.tape.parameters[n])]
    if not outside:
        return ""
    return f"{len(outside)} weights are used outside of convolutions and linear layers, and do not count"


def _no_gradient(at: Measurement) -> str:
    if any(bool(t.any()) for t in at.g.values()):
        return ""
    return "the gradient is zero: the loss does not depend on any parameter"


def _zero(at: Measurement, total: float) -> str:
    if total == 0 and not at.doubt:
        return _no_gradient(at)
    return ""


class _Products:
    """⟨g_i, g_i⟩, or in a dual pass ⟨g_i, H_iθ⟩, for each sample i, while a backward pass visits the layers.

    A layer's part of g_i is δ_i x_iᵀ, its part of H_iθ is δ̇_i x_iᵀ + δ_i ẋ_iᵀ.
    """

    def __init__(self, at: Measurement, tape: Tape, *, dual: bool) -> None:
        self.at, self.tape, self.dual = at, tape, dual
        self.apart = tape.samples == "apart"
        self.total = torch.zeros(at.m, dtype=torch.float64, device=at.x.device)
        self.waiting: dict[str, tuple[Tensor, Tensor]] = {}  # the gradients of parameters that are used more than once

    def __call__(self, layer: Layer, x: Tensor, delta: Tensor, xt: Tensor | None, dt: Tensor | None) -> None:
        if not self.apart:
            return
        if layer.geometry is None:
            self.add(layer.weight, x, xt)
            self.add(layer.bias, delta, dt)
            return
        H: Tensor | None = None
        if layer.weight in self.at.theta:
            if dt is not None:
                H = layer.geometry.per_sample(x, dt, layer.shape)
            if xt is not None and self.dual:
                H = plus(H, layer.geometry.per_sample(xt, delta, layer.shape))
            self.add(layer.weight, layer.geometry.per_sample(x, delta, layer.shape), H)
        if layer.bias in self.at.theta:
            H = None
            if dt is not None:
                H = bias_gradient(dt, bool(layer.geometry.stride))
            self.add(layer.bias, bias_gradient(delta, bool(layer.geometry.stride)), H)

    def add(self, name: str, G: Tensor, H: Tensor | None) -> None:
        """One use of a parameter: its gradients g_i, and in a dual pass H_iθ, None for zero."""
        if name not in self.at.theta or name in self.tape.notes.unknown:
            return
        if not self.dual:
            H = G
        elif H is None:
            H = torch.zeros_like(G)
        if self.tape.notes.uses[name] == 1:
            self._add(name, G, H)
        elif name in self.waiting:
            before = self.waiting[name]
            self.waiting[name] = (before[0] + G, before[1] + H)
        else:
            self.waiting[name] = (G, H)

    def _add(self, name: str, G: Tensor, H: Tensor) -> None:
        self.total += self.at.scale(name) * (G.double() * H.double()).flatten(1).sum(1)

    def finished(self) -> list[float]:
        """With the parameters that had to wait for all their uses, and those that only autograd knows."""
        slow = self.at.theta
        if self.apart:
            slow = slow & self.tape.notes.unknown
        for name, (G, H) in self.waiting.items():
            self._add(name, G, H)
        for i in range(self.at.m * bool(slow)):
            self.total[i] += self._one_sample(i, sorted(slow))
        return [float(t) for t in self.total]

    def _one_sample(self, i: int, names: list[str]) -> float:
        delta = _only(i, self.at.loss_gradient())
        g = H = self.tape.gradient(delta, names=names, batch_norm="frozen")
        if self.dual:
            assert self.tape.ft is not None
            delta_dot = _only(i, self.at.loss_tangent(self.tape.ft.detach()))
            H = self.tape.dual_gradient(delta, delta_dot, names=names, batch_norm="frozen")[1]
        return sum(self.at.scale(n) * float((g[n].double() * H[n].double()).sum()) for n in names)


def _only(i: int, rows: Tensor) -> Tensor:
    """The same matrix with zeros in all other rows."""
    out = torch.zeros_like(rows)
    out[i] = rows[i]
    return out


GRADIENTS = (
    Metric("grad", "‖(1/m) Σ_i ∇θ ℓ_i‖₂", "HNAS, Eq. 2", True, needs("labels", "gradients"), grad,
           "The norm of the gradient of the batch loss.",
           reversed_on=DEEP_SPACES),
    Metric("grad_norm", "Σ_layers ‖g_layer‖₂", "Abdelfattah et al. 2021", True, needs("labels", "gradients"), grad_norm,
           "The norms of the single layers added up, weights of convolutions and linear layers only.",
           reversed_on=DEEP_SPACES),
    Metric("snip", "Σ |θ ∘ g|", "HNAS, Eq. 3; Lee et al. 2019", True, needs("labels", "gradients"), snip,
           "How much the loss would change if single weights were removed, added up.",
           reversed_on=DEEP_SPACES),
    Metric("snip_printed", "|θᵀg|", "HNAS, Eq. 3 as printed", True, needs("labels", "gradients"), snip_printed,
           "Zero but for the weights without a batch norm behind them, along which the loss does not change."),
    Metric("grasp", "−θᵀHg", "HNAS, Eq. 3; Wang et al. 2020", True, needs("labels", "gradients", "second order"), grasp,
           "How the gradient's norm changes along the weights; behind batch norm nearly ‖g‖²."),
    Metric("grasp_printed", "|(1/m) Σ_i θᵀH_i g_i|", "HNAS, Eq. 3 as printed", True,
           needs("labels", "per-sample gradients", "second order of samples"), grasp_printed,
           "Every sample with its own gradient and Hessian, batch statistics held constant."),
    Metric("nasi", "‖b⁻¹ Σ_x ∇θ ℓ_x‖₂²", "NASI, Eq. 12", True, needs("labels", "gradients"), nasi,
           "NASI's approximation of the kernel's trace from one mini-batch: grad squared.",
           reversed_on=DEEP_SPACES),
    Metric("nasi_sum", "γ⁻¹ Σ_x ‖∇θ ℓ_x‖₂²", "NASI, Eq. 11", True, needs("labels", "per-sample gradients"), nasi_sum,
           "NASI's approximation of the kernel's trace from single samples, γ = √2."),
    Metric("fisher", "Σ_channels fan_in · (1/2m) Σ_i (Σ_p z ∘ ∂ℓ/∂z)²", "Abdelfattah et al. 2021", True,
           needs("labels", "gradients", "fisher"), fisher,
           "What removing channels would cost, to second order, weighted by each channel's weights as published.",
           reversed_on=DEEP_SPACES),
    Metric("zico", "Σ_layers log Σ_w mean|g_w| / std(g_w)", "ZiCo (Li et al. 2023)", True,
           needs("labels", "gradients", "parts"), zico,
           "How alike the gradients of eight parts of the batch are, which share its statistics.", version=2),
)  # fmt: skip
