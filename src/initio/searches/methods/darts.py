"""DARTS (Liu, Simonyan and Yang, 2019): `--method darts`, and `darts-2nd` with the second order.

Every edge computes Σ_o softmax(α)_o o(x) [DARTS 2]. First order: α descends ∇_α L_val(w, α). Second order [DARTS 7]:
∇_α L_val(w', α) with w' = w − ξ (μ m + ∇_w L_train(w, α) + λ w), one step of the weights' SGD with its momentum m.
Its product of a Hessian and a vector is a central difference, as in the release [DARTS 8], or exact, by a second
backward pass. Numbers are those of the release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.func import functional_call

from initio.errors import InputError, positive
from initio.networks.shared import Blend
from initio.searches.alpha import AlphaSearch, alpha_of, gradient_of
from initio.searches.oneshot import Moment, SharedTraining
from initio.training.fit import Update


@dataclass(frozen=True)
class Darts(AlphaSearch):
    """DARTS: mixed operations, and α by the gradient of the held-out loss.

    Args:
        order: 1 takes the weights as they are, 2 looks one of their steps ahead.
        hessian: of the second order, by a central difference or exact.
        radius: ε ‖v‖ of the central difference, how far the weights move to each side.
    """

    order: int = 1
    hessian: Literal["difference", "exact"] = "difference"
    radius: float = 0.01

    name: ClassVar[str] = "darts"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "radius")
        if self.order not in (1, 2):
            raise InputError(f"order must be 1 or 2, not {self.order}")
        if self.hessian not in ("difference", "exact"):
            raise InputError(f"hessian must be difference or exact, not {self.hessian!r}")

    def mix(self, at: SharedTraining, values: Tensor, now: Moment) -> Blend:
        """softmax(α), all options."""
        return softmax_blend(at, values)

    def gradient(self, at: SharedTraining, values: Tensor, now: Moment, x: Tensor, y: Tensor) -> Tensor:
        """Of either order."""
        if self.order == 1:
            return super().gradient(at, values, now, x, y)
        assert now.update is not None
        look = Lookahead(at, values, now.update, self.momentum, self.weight_decay, self.radius)
        return {"difference": look.difference, "exact": look.exact}[self.hessian](x, y)


@dataclass(frozen=True)
class Darts2nd(Darts):
    """DARTS of second order: the held-out loss one step of the weights ahead."""

    order: int = 2

    name: ClassVar[str] = "darts-2nd"


def softmax_blend(at: SharedTraining, values: Tensor) -> Blend:
    """softmax(α) of the options that are kept."""
    alpha = alpha_of(at)
    rows, _ = alpha.rows(values)
    return Blend.rows([row.softmax(0) for row in rows], kept=alpha.kept)


@dataclass(frozen=True, eq=False)
class Lookahead:
    """∇_α L_val(w'(α), α)."""

    at: SharedTraining
    values: Tensor  # α
    update: Update  # of the weights, which is looked ahead of
    momentum: float
    decay: float
    radius: float = 0.01

    def exact(self, x: Tensor, y: Tensor) -> Tensor:
        """By differentiation through the step."""
        gradients = self._gradients(self._loss(self._weights, self.update.x, self.update.y), again=True)
        return gradient_of(self._loss(self._stepped(gradients), x, y, told=True), self.values)

    def difference(self, x: Tensor, y: Tensor) -> Tensor:
        """∇_α L_val(w', α) − ξ (∇_α L_train(w⁺, α) − ∇_α L_train(w⁻, α))/2ε, w± = w ± ε ∇_w' L_val [DARTS 8]."""
        gradients = self._gradients(self._loss(self._weights, self.update.x, self.update.y))
        stepped = {name: w.detach().requires_grad_() for name, w in self._stepped(gradients).items()}
        loss = self._loss(stepped, x, y, told=True)
        direct, *v = torch.autograd.grad(loss, [self.values, *stepped.values()], allow_unused=True)
        known = {name: part for name, part in zip(stepped, v, strict=True) if part is not None}
        epsilon = self.radius / torch.stack([part.square().sum() for part in known.values()]).sum().sqrt()
        sides = []
        for sign in (1, -1):
            moved = {name: w.detach() for name, w in self._weights.items()}
            moved |= {name: moved[name] + sign * epsilon * part for name, part in known.items()}
            sides.append(gradient_of(self._loss(moved, self.update.x, self.update.y), self.values))
        return direct - self.update.lr * (sides[0] - sides[1]) / (2 * epsilon)

    @property
    def _weights(self) -> dict[str, Tensor]:
        return dict(self.at.network.named_parameters())

    def _loss(self, weights: dict[str, Tensor], x: Tensor, y: Tensor, *, told: bool = False) -> Tensor:
        logits = functional_call(self.at.network, weights, (x, softmax_blend(self.at, self.values)))
        loss = F.cross_entropy(logits, y)
        if told:
            self.at.tally.add(loss, logits, y)
        return loss

    def _gradients(self, loss: Tensor, *, again: bool = False) -> Sequence[Tensor | None]:
        return torch.autograd.grad(loss, list(self._weights.values()), create_graph=again, allow_unused=True)

    def _stepped(self, gradients: Sequence[Tensor | None]) -> dict[str, Tensor]:
        """w' = w − ξ (μ m + ∇_w L_train + λ w)."""
        out = {}
        for (name, w), gradient in zip(self._weights.items(), gradients, strict=True):
            if gradient is None:  # not on a path: nothing moves it
                out[name] = w.detach()
                continue
            step = gradient + self.decay * w.detach()
            buffer = self.update.optimizer.state[w].get("momentum_buffer")
            if buffer is not None:
                step = step + self.momentum * buffer
            out[name] = w.detach() - self.update.lr * step
        return out
