"""Trainings that are given up, and those that run out of time."""

from dataclasses import replace
from pathlib import Path

import pytest

from initio.data import Dataset
from initio.records import Query
from initio.searches import Budget
from initio.searches.methods.random_search import RandomSearch
from initio.searches.queries import Ledger, Trained
from initio.system.clock import Deadline, OutOfTimeError
from initio.training import TrainingProgress
from initio.training.pace import pace
from tests.searches.asking import ask, asking
from tests.training.cases import MLP, PERCEPTRON, answers, training


def test_a_training_that_misses_a_hurdle_is_given_up_and_goes_on_when_asked(digits: Dataset, tmp_path: Path) -> None:
    trainer, updates = training(digits, folder=tmp_path, epochs=3), list[TrainingProgress]()
    whole = training(digits, epochs=3)(Query(PERCEPTRON, hurdles=()))
    assert whole.curve is not None
    assert len(whole.curve) == 3
    assert whole.value == training(digits, epochs=3)(Query(PERCEPTRON)).value == whole.curve[-1]
    missed = Query(PERCEPTRON, hurdles=((1, 0.0), (2, 100.0)))
    given_up = trainer(missed)
    assert given_up.value is None
    assert given_up.flag.startswith("given up after epoch 2 of 3, with ")
    assert given_up.curve == whole.curve[:2]
    watched = replace(trainer, on_progress=updates.append)
    assert watched(missed).flag == given_up.flag
    assert not updates  # nothing is trained twice
    assert watched(Query(PERCEPTRON, hurdles=())).value == whole.value
    assert {update.epoch for update in updates} == {3}  # only what was missing
    (answer,) = answers(tmp_path)
    assert trainer(missed).flag == given_up.flag  # a finished training answers as one that was stopped
    assert trainer(missed).curve == given_up.curve
    assert answer.is_file()


def test_hurdles_are_those_of_successive_halving() -> None:
    curves = [(10.0, 20.0, 30.0), (12.0,), (11.0, 25.0), (13.0, 21.0, 22.0)]
    ledger = Ledger([Trained(k, PERCEPTRON, None, 1.0, None, "", curve) for k, curve in enumerate(curves)])
    assert ledger.hurdles(None, None) is None
    assert Ledger().hurdles(2, None) == ()
    # of five after epoch 1 the best two go on, of four after epoch 2 the best two
    assert ledger.hurdles(2, None) == ((1, 12.0), (2, 21.0))
    assert ledger.hurdles(3, None) == ((1, 13.0), (3, 30.0))
    assert ledger.hurdles(2, 12) == ()  # of another length there is none


def test_halving_saves_epochs_and_treats_what_it_stops_as_worst(digits: Dataset) -> None:
    task = replace(asking(MLP, Budget(queries=6)), halving=2)
    result = ask(RandomSearch(), task, training(digits, epochs=4, samples=200), seed=0)
    given_up = [step for step in result.steps if step.value is None]
    assert given_up
    assert all(step.curve is not None and len(step.curve) < 4 for step in given_up)
    assert result.best in [step.architecture for step in result.steps if step.value is not None]


def test_a_training_stops_at_its_deadline_and_goes_on_later(digits: Dataset, tmp_path: Path) -> None:
    trainer = training(digits, folder=tmp_path, epochs=3)

    def slow(progress: TrainingProgress) -> None:
        if progress.epoch == 2:
            object.__setattr__(trainer, "deadline", Deadline.after(0))

    object.__setattr__(trainer, "on_progress", slow)
    with pytest.raises(OutOfTimeError):
        trainer(Query(PERCEPTRON))
    seen = list[TrainingProgress]()
    again = training(digits, folder=tmp_path, epochs=3)
    value = replace(again, on_progress=seen.append)(Query(PERCEPTRON)).value
    assert seen[0].epoch == 2
    assert value == training(digits, epochs=3)(Query(PERCEPTRON)).value


def test_pace_is_the_time_of_an_epoch(digits: Dataset) -> None:
    trainer = training(digits, samples=None)
    assert 0 < pace(trainer.build(PERCEPTRON), trainer.examples, trainer.settings) < 60
    few = training(digits, samples=100, batch_size=64)
    assert pace(few.build(PERCEPTRON), few.examples, few.settings) > 0
