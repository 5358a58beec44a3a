"""Eigen-NAS's search with training [Eigen, section 5.1].

The supernet of depth L mixes all activations of a layer and scales each skip:

    f_l = Σ_k p_lk σ_k(W_l f_{l−1}) + α_{l−1} f_{l−1},   p_l = softmax(a_l),   α ∈ [0, 1].

W learns on one half of the data and (a, α) on the other, in turns (first-order DARTS). α starts at 1/2 and is clipped;
a starts at 0. Taken are the activation with the largest share and the skips with α > 1/2. As in the paper, inputs have
norm 1 [Assumption 1] and weights start as N(0, 1/m) [Algorithm 1]; its width m is 1024, here 128, for a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from initio.errors import InputError, at_least, positive
from initio.records import Architecture, Cost
from initio.searches.base import Search, SearchRun, SearchStep
from initio.searches.methods.lambda_min import mlps_of
from initio.searches.problem import Problem
from initio.spaces.mlp import ACTIVATIONS, MlpSpace

REPORTS = 20  # steps with losses


@dataclass(frozen=True)
class SupernetLoss(SearchStep):
    """The losses of a pair of updates."""

    number: int  # of the pair
    loss: float
    held_out: float

    def told(self) -> str:
        """The loss."""
        return f"update {self.number}, loss {self.loss:.3g}"


@dataclass(frozen=True)
class LayerShares(SearchStep):
    """The share of each activation in a layer in the end, and α of the skip around it [Eigen, Figure 1]."""

    layer: int
    shares: dict[str, float]
    skip: float | None = None  # the first layer has none


@dataclass(frozen=True)
class EigenDarts(Search[SearchStep]):
    """First-order DARTS over activations and skips.

    Args:
        width: units in a layer (1024 in the paper).
        samples: images used, half for W and half for the architecture.
        steps: pairs of updates.
        batch: images in an update.
        lr: of W, by SGD with momentum 0.9, falling to zero as a cosine.
        arch_lr: of a and α, by Adam.
    """

    width: int = 128
    samples: int = 20_000
    steps: int = 500
    batch: int = 128
    lr: float = 0.05
    arch_lr: float = 1e-2

    name: ClassVar[str] = "eigen-darts"
    resumes: ClassVar[bool] = False
    step_types: ClassVar[tuple[type[SearchStep], ...]] = (SupernetLoss, LayerShares)

    def check(self, problem: Problem) -> None:
        """Refuses other spaces."""
        mlps_of(problem, self.name)

    def cost(self, steps: Sequence[SearchStep]) -> Cost:
        """One supernet."""
        return Cost(trainings=1)

    def why(self, problem: Problem, steps: Sequence[SearchStep], chosen: Architecture) -> str:
        """What the choice rests on."""
        return f"largest share in each layer after {self.steps} updates of a supernet of width {self.width}"

    def __post_init__(self) -> None:
        at_least(self, width=1, samples=2, steps=1, batch=1)
        positive(self, "lr", "arch_lr")

    def run(self, problem: Problem, seed: int, done: Sequence[SearchStep]) -> SearchRun[SearchStep]:
        """Trains the supernet from the start; steps hold the losses, the last ones the shares of each layer."""
        space = mlps_of(problem, self.name)
        data = problem.known_data.batch(self.samples, seed)
        device = problem.computes_on
        x, y = unit_scale(data.x).to(device), torch.tensor(data.y).to(device)
        generator = torch.Generator().manual_seed(seed)
        net = MlpSupernet(space.depth, x.shape[1], self.width, data.classes, generator).to(device)
        yield from self._train(net, x, y, generator)
        yield from net.shares()
        return net.chosen(space)

    def _train(self, net: MlpSupernet, x: Tensor, y: Tensor, generator: torch.Generator) -> Iterator[SupernetLoss]:
        half = len(x) // 2
        weights = torch.optim.SGD(net.weights.parameters(), lr=self.lr, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(weights, self.steps)
        architecture = torch.optim.Adam([net.a, net.alpha], lr=self.arch_lr, betas=(0.5, 0.999))
        for number in range(1, self.steps + 1):
            held_out = (half + torch.randint(len(x) - half, (self.batch,), generator=generator)).to(x.device)
            loss_a = functional.cross_entropy(net(x[held_out]), y[held_out])
            architecture.zero_grad()
            loss_a.backward()  # type: ignore[no-untyped-call]
            architecture.step()
            with torch.no_grad():
                net.alpha.clamp_(0, 1)
            some = torch.randint(half, (self.batch,), generator=generator).to(x.device)
            loss_w = functional.cross_entropy(net(x[some]), y[some])
            weights.zero_grad()
            loss_w.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(net.weights.parameters(), 5.0)
            weights.step()
            schedule.step()
            if not math.isfinite(float(loss_w.detach())):
                raise InputError(f"the loss is not finite at step {number}: use a smaller lr than {self.lr}")
            if number % max(1, self.steps // REPORTS) == 0:
                yield SupernetLoss(number, float(loss_w.detach()), float(loss_a.detach()))


class MlpSupernet(nn.Module):
    """All architectures of one depth at once."""

    def __init__(self, depth: int, inputs: int, width: int, classes: int, generator: torch.Generator) -> None:
        super().__init__()
        sizes = [inputs, *[width] * (depth - 1), classes]
        self.weights = nn.ParameterList(
            torch.randn(b, a, generator=generator) / math.sqrt(width) for a, b in pairwise(sizes)
        )
        self.a = nn.Parameter(torch.zeros(depth - 1, len(ACTIVATIONS)))
        self.alpha = nn.Parameter(torch.full((depth - 2,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        """The outputs of the mixture."""
        p = torch.softmax(self.a, dim=1)
        *hidden, last = self.weights
        for layer, W in enumerate(hidden):
            z = functional.linear(x, W)
            f = sum((p[layer, k] * apply(name, z) for k, name in enumerate(ACTIVATIONS)), torch.zeros_like(z))
            x = f + self.alpha[layer - 1] * x if layer else f
        return functional.linear(x, last)

    def chosen(self, space: MlpSpace) -> Architecture:
        """The largest share of each layer, the skips above 1/2."""
        activations = self.a.detach().argmax(1).tolist()
        skips = [int(alpha > 0.5) for alpha in self.alpha.detach().tolist()]
        return space.architecture(*activations, *skips)

    def shares(self) -> list[LayerShares]:
        """One step a layer."""
        p = torch.softmax(self.a.detach(), dim=1).tolist()
        alphas = [None, *self.alpha.detach().tolist()]
        return [
            LayerShares(layer, dict(zip(ACTIVATIONS, row, strict=True)), alpha)
            for layer, (row, alpha) in enumerate(zip(p, alphas, strict=True), start=1)
        ]


def apply(name: str, z: Tensor) -> Tensor:
    """σ(z); `sigmoid` is sigmoid − 1/2."""
    if name == "sigmoid":
        return torch.sigmoid(z) - 0.5
    plain = {"relu": torch.relu, "leaky_relu": functional.leaky_relu, "tanh": torch.tanh, "swish": functional.silu}
    value: Tensor = plain[name](z)
    return value


def unit_scale(x: np.ndarray) -> Tensor:
    """Inputs as vectors of norm 1."""
    flat = torch.tensor(np.asarray(x, dtype=np.float32).reshape(len(x), -1))
    unit: Tensor = functional.normalize(flat)
    return unit
