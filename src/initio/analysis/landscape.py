"""The loss around a point in weight space: what to plot [Understanding 4.2], and numbers beside the plots.

    s(a, b) = E_i ℓ_i(w* + a w1 + b w2)          the loss surface
    g(a, b) = E_i ‖∇ℓ_i − E ∇ℓ‖²                  the gradient variance at the same point

w1 and w2 are Gaussian directions, each filter scaled to the norm of the network's own filter (Li et al., 2018); offsets
and the scales of batch norm stand still, as there. Everything is of one batch of inputs, with the batch's own
statistics in batch norm, so that loss, gradients and curvature belong to the same function; for the gradients of single
samples the statistics are constants. The Hessian is that of s in all parameters:
products Hv come from one recorded pass each.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from initio.autodiff.layers import CHUNK_BYTES
from initio.autodiff.record import NoTangentError, plain_arithmetic, record
from initio.errors import InputError
from initio.kernels.empirical import is_weight, layerwise

Weights = Mapping[str, Tensor]
NEAR_CONVEX = 0.1  # of a curvature's size: a surface may bend down by so much and still count as convex


@dataclass(frozen=True)
class SurfacePoint:
    """What is measured at one point; a loss that is not finite is None, and so is its variance."""

    loss: float | None
    variance: float | None
    accuracy: float | None = None  # in percent


@dataclass(frozen=True)
class Curvature:
    """Of the Hessian: its largest eigenvalues by size, the largest first, and its trace with a standard error."""

    eigenvalues: tuple[float, ...]
    residuals: tuple[float, ...]  # ‖Hv − λv‖ of each
    trace: float
    trace_error: float


@dataclass(frozen=True)
class SurfaceNumbers:
    """What a surface s on a square grid comes to.

    Args:
        center: s(0, 0).
        sharpness: mean of s over the points nearest to the circle of half the grid's reach, minus the centre.
        worst: the largest s inside that circle, minus the centre.
        convex_radius: distance of the nearest inner point where the surface bends down by more than a tenth of how it
            bends up (the least eigenvalue of its 2×2 Hessian against the largest); None where there is none.
        variance: g(0, 0).
        variance_around: mean of g over the same circle.
        undefined: points without a finite loss.
    """

    center: float | None
    sharpness: float | None
    worst: float | None
    convex_radius: float | None
    variance: float | None
    variance_around: float | None
    undefined: int = 0


# --- points ---------------------------------------------------------------------------------------------------------


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The parameters as they are, by name."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def filter_direction(weights: Weights, seed: int) -> dict[str, Tensor]:
    """A Gaussian direction, each filter of which has the norm of the weights' own; zero for all that is no weight.

    >>> w = {"layer": torch.tensor([[3.0, 4.0], [0.0, 0.0]]), "offset": torch.ones(2)}
    >>> d = filter_direction(w, seed=0)
    >>> d["layer"].norm(dim=1), d["offset"]
    (tensor([5., 0.]), tensor([0., 0.]))
    """
    rng = torch.Generator().manual_seed(seed)
    direction = {}
    for name, weight in weights.items():
        direction[name] = torch.zeros_like(weight)
        if is_weight(weight):
            drawn = torch.randn(weight.shape, generator=rng, dtype=torch.float64).to(weight.device).flatten(1)
            norms = weight.double().flatten(1).norm(dim=1, keepdim=True)
            direction[name] = (drawn * (norms / drawn.norm(dim=1, keepdim=True))).view(weight.shape).to(weight.dtype)
    return direction


def moved(model: nn.Module, weights: Weights, *steps: tuple[float, Weights]) -> nn.Module:
    """A copy of the model at weights + Σ a · direction."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            at = weights[name].clone()
            for length, direction in steps:
                at += length * direction[name]
            parameter.copy_(at)
    return model


def measure_point(model: nn.Module, x: Tensor, y: Tensor, *, dtype: torch.dtype = torch.float32) -> SurfacePoint:
    """Loss, gradient variance and accuracy of a model where it stands."""
    tape = record(model, x, dtype=dtype)
    f, m = tape.f.detach(), len(x)
    loss = float(nn.functional.cross_entropy(f.double(), y))
    if not math.isfinite(loss):
        return SurfacePoint(None, None)
    with plain_arithmetic():
        G = layerwise(tape, _slope(f, y), "frozen", frozenset(tape.parameters), "standard", CHUNK_BYTES)
    variance = float(G.trace() / m - G.sum() / m**2)
    accuracy = 100 * float((f.argmax(1) == y).double().mean())
    if not math.isfinite(variance):
        return SurfacePoint(loss, None, accuracy)
    return SurfacePoint(loss, max(0.0, variance), accuracy)


def _slope(f: Tensor, y: Tensor) -> Tensor:
    """∂ℓ_i/∂f_i of the cross-entropy."""
    return f.softmax(1).scatter_add(1, y[:, None], torch.full_like(f[:, :1], -1.0))


# --- curvature ------------------------------------------------------------------------------------------------------


class Hessian:
    """The Hessian of the mean cross-entropy at a model's parameters, as a product with vectors in ℝᵖ."""

    def __init__(self, model: nn.Module, x: Tensor, y: Tensor, *, dtype: torch.dtype = torch.float32) -> None:
        self.model, self.x, self.y, self.dtype = model, x, y, dtype
        self.shapes = {name: p.shape for name, p in model.named_parameters()}
        self.size = sum(shape.numel() for shape in self.shapes.values())

    def __matmul__(self, v: np.ndarray) -> np.ndarray:
        parts = torch.split(torch.from_numpy(v).to(self.x.device), [shape.numel() for shape in self.shapes.values()])
        direction = {name: part.view(s) for (name, s), part in zip(self.shapes.items(), parts, strict=True)}
        tape = record(self.model, self.x, direction=direction, dtype=self.dtype)
        if tape.ft is None:  # nothing that the output depends on moves
            return np.zeros_like(v)
        f, f_dot, m = tape.f.detach(), tape.ft.detach(), len(self.x)
        p = f.softmax(1)
        turn = p * f_dot - p * (p * f_dot).sum(1, keepdim=True)  # (diag(p) − ppᵀ) ḟ
        _, Hv = tape.dual_gradient(_slope(f, self.y) / m, turn / m)
        return torch.cat([Hv[name].double().flatten() for name in self.shapes]).cpu().numpy()


def lanczos(product: Callable[[np.ndarray], np.ndarray], size: int, steps: int, seed: int = 0) -> tuple[
    np.ndarray, np.ndarray
]:  # fmt: skip
    """Ritz values of a symmetric matrix, largest by size first, and their residuals; vectors are orthogonalised twice.

    >>> A = np.diag([5.0, -3.0, 1.0, 0.5])
    >>> values, errors = lanczos(lambda v: A @ v, 4, steps=4)
    >>> values.round(8).tolist(), bool(errors.max() < 1e-8)
    ([5.0, -3.0, 1.0, 0.5], True)
    """
    q = np.random.default_rng(seed).standard_normal(size)
    Q, alpha, beta = [q / np.linalg.norm(q)], list[float](), list[float]()
    for _ in range(min(steps, size)):
        w = product(Q[-1])
        alpha.append(float(w @ Q[-1]))
        basis = np.stack(Q)
        for _ in range(2):
            w = w - basis.T @ (basis @ w)
        beta.append(float(np.linalg.norm(w)))
        if beta[-1] <= 1e-12 * max(map(abs, alpha)):  # the space is exhausted
            break
        Q.append(w / beta[-1])
    T = np.diag(alpha) + np.diag(beta[: len(alpha) - 1], 1) + np.diag(beta[: len(alpha) - 1], -1)
    values, vectors = np.linalg.eigh(T)
    order = np.argsort(-abs(values))
    return values[order], abs(beta[-1] * vectors[-1, order])


def hutchinson(product: Callable[[np.ndarray], np.ndarray], size: int, probes: int, seed: int = 0) -> np.ndarray:
    """vᵀAv of random signs v, one a probe: unbiased for the trace, exact for a diagonal matrix."""
    rng = np.random.default_rng(seed)
    signs = (rng.choice([-1.0, 1.0], size) for _ in range(probes))
    return np.array([float(v @ product(v)) for v in signs])


def curvature(hessian: Hessian, *, top: int = 3, steps: int = 20, probes: int = 10, seed: int = 0) -> Curvature:
    """The largest eigenvalues by Lanczos' method and the trace by Hutchinson's, from steps + probes products."""
    if probes < 2:
        raise InputError(f"the error of a trace needs 2 probes or more, not {probes}")
    try:
        values, errors = lanczos(hessian.__matmul__, hessian.size, steps, seed)
        traces = hutchinson(hessian.__matmul__, hessian.size, probes, seed)
    except NoTangentError as reason:
        raise InputError(f"the curvature needs tangents, which {reason} does not carry") from None
    error = float(traces.std(ddof=1) / math.sqrt(probes))
    return Curvature(tuple(values[:top].tolist()), tuple(errors[:top].tolist()), float(traces.mean()), error)


# --- numbers of a surface -------------------------------------------------------------------------------------------


def surface_numbers(at: np.ndarray, loss: np.ndarray, variance: np.ndarray) -> SurfaceNumbers:
    """Sums up s and g on the grid at × at, rows along a; NaN where there is no value."""
    a, b = np.meshgrid(at, at, indexing="ij")
    distance, reach, step = np.hypot(a, b), abs(at).max() / 2, at[1] - at[0]
    ring, inside = abs(distance - reach) <= step / 2, distance <= reach + step / 2
    middle = np.unravel_index(distance.argmin(), distance.shape)
    center = loss[middle]
    return SurfaceNumbers(
        _number(center),
        _number(np.mean(loss[ring]) - center),
        _number(np.max(loss[inside]) - center),
        _convex_radius(at, loss),
        _number(variance[middle]),
        _number(np.mean(variance[ring])),
        int(np.isnan(loss).sum()),
    )


def _convex_radius(at: np.ndarray, s: np.ndarray) -> float | None:
    """See `SurfaceNumbers`; second differences need a neighbour on every side."""
    inner = s[1:-1, 1:-1]
    aa = s[2:, 1:-1] - 2 * inner + s[:-2, 1:-1]
    bb = s[1:-1, 2:] - 2 * inner + s[1:-1, :-2]
    ab = (s[2:, 2:] - s[2:, :-2] - s[:-2, 2:] + s[:-2, :-2]) / 4
    middle, half = (aa + bb) / 2, np.hypot((aa - bb) / 2, ab)
    bends_down = ~(middle - half >= -NEAR_CONVEX * abs(middle + half))  # what is not a number is not convex
    a, b = np.meshgrid(at[1:-1], at[1:-1], indexing="ij")
    if not bends_down.any():
        return None
    return float(np.hypot(a, b)[bends_down].min())


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def barrier(t: np.ndarray, loss: np.ndarray) -> float | None:
    """How far the loss between two solutions, t = 0 and 1, rises above the straight line between theirs.

    >>> barrier(np.array([0.0, 0.5, 1.0]), np.array([1.0, 4.0, 2.0]))
    2.5
    """
    between = (t >= 0) & (t <= 1)
    ends = np.interp([0.0, 1.0], t, loss)
    return _number(np.max(loss[between] - (1 - t[between]) * ends[0] - t[between] * ends[1]))
