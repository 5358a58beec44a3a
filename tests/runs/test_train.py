"""A trained network in its folder: the same whatever happens on the way; what cannot be trained is one sentence."""

import hashlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import initio
from initio.cli import main
from initio.data import Dataset
from initio.errors import InputError
from initio.records import Observation
from initio.runs.folders.model import ModelFolder
from initio.runs.train import _Keeper, _network, resume_training
from initio.spaces import get_space
from initio.training import MachineSettings, TrainedEpoch, TrainingProgress, make_recipe
from tests.runs.conftest import CELL, draw_pictures

FEW = {"epochs": 3, "samples": 300, "tensorboard": False}
MLP = "mlp:relu,tanh"


class StopError(Exception):
    """What a callback raises in place of kill −9."""


def stop_in(epoch: int) -> Callable[[object], None]:
    def hear(what: object) -> None:
        if isinstance(what, TrainingProgress) and (what.epoch, what.batch) == (epoch, 2):
            raise StopError

    return hear


def test_a_network_is_trained_kept_and_found_again(tmp_path: Path) -> None:
    heard = list[object]()
    trained = initio.train(MLP, "digits", folder=tmp_path / "t", on_event=heard.append, **FEW)
    assert trained.outcome.accuracy is not None
    assert trained.outcome.accuracy > 60
    assert [epoch for epoch in heard if isinstance(epoch, TrainedEpoch)] == list(trained.epochs)
    again = initio.load_model(tmp_path / "t")
    assert (again.plan, again.outcome, again.epochs) == (trained.plan, trained.outcome, trained.epochs)
    best = max(trained.epochs, key=lambda epoch: epoch.validation)
    assert (again.outcome.accuracy, again.outcome.epoch) == (best.validation, best.epoch)
    assert not (tmp_path / "t" / "checkpoint.pt").exists()
    x, y = initio.load_data("digits", split="test").arrays()
    with torch.inference_mode():
        right = (again.build()(torch.from_numpy(x)).argmax(1) == torch.from_numpy(y)).double().mean()
    assert right > 0.6


@pytest.mark.parametrize("extra", [{}, {"ema": 0.9, "augment": "none"}])
@pytest.mark.parametrize("epoch", [1, 3])
def test_interrupted_is_uninterrupted(tmp_path: Path, epoch: int, extra: dict[str, object]) -> None:
    settings = FEW | extra
    whole = initio.train(MLP, "digits", folder=tmp_path / "whole", **settings)
    with pytest.raises(StopError):
        initio.train(MLP, "digits", folder=tmp_path / "t", on_event=stop_in(epoch), **settings)
    with pytest.raises(InputError, match="is not finished: go on with `initio train --resume"):
        initio.load_model(tmp_path / "t")
    resumed = resume_training(tmp_path / "t", tensorboard=False)
    assert resumed.outcome == whole.outcome
    assert len(resumed.outcome.weights["best"]) == 64
    assert [(e.loss, e.validation) for e in resumed.epochs] == [(e.loss, e.validation) for e in whole.epochs]


def test_kill_9_in_epoch_2(tmp_path: Path) -> None:
    """The command itself, killed and resumed, ends with the same weights."""
    options = ["--data", "digits", "--epochs", "40", "--samples", "300", "--no-tensorboard", "--out"]
    command = [sys.executable, "-m", "initio", "train", MLP, *options, str(tmp_path / "t")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (tmp_path / "t" / "checkpoint.pt").is_file() and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "t" / "trained.json").exists()
    assert main(["train", "--resume", str(tmp_path / "t")]) == 0
    assert main(["train", MLP, *options, str(tmp_path / "whole")]) == 0
    kept = [initio.load_model(tmp_path / name).outcome for name in ("t", "whole")]
    assert kept[0] == kept[1]


def test_epochs_that_lost_their_lines_are_known_from_the_checkpoint(tmp_path: Path) -> None:
    whole = initio.train(MLP, "digits", folder=tmp_path / "whole", **FEW)
    with pytest.raises(StopError):
        initio.train(MLP, "digits", folder=tmp_path / "t", on_event=stop_in(3), **FEW)
    lines = (tmp_path / "t" / "epochs.jsonl").read_text()
    (tmp_path / "t" / "epochs.jsonl").write_text(lines[: len(lines) // 3])
    resumed = resume_training(tmp_path / "t", tensorboard=False)
    assert resumed.outcome == whole.outcome
    assert [epoch.loss for epoch in resumed.epochs] == [epoch.loss for epoch in whole.epochs]


def test_an_epoch_without_its_checkpoint_has_no_line_that_would_be_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it is written, it is learned again: whoever reads the lines meanwhile is told nothing that goes."""

    def killed(*_: object) -> None:
        raise StopError

    with pytest.raises(StopError):
        initio.train(MLP, "digits", folder=tmp_path / "t", on_event=stop_in(2), **FEW)
    before = ModelFolder(tmp_path / "t").epochs()
    with monkeypatch.context() as patched:
        patched.setattr("initio.training.checkpoints.save", killed)
        with pytest.raises(StopError):
            resume_training(tmp_path / "t", tensorboard=False)
    assert [epoch.epoch for epoch in before] == [1]
    assert ModelFolder(tmp_path / "t").epochs() == before
    assert [epoch.epoch for epoch in resume_training(tmp_path / "t", tensorboard=False).epochs] == [1, 2, 3]


def test_weights_with_other_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StopError):
        initio.train(MLP, "digits", folder=tmp_path / "t", on_event=stop_in(3), **FEW)
    best = tmp_path / "t" / "best.pt"
    whole = best.read_bytes()
    middle = len(whole) // 2
    best.write_bytes(whole[:middle] + bytes(byte ^ 1 for byte in whole[middle : middle + 20]) + whole[middle + 20 :])
    with pytest.raises(InputError, match=r"best.pt' is damaged: take a copy of it, or train anew"):
        ModelFolder(tmp_path / "t").digest("best")
    best.write_bytes(whole)
    assert len(ModelFolder(tmp_path / "t").digest("best")) == 64


def test_the_best_and_the_last_epoch_are_kept(tmp_path: Path) -> None:
    keeper = _Keeper(ModelFolder(tmp_path), lambda _: None, tensorboard=False)
    networks, history = [nn.Linear(2, 1) for _ in range(3)], list[TrainedEpoch]()
    for number, (value, network) in enumerate(zip((10.0, 30.0, 30.0), networks, strict=True), start=1):
        history.append(TrainedEpoch(number, 1.0, 50.0, 0.1, 1.0, 0.0, 1.0, value))
        keeper.know(history)
        keeper.hear(history[-1], network)
    keeper.finish(Observation(30.0, 2.0), parameters=3)
    for which, network in (("best", networks[1]), ("last", networks[2])):  # the first of the best
        assert torch.equal(torch.load(tmp_path / f"{which}.pt", weights_only=True)["weight"], network.weight)
    outcome = ModelFolder(tmp_path).result()
    assert (outcome.accuracy, outcome.epoch, outcome.last, outcome.epochs) == (30.0, 2, 30.0, 3)
    assert outcome.weights["best"] != outcome.weights["last"]


def test_a_diverged_training_has_no_accuracy_but_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--data", "digits", "--lr", "1e38", "--clip", "none", "--no-tensorboard", "--out", str(tmp_path / "t")]
    assert main(["train", MLP, *options]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("initio: the training diverged: the loss is not finite in epoch 1, update ")
    assert error.endswith("take a smaller learning rate, --lr")
    outcome = initio.load_model(tmp_path / "t").outcome
    assert outcome.accuracy is None
    assert outcome.flag.startswith("the training diverged")


def test_the_recipe_decides_size_head_and_dropped_paths(tmp_path: Path) -> None:
    options = {"folder": tmp_path / "t", "tensorboard": False, "epochs": 1, "samples": 50, "batch_size": 25}
    trained = initio.train("darts_v2", "digits@32", "cifar", channels=2, cells=3, **options)
    assert trained.plan.network.auxiliary
    assert trained.plan.network.drop_path == 0.2
    state = trained.build().state_dict()
    assert not any("auxiliary" in name for name in state)
    assert trained.outcome.parameters == sum(
        p.numel() for p in initio.build("darts_v2", channels=2, cells=3, shape=(1, 32, 32)).parameters()
    )


def test_a_run_says_on_which_data(tmp_path: Path) -> None:
    initio.search("mlp-3", "random", "digits", queries=1, epochs=1, folder=tmp_path / "run")
    trained = initio.train(str(tmp_path / "run"), folder=tmp_path / "t", **FEW)
    assert trained.plan.data == "digits"
    assert trained.plan.source == str(tmp_path / "run")
    assert initio.load(tmp_path / "run").best == trained.plan.architecture


# --- what cannot be trained -------------------------------------------------------------------------------------------


def arrays(path: Path, x: np.ndarray, y: np.ndarray, **more: np.ndarray) -> str:
    np.savez(path, x=x, y=y, **more)
    return str(path)


def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """The one sentence; nothing is written."""
    assert main(["train", *options, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
    return error


def test_bad_data_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((40, 8, 8, 3)).astype(np.float32), np.arange(40) % 4
    one = arrays(tmp_path / "one.npz", x, np.zeros(40, int))
    assert "has one class: there is nothing to tell apart" in refused(tmp_path, capsys, MLP, "--data", one)
    holes = x.copy()
    holes[17, 3, 3, 1] = np.nan
    data = arrays(tmp_path / "nan.npz", holes, y)
    assert "sample 17 in" in (said := refused(tmp_path, capsys, MLP, "--data", data))
    assert "holds a value that is not a finite number" in said
    data = arrays(tmp_path / "point.npz", x[:, :1, :1, 0], y)
    assert "images of 1x1 pixels are too small for the cells of darts" in refused(
        tmp_path, capsys, "darts_v2", "--data", data
    )
    data = arrays(tmp_path / "label.npz", x, y, class_names=np.array(["a", "b", "c"]))
    assert "label 3 of sample 3 in" in refused(tmp_path, capsys, MLP, "--data", data)
    assert "noise has nothing to learn" in refused(tmp_path, capsys, MLP, "--data", "noise")
    assert "say what to train on" in refused(tmp_path, capsys, MLP)


def test_bad_pictures_among_a_thousand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw_pictures(tmp_path / "photos", count=500)
    bad = tmp_path / "photos/light/123.png"
    bad.write_bytes(b"damage")
    options = [MLP, "--data", f"{tmp_path / 'photos'}@4", "--epochs", "1", "--no-tensorboard"]
    assert f"{bad} is not a readable image: its format is not recognised" in refused(tmp_path, capsys, *options)
    assert main(["train", *options, "--skip-bad", "--out", str(tmp_path / "t")]) == 0
    assert f"1 pictures cannot be read and are left out: {bad}" in capsys.readouterr().err
    assert initio.evaluate(tmp_path / "t", save=False).judgement.samples == 200
    assert resume_training(tmp_path / "t").plan.skip_bad


def test_what_a_space_has_not_is_said(tmp_path: Path) -> None:
    notes = list[object]()
    options = {"folder": tmp_path / "t", "tensorboard": False, "epochs": 1, "samples": 60, "batch_size": 8, "cutout": 2}
    initio.train(CELL, "digits", "cifar", channels=2, cells=1, on_event=notes.append, **options)
    assert "networks of nb201 are trained without an auxiliary head" in notes


SEPARABLE = [("sep_conv_5x5", node % 2) for node in range(8)]
HEAVY = f"Genotype(normal={SEPARABLE}, normal_concat=[2, 3, 4, 5], reduce={SEPARABLE}, reduce_concat=[2, 3, 4, 5])"


@pytest.mark.parametrize(("notation", "channels"), [("darts_v2", 46), (HEAVY, 41)])
def test_imagenet_networks_keep_to_600_million_multiply_adds(notation: str, channels: int) -> None:
    data = Dataset("photos", np.zeros((2, 3, 224, 224), np.uint8), np.arange(2), 1000)
    arch = initio.parse(notation)
    home = get_space(arch.space)
    network = _network(home, arch, make_recipe("imagenet"), data, None, None)
    assert (network.channels, network.cells) == (channels, 14)
    plain = replace(network, auxiliary=False, drop_path=0.0)
    assert home.cost(arch, plain).flops <= 600e6
    if channels < 46:
        assert home.cost(arch, replace(plain, channels=channels + 1)).flops > 600e6


def test_a_checkpoint_of_another_architecture_is_not_used(tmp_path: Path) -> None:
    for name, arch in (("a", MLP), ("b", "mlp:tanh,relu")):
        with pytest.raises(StopError):
            initio.train(arch, "digits", folder=tmp_path / name, on_event=stop_in(3), **FEW)
    (tmp_path / "b" / "checkpoint.pt").replace(tmp_path / "a" / "checkpoint.pt")
    foreign = (tmp_path / "a" / "checkpoint.pt").read_bytes()
    with pytest.raises(InputError, match="cannot be used: it is of another training: another architecture, data"):
        resume_training(tmp_path / "a", tensorboard=False)
    assert (tmp_path / "a" / "checkpoint.pt").read_bytes() == foreign
    (tmp_path / "a" / "checkpoint.pt").unlink()
    resumed = resume_training(tmp_path / "a", tensorboard=False)
    assert resumed.outcome == initio.train(MLP, "digits", folder=tmp_path / "whole", **FEW).outcome


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits a copy of this process")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_no_room_for_a_checkpoint_leaves_the_one_before(tmp_path: Path) -> None:
    """What a full disk does; the training goes on to the same weights when there is room again."""

    def hear(what: object) -> None:
        if isinstance(what, TrainedEpoch) and what.epoch == 2:  # its checkpoint is the next thing to be written
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    if (child := os.fork()) == 0:
        code = 9
        try:
            initio.train(MLP, "digits", folder=tmp_path / "t", on_event=hear, **FEW)
        except InputError as error:
            said = re.fullmatch(r"the checkpoint '.*/checkpoint.pt' of [\d,]+ bytes cannot be written: .*; "
                                r"the one before is intact", str(error))  # fmt: skip
            code = 0 if said else 8
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    raw = (tmp_path / "t" / "checkpoint.pt").read_bytes()
    assert hashlib.sha256(raw[32:]).digest() == raw[:32]
    whole = initio.train(MLP, "digits", folder=tmp_path / "whole", **FEW)
    assert resume_training(tmp_path / "t", tensorboard=False).outcome == whole.outcome


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits a copy of this process")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_full_disk_is_one_sentence_of_the_command(tmp_path: Path) -> None:
    """Whichever file it is that does not fit: the checkpoint of the epoch before stays, and is gone on from."""
    with pytest.raises(StopError):
        initio.train(MLP, "digits", folder=tmp_path / "t", on_event=stop_in(2), **FEW)
    before = (tmp_path / "t" / "checkpoint.pt").read_bytes()
    for bytes_left, what in ((5_000, "weights"), (len(before) - 1, "checkpoint")):
        if (child := os.fork()) == 0:
            code = 9
            try:
                os.dup2(os.open(tmp_path / "said", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 2)
                sys.stderr = os.fdopen(2, "w", closefd=False)
                resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, bytes_left))
                code = main(["train", "--resume", str(tmp_path / "t"), "--quiet"])
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        said = (tmp_path / "said").read_text()
        assert said.startswith(f"initio: the {what} '")
        assert said.endswith("is intact\n")
        assert said.count("\n") == 1
        assert (tmp_path / "t" / "checkpoint.pt").read_bytes() == before
    whole = initio.train(MLP, "digits", folder=tmp_path / "whole", **FEW)
    assert resume_training(tmp_path / "t", tensorboard=False).outcome == whole.outcome


def test_folders_are_not_overwritten_and_changed_data_are_noticed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 4, 4)).astype(np.float32), np.arange(60) % 3
    data = arrays(tmp_path / "d.npz", x, y)
    with pytest.raises(StopError):
        initio.train(MLP, data, folder=tmp_path / "t", on_event=stop_in(2), **FEW | {"batch_size": 8})
    with pytest.raises(InputError, match="is not empty: give another folder, or go on with `initio train --resume"):
        initio.train(MLP, data, folder=tmp_path / "t", **FEW)
    with pytest.raises(InputError, match="the training was started with seed 0, not 1: give another folder"):
        initio.train(MLP, data, folder=tmp_path / "t", resume=True, seed=1, **FEW | {"batch_size": 8})
    arrays(tmp_path / "d.npz", x + 1, y[::-1])
    with pytest.raises(InputError, match="has changed since the training began"):
        resume_training(tmp_path / "t", tensorboard=False)
    with pytest.raises(InputError, match="is no training: it has no train.json"):
        ModelFolder.open(tmp_path)


def test_files_are_plain(tmp_path: Path) -> None:
    trained = initio.train(MLP, initio.load_data("digits"), folder=tmp_path / "t", **FEW)
    names = sorted(path.name for path in (tmp_path / "t").iterdir())
    assert names == ["best.pt", "epochs.jsonl", "last.pt", "train.json", "trained.json"]
    assert json.loads((tmp_path / "t" / "train.json").read_text())["recipe"] == "quick"
    assert set(torch.load(tmp_path / "t" / "best.pt", weights_only=True)) == set(trained.build().state_dict())


def test_tensorboard_hears_every_epoch(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    trained = initio.train(MLP, "digits", folder=tmp_path / "t", **FEW | {"tensorboard": True})
    found = reader.EventAccumulator(str(tmp_path / "t" / "tensorboard")).Reload()
    assert [event.step for event in found.Scalars("validation")] == [1, 2, 3]
    assert [event.value for event in found.Scalars("loss")] == pytest.approx([epoch.loss for epoch in trained.epochs])


def test_a_device_that_is_not_there_is_refused() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    with pytest.raises(InputError, match="there is no device 'cuda' here: take cpu"):
        MachineSettings(device="cuda")
