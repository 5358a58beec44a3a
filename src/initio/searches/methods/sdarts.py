"""SDARTS (Chen and Hsieh, 2020): `--method sdarts-rs` and `sdarts-adv`.

The weights learn at blends around softmax(α), so that the loss is flat in α when the answer is read: at a uniform
one in a box of half-width ε [SDARTS 5], or at the worst that projected gradient ascent finds in it [SDARTS 6]. ε
rises with the epochs. What leaves the simplex is clipped and scaled back to it. α learns as in DARTS of first order.
ε from 0.03 to 0.3, 7 steps of 2ε/7 from a random start, and 100 epochs on nb201 are those of the release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from initio.errors import at_least, positive
from initio.networks.shared import Blend
from initio.searches.alpha import alpha_of, gradient_of
from initio.searches.methods.darts import Darts
from initio.searches.oneshot import Moment, SharedTraining


@dataclass(frozen=True)
class SdartsRs(Darts):
    """SDARTS-RS: the weights learn at random blends around that of α.

    Args:
        epsilon: half-width of the box around softmax(α) that it rises to.
        epsilon_start: of the first epoch.
    """

    epsilon: float = 0.3
    epsilon_start: float = 0.03

    name: ClassVar[str] = "sdarts-rs"
    usual_epochs: ClassVar[int] = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "epsilon", "epsilon_start")

    def draw(self, at: SharedTraining, now: Moment) -> Blend:
        """softmax(α) + δ, back on the simplex."""
        radius = self.epsilon_start + (self.epsilon - self.epsilon_start) * now.epoch / now.epochs
        p = torch.cat(self.probabilities(at, at.knows.values))
        start = radius * (2 * torch.rand_like(p) - 1)
        with torch.no_grad():
            return self._blend(at, p + self.moved(at, now, p, start, radius))

    def moved(self, at: SharedTraining, now: Moment, p: Tensor, start: Tensor, radius: float) -> Tensor:
        """δ."""
        return start

    def _blend(self, at: SharedTraining, p: Tensor) -> Blend:
        alpha = alpha_of(at)
        rows, _ = alpha.rows(p)
        return Blend.rows([on_simplex(row) for row in rows], kept=alpha.kept)


@dataclass(frozen=True)
class SdartsAdv(SdartsRs):
    """SDARTS-ADV: the weights learn at the worst blends around that of α.

    Args:
        attacks: steps of the ascent.
    """

    attacks: int = 7

    name: ClassVar[str] = "sdarts-adv"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, attacks=1)

    def moved(self, at: SharedTraining, now: Moment, p: Tensor, start: Tensor, radius: float) -> Tensor:
        """δ ← clip(δ + 2ε/n sign ∂L_train/∂δ)."""
        assert now.update is not None
        delta = start
        for _ in range(self.attacks):
            leaf = delta.detach().requires_grad_()
            with torch.enable_grad():
                loss = F.cross_entropy(at.network(now.update.x, self._blend(at, p + leaf)), now.update.y)
            delta = delta + 2 * radius / self.attacks * gradient_of(loss, leaf).sign()
            delta = delta.clamp(-radius, radius)
        return delta


def on_simplex(row: Tensor) -> Tensor:
    """Clipped to [0, 1] and scaled to sum 1.

    >>> on_simplex(torch.tensor([0.8, -0.1, 0.8])).tolist()
    [0.5, 0.0, 0.5]
    """
    row = row.clamp(0, 1)
    return row / row.sum().clamp_min(torch.finfo(row.dtype).tiny)
