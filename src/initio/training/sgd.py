"""Stochastic gradient descent: `Sgd`."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from initio.errors import InputError


class Sgd:
    """Nesterov's momentum and weight decay: v ← μv + g, θ ← θ − η (g + μv), where g = ∇L(θ) + λθ.

    To the last bit what `torch.optim.SGD` does; but making one of those imports torch's compiler, which takes longer
    than a short training.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], momentum: float, weight_decay: float) -> None:
        self.parameters = [p for p in parameters if p.requires_grad]
        if not self.parameters:
            raise InputError("the network has no parameters that could be trained")
        self.momentum, self.weight_decay = momentum, weight_decay
        self.velocities: list[Tensor | None] = [None] * len(self.parameters)

    def clear(self) -> None:
        """Forgets all gradients."""
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """One update with the learning rate η; a parameter without a gradient stays as it is."""
        for k, p in enumerate(self.parameters):
            if p.grad is None:
                continue
            g = p.grad
            if self.weight_decay:
                g = g.add(p, alpha=self.weight_decay)
            if self.momentum:
                v = self.velocities[k]
                if v is None:
                    self.velocities[k] = v = g.clone()
                else:
                    v.mul_(self.momentum).add_(g)
                g = g.add(v, alpha=self.momentum)
            p.add_(g, alpha=-lr)
