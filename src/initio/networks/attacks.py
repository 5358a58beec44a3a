"""Attacks: changes of inputs, as small as possible, that make a network err [NESBS 5.3.6].

A network here reads inputs within bounds (pixels from 0 to 1) and gives logits. Every attack returns inputs of the same
shape, within the bounds; those of an input that it could not turn are its last attempt.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

EPSILON, STEP, STEPS = 0.01, 0.008, 40  # L∞ of FGSM and PGD and the latter's steps, as shares of the bounds' distance
C_LEAST, C_MOST, SEARCHES, DESCENTS, RATE = 0.001, 10.0, 3, 50, 0.01  # of CW
INSIDE = 1 - 1e-6  # of the bounds, where tanh can be undone


@dataclass(frozen=True)
class Bounds:
    """The least and the largest value of an input."""

    low: float = 0.0
    high: float = 1.0

    @property
    def size(self) -> float:
        """Their distance, of which an attack's ε is a share."""
        return self.high - self.low


Attack = Callable[[nn.Module, Tensor, Tensor, Bounds], Tensor]


def gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """∂ cross-entropy/∂x of each sample; zeros where the outputs do not depend on x."""
    x = x.detach().requires_grad_()
    loss = F.cross_entropy(model(x), y, reduction="sum")
    if not loss.requires_grad:
        return torch.zeros_like(x)
    [found] = torch.autograd.grad(loss, [x], allow_unused=True)
    return torch.zeros_like(x) if found is None else found


def fgsm(model: nn.Module, x: Tensor, y: Tensor, bounds: Bounds = Bounds()) -> Tensor:  # noqa: B008
    """x + ε sign ∇ (Goodfellow et al., 2015)."""
    return (x + EPSILON * bounds.size * gradient(model, x, y).sign()).clamp(bounds.low, bounds.high)


def pgd(model: nn.Module, x: Tensor, y: Tensor, bounds: Bounds = Bounds()) -> Tensor:  # noqa: B008
    """Steps of the gradient's sign within L∞ ε (Madry et al., 2018), from FGSM's answer.

    The first attempt that errs is kept, so what FGSM turns, PGD turns too.
    """
    at, epsilon = fgsm(model, x, y, bounds), EPSILON * bounds.size
    for _ in range(STEPS):
        right = answers(model, at) == y
        if not right.any():
            break
        own = at[right]
        moved = own + STEP * bounds.size * gradient(model, own, y[right]).sign()
        near = torch.clamp(moved, x[right] - epsilon, x[right] + epsilon).clamp(bounds.low, bounds.high)
        at = at.index_put((right,), near)
    return at


def cw(model: nn.Module, x: Tensor, y: Tensor, bounds: Bounds = Bounds()) -> Tensor:  # noqa: B008
    """The smallest L2 change that errs (Carlini and Wagner, 2017): ‖x' − x‖² + c max(z_y − max_{j≠y} z_j, 0).

    x' = tanh(w) between the bounds, by Adam; c is bisected on a logarithmic scale between 0.001 and 10, by sample; the
    last search takes 10 for what was never turned, so that none is spared for want of a large c. What cannot be turned
    is left as it was.
    """
    middle, half = (bounds.high + bounds.low) / 2, (bounds.high - bounds.low) / 2
    start = (((x - middle) / half).clamp(-1, 1) * INSIDE).atanh()
    low, high = (x.new_full((len(x),), math.log(c)) for c in (C_LEAST, C_MOST))
    best, least = x.clone(), x.new_full((len(x),), math.inf)
    for search in range(SEARCHES):
        c, w = ((low + high) / 2).exp(), start.clone().requires_grad_()
        if search == SEARCHES - 1:
            c = torch.where(least.isinf(), C_MOST, c)
        optimizer = torch.optim.Adam([w], lr=RATE)
        turned = torch.zeros_like(y, dtype=torch.bool)
        for _ in range(DESCENTS):
            changed = middle + half * w.tanh()
            logits = model(changed)
            distance = (changed - x).square().flatten(1).sum(1)
            others = logits.masked_fill(F.one_hot(y, logits.shape[1]).bool(), -math.inf).amax(1)
            lead = logits.gather(1, y[:, None])[:, 0] - others
            fooled = (lead < 0).detach()
            better = fooled & (distance < least).detach()
            best = torch.where(wide(better, x), changed.detach(), best)
            least = torch.where(better, distance.detach(), least)
            turned |= fooled
            optimizer.zero_grad()
            (distance + c * lead.clamp(min=0)).sum().backward()
            optimizer.step()
        low, high = torch.where(turned, low, c.log()), torch.where(turned, c.log(), high)
    return best


def wide(values: Tensor, like: Tensor) -> Tensor:
    """One number a sample, in a shape that multiplies samples."""
    return values.reshape(-1, *(1,) * (like.dim() - 1))


def _autoattack(model: nn.Module, x: Tensor, y: Tensor, bounds: Bounds) -> Tensor:
    from initio.networks.autoattack import autoattack

    return autoattack(model, x, y, bounds)


def most_passes(name: str) -> int:
    """Passes through the network that an attack takes at most, but for a few at its beginning and end."""
    from initio.networks import autoattack

    whole = autoattack.STEPS * (1 + 2 * autoattack.TARGETS) + autoattack.QUERIES
    return {"fgsm": 1, "pgd": STEPS, "cw": SEARCHES * DESCENTS, "autoattack": whole}[name]


ATTACKS: dict[str, Attack] = {"fgsm": fgsm, "pgd": pgd, "cw": cw, "autoattack": _autoattack}


@torch.no_grad()
def answers(model: nn.Module, x: Tensor) -> Tensor:
    """The class that a network answers with."""
    found: Tensor = model(x).argmax(1)
    return found


class Normalised(nn.Module):
    """A network that takes inputs between bounds and normalises them itself."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, mean: tuple[float, ...], std: tuple[float, ...], dimensions: int) -> None:
        super().__init__()
        self.network = network
        shape = (-1,) + (1,) * (dimensions - 1)
        self.register_buffer("mean", torch.tensor(mean or (0.0,)).reshape(shape))
        self.register_buffer("std", torch.tensor(std or (1.0,)).reshape(shape))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        outputs: Tensor = self.network((x - self.mean) / self.std)
        return outputs
