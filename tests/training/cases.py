"""What the tests of trainings share: small architectures, few digits, and a way to stop."""

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from initio.data import Dataset
from initio.errors import InputError
from initio.records import Query
from initio.spaces import NetworkSettings, Space, get_space
from initio.system.clock import Deadline
from initio.training import Training, TrainingProgress, TrainingSettings

NB201, MLP = get_space("nb201"), get_space("mlp-3")
CELL = NB201.parse("|nor_conv_3x3~0|+|skip_connect~0|none~1|+|skip_connect~0|none~1|nor_conv_1x1~2|")
PERCEPTRON = MLP.parse("mlp:relu,tanh")
THIN = NetworkSettings(channels=16)
TINY = NetworkSettings(channels=4, cells=1)
SHARED = Path(os.environ.get("INITIO_DATA", Path(__file__).parents[3] / "shared/data"))


class StopError(Exception):
    """What a callback raises in place of kill −9."""


def training(
    digits: Dataset,
    *,
    folder: Path | None = None,
    space: Space = MLP,
    network: NetworkSettings | None = None,
    **settings: object,
) -> Training:
    """On a few of the digits: an epoch has 5 updates."""
    chosen = TrainingSettings(**{"epochs": 2, "samples": 400} | settings)  # type: ignore[arg-type]
    sizes = {MLP: THIN, NB201: TINY}  # a space with a builder of its own has none
    return Training(space, digits, network or sizes.get(space, NetworkSettings()), chosen, folder=folder)


def answers(folder: Path) -> list[Path]:
    """The documents of finished trainings."""
    return sorted(folder.glob("*.json"))


def interrupted(trainer: Training, query: Query, epoch: int) -> None:
    """Stops the training in the middle of an epoch."""

    def stop(progress: TrainingProgress) -> None:
        if (progress.epoch, progress.batch) == (epoch, 3):
            raise StopError

    with pytest.raises(StopError):
        replace(trainer, on_progress=stop)(query)


class OnceBegun(Deadline):
    """Passes in every process as soon as one of them has learned for an epoch in the folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        object.__setattr__(self, "folder", folder)

    @property
    def left(self) -> float:
        return -1.0 if any(self.folder.glob("*.checkpoint")) else math.inf  # type: ignore[attr-defined]


def dropping(width: int) -> nn.Module:
    """A network whose layers draw."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, 10))


def refuse(what: object) -> None:
    """A listener that a process of its own can import."""
    raise InputError("enough is enough")
