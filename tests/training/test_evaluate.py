"""A training is a function of its settings, is remembered, and says what it cannot do."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import initio
from initio.data import Dataset, load
from initio.errors import InputError
from initio.records import Query
from initio.searches import Budget
from initio.searches.methods.random_search import RandomSearch
from initio.training import Training, TrainingProgress, TrainingSettings
from tests.searches.asking import ask, asking
from tests.training.cases import CELL, MLP, NB201, PERCEPTRON, THIN, StopError, answers, dropping, training


def test_same_seed_same_answer_whatever_happened_before(digits: Dataset) -> None:
    space = initio.space("dropping", dropping, width=[8, 16])
    query, other = (Query(arch) for arch in space.architectures())
    trainer = training(digits, space=space)
    first = trainer(query).value
    torch.manual_seed(7)
    state = torch.get_rng_state()
    replace(trainer, on_progress=lambda _: torch.rand(3))(other)
    assert trainer(other).value == replace(trainer, on_progress=lambda _: torch.rand(3))(other).value
    torch.set_rng_state(state)
    assert training(digits, space=space)(query).value == first
    assert torch.equal(torch.get_rng_state(), state)
    assert replace(trainer, seed=1)(query).value != first


def test_isomorphic_cells_are_one_training(digits: Dataset, tmp_path: Path) -> None:
    twins = [NB201.parse(f"|{a}~0|+|{b}~0|none~1|+|none~0|{c}~1|{d}~2|") for a, b, c, d in (
        ("nor_conv_3x3", "nor_conv_1x1", "skip_connect", "none"),
        ("nor_conv_1x1", "nor_conv_3x3", "none", "skip_connect"),
    )]  # fmt: skip
    trainer = training(digits, space=NB201, folder=tmp_path, samples=99)
    first, second = (trainer(Query(twin)) for twin in twins)
    assert first == second
    assert len(answers(tmp_path)) == 1


def test_a_finished_training_is_remembered(digits: Dataset, tmp_path: Path) -> None:
    first = training(digits, folder=tmp_path)(Query(PERCEPTRON))
    again = replace(training(digits, folder=tmp_path), on_progress=lambda _: pytest.fail("trained again"))
    assert again(Query(PERCEPTRON)) == first
    for other in ({"epochs": 1}, {"lr": 0.05}, {"validation": 0.2}):
        training(digits, folder=tmp_path, **other)(Query(PERCEPTRON))
    assert len(answers(tmp_path)) == 4


@pytest.mark.parametrize("text", ["", "[]", "{", '{"accuracy": NaN}', "\udcff"])
def test_a_damaged_answer_is_computed_again(digits: Dataset, tmp_path: Path, text: str) -> None:
    first = training(digits, folder=tmp_path)(Query(PERCEPTRON))
    answers(tmp_path)[0].write_bytes(text.encode(errors="surrogateescape"))
    assert training(digits, folder=tmp_path)(Query(PERCEPTRON)).value == first.value


@pytest.mark.parametrize("value", [float("nan"), -1, 101, "high", None])
def test_an_impossible_answer_is_computed_again(digits: Dataset, tmp_path: Path, value: object) -> None:
    first = training(digits, folder=tmp_path)(Query(PERCEPTRON))
    (path,) = answers(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"accuracy": value}))
    assert training(digits, folder=tmp_path)(Query(PERCEPTRON)).value == first.value


def test_a_search_goes_on_in_the_middle_of_a_training(digits: Dataset, tmp_path: Path) -> None:
    task = asking(MLP, Budget(queries=3))
    whole = ask(RandomSearch(), task, training(digits, samples=300), seed=0)
    trainer, rows, seen = training(digits, samples=300, folder=tmp_path), [], [0]

    def stop(progress: TrainingProgress) -> None:
        seen[0] += 1
        if seen[0] == 14:  # in the second architecture's second epoch: an epoch has 4 updates
            raise StopError

    with pytest.raises(StopError):
        ask(RandomSearch(), task, replace(trainer, on_progress=stop), seed=0, on_step=rows.append)
    assert len(rows) == 1
    result = ask(RandomSearch(), task, trainer, seed=0, done=rows)
    values = [[step.value for step in found.steps] for found in (result, whole)]
    assert values[0] == values[1]
    assert result.chosen == whole.chosen


def test_noise_is_refused() -> None:
    with pytest.raises(InputError, match="noise has nothing to learn: train on data with labels"):
        Training(NB201, load("noise"))


def test_queries_are_checked(digits: Dataset) -> None:
    with pytest.raises(InputError, match="the architecture is of space 'nb201', not of 'mlp-3'"):
        training(digits)(Query(CELL))
    with pytest.raises(InputError, match="number of epochs must be a whole number of at least 1, not 0"):
        training(digits)(Query(PERCEPTRON, 0))


def test_data_and_networks_that_do_not_fit_are_refused(digits: Dataset) -> None:
    tiny = Dataset("tiny", np.eye(3, dtype=np.float32), np.arange(3), classes=3)
    with pytest.raises(InputError, match="3 samples of tiny .* 3 to train on and 0 to validate on"):
        Training(MLP, tiny, THIN)(Query(PERCEPTRON))
    with pytest.raises(InputError, match=r"nb201 needs inputs of shape \(channels, height, width\), not \(3,\)"):
        Training(NB201, tiny)
    narrow = initio.space("narrow", lambda width: nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), width=[1])
    with pytest.raises(InputError, match=r"must give outputs of shape \(\d+, 10\) for this data, not \(\d+, 3\)"):
        training(digits, space=narrow)(Query(narrow.architecture(0)))
    fixed = initio.space("fixed", lambda width: nn.Flatten(), width=[1])
    with pytest.raises(InputError, match="the network has no parameters that could be trained"):
        training(digits, space=fixed)(Query(fixed.architecture(0)))
    with pytest.raises(InputError, match="augment='crop' needs images"):
        Training(MLP, replace(digits, images=digits.arrays()[0].reshape(len(digits), -1), mean=(), std=()), THIN,
                 TrainingSettings(augment="crop"))(Query(PERCEPTRON))  # fmt: skip
