"""Short, seeded, resumable trainings on the user's own data: who answers a search's queries when no table does.

>>> from initio.data import load
>>> from initio.records import Query
>>> from initio.spaces import NetworkSettings, get_space
>>> space = get_space("mlp-3")
>>> training = Training(space, load("digits"), NetworkSettings(channels=32), TrainingSettings(epochs=2))
>>> training(Query(space.parse("mlp:relu,relu"))).value > 80  # chance is 10
True
"""

from initio.training.evaluate import Training
from initio.training.fit import TrainingProgress, fit
from initio.training.settings import TrainingSettings

__all__ = ["Training", "TrainingProgress", "TrainingSettings", "fit"]
