"""DrNAS (Chen et al., 2021): `--method drnas`.

Blends are drawn from Dirichlet(β) with β = elu(α) + 1, and β learns by the derivative of the draws along their
paths [DrNAS 3, 4]; λ/2 ‖β − 1‖² keeps it near the uniform distribution on the simplex [DrNAS 2]. The answer goes by
the mean β/Σβ. Numbers are the release's for nb201, and for darts where they differ; its penalty is on α, which is β − 1
above zero. The progressive growth of partial channels is not built: `parts` holds them constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.distributions import Dirichlet

from initio.errors import at_least
from initio.networks.shared import Blend
from initio.searches.alpha import RestingSearch, alpha_of
from initio.searches.base import by_space
from initio.searches.oneshot import Moment, SharedTraining


@dataclass(frozen=True)
class DrNas(RestingSearch):
    """DrNAS: blends of a Dirichlet distribution, whose concentration learns.

    Args:
        anchor: λ of the penalty λ/2 ‖β − 1‖² on the distance to Dirichlet(1).
        parts: K of partial channels; 1 mixes all.
    """

    alpha_decay: float = 0.0
    anchor: float = 1e-3
    parts: int = 1
    alpha_lr: float = by_space(3e-4, darts=6e-4)
    lr: float = by_space(0.025, darts=0.1)
    lr_end: float = by_space(0.001, darts=0.0)
    rest: float = by_space(0.0, darts=0.4)

    name: ClassVar[str] = "drnas"
    usual_epochs: ClassVar[int] = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, anchor=0, parts=1)

    @property
    def partial(self) -> int:
        """K."""
        return self.parts

    def mix(self, at: SharedTraining, values: Tensor, now: Moment) -> Blend:
        """A draw of Dirichlet(β) for each edge."""
        alpha = alpha_of(at)
        rows, _ = alpha.rows(values)
        return Blend.rows([Dirichlet(concentration(row)).rsample() for row in rows], kept=alpha.kept)

    def objective(self, at: SharedTraining, values: Tensor, loss: Tensor) -> Tensor:
        """The loss and the penalty."""
        return loss + self.anchor / 2 * (concentration(values) - 1).square().sum()

    def probabilities(self, at: SharedTraining, values: Tensor) -> list[Tensor]:
        """The mean of the distribution."""
        rows, _ = alpha_of(at).rows(concentration(values))
        return [row / row.sum() for row in rows]


def concentration(values: Tensor) -> Tensor:
    """β = elu(α) + 1, above zero."""
    return (F.elu(values) + 1).clamp_min(torch.finfo(values.dtype).eps)
