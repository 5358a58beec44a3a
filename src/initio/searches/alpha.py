"""One-shot searches that weigh options by α: one row of numbers a categorical, learned by Adam."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from initio.errors import at_least, positive
from initio.networks.shared import Blend, Kept
from initio.searches.oneshot import Learned, Moment, OneShotSearch, Reading, SharedEpoch, SharedTraining
from initio.searches.problem import heaviest
from initio.spaces import GraphSpace

Rows = Sequence[Tensor]


class Alpha(Learned):
    """α of the options that are kept, all categoricals in a row; behind it a number an edge, where a method has those.

    Args:
        values: the numbers.
        kept: options of each categorical.
    """

    def __init__(self, values: Tensor, kept: Kept) -> None:
        super().__init__(values)
        self.kept = tuple(map(tuple, kept))

    def rows(self, values: Tensor) -> tuple[list[Tensor], Tensor]:
        """One row a categorical, and the edges' numbers, if there are any."""
        sizes = [len(own) for own in self.kept]
        *rows, edges = torch.split_with_sizes(values, [*sizes, len(values) - sum(sizes)])
        return rows, edges


@dataclass(frozen=True)
class AlphaSearch(OneShotSearch):
    """A one-shot search whose knowledge is α.

    Args:
        alpha_lr: learning rate of α, by Adam.
        alpha_decay: λ of its penalty λ/2 ‖α‖².
        alpha_beta: the first of Adam's two decays; the second is 0.999.
        alpha_start: deviation of the normal noise that α begins with.
    """

    alpha_lr: float = 3e-4
    alpha_decay: float = 1e-3
    alpha_beta: float = 0.5
    alpha_start: float = 1e-3

    edges: ClassVar[bool] = False  # whether each categorical has a number of its own, too

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "alpha_lr")
        at_least(self, alpha_decay=0, alpha_beta=0, alpha_start=0)

    def kept(self, space: GraphSpace, stage: int, done: Sequence[SharedEpoch]) -> Kept:
        """The options of a stage; all of them."""
        return [range(len(decision)) for decision in space.relaxation]

    def knowledge(self, space: GraphSpace, stage: int, done: Sequence[SharedEpoch], seed: int) -> Alpha:
        """α near zero, from N(0, alpha_start²)."""
        kept = self.kept(space, stage, done)
        count = sum(map(len, kept)) + self.edges * len(kept)
        noise = torch.randn(count, generator=torch.Generator().manual_seed(2 * seed + stage))
        return Alpha(self.alpha_start * noise, kept)

    # --- what differs -------------------------------------------------------------------------------------------------

    @abstractmethod
    def mix(self, at: SharedTraining, values: Tensor, now: Moment) -> Blend:
        """The blend of these values of α, differentiable; it may be a random one."""

    def draw(self, at: SharedTraining, now: Moment) -> Blend:
        """For the weights: the same blend."""
        with torch.no_grad():
            return self.mix(at, at.knows.values, now)

    def objective(self, at: SharedTraining, values: Tensor, loss: Tensor) -> Tensor:
        """What α minimises."""
        return loss

    def gradient(self, at: SharedTraining, values: Tensor, now: Moment, x: Tensor, y: Tensor) -> Tensor:
        """∂/∂α of the loss on a batch of the architecture's part [DARTS 7 with ξ = 0]."""
        logits = at.network(x, self.mix(at, values, now))
        loss = F.cross_entropy(logits, y)
        at.tally.add(loss, logits, y)
        return gradient_of(self.objective(at, values, loss), values)

    def learn(self, at: SharedTraining, now: Moment) -> None:
        """One step of Adam on a batch that the weights do not learn from."""
        x, y = next(at.held)
        values = at.knows.leaf()
        self.update(at, self.gradient(at, values, now, x, y))

    def update(self, at: SharedTraining, gradient: Tensor) -> None:
        """Adam with the published coefficients."""
        at.knows.adam(gradient, self.alpha_lr, (self.alpha_beta, 0.999), self.alpha_decay)

    def probabilities(self, at: SharedTraining, values: Tensor) -> list[Tensor]:
        """How much each kept option weighs by these values of α: softmax(α)."""
        rows, _ = alpha_of(at).rows(values)
        return [row.softmax(0) for row in rows]

    def distributions(self, at: SharedTraining, values: Tensor) -> list[Tensor]:
        """What is drawn from: the same, where each categorical is a distribution of its own."""
        return self.probabilities(at, values)

    def mean(self, at: SharedTraining, values: Tensor) -> Blend:
        """The blend without chance."""
        return Blend.rows(self.probabilities(at, values), kept=alpha_of(at).kept)

    def strengths(self, at: SharedTraining) -> list[Tensor]:
        """By what options are compared also across categoricals; their probabilities."""
        return self.probabilities(at, at.knows.values)

    def read(self, at: SharedTraining, now: Moment) -> Reading:
        """The options that weigh most."""
        weights = spread(at, self.strengths(at))
        if str(at.problem.limits):
            arch = heaviest(at.problem, at.space, weights, Random(f"{self.name} {at.seed}"))
        else:
            arch = at.space.decode(weights)
        return Reading(arch, tuple(at.knows.values.tolist()), entropy(self.distributions(at, at.knows.values)))


@dataclass(frozen=True)
class RestingSearch(AlphaSearch):
    """One whose α rests first, for options without weights would win while the weights know nothing.

    Args:
        rest: share of the epochs before α begins to learn.
    """

    rest: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, rest=0)

    def learn(self, at: SharedTraining, now: Moment) -> None:
        """Once the weights know something."""
        if now.epoch >= self.rest * now.epochs:
            super().learn(at, now)


def alpha_of(at: SharedTraining) -> Alpha:
    """What an α search knows."""
    assert isinstance(at.knows, Alpha)
    return at.knows


def spread(at: SharedTraining, rows: Rows) -> list[list[float]]:
    """Weights of all options; −inf for those that are not kept."""
    out = [[-math.inf] * len(decision) for decision in at.space.relaxation]
    for full, own, row in zip(out, alpha_of(at).kept, rows, strict=True):
        for option, value in zip(own, row.tolist(), strict=True):
            full[option] = value
    return out


def gradient_of(loss: Tensor, values: Tensor) -> Tensor:
    """∂ loss/∂ values; zeros where the loss does not depend on them, as behind a `none` on every path."""
    if not loss.requires_grad:
        return torch.zeros_like(values)
    [found] = torch.autograd.grad(loss, [values], allow_unused=True)
    return torch.zeros_like(values) if found is None else found


def entropy(rows: Rows) -> float:
    """The mean of −Σ p ln p / ln n: 1 for uniform rows, 0 for decided ones.

    >>> round(entropy([torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0])]), 6)
    0.5
    """
    shares = [float(torch.special.entr(row.double()).sum()) / math.log(len(row)) for row in rows if len(row) > 1]
    return sum(shares) / max(1, len(shares))


def gumbel(like: Tensor) -> Tensor:
    """Gumbel(0, 1) noise, from torch's own generator."""
    return -torch.empty_like(like).exponential_().log()
