"""Seeded, resumable trainings on the user's own data: short ones that answer a search's queries, and whole recipes.

>>> from initio.data import load
>>> from initio.records import Query
>>> from initio.spaces import NetworkSettings, get_space
>>> space = get_space("mlp-3")
>>> training = Training(space, load("digits"), NetworkSettings(channels=32), TrainingSettings(epochs=2))
>>> training(Query(space.parse("mlp:relu,relu"))).value > 80  # chance is 10
True
"""

from initio.training.evaluate import Training
from initio.training.fit import TrainedEpoch, TrainingProgress, fit
from initio.training.machine import MachineSettings
from initio.training.recipes import RECIPES, make_recipe
from initio.training.settings import TrainingSettings

__all__ = [
    "RECIPES",
    "MachineSettings",
    "TrainedEpoch",
    "Training",
    "TrainingProgress",
    "TrainingSettings",
    "fit",
    "make_recipe",
]
