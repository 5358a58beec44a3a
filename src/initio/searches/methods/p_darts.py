"""P-DARTS (Chen et al., 2019): `--method p-darts`.

DARTS of first order in three stages: each network is deeper and has fewer options an edge, those that weighed least
being dropped, and α begins anew [P-DARTS 3.2]. Skips are held back twice: part of their values is dropped, less and
less within a stage [P-DARTS 3.3], and the answer has at most `most_skips` of them in its first cell, those with the
least weight giving way. Numbers are the paper's and its release's for CIFAR-10: 8, 5 and 3 options an edge, `none`
among the first 8, which this space of 7 has not; networks of 5, 11 and 17 cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from initio.errors import InputError, at_least
from initio.networks.shared import Blend, Kept
from initio.searches.alpha import RestingSearch, alpha_of, spread
from initio.searches.base import by_space
from initio.searches.methods.darts import softmax_blend
from initio.searches.oneshot import SKIP, Moment, SharedEpoch, SharedTraining
from initio.searches.problem import Problem
from initio.spaces import GraphSpace, Space
from initio.spaces.base import Size


@dataclass(frozen=True)
class PDarts(RestingSearch):
    """P-DARTS: three stages, deeper and with fewer options each time; skips are held back.

    Args:
        growth: cells by which each stage is deeper than the one before.
        first_drop: options that an edge loses after the first stage.
        second_drop: after the second.
        dropout: shares of the values of skips that are dropped when a stage begins, one number a stage.
        fading: once α learns, that share falls by exp(−fading) an epoch.
        most_skips: in the first cell of the answer.
    """

    growth: int = by_space(6, nb201=1, nb1shot1=1)  # published for darts alone
    first_drop: int = by_space(2, nb1shot1=1)
    second_drop: int = by_space(2, nb201=1, nb1shot1=0)
    dropout: str = "0.0,0.4,0.7"
    fading: float = 0.2
    rest: float = 0.4
    most_skips: int = 2
    lr_end: float = 0.0
    alpha_lr: float = 6e-4

    name: ClassVar[str] = "p-darts"
    stages: ClassVar[int] = 3
    usual_epochs: ClassVar[int] = 25
    usual_batch: ClassVar[int] = 96

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, growth=0, first_drop=0, second_drop=0, most_skips=0, fading=0)
        if len(self.rates) != self.stages or not all(0 <= rate < 1 for rate in self.rates):
            raise InputError(f"dropout must be three shares below 1, as 0.0,0.4,0.7, not {self.dropout!r}")

    @property
    def rates(self) -> list[float]:
        """The dropout of skips in each stage."""
        try:
            return [float(word) for word in self.dropout.split(",")]
        except ValueError:
            return []

    def network_size(self, space: Space) -> Size:
        """As published, its first network has fewer cells, where that is known."""
        size = super().network_size(space)
        if self.size == "published":
            return replace(size, cells=space.sizes.growing.cells or size.cells)
        return size

    def sized(self, at: Problem, stage: int) -> Problem:
        """Deeper stage by stage."""
        _, cells = at.graphs.size(at.network)
        return replace(at, network=replace(at.network, cells=cells + stage * self.growth))

    def kept(self, space: GraphSpace, stage: int, done: Sequence[SharedEpoch]) -> Kept:
        """Of each categorical, the options that weighed most when the stages before ended; at least one."""
        kept = [tuple(range(len(decision))) for decision in space.relaxation]
        for before, drop in zip(range(stage), (self.first_drop, self.second_drop), strict=False):
            last = done[(before + 1) * (len(done) // stage) - 1]
            rows = torch.split_with_sizes(torch.tensor(last.alpha), [len(own) for own in kept])
            kept = [_strongest(own, row, max(1, len(own) - drop)) for own, row in zip(kept, rows, strict=True)]
        return kept

    def mix(self, at: SharedTraining, values: Tensor, now: Moment) -> Blend:
        """softmax(α) of what is kept, skips with dropout."""
        at.network.skip_dropout = self.dropped(at.stage, now)
        return softmax_blend(at, values)

    def dropped(self, stage: int, now: Moment) -> float:
        """A stage's dropout: down a line while α rests, then by a factor an epoch, as in the release."""
        resting = math.ceil(self.rest * now.epochs)
        if now.epoch < resting:
            return self.rates[stage] * (now.epochs - now.epoch - 1) / now.epochs
        return self.rates[stage] * math.exp(-self.fading * (now.epoch - resting))

    def strengths(self, at: SharedTraining) -> list[Tensor]:
        """softmax(α), without the skips that are too many."""
        rows = self.probabilities(at, at.knows.values)
        if at.stage + 1 < self.stages:
            return rows
        while len(skips := self._skips(at, rows)) > self.most_skips:
            weight, k, place = min(skips)
            if weight <= 0:  # an edge that has nothing else
                break
            rows[k] = rows[k].clone()
            rows[k][place] = -1.0
        return rows

    def _skips(self, at: SharedTraining, rows: Sequence[Tensor]) -> list[tuple[float, int, int]]:
        """Weight, categorical and place of the skips that the first cell would have."""
        decisions, kept = at.space.relaxation, alpha_of(at).kept
        chosen = at.space.active(at.space.decode(spread(at, rows)))
        first = [
            (k, o) for k, o in chosen if decisions[k].cell == decisions[0].cell and decisions[k].options[o] == SKIP
        ]
        return [(float(rows[k][kept[k].index(o)]), k, kept[k].index(o)) for k, o in first]


def _strongest(options: Sequence[int], row: Tensor, count: int) -> tuple[int, ...]:
    """The options with the largest weights, in their own order."""
    best = sorted(range(len(options)), key=lambda place: -float(row[place]))[:count]
    return tuple(options[place] for place in sorted(best))
