"""A network learns by the formula, sees all samples, and never gives a number that is not one."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from torch import nn

import initio
from initio.data import Dataset, load
from initio.networks.operations import DropPath
from initio.records import Query
from initio.spaces import NetworkSettings, get_space
from initio.system.tasks import AbandonedError, as_task
from initio.training import TrainedEpoch, Training, TrainingProgress, TrainingSettings
from initio.training.examples import HeldExamples, examples_of
from initio.training.fit import LeanSgd, fit
from tests.training.cases import CELL, NB201, PERCEPTRON, SHARED, TINY, training


def test_a_cell_learns_digits(digits: Dataset) -> None:
    trainer = training(digits, space=NB201, samples=700)
    seen = trainer(Query(CELL))
    assert seen.value is not None
    assert 60 < seen.value <= 100  # chance is 10
    assert seen.seconds > 0


def test_longer_is_better_and_a_query_says_how_long(digits: Dataset) -> None:
    trainer = training(digits, lr=0.02)
    short, long = (trainer(Query(PERCEPTRON, epochs)) for epochs in (1, 8))
    assert short.value < long.value
    assert trainer(Query(PERCEPTRON)) != trainer(Query(PERCEPTRON, 1))
    assert trainer(Query(PERCEPTRON)).value == trainer(Query(PERCEPTRON, 2)).value


def test_a_training_that_nobody_waits_for_ends_at_once(digits: Dataset) -> None:
    """Of a client that was killed, in a worker that was not."""
    updates: list[TrainingProgress] = []
    trainer = replace(training(digits), on_progress=updates.append)
    with as_task(lambda: len(updates) < 2), pytest.raises(AbandonedError):
        trainer(Query(PERCEPTRON))
    assert len(updates) == 2


def test_sgd_is_that_of_the_formula() -> None:
    """One linear layer, one batch: two updates by hand, with Nesterov momentum, weight decay and the cosine."""
    rng = np.random.default_rng(0)
    data = Dataset("toy", rng.normal(size=(20, 3)).astype(np.float32), np.arange(20) % 2, classes=2)
    space = initio.space("linear", lambda width: nn.Linear(3, 2, bias=False), width=[1])
    settings = TrainingSettings(epochs=2, batch_size=64, lr=0.3, weight_decay=0.1, clip=None)
    trainer = Training(space, data, settings=settings)
    arch = space.architecture(0)
    W, v = trainer.build(arch).weight.detach().double(), 0.0
    x, y = trainer.examples.x.double(), trainer.examples.y
    for lr in (0.3, 0.15):  # η/2 (1 + cos(π t/2)), t = 0, 1
        p = torch.softmax(x @ W.T, dim=1)
        g = (p - torch.eye(2, dtype=torch.double)[y]).T @ x / len(x) + 0.1 * W
        v = 0.9 * v + g
        W = W - lr * (g + 0.9 * v)
    network = trainer.build(arch)
    fitted = fit(network, trainer.examples, settings)
    assert torch.allclose(network.weight.double(), W, atol=1e-6)
    right = (trainer.examples.x_validation.double() @ W.T).argmax(1) == trainer.examples.y_validation
    assert fitted.value == pytest.approx(100 * right.double().mean().item())


class Recorder(nn.Linear):
    """Remembers what it learned from."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            RECORDED.append(x[:, 0].int().tolist())
        return super().forward(x)


RECORDED: list[list[int]] = []


WITHOUT_COMPILER = """
import sys
import initio

initio.train("mlp:relu", "digits", folder=sys.argv[1], epochs=1, samples=60, tensorboard=False)
assert "torch._dynamo" not in sys.modules
"""


def test_sgd_is_torchs_without_the_compiler(tmp_path: Path) -> None:
    given = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3, "nesterov": True}
    starts = [torch.linspace(-1, 1, 7).requires_grad_() for _ in range(2)]
    ours, theirs = LeanSgd([starts[0]], **given), torch.optim.SGD([starts[1]], **given)
    for k in range(3):
        for values, optimizer in zip(starts, (ours, theirs), strict=True):
            optimizer.zero_grad()
            (values * torch.sin(values + k)).sum().backward()
            optimizer.step()
    assert torch.equal(*starts)
    again = LeanSgd([starts[0]], **given)
    again.load_state_dict(theirs.state_dict())
    assert torch.equal(again.state[starts[0]]["momentum_buffer"], ours.state[starts[0]]["momentum_buffer"])
    subprocess.run([sys.executable, "-c", WITHOUT_COMPILER, str(tmp_path / "t")], check=True)


def test_every_epoch_sees_all_samples_in_an_order_of_its_own() -> None:
    RECORDED.clear()
    data = Dataset("numbers", np.arange(100, dtype=np.float32)[:, None], np.arange(100) % 2, classes=2)
    space = initio.space("recorder", lambda width: Recorder(1, 2), width=[1])
    trainer = Training(space, data, settings=TrainingSettings(epochs=2, batch_size=32, lr=1e-6))
    trainer(Query(space.architecture(0)))
    assert [len(batch) for batch in RECORDED] == [24, 23, 23] * 2
    first, second = ([i for batch in RECORDED[start : start + 3] for i in batch] for start in (0, 3))
    assert sorted(first) == sorted(second) == trainer.examples.x[:, 0].int().tolist()
    assert first != second


def test_networks_of_every_kind_train(digits: Dataset) -> None:
    for name in ("nb101", "nb1shot1-s1", "darts"):
        space = get_space(name)
        few = TrainingSettings(epochs=1, samples=60, batch_size=16)
        fitted = Training(space, digits, NetworkSettings(channels=4), few)(Query(space.sample(Random(0))))
        assert 0 <= (fitted.value or 0) <= 100
        assert not fitted.flag


def test_auxiliary_head_and_drop_path_train(digits: Dataset) -> None:
    space = get_space("darts")
    network = NetworkSettings(channels=4, cells=3, auxiliary=True, drop_path=0.2)
    trainer = Training(space, digits.resized(32), network, TrainingSettings(epochs=1, samples=40, batch_size=16))
    query = Query(space.sample(Random(0)))
    first, second = trainer(query).value, trainer(query).value
    assert first is not None
    assert first == second


def test_a_disconnected_cell_guesses(digits: Dataset) -> None:
    trainer = training(digits, space=NB201, epochs=1, samples=200)
    assert trainer(Query(NB201.architecture(0, 0, 0, 0, 0, 0))).value < 25


@pytest.mark.skipif(not (SHARED / "cifar10_sub10k.npz").is_file(), reason="cifar10_sub10k.npz is not in INITIO_DATA")
def test_cifar_learns_with_augmentation() -> None:
    data = load(f"{SHARED / 'cifar10_sub10k.npz'}@16")
    settings = TrainingSettings(epochs=2, samples=1000, batch_size=32)
    assert (Training(NB201, data, TINY, settings)(Query(CELL)).value or 0) > 15


def test_divergence_has_no_value_but_a_sentence(digits: Dataset, tmp_path: Path) -> None:
    notes = list[str]()
    trainer = replace(training(digits, folder=tmp_path, lr=1e38, clip=None), on_note=notes.append)
    seen = trainer(Query(PERCEPTRON))
    assert seen.value is None
    assert notes == [seen.flag]
    assert notes[0].startswith("the training diverged: the loss is not finite in epoch 1, update ")
    assert trainer(Query(PERCEPTRON)) == seen  # remembered
    assert len(notes) == 1


def test_divergence_in_the_last_update_is_seen() -> None:
    data = Dataset("toy", np.eye(8, dtype=np.float32), np.arange(8) % 2, classes=2)
    space = initio.space(
        "deep", lambda width: nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)], nn.Linear(8, 2)), width=[1]
    )
    trainer = Training(space, data, settings=TrainingSettings(epochs=1, batch_size=8, lr=1e30, clip=None))
    fitted = trainer(Query(space.architecture(0)))
    assert fitted.value is None
    assert fitted.flag == "the training diverged: the outputs are not finite after training"


def test_progress(digits: Dataset) -> None:
    events = list[TrainingProgress]()
    replace(training(digits, samples=300, batch_size=50), on_progress=events.append)(Query(PERCEPTRON))
    assert [(e.epoch, e.batch) for e in events] == [(e, b) for e in (1, 2) for b in range(1, 6)]
    assert {(e.epochs, e.batches) for e in events} == {(2, 5)}
    assert all(e.loss > 0 and 0 <= e.accuracy <= 100 for e in events)
    assert [e.seconds for e in events] == sorted(e.seconds for e in events)
    assert events[-1].left == 0 < events[0].left
    assert events[-1].accuracy > events[0].accuracy


def test_examples_are_the_samples_of_the_split(digits: Dataset) -> None:
    examples = examples_of(digits, TrainingSettings(samples=200), seed=3)
    x, y = digits.arrays()
    rows = {image.tobytes(): int(label) for image, label in zip(x, y, strict=True)}
    mine, held_out = ([image.tobytes() for image in part.numpy()] for part in (examples.x, examples.x_validation))
    assert not set(mine) & set(held_out)
    assert [rows[image] for image in mine + held_out] == [*examples.y.tolist(), *examples.y_validation.tolist()]
    assert abs(len(mine) + len(held_out) - 200) <= 5
    assert len(held_out) / 200 == pytest.approx(0.3, abs=0.03)


def linear_toy() -> tuple[nn.Linear, HeldExamples]:
    """One layer and one batch a step, so that a few lines of numpy are an oracle."""
    rng = np.random.default_rng(1)
    x, y = torch.from_numpy(rng.normal(size=(12, 3)).astype(np.float32)), torch.arange(12) % 3
    layer = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(rng.normal(size=(3, 3)).astype(np.float32)))
    return layer, HeldExamples(x, y, x, y, classes=3)


def test_plain_momentum_smoothing_and_the_average_are_those_of_the_formulas() -> None:
    """v ← μv + g, θ ← θ − ηv on labels (1 − s) y + s/n; the average is a ← d a + (1 − d) θ, begun with the first θ."""
    layer, examples = linear_toy()
    settings = TrainingSettings(
        epochs=4, batch_size=64, lr=0.2, weight_decay=0.0, clip=None, nesterov=False, schedule="constant",
        smoothing=0.3, ema=0.6,
    )  # fmt: skip
    W, x, v, average = layer.weight.detach().double().clone(), examples.x.double(), 0.0, None
    target = 0.7 * torch.eye(3, dtype=torch.double)[examples.y] + 0.1
    for _ in range(4):
        g = (torch.softmax(x @ W.T, dim=1) - target).T @ x / len(x)
        v = 0.9 * v + g
        W = W - 0.2 * v
        average = W if average is None else 0.6 * average + 0.4 * W
    kept = list[nn.Module]()
    fit(layer, examples, settings, on_epoch=lambda _, model: kept.append(model))
    assert torch.allclose(layer.weight.double(), W, atol=1e-6)
    assert torch.allclose(kept[-1].weight.double(), average, atol=1e-6)
    assert not torch.allclose(W, average, atol=1e-3)


def test_an_epoch_is_heard_with_its_validation_and_may_end_the_training() -> None:
    layer, examples = linear_toy()
    heard = list[TrainedEpoch]()

    def hear(epoch: TrainedEpoch, model: nn.Module) -> str:
        heard.append(epoch)
        return "enough" * (epoch.epoch == 2)

    seen = fit(layer, examples, TrainingSettings(epochs=9), on_epoch=hear)
    assert [epoch.epoch for epoch in heard] == [1, 2]
    assert seen.flag == "enough"
    assert seen.value == heard[-1].validation
    right = (layer(examples.x_validation).argmax(1) == examples.y_validation).double().mean()
    assert seen.value == pytest.approx(100 * float(right))
    assert all(0 <= epoch.waited <= 1 and epoch.validation_loss for epoch in heard)


def test_patience_ends_a_training_that_gets_no_better() -> None:
    layer, examples = linear_toy()
    heard = list[TrainedEpoch]()
    settings = TrainingSettings(epochs=50, lr=1e-9, patience=3)  # learns nothing
    seen = fit(layer, examples, settings, on_epoch=lambda epoch, _: heard.append(epoch))
    assert len(heard) == 4
    assert seen.flag == "no better validation accuracy in 3 epochs"


def test_nothing_held_out_has_no_accuracy(digits: Dataset) -> None:
    examples = examples_of(digits, TrainingSettings(samples=50, validation=0), seed=0)
    assert len(examples) == 50
    seen = fit(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), examples, TrainingSettings(epochs=1, validation=0))
    assert seen.value is None
    assert seen.flag == "nothing was held out to measure accuracy on"


def test_paths_are_dropped_more_and_more(digits: Dataset) -> None:
    network = initio.build("darts_v2", channels=2, cells=3, shape=(1, 8, 8), drop_path=0.4)
    examples = examples_of(digits, TrainingSettings(samples=40), seed=0)
    dropped = list[set[float]]()
    fit(
        network,
        examples,
        TrainingSettings(epochs=4, drop_path=0.4),
        on_epoch=lambda _, model: dropped.append({m.probability for m in model.modules() if isinstance(m, DropPath)}),
    )
    assert dropped == [{0.4 * epoch / 4} for epoch in range(4)]
