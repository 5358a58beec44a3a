"""GDAS (Dong and Yang, 2019): `--method gdas`.

Every update samples one option an edge, argmax(α + g) with Gumbel noise g, and computes nothing else. Where α
learns, the sampled option is multiplied by its gate, of value 1 and with the derivative of softmax((α + g)/τ) [GDAS
7]; τ falls. The release adds the zero gates of all other options to an edge's value, so that these have a derivative
too, that of an option which is one everywhere; here they have none of their own. Numbers are the release's for both
nb201 and darts.
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
class Gdas(AlphaSearch):
    """GDAS: single paths by Gumbel's trick, with the gradient of a softmax of falling temperature.

    Args:
        tau: the temperature of the first epoch.
        tau_end: of the last one, to which it falls in equal steps.
    """

    tau: float = 10.0
    tau_end: float = 0.1
    weight_decay: float = 5e-4
    nesterov: bool = True

    name: ClassVar[str] = "gdas"
    usual_epochs: ClassVar[int] = 250

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "tau", "tau_end")

    def mix(self, at: SharedTraining, values: Tensor, now: Moment) -> Blend:
        """One option an edge."""
        tau = self.tau + (self.tau_end - self.tau) * now.progress
        return straight_through(at, values, tau)


def straight_through(at: SharedTraining, values: Tensor, tau: float) -> Blend:
    """A path by Gumbel's trick: gates of value 1, with the derivative of softmax((α + g)/τ) where α has one."""
    alpha = alpha_of(at)
    rows, _ = alpha.rows(values)
    options: list[dict[int, Tensor | None]] = []
    for own, row in zip(alpha.kept, rows, strict=True):
        p = ((row + gumbel(row)) / tau).softmax(0)
        place = int(p.argmax())
        gate = None
        if values.requires_grad:
            gate = p[place] - p[place].detach() + 1
        options.append({own[place]: gate})
    return Blend(tuple(options))
