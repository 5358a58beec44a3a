"""Examples that workers read are those in memory, to the bit; a mistake in a picture is one sentence."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from initio.data import Dataset, load
from initio.data.sources import load_parts
from initio.errors import InputError
from initio.training import TrainingSettings
from initio.training import examples as module
from initio.training.examples import HeldExamples, StreamedExamples, examples_of
from initio.training.fit import fit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of 20 pictures of several sizes: dark and bright ones."""
    rng = np.random.default_rng(0)
    for label, name in enumerate(("dark", "light")):
        (tmp_path / name).mkdir()
        for number in range(20):
            side = 10 + number % 3
            pixels = rng.integers(0, 128, size=(side, side, 3)) + 127 * label
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / name / f"{number}.png")
    return tmp_path


@pytest.mark.parametrize("workers", [0, 2])
def test_streamed_examples_train_the_same_network(folder: Path, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data, settings = load(f"{folder}@8"), TrainingSettings(epochs=2, batch_size=8, augment="crop")
    weights, values = [], []
    for most in (10**9, 0):
        monkeypatch.setattr(module, "MOST_BYTES", most)
        examples = examples_of(data, settings, seed=0, workers=workers)
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
        values.append(fit(network, examples, settings).value)
        weights.append(network[1].weight)
    assert isinstance(examples, StreamedExamples)
    assert torch.equal(*weights)
    assert values[0] == values[1] == 100


def test_streams_leave_the_global_generator_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 0)
    examples = examples_of(load(f"{folder}@8"), TrainingSettings(), seed=0, workers=0)
    state = torch.get_rng_state()
    assert sum(len(y) for _, y in examples.validate()) == 12
    assert torch.equal(torch.get_rng_state(), state)


def test_a_picture_that_breaks_after_the_start_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 0)
    settings = TrainingSettings(epochs=1, batch_size=8)
    examples = examples_of(load(f"{folder}@8"), settings, seed=0, workers=1)
    broken = folder / "light" / "7.png"
    broken.write_bytes(b"no picture")
    with pytest.raises(InputError, match=f"^{broken} is not a readable image: its format is not recognised$"):
        fit(nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), examples, settings)


def test_a_fingerprint_knows_files_labels_and_parts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 0)
    data = load(f"{folder}@8")

    def mark(data: Dataset, seed: int = 0) -> str:
        return examples_of(data, TrainingSettings(), seed).fingerprint

    first = mark(data)
    assert mark(load(f"{folder}@8")) == first
    assert len({first, mark(data, 1), mark(data.resized(6)), mark(replace(data, labels=1 - data.labels))}) == 4
    (folder / "light" / "7.png").write_bytes((folder / "light" / "8.png").read_bytes())
    assert mark(load(f"{folder}@8")) != first


def test_one_class_is_refused() -> None:
    data = Dataset("one", np.zeros((8, 3), np.float32), np.zeros(8, np.int64), classes=1)
    with pytest.raises(InputError, match="one has one class: there is nothing to tell apart"):
        examples_of(data, TrainingSettings(), 0)


def test_data_without_a_test_part_give_a_fifth_of_each_class(folder: Path) -> None:
    rest, test, said = load_parts(f"{folder}@8")
    assert (len(rest), len(test or ())) == (32, 8)
    assert np.bincount(test.labels).tolist() == [4, 4]
    assert said == f"8 samples of {folder.name}, held out because it has no test part"
    names = [{data.images.where(i) for i in range(len(data))} for data in (rest, test)]
    assert not names[0] & names[1]
    again = load_parts(f"{folder}@8")[1]
    assert {again.images.where(i) for i in range(8)} == names[1]


def test_data_with_a_test_part_keep_it(digits: Dataset) -> None:
    rest, test, said = load_parts("digits")
    assert (len(rest), len(test or ())) == (len(digits), 360)
    assert said == "the test part of digits"
    assert isinstance(examples_of(rest, TrainingSettings(), 0), HeldExamples)
