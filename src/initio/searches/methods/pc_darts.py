"""PC-DARTS (Xu et al., 2020): `--method pc-darts`.

An edge mixes one K-th of its channels, the others pass by, and the channels are shuffled [PC-DARTS 2]; and it is
weighed by softmax(β) among all edges into its node [PC-DARTS 3]. α and β rest for some epochs. The answer goes by
their product. Numbers are the paper's, 15 epochs of rest in 50 among them; its release lets the learning rate fall to
0.001 and not to zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from initio.errors import at_least
from initio.networks.shared import Blend
from initio.searches.alpha import RestingSearch, alpha_of
from initio.searches.oneshot import Moment, SharedTraining


@dataclass(frozen=True)
class PcDarts(RestingSearch):
    """PC-DARTS: DARTS on a part of the channels, with weights of edges.

    Args:
        parts: K: one K-th of the channels is mixed.
    """

    parts: int = 4
    rest: float = 0.3
    lr: float = 0.1
    lr_end: float = 0.0
    alpha_lr: float = 6e-4

    name: ClassVar[str] = "pc-darts"
    usual_batch: ClassVar[int] = 256
    edges: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, parts=1)

    @property
    def partial(self) -> int:
        """K."""
        return self.parts

    def mix(self, at: SharedTraining, values: Tensor, now: Moment) -> Blend:
        """softmax(α) on an edge, softmax(β) among the edges of a node."""
        return self.mean(at, values)

    def mean(self, at: SharedTraining, values: Tensor) -> Blend:
        """The same."""
        alpha = alpha_of(at)
        _, edges = alpha.rows(values)
        return Blend.rows(self.probabilities(at, values), edge_weights(at, edges), alpha.kept)

    def strengths(self, at: SharedTraining) -> list[Tensor]:
        """softmax(α) times the weight of the edge."""
        _, edges = alpha_of(at).rows(at.knows.values)
        rows = self.probabilities(at, at.knows.values)
        return [row * edge for row, edge in zip(rows, edge_weights(at, edges), strict=True)]


def edge_weights(at: SharedTraining, edges: Tensor) -> tuple[Tensor, ...]:
    """softmax(β) among the edges into each node; 1 for an edge that is in no sum."""
    out = list(torch.ones_like(edges))
    for node in at.network.nodes:
        for place, weight in zip(node, torch.stack([edges[place] for place in node]).softmax(0), strict=True):
            out[place] = weight
    return tuple(out)
