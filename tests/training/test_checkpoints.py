"""A training that was interrupted goes on to the last bit; a file that cannot be trusted is not used."""

import hashlib
import io
import os
import pickle
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import initio
from initio.data import Dataset
from initio.records import Query
from initio.training import TrainingProgress
from tests.training.cases import CELL, MLP, NB201, PERCEPTRON, dropping, interrupted, training


@pytest.mark.parametrize("kind", ["mlp", "cell", "dropping"])
@pytest.mark.parametrize("epoch", [1, 3])
def test_interrupted_is_uninterrupted(digits: Dataset, tmp_path: Path, kind: str, epoch: int) -> None:
    """By exception in epoch `epoch`, then with a fresh object: weights, hence accuracies, equal to the last bit."""
    space = {"mlp": MLP, "cell": NB201, "dropping": initio.space("dropping", dropping, width=[16])}[kind]
    arch = {"mlp": PERCEPTRON, "cell": CELL, "dropping": space.architecture(*[0] * len(space.decisions))}[kind]
    options = {"space": space, "epochs": 3}
    losses: list[list[float]] = [[], []]
    whole = replace(training(digits, **options), on_progress=lambda p: losses[0].append(p.loss))(Query(arch))
    interrupted(training(digits, folder=tmp_path, **options), Query(arch), epoch)
    assert len(list(tmp_path.glob("*.checkpoint"))) == (epoch > 1)
    resumed = replace(
        training(digits, folder=tmp_path, **options), on_progress=lambda p: losses[1].append(p.loss)
    )(Query(arch))  # fmt: skip
    assert resumed.value == whole.value
    assert losses[1] == losses[0][-len(losses[1]) :]
    assert len(losses[1]) == len(losses[0]) * (4 - epoch) // 3
    assert not list(tmp_path.glob("*.checkpoint"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a copy of this process")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_kill_9(digits: Dataset, tmp_path: Path) -> None:
    def kill(progress: TrainingProgress) -> None:
        if progress.epoch == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    trainer = training(digits, folder=tmp_path, epochs=4)
    expected = training(digits, epochs=4)(Query(PERCEPTRON)).value
    if (child := os.fork()) == 0:
        try:
            replace(trainer, on_progress=kill)(Query(PERCEPTRON))
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert len(list(tmp_path.glob("*.checkpoint"))) == 1
    assert trainer(Query(PERCEPTRON)).value == expected


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def signed(content: bytes) -> bytes:
    return hashlib.sha256(content).digest() + content


def saved_by_torch(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


BAD = {
    "empty": (lambda whole, trap: b"", "damaged or not a checkpoint"),
    "cut": (lambda whole, trap: whole[:-9], "damaged or not a checkpoint"),
    "a flipped bit": (lambda whole, trap: whole[:900] + bytes([whole[900] ^ 1]) + whole[901:], "damaged"),
    "a pickle": (lambda whole, trap: pickle.dumps(Malicious(trap)), "damaged or not a checkpoint"),
    "a signed pickle": (lambda whole, trap: signed(pickle.dumps(Malicious(trap))), "more than plain tensors"),
    "torch's pickle": (lambda whole, trap: signed(saved_by_torch({"x": Malicious(trap)})), "more than plain tensors"),
    "a list": (lambda whole, trap: signed(saved_by_torch([1, 2])), "not a checkpoint of this version"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_checkpoint_runs_nothing_and_starts_over(digits: Dataset, tmp_path: Path, what: str) -> None:
    trap, notes = tmp_path / "trap", list[str]()
    whole = training(digits, epochs=3)(Query(PERCEPTRON))
    interrupted(training(digits, folder=tmp_path, epochs=3), Query(PERCEPTRON), epoch=2)
    (path,) = tmp_path.glob("*.checkpoint")
    make, reason = BAD[what]
    path.write_bytes(make(path.read_bytes(), trap))
    trainer = replace(training(digits, folder=tmp_path, epochs=3), on_note=notes.append)
    assert trainer(Query(PERCEPTRON)).value == whole.value
    assert not trap.exists()
    assert len(notes) == 1
    assert f"{path.name}' is not used, the training starts over: it" in notes[0]
    assert reason in notes[0]


def test_a_checkpoint_of_another_training_is_not_used(digits: Dataset, tmp_path: Path) -> None:
    interrupted(training(digits, folder=tmp_path / "a"), Query(PERCEPTRON), epoch=2)
    interrupted(training(digits, folder=tmp_path / "b", lr=0.05), Query(PERCEPTRON), epoch=2)
    (mine,), (foreign,) = ((tmp_path / name).glob("*.checkpoint") for name in "ab")
    foreign.replace(mine)
    notes = list[str]()
    value = replace(training(digits, folder=tmp_path / "a"), on_note=notes.append)(Query(PERCEPTRON)).value
    assert value == training(digits)(Query(PERCEPTRON)).value
    assert "it is of another training: another architecture, data, recipe, seed or torch" in notes[0]


def test_a_checkpoint_of_other_parameters_is_not_used(digits: Dataset, tmp_path: Path) -> None:
    """A builder of one's own may change behind an unchanged name."""
    before = initio.space("own", lambda width: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), width=[1])
    after = initio.space("own", lambda width: dropping(4), width=[1])
    interrupted(training(digits, space=before, folder=tmp_path), Query(before.architecture(0)), epoch=2)
    notes = list[str]()
    trainer = replace(training(digits, space=after, folder=tmp_path), on_note=notes.append)
    assert trainer(Query(after.architecture(0))).value == training(digits, space=after)(
        Query(after.architecture(0))
    ).value  # fmt: skip
    assert notes[0].endswith("its network has other parameters")
