"""Several trainings at once give the same answers as one after the other."""

import os
from pathlib import Path

import pytest

from initio.autodiff.work import executor_for
from initio.data import Dataset
from initio.records import Query
from initio.searches import Budget
from initio.searches.methods.random_search import RandomSearch
from initio.system.clock import OutOfTimeError
from initio.system.executors import Processes
from initio.training.crew import TrainingCrew
from tests.searches.asking import ask, asking
from tests.training.cases import MLP, PERCEPTRON, OnceBegun, answers, training

OTHER = MLP.parse("mlp:tanh,relu")


def test_the_number_of_workers_changes_no_answer(digits: Dataset, tmp_path: Path) -> None:
    task, values = asking(MLP, Budget(queries=4)), []
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        crew = TrainingCrew(training(digits, folder=folder, samples=200), executor_for(workers))
        try:
            result = ask(RandomSearch(), task, crew, seed=0)
        finally:
            crew.close()
        assert len(answers(folder)) == 4  # nothing beyond the budget
        values.append([(step.architecture, step.value) for step in result.steps])
    assert values[0] == values[1]


def test_a_worker_that_dies_is_replaced_by_this_process(digits: Dataset, tmp_path: Path) -> None:
    notes: list[str] = []
    trainer = training(digits, folder=tmp_path, samples=200)
    crew = TrainingCrew(trainer, Processes(2))
    object.__setattr__(trainer, "on_note", notes.append)
    crew.ahead([Query(PERCEPTRON), Query(OTHER)])
    crew._session = crew._open.enter_context(Processes(2).open(os._exit))
    crew.sent[crew.waiting.pop(0)] = crew._session.submit(1)
    assert crew(Query(PERCEPTRON)).value == training(digits, samples=200)(Query(PERCEPTRON)).value
    assert "a worker that trained died" in notes[0]
    assert crew(Query(OTHER)).value is not None
    crew.close()


def test_workers_stop_at_the_deadline(digits: Dataset, tmp_path: Path) -> None:
    trainer = training(digits, folder=tmp_path, epochs=10_000)
    object.__setattr__(trainer, "deadline", OnceBegun(tmp_path))
    crew = TrainingCrew(trainer, Processes(2))
    crew.ahead([Query(PERCEPTRON), Query(OTHER)])
    with pytest.raises(OutOfTimeError):
        crew(Query(PERCEPTRON))
    crew.close()
    assert not answers(tmp_path)
