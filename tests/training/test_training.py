"""Trainings are functions of their settings, survive interruption, and never give a number that is not one."""

import hashlib
import io
import json
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from torch import nn

import initio
from initio.data import Dataset, load
from initio.data.draw import generator
from initio.data.split import stratified
from initio.errors import InputError
from initio.records import Query
from initio.searches import Budget
from initio.searches.methods.random_search import RandomSearch
from initio.spaces import NetworkSettings, get_space
from initio.training import Training, TrainingProgress, TrainingSettings, small_network
from initio.training.augment import augmentation, crop, crop_flip
from initio.training.fit import Examples
from tests.searches.asking import ask, asking

NB201, MLP = get_space("nb201"), get_space("mlp-3")
CELL = NB201.parse("|nor_conv_3x3~0|+|skip_connect~0|none~1|+|skip_connect~0|none~1|nor_conv_1x1~2|")
PERCEPTRON = MLP.parse("mlp:relu,tanh")
THIN = NetworkSettings(channels=16)
SHARED = Path(os.environ.get("INITIO_DATA", Path(__file__).parents[3] / "shared/data"))


class StopError(Exception):
    """What a callback raises in place of kill −9."""


@pytest.fixture(scope="module")
def digits() -> Dataset:
    data = load("digits")
    assert isinstance(data, Dataset)
    return data


def training(digits: Dataset, *, folder: Path | None = None, space=MLP, network=THIN, **settings) -> Training:
    return Training(space, digits, network, TrainingSettings(**{"epochs": 2} | settings), folder=folder)


def answers(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def interrupted(trainer: Training, query: Query, epoch: int) -> None:
    """Stops the training in the middle of an epoch."""

    def stop(progress: TrainingProgress) -> None:
        if (progress.epoch, progress.batch) == (epoch, 5):
            raise StopError

    with pytest.raises(StopError):
        replace(trainer, on_progress=stop)(query)


# --- learning ------------------------------------------------------------------------------------------------------


def test_a_cell_learns_digits(digits: Dataset) -> None:
    trainer = training(digits, space=NB201, network=NetworkSettings(channels=4, cells=1))
    seen = trainer(Query(CELL))
    assert 60 < seen.value <= 100  # chance is 10
    assert seen.seconds > 0


def test_longer_is_better_and_a_query_says_how_long(digits: Dataset) -> None:
    trainer = training(digits, lr=0.02)
    short, long = (trainer(Query(PERCEPTRON, epochs)) for epochs in (1, 8))
    assert short.value < long.value
    assert trainer(Query(PERCEPTRON)) != trainer(Query(PERCEPTRON, 1))
    assert trainer(Query(PERCEPTRON)).value == trainer(Query(PERCEPTRON, 2)).value


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
    from initio.training import fit

    fitted = fit(network, trainer.examples, settings)
    assert torch.allclose(network.weight.double(), W, atol=1e-6)
    right = (trainer.examples.x_validation.double() @ W.T).argmax(1) == trainer.examples.y_validation
    assert fitted.accuracy == pytest.approx(100 * right.double().mean().item())


class Recorder(nn.Linear):
    """Remembers what it learned from."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            RECORDED.append(x[:, 0].int().tolist())
        return super().forward(x)


RECORDED: list[list[int]] = []


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
        network = replace(small_network(space), channels=4, cells=3 if name == "darts" else 1)
        few = TrainingSettings(epochs=1, samples=60, batch_size=16)
        assert 0 <= Training(space, digits, network, few)(Query(space.sample(Random(0)))).value <= 100


def test_auxiliary_head_and_drop_path_train(digits: Dataset) -> None:
    space = get_space("darts")
    network = NetworkSettings(channels=4, cells=3, auxiliary=True, drop_path=0.2)
    trainer = Training(space, digits.resized(32), network, TrainingSettings(epochs=1, samples=40, batch_size=16))
    query = Query(space.sample(Random(0)))
    assert trainer(query).value == trainer(query).value


def test_a_disconnected_cell_guesses(digits: Dataset) -> None:
    trainer = training(digits, space=NB201, network=NetworkSettings(channels=4, cells=1), epochs=1, samples=200)
    assert trainer(Query(NB201.architecture(0, 0, 0, 0, 0, 0))).value < 25


@pytest.mark.skipif(not (SHARED / "cifar10_sub10k.npz").is_file(), reason="cifar10_sub10k.npz is not in INITIO_DATA")
def test_cifar_learns_with_augmentation() -> None:
    data = load(f"{SHARED / 'cifar10_sub10k.npz'}@16")
    settings = TrainingSettings(epochs=2, samples=1500, batch_size=32)
    assert Training(NB201, data, NetworkSettings(channels=4, cells=1), settings)(Query(CELL)).value > 15


# --- the same answer -----------------------------------------------------------------------------------------------


def dropping(width: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, 10))


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
    trainer = training(digits, space=NB201, network=NetworkSettings(channels=4, cells=1), folder=tmp_path, samples=99)
    first, second = (trainer(Query(twin)) for twin in twins)
    assert first == second
    assert len(answers(tmp_path)) == 1


@pytest.mark.parametrize("kind", ["mlp", "cell", "dropping"])
@pytest.mark.parametrize("epoch", [1, 3])
def test_interrupted_is_uninterrupted(digits: Dataset, tmp_path: Path, kind: str, epoch: int) -> None:
    """By exception in epoch `epoch`, then with a fresh object: weights, hence accuracies, equal to the last bit."""
    space = {"mlp": MLP, "cell": NB201, "dropping": initio.space("dropping", dropping, width=[16])}[kind]
    arch = {"mlp": PERCEPTRON, "cell": CELL, "dropping": space.architecture(*[0] * len(space.decisions))}[kind]
    options = {"space": space, "network": NetworkSettings(channels=4, cells=1), "epochs": 3, "samples": 500}
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


SEARCH = """
import os, signal, sys
from pathlib import Path
from initio.data import load
from initio.records import Query
from initio.spaces import NetworkSettings, get_space
from initio.training import Training, TrainingSettings
from tests.searches.asking import ask, asking

def kill(progress):
    if progress.epoch == 3:
        os.kill(os.getpid(), signal.SIGKILL)

space = get_space("mlp-3")
network, settings = NetworkSettings(channels=16), TrainingSettings(epochs=4)
trainer = Training(space, load("digits"), network, settings, folder=Path(sys.argv[1]), on_progress=kill)
trainer(Query(space.parse("mlp:relu,tanh")))
"""


def test_kill_9(digits: Dataset, tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", SEARCH, str(tmp_path)], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob("*.checkpoint"))) == 1
    assert training(digits, folder=tmp_path, epochs=4)(Query(PERCEPTRON)).value == training(digits, epochs=4)(
        Query(PERCEPTRON)
    ).value  # fmt: skip


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


# --- files that cannot be trusted ----------------------------------------------------------------------------------


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
    assert notes[0].endswith("it is of another training")


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


# --- divergence ----------------------------------------------------------------------------------------------------


def test_divergence_is_chance_with_a_sentence(digits: Dataset, tmp_path: Path) -> None:
    notes = list[str]()
    trainer = replace(training(digits, folder=tmp_path, lr=1e38, clip=None), on_note=notes.append)
    assert trainer(Query(PERCEPTRON)).value == 10.0
    assert notes == [trainer.fit(Query(PERCEPTRON)).diverged]
    assert notes[0].startswith("the training diverged, the loss is not finite in epoch 1, update ")
    assert notes[0].endswith("counts as that of guessing, 10 %")


def test_divergence_in_the_last_update_is_seen() -> None:
    data = Dataset("toy", np.eye(8, dtype=np.float32), np.arange(8) % 2, classes=2)
    space = initio.space(
        "deep", lambda width: nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)], nn.Linear(8, 2)), width=[1]
    )
    trainer = Training(space, data, settings=TrainingSettings(epochs=1, batch_size=8, lr=1e30, clip=None))
    fitted = trainer.fit(Query(space.architecture(0)))
    assert fitted.accuracy == 50.0
    assert "the outputs are not finite after training" in fitted.diverged


# --- progress ------------------------------------------------------------------------------------------------------


def test_progress(digits: Dataset) -> None:
    events = list[TrainingProgress]()
    replace(training(digits, samples=300, batch_size=50), on_progress=events.append)(Query(PERCEPTRON))
    assert [(e.epoch, e.batch) for e in events] == [(e, b) for e in (1, 2) for b in range(1, 6)]
    assert {(e.epochs, e.batches) for e in events} == {(2, 5)}
    assert all(e.loss > 0 and 0 <= e.accuracy <= 100 for e in events)
    assert [e.seconds for e in events] == sorted(e.seconds for e in events)
    assert events[-1].left == 0 < events[0].left
    assert events[-1].accuracy > events[0].accuracy


# --- data ----------------------------------------------------------------------------------------------------------


def test_the_split_is_stratified_disjoint_and_seeded(digits: Dataset) -> None:
    learn, validate = stratified(digits.labels, 0.3, generator(0, 0))
    assert sorted([*learn, *validate]) == list(range(len(digits)))
    all_of, part = Counter(digits.labels.tolist()), Counter(digits.labels[validate].tolist())
    assert all(abs(part[label] - 0.3 * n) <= 0.5 for label, n in all_of.items())
    assert np.array_equal(validate, stratified(digits.labels, 0.3, generator(0, 0))[1])
    assert not np.array_equal(validate, stratified(digits.labels, 0.3, generator(1, 0))[1])


def test_examples_are_the_samples_of_the_split(digits: Dataset) -> None:
    examples = Examples.of(digits, TrainingSettings(samples=200), seed=3)
    x, y = digits.arrays()
    rows = {image.tobytes(): int(label) for image, label in zip(x, y, strict=True)}
    mine, held_out = ([image.tobytes() for image in part.numpy()] for part in (examples.x, examples.x_validation))
    assert not set(mine) & set(held_out)
    assert [rows[image] for image in mine + held_out] == [*examples.y.tolist(), *examples.y_validation.tolist()]
    assert abs(len(mine) + len(held_out) - 200) <= 5
    assert len(held_out) / 200 == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize(
    ("shape", "kind"), [((3, 32, 32), crop_flip), ((1, 28, 28), crop), ((1, 8, 8), None), ((64,), None)]
)
def test_augmentation_follows_the_shape(shape: tuple[int, ...], kind: object) -> None:
    assert augmentation("auto", shape) is kind
    assert augmentation("none", shape) is None


def test_crops_and_flips_are_windows_of_the_padded_image() -> None:
    x = torch.arange(1.0, 1 + 40 * 3 * 16 * 24).reshape(40, 3, 16, 24)
    out = crop_flip(x.clone(), np.random.default_rng(0))
    padded = nn.functional.pad(x, (3, 3, 2, 2))
    seen = set()
    for image, around in zip(out, padded, strict=True):
        found = [
            (top, left, mirrored)
            for top in range(5)
            for left in range(7)
            for mirrored in (False, True)
            if torch.equal(image.flip(2) if mirrored else image, around[:, top : top + 16, left : left + 24])
        ]
        assert len(found) == 1
        seen.add(found[0])
    assert {top for top, _, _ in seen} == set(range(5))
    assert {left for _, left, _ in seen} == set(range(7))
    assert {mirrored for _, _, mirrored in seen} == {False, True}


class Pictures:
    """Images that are read one by one, the last of another size."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> np.ndarray:
        return np.full((3, 4, 5 if index == 5 else 4), index, dtype=np.uint8)

    def where(self, index: int) -> str:
        return f"{index}.png"


def test_arrays_are_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Dataset("pictures", Pictures(), np.arange(6) % 2, classes=2)
    whole, _ = data.arrays(np.arange(5))
    monkeypatch.setattr("initio.data.dataset.CHUNK", 2)
    x, y = data.arrays(np.array([4, 0, 3, 1, 2]))
    assert np.array_equal(x, whole[[4, 0, 3, 1, 2]])
    assert y.tolist() == [0, 0, 1, 1, 0]
    monkeypatch.setattr("initio.data.dataset.CHUNK", 5)
    with pytest.raises(InputError, match=r"5.png has 4x5 pixels and 0.png has 4x4: state one size for all"):
        data.arrays()


# --- bad input -----------------------------------------------------------------------------------------------------


def test_noise_is_refused() -> None:
    with pytest.raises(InputError, match="noise has nothing to learn: train on data with labels"):
        Training(NB201, load("noise"))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"epochs": 0}, "the number of epochs must be a whole number of at least 1, not 0"),
        ({"epochs": 1.5}, "the number of epochs must be a whole number of at least 1, not 1.5"),
        ({"batch_size": 1}, "the batch size must be a whole number of at least 2, not 1"),
        ({"lr": 0}, "the learning rate must be a number above 0, not 0"),
        ({"lr": float("nan")}, "the learning rate must be a number above 0, not nan"),
        ({"lr": float("inf")}, "the learning rate must be a number above 0, not inf"),
        ({"momentum": 1}, "the momentum must be a number at least 0 and below 1, not 1"),
        ({"weight_decay": -1}, "the weight decay must be a number at least 0, not -1"),
        ({"validation": 1.0}, "the validation share must be a number above 0 and below 1, not 1.0"),
        ({"clip": 0}, "the largest norm of a gradient must be a number above 0, not 0"),
        ({"augment": "flip"}, "augment must be one of auto, crop-flip, crop, none, not 'flip'"),
        ({"samples": 0}, "the number of samples must be a whole number of at least 2, not 0"),
    ],
)
def test_settings_are_checked(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        TrainingSettings(**wrong)  # type: ignore[arg-type]
    assert str(error.value) == sentence


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


def test_settings_are_plain_values() -> None:
    assert all(isinstance(value, int | float | str | None) for value in asdict(TrainingSettings()).values())
