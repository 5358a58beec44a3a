"""An ensemble from a shared network to a file: resumed after every stage to the same bits, exported, refused."""

import json
import os
import shlex
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from itertools import combinations, count
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import initio
from initio.cli import main
from initio.errors import InputError
from initio.networks.attacks import ATTACKS, Bounds
from initio.networks.autoattack import autoattack
from initio.networks.shared import SharedNetwork
from initio.records import Architecture, from_json
from initio.report.page import DataTable, LineChart
from initio.runs import attack as attack_verb
from initio.runs import ensemble as ensemble_verb
from initio.runs.attack import AttackResult
from initio.runs.ensemble import resume_ensemble
from initio.runs.estimates import MOST, _groups, estimates
from initio.runs.folders.base import read_record
from initio.runs.folders.ensemble import POOLED, EnsembleFolder, EnsemblePlan
from initio.runs.folders.model import load_model
from initio.runs.pages.card import EnsembleCard
from initio.runs.pages.sections import sections
from initio.runs.pages.subjects import read_folder
from initio.runs.pages.summaries import summary
from initio.searches.ensembles import ArchitecturePosterior, Estimates
from initio.searches.methods.nesbs import Nesbs
from initio.searches.models.particles import settled
from initio.system.executors import Here
from initio.training import TrainedEpoch, TrainingSettings
from initio.training.recipes import RECIPES
from tests.runs.printed import parsed, printed

ASKED = {
    "size": 2, "candidates": 7, "supernet_epochs": 2, "posterior_epochs": 2, "posterior_updates": 4, "samples": 80,
    "epochs": 2, "channels": 2, "cells": 1, "prior": "uniform",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _few_steps() -> Iterator[None]:
    """Particles of all ensembles here move 50 steps: 1,000 are as much work as the networks are."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("initio.searches.ensembles.settled", partial(settled, steps=50))
        yield


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


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_call(home: object, name: str, call: int) -> None:
    """The process is killed when this is called for so many times."""
    real, calls = getattr(home, name), count(1)

    def called(*given: Any, **named: Any) -> Any:
        if next(calls) == call:
            die()
        return real(*given, **named)

    setattr(home, name, called)


def die_in_member(number: int) -> None:
    """After its first of two epochs."""
    real = ensemble_verb._train_member

    def train(kept: Any, plan: Any, task: Any, on_event: Any = None) -> int:
        def hear(what: object) -> None:
            if task[0] == number and isinstance(what, TrainedEpoch):
                die()

        return real(kept, plan, task, on_event=hear)

    ensemble_verb._train_member = train  # type: ignore[assignment]


STAGES = {
    "shared weights": lambda: die_at_call(SharedNetwork, "forward", 3),
    "posterior": lambda: die_at_call(Nesbs, "objective", 3),
    "sampling": lambda: die_at_call(ArchitecturePosterior, "sets", 1),
    "choice": lambda: die_at_call(Estimates, "loss", 4),
    "member 1": lambda: die_in_member(1),
    "member 2": lambda: die_in_member(2),
    "predictions": lambda: die_at_call(ensemble_verb, "answers_kept_aside", 2),
    "numbers": lambda: die_at_call(ensemble_verb, "judge_ensemble", 1),
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be copied")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("stage", STAGES)
def test_killed_in_any_stage_it_goes_on_to_the_same_members_and_predictions(
    stage: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ensemble_verb, "_draw", lambda *_: None)  # pictures, which take long and are not compared
    monkeypatch.setattr("initio.report.save_picture", lambda *_: None)
    folder = tmp_path / "e"
    if not (child := os.fork()):
        try:
            STAGES[stage]()
            initio.ensemble("nb201", "digits", folder=folder, **ASKED)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    with pytest.raises(InputError, match="not finished"):
        initio.load_ensemble(folder)
    found, expected = resume_ensemble(folder), initio.load_ensemble(made)
    assert found.choice == expected.choice
    np.testing.assert_array_equal(predictions(folder), predictions(made))
    assert found.outcome == expected.outcome


def test_a_member_that_diverged_is_left_out_and_one_alone_is_no_ensemble(made: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "e"))
    (folder / "result.json").unlink()
    path = folder / "members" / "2" / "trained.json"
    outcome = json.loads(path.read_text())
    path.write_text(json.dumps(outcome | {"accuracy": None, "flag": "the training diverged in epoch 1"}))
    with pytest.raises(InputError, match="1 of 2 members diverged"):
        resume_ensemble(folder)


@dataclass(frozen=True)
class Steep(TrainingSettings):
    """Steps with which no training goes well."""

    lr: float = 1e30
    clip: float | None = None

    name: ClassVar[str] = "steep"


def test_members_that_really_diverge_are_a_sentence_that_can_be_followed(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RECIPES, "steep", Steep)
    asked = {"size": 2, "epochs": 2, "channels": 2, "cells": 1, "prior": "uniform", "method": "deep"}
    with pytest.raises(InputError, match="2 of 2 members diverged, .* --recipe plain, with --shared ") as told:
        initio.ensemble("nb201", "digits", folder=tmp_path / "e", recipe="steep", shared=str(made), **asked)
    assert load_model(tmp_path / "e" / "members" / "1").outcome.flag.startswith("the training diverged")
    shared = shlex.split(str(told.value))[-1]
    found = initio.ensemble("nb201", "digits", folder=tmp_path / "f", recipe="plain", shared=shared, **asked)
    assert found.outcome.members == (1, 2)


def test_a_member_that_really_diverges_is_left_out_of_the_mean(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RECIPES, "steep", Steep)
    real = ensemble_verb._train_member

    def train(kept: Any, plan: Any, task: Any, on_event: Any = None) -> int:
        return real(kept, replace(plan, recipe="steep" if task[0] == 2 else plan.recipe), task, on_event=on_event)

    monkeypatch.setattr(ensemble_verb, "_train_member", train)
    asked = {"size": 3, "epochs": 1, "channels": 2, "cells": 1, "prior": "uniform", "method": "deep"}
    found = initio.ensemble("nb201", "digits", folder=tmp_path / "e", shared=str(made), **asked)
    assert found.outcome.members == (1, 3)
    assert found.outcome.left_out["2"].startswith("the training diverged")
    assert predictions(tmp_path / "e").shape[0] == 2
    assert np.isfinite(predictions(tmp_path / "e")).all()


def test_the_others_go_on_without_one_that_diverged(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "e"
    asked = {
        "size": 3,
        "epochs": 1,
        "channels": 2,
        "cells": 1,
        "prior": "uniform",
        "method": "deep",
        "shared": str(made / "search"),
    }
    whole = initio.ensemble("nb201", "digits", folder=folder, **asked)
    answers = predictions(folder)
    (folder / "result.json").unlink()
    path = folder / "members" / "2" / "trained.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"flag": "the training diverged in epoch 1"}))
    found = resume_ensemble(folder)
    assert found.outcome.members == (1, 3)
    assert found.outcome.left_out == {"2": "the training diverged in epoch 1"}
    np.testing.assert_array_equal(predictions(folder), answers[[0, 2]])
    assert found.outcome.weights == (whole.outcome.weights[0], whole.outcome.weights[2])
    assert "left out: the training diverged" in str(found)


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
    with pytest.raises(InputError, match="onnx, torchscript, python"):
        initio.export(made, tmp_path / "e.safetensors", "safetensors")


def test_the_python_file_answers_the_same_and_has_a_card(made: Path, tmp_path: Path) -> None:
    path = initio.export(made, tmp_path / "e.py", "python", licence="CC0")
    spec = spec_from_file_location("exported", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "initio" not in path.read_text().replace("Initio", "")
    found, test = initio.load_ensemble(made), initio.load_data("digits", split="test")
    stored = torch.from_numpy(np.stack([test.images[number] for number in range(20)]))
    with torch.inference_mode():
        ours = found.build()(torch.from_numpy(test.arrays()[0][:20]))
        torch.testing.assert_close(module.load()(module.preprocess(stored)), ours, rtol=0, atol=1e-5)
    card = path.with_suffix(".card.md").read_text()
    assert "Licence: CC0" in card
    assert f"accuracy {found.outcome.judgement.whole.accuracy:.2f} %" in card
    assert all(member.outcome.weights["best"] in card for member in found.members)
    assert from_json(EnsembleCard, path.with_suffix(".card.json").read_text()).method == "nesbs"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"size": 1}, "at least 2 members"),
        ({"size": 5_260}, "5,259 different networks"),  # 5,260 but for the one that is not connected
        ({"method": "boosting"}, "method must be"),
        ({"temperature": 0.0}, "positive"),
        ({"candidates": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_is_a_sentence(wrong: dict[str, object], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        initio.ensemble("nb201", "digits", folder=tmp_path / "e", **(ASKED | wrong))
    assert not (tmp_path / "e").exists()


SHORT = ["--supernet-epochs", "1", "--posterior-epochs", "1", "--epochs", "1"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (["--recipe", "nonsense"], "there is no recipe 'nonsense'"),
        (["--epochs", "0"], "number of epochs must be a whole number of at least 1"),
        (["--channels", "0"], "channels must be a whole number of at least 1, not 0"),
        (["--cells", "0"], "cells must be a whole number of at least 1, not 0"),
        (["--data", "noise"], "noise has nothing to learn"),
        (["nb101"], "nb101 does not have"),
        (["mlp"], "mlp-10 does not have"),
        (["--supernet-epochs", "0"], "epochs of the shared weights must be a whole number"),
        (["--posterior-epochs", "0"], "posterior_epochs must be at least 1"),
        (["--batch-size", "1"], "batch size must be a whole number of at least 2"),
        (["--seed", "-1"], "seed must be a whole number of at least 0"),
        (["--data", "nowhere.npz"], "nowhere.npz"),
        (["--shared", "nowhere"], "is not a run"),
    ],
)
def test_what_a_later_stage_would_refuse_is_refused_before_anything_is_written(
    wrong: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    space = [] if wrong[0][0] != "-" else ["nb201"]
    shorter = [] if "epochs" in wrong[0] or wrong[0] == "--shared" else SHORT
    assert main(["ensemble", *space, "--data", "digits", "--out", "e", *shorter, *wrong]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_shared_weights_of_an_ensemble_are_those_of_its_search(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ensemble", "nb201", "--data", "digits", "--out", str(tmp_path / "e"), "--size", "2", "--method", "deep"]
    words += ["--prior", "uniform", "--epochs", "1", "--channels", "2", "--cells", "1"]
    assert main([*words, "--shared", str(made)]) == 0
    first = initio.load_ensemble(tmp_path / "e")
    assert first.searched == (made / "search").absolute()
    words[words.index("--out") + 1] = str(tmp_path / "f")
    assert main([*words, "--shared", str(tmp_path / "e")]) == 0  # whose search is another's
    second = initio.load_ensemble(tmp_path / "f")
    assert second.searched == first.searched
    assert second.outcome == first.outcome
    capsys.readouterr()
    (tmp_path / "only").mkdir()
    shutil.copy(made / "search" / "result.json", tmp_path / "only")
    words[words.index("--out") + 1] = str(tmp_path / "g")
    assert main([*words, "--shared", str(tmp_path / "only")]) == 2
    assert "is no run of nesbs: it has no run.json" in capsys.readouterr().err
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize(
    ("method", "option", "value"),
    [
        *((method, "prior", "ranking") for method in POOLED),
        *((method, "temperature", 1.0) for method in POOLED),
        *((method, "sampling", "svgd") for method in (*POOLED, "deep", "droppath")),
        *((method, "delta_by", "grid") for method in (*POOLED, "deep", "droppath")),
        *((method, "drop_path", 0.01) for method in (*POOLED, "nesbs", "deep")),
        ("deep", "candidates", 50),
        ("droppath", "candidates", 50),
    ],
)
def test_options_without_effect_are_refused(
    method: str, option: str, value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "e"
    with pytest.raises(InputError, match=f"{option} would have no effect: .*{method}"):
        initio.ensemble("nb201", "digits", folder=folder, method=method, **{option: value})
    words = ["--method", method, f"--{option.replace('_', '-')}", str(value)]
    assert main(["ensemble", "nb201", "--data", "digits", "--out", str(folder), *words]) == 2
    assert f"{option} would have no effect" in capsys.readouterr().err
    assert not folder.exists()


def test_a_delta_for_monte_carlo_and_epochs_of_a_trained_network_are_without_effect(made: Path, tmp_path: Path) -> None:
    for asked, sentence in (
        ({"sampling": "mc", "delta_by": "bayes"}, "Monte Carlo has no δ"),
        ({"shared": str(made), "supernet_epochs": 50}, "trained already"),
    ):
        with pytest.raises(InputError, match=sentence):
            initio.ensemble("nb201", "digits", folder=tmp_path / "e", **asked)
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize("method", [*POOLED, "deep", "droppath"])
def test_the_printed_command_has_no_option_without_effect(method: Any) -> None:
    plan = EnsemblePlan("nb201", "digits", method=method, shared="e/search")
    given = vars(parsed(plan.command()))
    assert all(given[name] is None for name in plan.useless())
    assert given["shared"] == "e/search"
    assert (given["candidates"] is None) == (method in ("deep", "droppath"))


@pytest.mark.parametrize("method", POOLED)
def test_who_does_not_ask_the_posterior_asks_no_ranking(
    method: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ensemble_verb, "rank", None)
    asked = {"size": 2, "candidates": 4, "epochs": 1, "channels": 2, "cells": 1, "method": method}
    assert initio.ensemble("nb201", "digits", folder=tmp_path / "e", shared=str(made), **asked).choice.prior == ()


def test_other_settings_do_not_go_on(made: Path) -> None:
    with pytest.raises(InputError, match="the ensemble was started with"):
        initio.ensemble("nb201", "digits", folder=made, resume=True, **(ASKED | {"seed": 1}))


def test_the_command(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ensemble", "--resume", str(made), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"]["members"] == [1, 2]
    assert main(["ensemble", "--resume", str(made), "--tau", "4"]) == 2
    assert "leave out --tau" in capsys.readouterr().err
    assert main(["ensemble", "--resume", str(made), "--size", "4"]) == 2
    assert "leave out --size" in capsys.readouterr().err
    assert main(["ensemble", "nb201"]) == 2
    assert "--data" in capsys.readouterr().err


@pytest.mark.parametrize(("samples", "batch"), [(1437, 32), (60, 16), (50_000, 128)])
def test_small_data_have_small_batches(samples: int, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble_verb, "load_parts", lambda _: (range(samples), None, ""))
    work = ensemble_verb._EnsembleWork(EnsembleFolder(Path("e")), EnsemblePlan("nb201", "digits"), Here(), print)
    assert work._batch() == batch


def test_a_class_that_the_choice_never_sees_is_named(tmp_path: Path) -> None:
    labels = np.repeat([0, 1, 2], [30, 30, 1])
    images = np.random.default_rng(0).integers(0, 256, size=(61, 8, 8, 1), dtype=np.uint8)
    np.savez(tmp_path / "few.npz", images=images, labels=labels)
    heard: list[object] = []
    asked = ASKED | {"samples": None, "method": "deep", "candidates": None, "batch_size": 16}
    found = initio.ensemble("nb201", str(tmp_path / "few.npz"), folder=tmp_path / "e", on_event=heard.append, **asked)
    assert found.choice.absent == (2,)
    assert any("no sample of the classes" in str(what) for what in heard)
    assert len({member.outcome.weights["best"] for member in found.members}) == 2  # deep: one cell, two seeds


def test_attacks_on_members_and_on_all(
    made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ATTACKS, "autoattack", partial(autoattack, steps=2, queries=2))
    assert main(["attack", str(made), "--attack", "fgsm", "autoattack", "--samples", "10"]) == 0
    assert "autoattack  all together" in capsys.readouterr().out
    told: list[tuple[int, int]] = []
    found = initio.attack(made, ("fgsm", "pgd"), samples=40, on_pass=lambda _, done, total: told.append((done, total)))
    most = (1 + 40) * (2 + 3)  # of two members, and of both inside their mean and the mean itself
    assert told == sorted(set(told))  # each number once
    assert told[-1] == (most, most)
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be copied")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_attacks_that_were_killed_go_on_with_the_next_round(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "e"))
    asked = ("fgsm", "autoattack")
    monkeypatch.setitem(ATTACKS, "autoattack", partial(autoattack, steps=2, queries=2))
    whole = initio.attack(made, asked, samples=6, save=False)
    if not (child := os.fork()):
        try:
            die_at_call(attack_verb, "_round", 5)
            initio.attack(folder, asked, samples=6)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    [journal] = folder.glob("unfinished-attacks-*.jsonl")
    kept = journal.read_text()
    assert kept.count("\n") == 4
    journal.write_text(kept + kept.splitlines()[0][:20])  # a line that the crash left half-written

    real, done = attack_verb._round, list[tuple[str, str]]()

    def heard(name: str, on: str, *given: Any) -> Any:
        done.append((name, on))
        return real(name, on, *given)

    monkeypatch.setattr(attack_verb, "_round", heard)
    initio.attack(folder, asked, samples=5)  # other samples: all anew
    initio.attack(folder, asked, samples=6, seed=1)
    initio.attack(folder, asked[1:], samples=6)
    assert len(done) == 6 + 6 + 3
    done.clear()
    assert journal.is_file()
    assert main(["attack", str(folder), "--attack", *asked, "--samples", "6"]) == 0
    assert "4 of 6 rounds are done already" in capsys.readouterr().err
    assert done == [("autoattack", "2"), ("autoattack", "all")]
    assert read_record(AttackResult, folder / "attacks.json") == whole
    assert list(folder.glob("unfinished-*")) == []


def test_other_networks_are_attacked_anew(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "e"))
    monkeypatch.setattr(attack_verb, "write_record", die_softly)
    with pytest.raises(KeyboardInterrupt):
        initio.attack(folder, ("fgsm",), samples=5)
    monkeypatch.undo()
    heard: list[str] = []
    monkeypatch.setattr("initio.runs.folders.model.TrainedModel.digest", lambda *_: "others")
    initio.attack(folder, ("fgsm",), samples=5, on_note=heard.append)
    assert len(heard) == 3
    assert not any("done already" in sentence for sentence in heard)


def die_softly(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_network_without_gradients_is_masked(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Flat(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot((x.flatten(1).sum(1) * 0).long(), 10).double()

    monkeypatch.setattr("initio.runs.folders.model.TrainedModel.build", lambda *_: Flat())
    monkeypatch.setitem(ATTACKS, "autoattack", partial(autoattack, steps=2, queries=2))
    found = initio.attack(made, ("fgsm", "pgd", "cw", "autoattack"), samples=60, save=False)
    assert {(each.fooled, each.masked, each.resisted) for each in found.rounds if each.samples} == {(0.0, 100.0, 0.0)}


def test_a_member_that_was_never_right_has_no_shares(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, bounds: Bounds) -> torch.Tensor:
        return x

    monkeypatch.setitem(ATTACKS, "fgsm", never)
    monkeypatch.setattr("initio.networks.attacks.answers", lambda model, x: torch.full((len(x),), 10))
    found = initio.attack(made, ("fgsm",), samples=10, save=False)
    assert {(each.samples, each.fooled, each.masked, each.resisted) for each in found.rounds} == {(0, None, None, None)}
    assert found.rows()[0][2:5] == ("none was right",) * 3
    half = replace(found, rounds=(found.rounds[0], replace(found.rounds[1], samples=4, fooled=50.0, masked=0.0)))
    assert half.rows()[0][2] == "50.0"


@pytest.mark.parametrize("method", ["nes-rs", "nes-re", "random", "deep", "droppath"])
def test_other_methods_share_the_network(method: str, made: Path, tmp_path: Path) -> None:
    asked = {"size": 2, "epochs": 1, "channels": 2, "cells": 1, "prior": "uniform", "method": method}
    if method in POOLED:
        asked["candidates"] = 6
    found = initio.ensemble("nb201", "digits", folder=tmp_path / "e", shared=str(made / "search"), **asked)
    assert not (tmp_path / "e" / "search").exists()
    assert predictions(tmp_path / "e").shape[0] == 2
    assert len(found.members) == {"droppath": 1}.get(method, 2)
    assert {each.corruption for each in found.outcome.corrupted} == {"noise", "blur", "contrast"}
    assert found.choice.marginals == initio.load_ensemble(made).choice.marginals
    members = sections(read_folder(tmp_path / "e"))[0].blocks[0]
    assert isinstance(members, DataTable)
    assert members.length == 3


def test_workers_change_nothing(made: Path, tmp_path: Path) -> None:
    found = initio.ensemble("nb201", "digits", folder=tmp_path / "e", workers=2, **ASKED)
    assert found.outcome == initio.load_ensemble(made).outcome
    np.testing.assert_array_equal(predictions(tmp_path / "e"), predictions(made))


@pytest.mark.parametrize("measured", [False, True])
def test_a_ranking_as_prior_moves_the_posterior(
    measured: bool, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if measured:  # as where no scores of the space come with Initio
        monkeypatch.setattr(ensemble_verb, "shipped", dict)
        monkeypatch.setattr(ensemble_verb, "RANKED", 12)
    asked = {"size": 2, "candidates": 7, "epochs": 1, "channels": 2, "cells": 1, "prior": "ranking"}
    found = initio.ensemble("nb201", "digits", folder=tmp_path / "e", shared=str(made / "search"), **asked)
    assert len(found.choice.prior) == 30
    assert (tmp_path / "e" / "scores.db").is_file() == measured
    assert found.choice.marginals != initio.load_ensemble(made).choice.marginals
    logits = np.array(found.choice.prior[:5]) + np.log(initio.load_ensemble(made).choice.marginals[0])
    np.testing.assert_allclose(found.choice.marginals[0], np.exp(logits) / np.exp(logits).sum(), rtol=1e-5)


def test_dropped_paths_answer_at_random(made: Path, tmp_path: Path) -> None:
    asked = {
        "size": 3,
        "epochs": 1,
        "channels": 2,
        "cells": 1,
        "prior": "uniform",
        "method": "droppath",
        "drop_path": 0.5,
    }
    found = initio.ensemble("nb201", "digits", folder=tmp_path / "e", shared=str(made / "search"), **asked)
    first, second, _ = predictions(tmp_path / "e")
    assert (first != second).any()
    (tmp_path / "e" / "result.json").unlink()
    again = resume_ensemble(tmp_path / "e")
    assert again.outcome == found.outcome
    for what in (lambda: initio.attack(tmp_path / "e"), lambda: initio.export(tmp_path / "e", format="onnx")):
        with pytest.raises(InputError, match="answers at random"):
            what()
    with pytest.raises(InputError, match="drop paths"):
        initio.ensemble("nb1shot1-s1", "digits", folder=tmp_path / "f", **asked)


def test_passes_that_drop_nothing_are_said(made: Path, tmp_path: Path) -> None:
    asked = {"size": 2, "epochs": 1, "channels": 2, "cells": 1, "method": "droppath", "drop_path": 1e-12}
    told: list[object] = []
    initio.ensemble(
        "nb201", "digits", folder=tmp_path / "e", shared=str(made / "search"), prior="uniform", on_event=told.append,
        **asked,
    )  # fmt: skip
    assert any("no path that could be dropped" in str(event) for event in told)


def test_another_problems_network_is_not_shared(made: Path, tmp_path: Path) -> None:
    for space, asked, sentence in (
        ("darts", {}, "another problem"),
        ("nb201", {"posterior": "best-response"}, "leave out posterior"),
    ):
        with pytest.raises(InputError, match=sentence):
            initio.ensemble(space, "digits", folder=tmp_path / "e", shared=str(made / "search"), **asked)
    assert main(["ensemble", "nb201", "--data", "digits", "--shared", str(made / "search"), "--batch-size", "3"]) == 2


def test_estimates_are_compared_with_trained_networks(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"size": 2, "candidates": 4, "epochs": 2, "channels": 2, "cells": 1, "prior": "uniform", "method": "random"}
    other = initio.ensemble("nb201", "digits", folder=tmp_path / "e", shared=str(made / "search"), **asked)
    assert main(["study", "estimates", str(made), str(other.folder), "--sizes", "1", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["size"], one["ensembles"]) for one in found] == [(1, 4), (2, 6)]
    assert all(-1 <= one["spearman"] <= 1 for one in found if one.get("spearman") is not None)
    assert main(["study", "estimates", str(made)]) == 2
    assert "too few" in capsys.readouterr().err
    assert main(["study", "estimates", str(made), str(other.folder)]) == 0
    assert "Spearman" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"epochs": 1}, "epochs 2, those of .* with 1: compare ensembles"),
        ({"channels": 3}, "channels 2, those of .* with 3"),
        ({"cells": 2}, "cells 1, those of .* with 2"),
        ({"recipe": "plain"}, "trained with .* those of"),
    ],
)
def test_estimates_are_not_compared_with_networks_that_were_trained_otherwise(
    change: dict[str, Any], sentence: str, made: Path, tmp_path: Path
) -> None:
    asked = {"size": 2, "epochs": 2, "channels": 2, "cells": 1, "prior": "uniform", "method": "deep"} | change
    other = initio.ensemble("nb201", "digits", folder=tmp_path / "e", shared=str(made), **asked)
    with pytest.raises(InputError, match=sentence):
        estimates([made, other.folder], sizes=(1,))


def test_two_paths_a_node_in_darts(tmp_path: Path) -> None:
    asked = ASKED | {"candidates": 3, "samples": 40, "supernet_epochs": 1, "posterior_updates": 1, "epochs": 1}
    asked |= {"cells": 3, "batch_size": 16, "sampling": "mc"}
    found = initio.ensemble("darts", "digits", folder=tmp_path / "e", **asked)
    assert len(found.choice.marginals) == 28
    assert len({str(member) for member in found.choice.members}) == 2
    assert initio.export(found, tmp_path / "e.py", "python").is_file()


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
    command = parsed(found.plan.command())
    assert (command.size, command.settings) == (2, {"posterior_updates": 4, "samples": 80})
    assert [len(printed(made / part)) for part in ("search", "members/1")] == [1, 1]


def test_groups_of_trained_members_are_drawn_from_all() -> None:
    members = sorted(Architecture("nb201", (a, b, c, 0, 0, 3)) for a in range(4) for b in range(4) for c in range(4))
    drawn = _groups(members, 5, Random(0))
    assert len(set(drawn)) == len(drawn) == MOST
    assert {arch for group in drawn for arch in group} == set(members)
    assert _groups(members[:4], 3, Random(0)) == list(combinations(members[:4], 3))
