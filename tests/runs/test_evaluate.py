"""A trained network is measured on what nobody has learned from, and the numbers are its own."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import initio
from initio.cli import main
from initio.data import Dataset
from initio.errors import InputError
from initio.runs.evaluate import load_evaluation
from initio.runs.search import make_problem
from tests.runs.conftest import draw_pictures


@pytest.fixture
def trained(on_digits: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(on_digits, tmp_path / "t"))


def test_the_test_part_is_measured_and_written(trained: Path) -> None:
    progress = list[tuple[int, int]]()
    seen = initio.evaluate(trained, on_progress=lambda *at: progress.append(at))
    x, y = initio.load_data("digits", split="test").arrays()
    with torch.inference_mode():
        logits = initio.load_model(trained).build()(torch.from_numpy(x))
    assert seen.judgement.right == int((logits.argmax(1) == torch.from_numpy(y)).sum())
    assert seen.accuracy > 60
    assert seen.judgement.low < seen.accuracy < seen.judgement.high
    assert seen.judgement.loss == pytest.approx(
        torch.nn.functional.cross_entropy(logits, torch.from_numpy(y)).item(), abs=1e-5
    )
    assert (seen.tested, seen.judgement.samples) == ("the test part of digits", 360)
    assert progress == [(256, 360), (360, 360)]
    assert load_evaluation(trained) == seen
    for name in ("confusion", "calibration", "mistakes"):
        with Image.open(trained / f"{name}.png") as picture:
            assert min(picture.size) > 100


def test_the_same_again_is_the_same_to_the_byte(trained: Path, tmp_path: Path) -> None:
    first = initio.evaluate(trained, folder=tmp_path / "a")
    assert initio.evaluate(initio.load_model(trained), folder=tmp_path / "b") == first
    for name in ("confusion.png", "calibration.png", "mistakes.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    last = initio.evaluate(trained, which="last", save=False)
    assert last.weights == initio.load_model(trained).outcome.weights["last"]
    assert last.folder is None


def test_the_worst_mistakes_are_found_again(trained: Path) -> None:
    seen = initio.evaluate(trained, worst=3)
    data = initio.load_data("digits", split="test")
    sure = [mistake.confidence for mistake in seen.judgement.mistakes]
    assert sure == sorted(sure, reverse=True)
    assert len(seen.places) == 3
    for mistake, place in zip(seen.judgement.mistakes, seen.places, strict=True):
        assert data.labels[mistake.sample] == mistake.label != mistake.answer
        assert place == f"sample {mistake.sample} of the test part"


def test_what_is_kept_aside_is_seen_by_neither_search_nor_training(on_pictures: Path) -> None:
    data = f"{on_pictures.parent / 'photos'}@8"
    seen = initio.evaluate(on_pictures, save=False)
    assert (seen.judgement.samples, seen.tested) == (8, "8 samples of photos, held out because it has no test part")
    searched = make_problem("nb201", data).known_data
    everything = initio.load_data(data)
    assert (len(searched), len(everything)) == (32, 40)
    assert initio.load_model(on_pictures).plan.fingerprint
    changed = Path(shutil.copytree(on_pictures.parent, on_pictures.parent.parent / "changed", dirs_exist_ok=True))
    shutil.copy(changed / "photos/dark/0.png", changed / "photos/dark/99.png")
    plan = (changed / "t/train.json").read_text().replace(str(on_pictures.parent), str(changed))
    (changed / "t/train.json").write_text(plan)
    with pytest.raises(InputError, match="has changed since the training, which may have seen what is now kept aside"):
        initio.evaluate(changed / "t")


def test_other_data_are_read_as_the_network_reads(on_pictures: Path, tmp_path: Path) -> None:
    """Another size and only one of the classes: the network's own size, normalisation and numbers are used."""
    photos = draw_pictures(tmp_path / "new", count=6, seed=1)
    shutil.rmtree(photos / "dark")
    seen = initio.evaluate(on_pictures, str(photos), folder=tmp_path / "out")
    assert seen.tested == "all of new, which was not trained on"
    assert seen.judgement.confusion[0] == (0, 0)
    assert sum(seen.judgement.confusion[1]) == 6
    assert seen.accuracy == 100
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == [
        "calibration.png", "confusion.png", "evaluation.json",
    ]  # fmt: skip
    (photos / "grey").mkdir()
    (photos / "light/0.png").rename(photos / "grey/0.png")
    with pytest.raises(InputError, match="new has a class 'grey' that the network does not know: it knows dark, light"):
        initio.evaluate(on_pictures, str(photos))


def test_inputs_that_were_learned_from_are_counted(trained: Path) -> None:
    learned = initio.load_data("digits")
    mixed = learned.chosen(np.arange(50), "test")
    seen = initio.evaluate(trained, mixed, save=False)
    assert seen.repeated == 50
    assert "50 of the inputs are also among those that were learned from" in str(seen)
    assert (initio.evaluate(trained, save=False).repeated or 0) < 5


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("noise", "noise has no labels"),
        ("nowhere", "no file or folder 'nowhere'"),
        (Dataset("wide", np.zeros((4, 3, 8, 8), np.float32), np.arange(4), 4), "the network reads \\(1, 8, 8\\)"),
        (Dataset("bytes", np.zeros((4, 1, 8, 8), np.uint8), np.arange(4), 4), "bytes holds 8-bit images, the network"),
        (Dataset("more", np.zeros((4, 1, 8, 8), np.float32), np.arange(4) + 8, 12), "more has a label 11, the network"),
    ],
)
def test_data_that_do_not_fit_are_one_sentence(trained: Path, data: Dataset | str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        initio.evaluate(trained, data)
    assert not (trained / "evaluation.json").exists()


def test_other_data_have_a_folder_of_their_own(trained: Path) -> None:
    data = initio.load_data("digits", split="test")
    seen = initio.evaluate(trained, replace(data, name="hf:me/digits"), worst=0)
    assert seen.folder == trained / "evaluation-hf-me-digits"
    assert not (seen.folder / "mistakes.png").exists()
    with pytest.raises(InputError, match="the number of mistakes to show must be a whole number of at least 0, not -1"):
        initio.evaluate(trained, worst=-1)


def test_a_training_on_an_object_says_that_it_needs_data(tmp_path: Path) -> None:
    data = initio.load_data("digits")
    trained = initio.train("mlp:relu,tanh", data, folder=tmp_path / "t", epochs=1, samples=100, tensorboard=False)
    with pytest.raises(InputError, match="was given its data as an object: say what to evaluate on"):
        initio.evaluate(trained)
    assert initio.evaluate(trained, "digits", save=False).judgement.samples == 360


def test_the_command(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(trained)]) == 0
    said = capsys.readouterr().out
    assert "95 % interval" in said
    assert "taken for" in said
    assert main(["evaluate", str(trained), "--json", "--which", "last"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["which"] == "last"
    assert found["judgement"]["samples"] == 360
    assert main(["evaluate", str(trained.parent)]) == 2
    assert "is no training: it has no train.json" in capsys.readouterr().err
