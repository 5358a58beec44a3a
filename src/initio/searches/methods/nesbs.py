"""A posterior over architectures on shared weights (Shu et al., 2022; NESBS): `--method nesbs`.

The weights learn from uniform single paths, so that every architecture gets its share of updates. Then the posterior
p_α, a product of categoricals, maximises E[log p(D|A)] − KL(p_α ‖ uniform) on the part of the data that the weights did
not see [NESBS 5.4]. As a search its answer is the posterior's mode; `initio ensemble` draws whole ensembles from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from initio.errors import InputError, at_least, positive
from initio.networks.shared import Blend
from initio.searches.alpha import AlphaSearch, alpha_of, gumbel, spread
from initio.searches.base import by_space
from initio.searches.oneshot import Moment, SharedTraining

When = Literal["post-training", "best-response"]
POSTERIOR = 3  # stream of the held-out batches that the posterior learns from


@dataclass(frozen=True)
class Nesbs(AlphaSearch):
    """NESBS: a posterior over architectures, learned on the shared weights of uniform single paths; its mode.

    Args:
        posterior: learn it once the weights are trained (post-training), or beside them (best-response).
        posterior_epochs: passes over the held-out part once the weights are trained.
        posterior_updates: of the posterior, at least: small data get more passes, since Adam's step is 0.01 however few
            there are. On CIFAR, 20 passes are 2,360 updates.
        tau: temperature of the Gumbel-softmax by which it learns.
        parts: K of partial channels [NESBS 5.3.2]: options see one K-th of them, the others pass by.
    """

    posterior: When = "post-training"
    posterior_epochs: int = 20
    posterior_updates: int = 1000
    tau: float = 1.0
    parts: int = by_space(1, darts=2)
    lr: float = 0.1
    lr_end: float = 0.0
    held_out: float = 0.3
    alpha_lr: float = 0.01
    alpha_decay: float = 3e-4
    alpha_beta: float = 0.9
    alpha_start: float = 0.0

    name: ClassVar[str] = "nesbs"
    usual_batch: ClassVar[int] = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "tau")
        at_least(self, posterior_epochs=1, posterior_updates=1, parts=1)
        if self.posterior not in get_args(When):
            raise InputError(f"posterior must be {' or '.join(get_args(When))}, not {self.posterior!r}")
        if self.held_out == 0:
            raise InputError("the posterior learns from data that the weights do not see: let held_out be above 0")

    @property
    def partial(self) -> int:
        """K."""
        return self.parts

    def draw(self, at: SharedTraining, now: Moment) -> Blend:
        """A uniform architecture, or one of the posterior that learns beside the weights."""
        if self.posterior == "post-training":
            return Blend.path(at.space, at.space.sample(now.random(at.seed)))
        return super().draw(at, now)

    def learn(self, at: SharedTraining, now: Moment) -> None:
        """Beside the weights, if so asked."""
        if self.posterior == "best-response":
            super().learn(at, now)

    def teach(self, at: SharedTraining, now: Moment) -> None:
        """After the last epoch of the weights: all of the posterior."""
        if self.posterior == "best-response" or now.epoch + 1 < now.epochs:
            return
        count = math.ceil(len(at.other) / at.settings.batch_size)
        epochs = max(self.posterior_epochs, math.ceil(self.posterior_updates / count))
        if at.problem.tell is not None:
            at.problem.tell(f"the posterior learns from {len(at.other):,} held-out samples, {epochs * count:,} updates")
        for epoch in range(epochs):
            at.held = at.held_out(epoch, count, POSTERIOR)
            for _ in range(count):
                super().learn(at, now)

    def mix(self, at: SharedTraining, values: Tensor, now: Moment) -> Blend:
        """A sampled architecture, whose options have gates of value 1 and the softmax's derivative.

        It is decoded from log p + Gumbel noise: with one option a categorical an exact sample, and in darts, whose
        nodes take the two strongest edges, a sample of two paths.
        """
        rows, _ = alpha_of(at).rows(values)
        noisy = [(row.log_softmax(0) + gumbel(row)) / self.tau for row in rows]
        arch = at.space.decode(spread(at, [row.detach() for row in noisy]))
        options: list[dict[int, Tensor | None]] = [{} for _ in noisy]
        for categorical, option in at.space.active(arch):
            gate = None
            if values.requires_grad:
                p = noisy[categorical].softmax(0)[option]
                gate = p - p.detach() + 1
            options[categorical][option] = gate
        return Blend(tuple(options))

    def objective(self, at: SharedTraining, values: Tensor, loss: Tensor) -> Tensor:
        """The evidence bound of (5.4) by sample, as a loss: the mean of −log p(y|x, A), and KL(p_α ‖ uniform)/|D|."""
        rows = self.probabilities(at, values)
        kl = sum((math.log(len(row)) - torch.special.entr(row).sum() for row in rows), values.new_zeros(()))
        return loss + kl / len(at.other)
