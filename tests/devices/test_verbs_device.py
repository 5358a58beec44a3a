"""Trained and shared weights in use, on a GPU that is not there: the same answers, and nothing left on the CPU."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import initio
from initio.autodiff import devices
from initio.cli.bench import BenchCommand
from initio.networks import attacks
from initio.networks import autoattack as auto
from initio.networks.attacks import ATTACKS, Bounds
from initio.networks.corruptions import corruptions
from initio.records import decode, encode
from initio.runs import solve as solve_verb
from initio.runs.bench import BenchSetup, run_one
from initio.runs.ensemble import _EnsembleWork, resume_ensemble
from initio.runs.folders.base import read_record
from initio.runs.folders.ensemble import EnsembleFolder, EnsemblePlan
from initio.runs.folders.run import RunFolder
from initio.runs.folders.solution import Design, SolveFolder, SolvePlan
from initio.runs.sharing import dominant, sharing
from initio.searches import Budget, Limits
from initio.searches.methods.rsps import Rsps
from initio.spaces import NetworkSettings
from initio.system.clock import Deadline
from initio.training.settings import MachineSettings
from tests.pretended import GPU, Pretended, moved, pretended_gpu
from tests.runs.conftest import CELL
from tests.runs.test_bench import everything

pytestmark = [
    pytest.mark.usefixtures("named_device"),
    pytest.mark.filterwarnings("ignore:for .*copying from a non-meta parameter"),  # which has numbers here
]
ENSEMBLE: dict[str, Any] = {
    "size": 2, "candidates": 4, "prior": "uniform", "epochs": 1, "channels": 2, "cells": 1,
}  # fmt: skip
SEARCHED: dict[str, Any] = {"supernet_epochs": 1, "posterior_epochs": 1, "posterior_updates": 2, "samples": 80}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "t"
    machine = MachineSettings("cpu")
    initio.train(CELL, "digits", folder=folder, epochs=1, channels=2, cells=1, machine=machine, tensorboard=False)
    return folder


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made on the CPU."""
    folder = tmp_path_factory.mktemp("ensemble") / "e"
    initio.ensemble("nb201", "digits", folder=folder, **ENSEMBLE, **SEARCHED)
    return folder


@pytest.mark.parametrize("float64", [True, False])
def test_an_evaluation_on_another_device(trained: Path, float64: bool) -> None:
    here = initio.evaluate(trained, device="cpu", save=False)
    with pretended_gpu(float64=float64):
        there = initio.evaluate(trained, device="meta", save=False)
    assert there.accuracy == here.accuracy
    assert there.judgement.loss == pytest.approx(here.judgement.loss, rel=1e-6)


@pytest.mark.parametrize("float64", [True, False])
def test_attacks_on_another_device(trained: Path, float64: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STEPS", "SEARCHES", "DESCENTS"):
        monkeypatch.setattr(attacks, name, 2)
    monkeypatch.setattr(attacks, "EPSILON", 0.3)  # so that some are turned, and there are distances
    here = initio.attack(trained, ["fgsm", "pgd", "cw"], samples=6, save=False)
    with pretended_gpu(float64=float64):
        there = initio.attack(trained, ["fgsm", "pgd", "cw"], samples=6, device="meta", save=False)
    assert there.clean == here.clean
    assert any(one.distance for one in here.rounds)
    assert [replace(one, distance=None) for one in there.rounds] == [replace(one, distance=None) for one in here.rounds]
    for found, expected in zip(there.rounds, here.rounds, strict=True):
        assert (found.distance or 0.0) == pytest.approx(expected.distance or 0.0, rel=1e-5)


def test_all_parts_of_autoattack_on_another_device() -> None:
    """Each part has something to do: no attempt errs."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))
    x = torch.rand(3, 1, 8, 8)
    y, rng = model(x).argmax(1), torch.Generator()
    target, bounds = (y + 1) % 4, Bounds()

    def attempts(x: torch.Tensor, y: torch.Tensor, target: torch.Tensor) -> list[torch.Tensor]:
        rng.manual_seed(0)
        return [
            auto.fab(model, x, y, target, bounds, 3),
            auto.square(model, x, y, bounds, rng, 20),
            auto.autoattack(model, x, y, bounds, 3, 20),
        ]

    here = attempts(x, y, target)
    with pretended_gpu():
        moved(model)
        there = attempts(x.to(GPU), y.to(GPU), target.to(GPU))
        assert all(isinstance(one, Pretended) for one in there)
        for found, expected in zip(there, here, strict=True):
            torch.testing.assert_close(found.cpu(), expected)
    assert set(ATTACKS) == {"fgsm", "pgd", "cw", "autoattack"}  # a new one needs a line here


def test_corruptions_on_another_device() -> None:
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    here = [changed for *_, changed in corruptions(x, Bounds())]
    with pretended_gpu():
        for expected, (*_, changed) in zip(here, corruptions(x.to(GPU), Bounds()), strict=True):
            torch.testing.assert_close(changed.cpu(), expected)


def test_a_diagnosis_of_shared_weights_on_another_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run on the CPU, whose weights are moved."""
    monkeypatch.setattr(dominant, "__defaults__", (2,))
    given: dict[str, Any] = {"epochs": 1, "samples": 80, "channels": 2, "pixels": 8, "batch_size": 20}
    initio.search("nb201", "darts", "digits", folder=tmp_path / "run", **given)
    asked: dict[str, Any] = {"tables": str(everything(tmp_path)), "cells": 3, "samples": 20, "folder": tmp_path / "out"}
    here = sharing(tmp_path / "run", **asked)
    with pretended_gpu():
        there = sharing(tmp_path / "run", **asked, device="meta")
    assert there.cells == here.cells
    assert (there.eigenvalue, there.residual) == pytest.approx((here.eigenvalue, here.residual), rel=1e-3, abs=1e-6)


def test_an_ensemble_on_another_device(ensemble: Path, tmp_path: Path) -> None:
    """Its shared weights are read, its members trained and measured there."""
    asked = ENSEMBLE | {"shared": ensemble / "search", "device": "meta"}
    here = initio.load_ensemble(ensemble)
    with pretended_gpu():
        there = initio.ensemble("nb201", "digits", folder=tmp_path / "e", **asked)
    assert there.plan.device == "meta"
    assert there.choice.members == here.choice.members
    assert there.choice.loss == pytest.approx(here.choice.loss, rel=1e-5)
    with np.load(ensemble / "predictions.npz") as expected, np.load(tmp_path / "e" / "predictions.npz") as found:
        assert np.allclose(found["logits"], expected["logits"], rtol=1e-2, atol=1e-3)
    assert len(there.outcome.corrupted) == len(here.outcome.corrupted) == 9


def test_a_bench_on_another_device(tmp_path: Path) -> None:
    setup = BenchSetup("nb201", Budget(queries=2), str(everything(tmp_path)), images="digits", shared_epochs=1)
    search = Rsps(samples=40, candidates=2)
    here = run_one(setup, "rsps", search, 0)
    with pretended_gpu():
        there = run_one(replace(setup, device="meta"), "rsps", search, 0)
    assert there.choices == here.choices


def test_a_bench_on_another_device_has_a_journal_and_a_folder_of_its_own() -> None:
    """The journal's name comes from the repr."""
    setup = BenchSetup("nb201", Budget(queries=2))
    assert repr(setup) != repr(replace(setup, device="meta"))
    command = BenchCommand("nb201", device="meta")
    assert command.setup().device == "meta"
    assert command._stem() == BenchCommand("nb201")._stem().replace("robust", "robust-meta")


class _SeenEnoughError(Exception):
    """Ends a run that was only watched."""


@pytest.mark.parametrize("measures", [True, False])
def test_a_task_is_solved_on_another_device(tmp_path: Path, measures: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The speed is measured there, too; what cannot measure leaves the search to the CPU."""
    seen: dict[str, Any] = {}

    def stop(*given: object, **asked: Any) -> None:
        seen.update(asked)
        raise _SeenEnoughError

    if not measures:
        monkeypatch.setattr(devices, "MEASURED_ON", ("cpu",))
    monkeypatch.setattr(solve_verb, "search", stop)
    monkeypatch.setattr(solve_verb, "train", stop)
    monkeypatch.setattr("initio.training.pace.UPDATES", 1)
    folder = tmp_path / "s"
    with pretended_gpu(), pytest.raises(_SeenEnoughError):
        initio.solve("digits", 12, device="meta", folder=folder)
    assert seen["device"] == {True: "meta", False: "cpu"}[measures]
    plan, design = SolveFolder(folder).plan(), read_record(Design, folder / "design.json")
    assert plan.device == "meta"
    assert "--device meta" in plan.command()
    work = solve_verb._Solving(SolveFolder(folder), plan, 0.0, None)
    size = NetworkSettings(2, 1, 10, (1, 8, 8))
    with pretended_gpu(), pytest.raises(_SeenEnoughError):
        work._train("found", solve_verb.RESNET, design, size, Deadline.after(60.0, 0.0))
    assert seen["machine"] == MachineSettings("meta")

    monkeypatch.setattr(solve_verb, "evaluate", stop)
    learned = SimpleNamespace(outcome=SimpleNamespace(accuracy=50.0, epochs=1, seconds=1.0, ended=""))
    with pytest.raises(_SeenEnoughError):
        work._end(*[None] * 4, {"found": learned}, Deadline.after(60.0, 0.0))  # type: ignore[arg-type]
    assert seen["device"] == "meta"


def test_a_landscape_is_measured_on_another_device(tmp_path: Path) -> None:
    """Both solutions are trained there, too."""
    asked: dict[str, Any] = {"grid": 3, "samples": 8, "epochs": 1, "steps": 2, "probes": 1, "to": "1", "channels": 4}
    here = initio.landscape("mlp:relu,tanh", "digits", **asked, folder=tmp_path / "here")
    with pretended_gpu() as gpu:
        there = initio.landscape("mlp:relu,tanh", "digits", **asked, folder=tmp_path / "there", device="meta")
    assert gpu.products
    assert there.plan.device == "meta"
    assert there.line == pytest.approx(here.line, rel=1e-4)
    assert there.numbers.center == pytest.approx(here.numbers.center, rel=1e-4)


def test_a_pool_is_ranked_on_another_device(tmp_path: Path) -> None:
    """Its scores are kept apart from those of the CPU."""
    asked: dict[str, Any] = {"batch_size": 4, "channels": 2, "cells": 1, "store": tmp_path / "scores.db"}
    here = initio.rank("nb201", 2, "noise", **asked)
    with pretended_gpu() as gpu:
        there = initio.rank("nb201", 2, "noise", device="meta", **asked)
    assert gpu.products
    assert here.table.columns.keys() == there.table.columns.keys()
    for name, values in here.table.columns.items():
        assert np.allclose(there.table.columns[name], values, rtol=1e-6, equal_nan=True), name


def test_whoever_measures_for_a_search_hears_of_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trainings, its pool, the prior of an ensemble, the problems of a bench."""
    heard = list[str]()

    def scored(job: Any, *given: object, **asked: object) -> None:
        heard.append(job.options.device)
        raise _SeenEnoughError

    def trains(*given: object, device: str, **asked: object) -> None:
        heard.append(device)
        raise _SeenEnoughError

    monkeypatch.setattr("initio.scores.pool.score_pool", scored)
    monkeypatch.setattr("initio.training.Training", trains)
    small: dict[str, Any] = {"channels": 2, "cells": 1, "queries": 1, "epochs": 1, "device": "meta"}
    for method, asked in (("hnas", {"pool": 2}), ("reinforce", {})):
        with pretended_gpu(), pytest.raises(_SeenEnoughError):
            initio.search("nb201", method, "digits", folder=tmp_path / method, **small, **asked)
    assert heard == ["meta", "meta"]
    plan = EnsemblePlan("nb201", "digits", device="meta", prior="ranking")
    told: dict[str, Any] = {}

    def ranked(*given: object, **asked: Any) -> None:
        told.update(asked)
        raise _SeenEnoughError

    monkeypatch.setattr("initio.runs.ensemble.shipped", dict)
    monkeypatch.setattr("initio.runs.ensemble.rank", ranked)
    at: Any = SimpleNamespace(space=initio.get_space("nb201"))
    made: Any = SimpleNamespace(plan=plan, kept=SimpleNamespace(folder=tmp_path), tell=None)
    with pytest.raises(_SeenEnoughError):
        _EnsembleWork._prior(made, at)
    assert told["device"] == "meta"
    setup = BenchSetup("nb201", Budget(queries=1), str(everything(tmp_path)), device="meta")
    assert setup.problem(0, scored=False).device == "meta"


def test_folders_without_a_device_are_of_the_cpu(ensemble: Path, tmp_path: Path) -> None:
    """As all were before there was a choice."""
    copy = shutil.copytree(ensemble, tmp_path / "e")
    for name in ("ensemble.json", "search/run.json"):
        plan = json.loads((copy / name).read_text())
        assert plan.pop("device") == "cpu"
        (copy / name).write_text(json.dumps(plan))
    (copy / "result.json").unlink()
    again = resume_ensemble(copy)
    assert again.plan == EnsembleFolder(ensemble).plan()
    assert again.outcome == initio.load_ensemble(ensemble).outcome
    assert RunFolder(copy / "search").plan().device == "cpu"
    before = SolvePlan("digits", 60.0, Limits(), None, None, "quick", True, False, 0)
    lines = encode(before)
    assert lines.pop("device") == "cpu"
    assert decode(SolvePlan, lines) == before
