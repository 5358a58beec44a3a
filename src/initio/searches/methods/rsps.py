"""Random search with parameter sharing (Li and Talwalkar, 2019): `--method rsps`.

Every update trains one architecture, drawn uniformly. The answer is the best of many random ones on a held-out batch
with the shared weights. Numbers are those of NAS-Bench-201's own baseline; elsewhere the weights learn as DARTS' do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import torch

from initio.errors import at_least
from initio.networks.shared import Blend
from initio.searches.base import by_space
from initio.searches.oneshot import (
    Learned,
    Moment,
    OneShotSearch,
    Reading,
    SharedEpoch,
    SharedTraining,
    best_of,
    candidates,
)
from initio.spaces import GraphSpace


@dataclass(frozen=True)
class Rsps(OneShotSearch):
    """Random search with shared weights: uniform single paths, then the best of many on a held-out batch.

    Args:
        candidates: random architectures that are compared after an epoch, and in the end.
    """

    candidates: int = 100
    weight_decay: float = by_space(3e-4, nb201=5e-4)
    nesterov: bool = by_space(False, nb201=True)

    name: ClassVar[str] = "rsps"
    usual_epochs: ClassVar[int] = 250

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, candidates=1)

    def knowledge(self, space: GraphSpace, stage: int, done: Sequence[SharedEpoch], seed: int) -> Learned:
        """Nothing."""
        return Learned(torch.zeros(0))

    def draw(self, at: SharedTraining, now: Moment) -> Blend:
        """A uniform architecture for each update."""
        return Blend.path(at.space, at.space.sample(now.random(at.seed)))

    def read(self, at: SharedTraining, now: Moment) -> Reading:
        """The best of `candidates` random ones."""
        rng = Random(f"rsps {at.seed} {now.epoch}")
        return Reading(best_of(at, candidates(at, lambda: at.space.sample(rng), self.candidates), now))
