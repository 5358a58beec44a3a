"""A posterior over architectures on shared weights (Shu et al., 2022; NESBS): `--method nesbs`.

The weights learn from uniform single paths, so that every architecture gets its share of updates. Then the posterior
p_α, a product of categoricals, maximises E[log p(D|A)] − KL(p_α ‖ uniform) on the part of the data that the weights did
not see [NESBS 5.4]. As a search its answer is the posterior's mode; `initio ensemble` draws whole ensembles from it.

The thesis takes the gradient of the expectation by straight-through Gumbel-softmax, one architecture an update, and
that is `estimator="straight-through"`. By default it is the score function's, unbiased, which compares the losses of
a few architectures on one batch: on the digits log p then agrees better with the architectures' losses, 0.57 by
Spearman in the place of 0.32 (docs/ensembles.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from initio.errors import InputError, at_least, positive
from initio.networks.shared import Blend
from initio.records import Architecture
from initio.searches.alpha import AlphaSearch, alpha_of, gradient_of, gumbel, spread
from initio.searches.base import by_space
from initio.searches.oneshot import Moment, SharedTraining

When = Literal["post-training", "best-response"]
Estimator = Literal["score", "straight-through"]
POSTERIOR = 3  # stream of the held-out batches that the posterior learns from
NEARLY = 1 - 1e-6  # of a node's probability, on one edge


@dataclass(frozen=True)
class Nesbs(AlphaSearch):
    """NESBS: a posterior over architectures, learned on the shared weights of uniform single paths; its mode.

    Args:
        posterior: learn it once the weights are trained (post-training), or beside them (best-response).
        posterior_epochs: passes over the held-out part once the weights are trained.
        posterior_updates: of the posterior, at least: small data get more passes, since Adam's step is 0.01 however few
            there are. On CIFAR, 20 passes are 2,360 updates.
        estimator: of its gradient: by the losses of architectures (score), or through gates of value 1 as in the paper
            (straight-through).
        draws: architectures that an update compares; the paper has 1, which only straight-through can learn from.
        tau: temperature of the Gumbel-softmax of straight-through.
        parts: K of partial channels [NESBS 5.3.2]: options see one K-th of them, the others pass by.
    """

    posterior: When = "post-training"
    posterior_epochs: int = 20
    posterior_updates: int = 1000
    estimator: Estimator = "score"
    draws: int = 4
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
        at_least(self, posterior_epochs=1, posterior_updates=1, draws=1, parts=1)
        for name, kinds in (("posterior", When), ("estimator", Estimator)):
            if getattr(self, name) not in get_args(kinds):
                raise InputError(f"{name} must be {' or '.join(get_args(kinds))}, not {getattr(self, name)!r}")
        if self.estimator == "score" and self.draws < 2:
            raise InputError("score compares architectures: let draws be at least 2")
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

    # --- the distribution ---------------------------------------------------------------------------------------------

    def log_probabilities(self, at: SharedTraining, values: Tensor) -> list[Tensor]:
        """log p of each option, one row a categorical; those of a group of rivals share one distribution.

        In darts that is one over (edge, operation) for each node, which takes two of them on different edges.
        """
        rows, _ = alpha_of(at).rows(values)
        out = list(rows)
        for group in at.space.rivals:
            total = torch.cat([rows[k] for k in group]).logsumexp(0)
            for k in group:
                out[k] = rows[k] - total
        return out

    def probabilities(self, at: SharedTraining, values: Tensor) -> list[Tensor]:
        """The same, as shares."""
        return [row.exp() for row in self.log_probabilities(at, values)]

    def distributions(self, at: SharedTraining, values: Tensor) -> list[Tensor]:
        """One for each group of rivals."""
        rows = self.probabilities(at, values)
        return [torch.cat([rows[k] for k in group]) for group in at.space.rivals]

    def sampled(self, at: SharedTraining, log_p: Sequence[Tensor]) -> tuple[Architecture, list[Tensor], Tensor]:
        """An architecture decoded from log p + Gumbel noise, that noisy log p, and the log-probability of the draw.

        The largest of a group of rivals is an exact sample of its distribution, and the next largest on another edge
        one of what is left, so a draw's log-probability is that of sampling without replacement.
        """
        noisy = [row.detach() + gumbel(row) for row in log_p]
        parts = []
        for group in at.space.rivals:
            taken = log_p[group[0]].new_zeros(())  # the share of the edges that are taken
            for k in sorted(group, key=lambda k: -float(noisy[k].max()))[: at.space.paths]:
                parts.append(log_p[k][int(noisy[k].argmax())] - torch.log1p(-taken.clamp(max=NEARLY)))
                taken = taken + log_p[k].exp().sum()
        return at.space.decode(spread(at, noisy)), noisy, torch.stack(parts).sum()

    # --- its gradient -------------------------------------------------------------------------------------------------

    def gradient(self, at: SharedTraining, values: Tensor, now: Moment, x: Tensor, y: Tensor) -> Tensor:
        """∂/∂α of the evidence bound on a batch, as a loss."""
        if self.estimator == "straight-through":
            found = [super(Nesbs, self).gradient(at, values, now, x, y) for _ in range(self.draws)]
            return torch.stack(found).mean(0)
        log_p = self.log_probabilities(at, values)
        drawn = [self.sampled(at, log_p) for _ in range(self.draws)]
        with torch.no_grad():
            answers = [at.network(x, Blend.path(at.space, arch)) for arch, _, _ in drawn]
            losses = torch.stack([F.cross_entropy(logits, y) for logits in answers])
        for loss, logits in zip(losses, answers, strict=True):
            at.tally.add(loss, logits, y)
        # ∇ E[ℓ(A)] = E[(ℓ(A) − b) ∇ log p(A)], b the mean loss of the others (Kool et al., 2019).
        advantage = (losses - losses.mean()) * self.draws / (self.draws - 1)
        surrogate = (advantage * torch.stack([log for _, _, log in drawn])).mean()
        return gradient_of(self.objective(at, values, surrogate), values)

    def mix(self, at: SharedTraining, values: Tensor, now: Moment) -> Blend:
        """A sampled architecture, whose options have gates of value 1 and the softmax's derivative."""
        log_p = self.log_probabilities(at, values)
        arch, noisy, _ = self.sampled(at, log_p)
        soft = [(row + own - row.detach()) / self.tau for row, own in zip(log_p, noisy, strict=True)]
        group_of = {k: group for group in at.space.rivals for k in group}
        options: list[dict[int, Tensor | None]] = [{} for _ in soft]
        for categorical, option in at.space.active(arch):
            gate = None
            if values.requires_grad:
                total = torch.cat([soft[k] for k in group_of[categorical]]).logsumexp(0)
                p = (soft[categorical][option] - total).exp()
                gate = p - p.detach() + 1
            options[categorical][option] = gate
        return Blend(tuple(options))

    def objective(self, at: SharedTraining, values: Tensor, loss: Tensor) -> Tensor:
        """The evidence bound of (5.4) by sample, as a loss: the mean of −log p(y|x, A), and KL(p_α ‖ uniform)/|D|.

        Also beside the weights (best-response), where Xie et al. (2019) have no KL: one objective for both.
        """
        rows = self.distributions(at, values)
        kl = sum((math.log(len(row)) - torch.special.entr(row).sum() for row in rows), values.new_zeros(()))
        return loss + kl / len(at.other)
