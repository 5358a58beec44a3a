"""How long an epoch takes, from a few of its updates."""

import pytest
import torch
from torch import nn

from initio.data import Dataset
from initio.training import TrainingSettings
from initio.training.examples import examples_of
from initio.training.pace import UPDATES, pace

QUICK = TrainingSettings(samples=400, batch_size=16)


class Breaking(nn.Module):
    """Linear; from the update `broken` on its outputs are not finite."""

    def __init__(self, broken: float = float("inf")) -> None:
        super().__init__()
        self.layer, self.broken, self.calls = nn.Linear(64, 10), broken, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        outputs: torch.Tensor = self.layer(x.flatten(1))
        return outputs / float(self.calls < self.broken)


def test_few_updates_are_enough(digits: Dataset) -> None:
    network = Breaking()
    assert pace(network, examples_of(digits, QUICK, 0), QUICK) > 0
    assert network.calls == UPDATES + 1


def test_an_epoch_takes_as_long_as_its_updates(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    network, examples = Breaking(), examples_of(digits, QUICK, 0)
    monkeypatch.setattr("time.perf_counter", lambda: float(network.calls))  # an update takes a second
    assert pace(network, examples, QUICK) == -(-len(examples) // QUICK.batch_size)


@pytest.mark.parametrize("broken", [1, 2, 4])
def test_a_training_that_diverges_has_a_pace(digits: Dataset, broken: int) -> None:
    network = Breaking(broken)
    assert 0 < pace(network, examples_of(digits, QUICK, 0), QUICK) < 600
    assert network.calls == broken
