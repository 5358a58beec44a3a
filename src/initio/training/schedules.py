"""What changes while a training goes on: the learning rate with each update, dropped paths with each epoch."""

from __future__ import annotations

import math

from torch import nn

from initio.networks.operations import DropPath
from initio.training.settings import TrainingSettings


def learning_rate(settings: TrainingSettings, step: int, batches: int) -> float:
    """η_t of update t = `step` from 0, where an epoch has so many `batches`.

    In the warm-up η (t + 1)/W over its W updates; then from η to η_end as half a cosine, as a line, or not at all.

    >>> [round(learning_rate(TrainingSettings(epochs=2, lr=0.3), t, 2), 3) for t in range(4)]
    [0.3, 0.256, 0.15, 0.044]
    >>> line = TrainingSettings(epochs=3, lr=0.3, schedule="linear", warmup=1)
    >>> [round(learning_rate(line, t, 2), 3) for t in range(6)]
    [0.15, 0.3, 0.3, 0.225, 0.15, 0.075]
    """
    total, rise = settings.epochs * batches, settings.warmup * batches
    if step < rise:
        return settings.lr * (step + 1) / rise
    fall = settings.lr - settings.lr_end
    if settings.schedule == "cosine":
        return settings.lr_end + fall / 2 * (1 + math.cos(math.pi * (step - rise) / (total - rise)))
    if settings.schedule == "linear":
        return settings.lr_end + fall * (1 - (step - rise) / (total - rise))
    return settings.lr


def drop_paths(network: nn.Module, settings: TrainingSettings, epoch: int) -> None:
    """Sets the probability of every dropped path: p e/E in epoch e from 0, as DARTS does.

    A recipe that drops none leaves the network's own probabilities alone.
    """
    if settings.drop_path:
        for module in network.modules():
            if isinstance(module, DropPath):
                module.probability = settings.drop_path * epoch / settings.epochs
