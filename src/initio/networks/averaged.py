"""Several networks as one: the mean of their probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Averaged(nn.Module):
    """An ensemble: log of the mean of its members' probabilities, so that a softmax of its outputs is that mean."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """Log probabilities (m, classes)."""
        logs = torch.stack([member(x).log_softmax(1) for member in self.members])
        return logs.logsumexp(0) - math.log(len(self.members))
