"""An ensemble from a shared network to a file: resumed after every stage to the same bits, exported, refused."""

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import initio
from initio.cli import main
from initio.errors import InputError
from initio.report.page import DataTable, LineChart
from initio.runs.ensemble import resume_ensemble
from initio.runs.pages import sections, summary
from initio.runs.subjects import read_folder

ASKED = {
    "size": 2, "candidates": 7, "supernet_epochs": 1, "posterior_epochs": 1, "samples": 80, "epochs": 1, "channels": 2,
    "cells": 1,
}  # fmt: skip


class KilledError(Exception):
    """Stands for kill −9."""


def stop_at(stage: str):  # type: ignore[no-untyped-def]
    def hear(what: object) -> None:
        if str(what).startswith(stage):
            raise KilledError

    return hear


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ensemble") / "e"
    initio.ensemble("nb201", "digits", folder=folder, **ASKED)
    return folder


def predictions(folder: Path) -> np.ndarray:
    with np.load(folder / "predictions.npz") as found:
        return np.asarray(found["logits"])


def test_the_ensemble_is_the_mean_of_its_members(made: Path) -> None:
    found = initio.load_ensemble(made)
    x, y = (torch.from_numpy(part) for part in initio.load_data("digits", split="test").arrays())
    with torch.inference_mode():
        mean = torch.stack([member.build()(x).softmax(1) for member in found.members]).mean(0)
        torch.testing.assert_close(found.build()(x).exp(), mean)
    judged = found.outcome.judgement
    assert judged.error == pytest.approx(100 * float((mean.argmax(1) != y).float().mean()), abs=1e-4)
    assert judged.ate == pytest.approx(np.mean([100 - initio.evaluate(m, save=False).accuracy for m in found.members]))
    assert (made / "posterior.png").is_file()
    assert len(found.choice.marginals) == 6
    assert "member 1" in str(found)


@pytest.mark.parametrize("stage", ["stage 2", "1 of 2 members", "stage 4"])
def test_it_goes_on_to_the_same_members_and_predictions(stage: str, made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "e"
    with pytest.raises(KilledError):
        initio.ensemble("nb201", "digits", folder=folder, on_event=stop_at(stage), **ASKED)
    with pytest.raises(InputError, match="not finished"):
        initio.load_ensemble(folder)
    found = resume_ensemble(folder)
    assert found.choice == initio.load_ensemble(made).choice
    np.testing.assert_array_equal(predictions(folder), predictions(made))
    assert found.outcome == initio.load_ensemble(made).outcome


def test_a_member_that_diverged_is_left_out_and_one_alone_is_no_ensemble(made: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "e"))
    (folder / "result.json").unlink()
    path = folder / "members" / "2" / "trained.json"
    outcome = json.loads(path.read_text())
    path.write_text(json.dumps(outcome | {"accuracy": None, "flag": "the training diverged in epoch 1"}))
    with pytest.raises(InputError, match="1 of 2 members diverged"):
        resume_ensemble(folder)


def test_the_exported_file_agrees(made: Path, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    path = initio.export(made, tmp_path / "e.onnx", "onnx")
    test = initio.load_data("digits", split="test")
    stored = np.stack([test.images[number] for number in range(5)])
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    kind = {"tensor(uint8)": np.uint8, "tensor(float)": np.float32}[session.get_inputs()[0].type]
    [ours] = session.run(None, {"input": stored.astype(kind)})
    with torch.inference_mode():
        theirs = initio.load_ensemble(made).build()(torch.from_numpy(test.arrays()[0][:5])).numpy()
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    with pytest.raises(InputError, match="onnx or torchscript"):
        initio.export(made, tmp_path / "e.py", "python")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"size": 1}, "at least 2 members"),
        ({"size": 15_626}, "15,625 architectures"),
        ({"method": "boosting"}, "method must be"),
        ({"temperature": 0.0}, "positive"),
        ({"candidates": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_is_a_sentence(wrong: dict[str, object], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        initio.ensemble("nb201", "digits", folder=tmp_path / "e", **(ASKED | wrong))
    assert not (tmp_path / "e").exists()


def test_other_settings_do_not_go_on(made: Path) -> None:
    with pytest.raises(InputError, match="other settings"):
        initio.ensemble("nb201", "digits", folder=made, resume=True, **(ASKED | {"seed": 1}))


def test_the_command(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ensemble", "--resume", str(made), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"]["members"] == [1, 2]
    assert main(["ensemble", "--resume", str(made), "--size", "4"]) == 2
    assert "leave out --size" in capsys.readouterr().err
    assert main(["ensemble", "nb201"]) == 2
    assert "--data" in capsys.readouterr().err


def test_a_class_that_the_choice_never_sees_is_named(tmp_path: Path) -> None:
    labels = np.repeat([0, 1, 2], [30, 30, 1])
    images = np.random.default_rng(0).integers(0, 256, size=(61, 8, 8, 1), dtype=np.uint8)
    np.savez(tmp_path / "few.npz", images=images, labels=labels)
    heard: list[object] = []
    asked = ASKED | {"samples": None, "method": "deep", "batch_size": 16}
    found = initio.ensemble("nb201", str(tmp_path / "few.npz"), folder=tmp_path / "e", on_event=heard.append, **asked)
    assert found.choice.absent == (2,)
    assert any("no sample of the classes" in str(what) for what in heard)
    assert len({member.outcome.weights["best"] for member in found.members}) == 2  # deep: one cell, two seeds


def test_attacks_on_members_and_on_all(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = initio.attack(made, ("fgsm", "pgd"), samples=40)
    assert [(each.attack, each.on) for each in found.rounds] == [
        (attack, on) for attack in ("fgsm", "pgd") for on in ("1", "2", "all")
    ]
    for weak, strong in zip(found.rounds[:3], found.rounds[3:], strict=True):
        assert strong.fooled >= weak.fooled
        assert strong.fooled + strong.masked + strong.resisted == pytest.approx(100)
    assert (made / "attacks.json").is_file()
    assert main(["attack", str(made / "members" / "1"), "--attack", "fgsm", "--samples", "10"]) == 0
    assert "masked %" in capsys.readouterr().out
    assert main(["attack", str(made), "--attack", "nonsense"]) == 2


def test_a_network_without_gradients_is_masked(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Flat(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot((x.flatten(1).sum(1) * 0).long(), 10).double()

    monkeypatch.setattr("initio.runs.models.TrainedModel.build", lambda *_: Flat())
    found = initio.attack(made, ("fgsm", "pgd", "cw"), samples=60, save=False)
    assert {(each.fooled, each.masked, each.resisted) for each in found.rounds if each.samples} == {(0.0, 100.0, 0.0)}


def test_its_report_shows_members_posterior_and_trainings(made: Path) -> None:
    found, subject = initio.load_ensemble(made), read_folder(made)
    shown = {section.title: section.blocks for section in sections(subject)}
    assert list(shown)[:2] == ["The ensemble", "The cells"]
    members, _, _, posterior, compared = shown["The ensemble"]
    assert isinstance(members, DataTable)
    assert members.columns["error, %"] == [*found.outcome.judgement.singles, found.outcome.judgement.error]
    assert isinstance(posterior, DataTable)
    assert posterior.length == sum(map(len, found.choice.marginals))
    assert isinstance(compared, DataTable)
    assert compared.length == len(found.choice.compared)
    assert any("member 2 training" in chart.lines for chart in shown["The trainings"] if isinstance(chart, LineChart))
    assert f"{found.outcome.judgement.error:.2f} % of" in summary(subject)
    words = shlex.split(found.plan.command())
    assert words[:3] == ["initio", "ensemble", "nb201"]
    assert words[words.index("--size") + 1] == "2"
