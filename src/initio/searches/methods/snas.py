"""SNAS (Xie et al., 2019): `--method snas`.

Every edge mixes all options by a sample of the concrete distribution, softmax((α + g)/λ) with Gumbel noise g [SNAS
4]. Weights and α learn from the same loss of the same sample on the same data: one backward pass gives both
gradients. λ falls by a constant factor an epoch, between the values of the release. The paper's penalty on resources
is not built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from initio.errors import positive
from initio.networks.shared import Blend
from initio.searches.alpha import AlphaSearch, alpha_of, gumbel
from initio.searches.oneshot import Moment, SharedTraining


@dataclass(frozen=True)
class Snas(AlphaSearch):
    """SNAS: samples of a softmax of falling temperature; weights and α learn together.

    Args:
        temperature: λ of the first epoch.
        temperature_end: of the last one, to which it falls by equal factors.
    """

    held_out: float = 0.0
    lr_end: float = 0.0
    temperature: float = 1.0
    temperature_end: float = 0.03

    name: ClassVar[str] = "snas"
    usual_epochs: ClassVar[int] = 150

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "temperature", "temperature_end")

    def mix(self, at: SharedTraining, values: Tensor, now: Moment) -> Blend:
        """softmax((α + g)/λ)."""
        heat = self.temperature * (self.temperature_end / self.temperature) ** now.progress
        alpha = alpha_of(at)
        rows, _ = alpha.rows(values)
        return Blend.rows([((row + gumbel(row)) / heat).softmax(0) for row in rows], kept=alpha.kept)

    def learn(self, at: SharedTraining, now: Moment) -> None:
        """What the update before has left in the gradient of its sample."""
        if at.pending is not None and at.pending.grad is not None:
            self.update(at, at.pending.grad)
        at.pending = None

    def draw(self, at: SharedTraining, now: Moment) -> Blend:
        """A sample through which the weights' backward pass reaches α."""
        at.pending = at.knows.leaf()
        return self.mix(at, at.pending, now)

    def teach(self, at: SharedTraining, now: Moment) -> None:
        """What the last update of the epoch has left."""
        self.learn(at, now)
