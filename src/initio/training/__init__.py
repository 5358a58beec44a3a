"""Seeded, resumable trainings on the user's own data: short ones that answer a search's queries, and whole recipes.

Recipes and settings are plain data; what imports torch is imported when it is used.

>>> from initio.data import load
>>> from initio.records import Query
>>> from initio.spaces import NetworkSettings, get_space
>>> space = get_space("mlp-3")
>>> from initio.training import Training
>>> training = Training(space, load("digits"), NetworkSettings(channels=32), TrainingSettings(epochs=2))
>>> training(Query(space.parse("mlp:relu,relu"))).value > 80  # chance is 10
True
"""

import importlib
from typing import TYPE_CHECKING, Any

from initio.training.recipes import RECIPES, make_recipe
from initio.training.settings import MachineSettings, TrainingSettings

if TYPE_CHECKING:
    from initio.training.evaluate import Training
    from initio.training.fit import TrainedEpoch, TrainingProgress

_HOME = {"Training": "evaluate", "TrainedEpoch": "fit", "TrainingProgress": "fit"}

__all__ = [
    "RECIPES",
    "MachineSettings",
    "TrainedEpoch",
    "Training",
    "TrainingProgress",
    "TrainingSettings",
    "make_recipe",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'initio.training' has no attribute {name!r}")
    return getattr(importlib.import_module(f"initio.training.{_HOME[name]}"), name)
