"""The diagnosis of a shared network says what its run and the table say."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import spearmanr

import initio
from initio.cli import main
from initio.errors import InputError
from initio.networks.shared import Blend
from initio.runs.sharing import dominant, sharing
from initio.searches.oneshot import SharedTraining
from initio.system.leases import leased
from initio.training.examples import Pair
from tests.runs.test_bench import everything


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shared") / "darts"
    given: dict[str, Any] = {"epochs": 2, "samples": 80, "channels": 4, "pixels": 8, "batch_size": 20}
    initio.search("nb201", "darts", "digits", folder=folder, **given)
    return folder


def test_the_dominant_eigenvalue_is_the_hessians() -> None:
    mixing = torch.randn(6, 6, generator=torch.Generator().manual_seed(0)).double()

    def loss(values: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(mixing @ values, 0) - 0.7 * values.square().sum()

    at = torch.linspace(-1, 1, 6).double()
    eigenvalues = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, at))  # type: ignore[no-untyped-call]
    value, residual = dominant(loss, at, 400)
    assert value == pytest.approx(max(eigenvalues.tolist(), key=abs), rel=1e-6)
    assert residual < 1e-3


def test_a_run_is_diagnosed(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = str(everything(tmp_path))
    found = sharing(run, tables, cells=12, samples=40, folder=tmp_path / "out")
    steps = initio.load(run).steps
    assert found.skips == tuple(step.skips for step in steps)  # type: ignore[attr-defined]
    assert found.entropies is not None
    assert found.skip_weights is not None
    assert all(0.19 < weight < 0.21 for weight in found.skip_weights), "α has hardly moved"
    assert found.eigenvalue is not None
    assert len({cell.notation for cell in found.cells}) == 12
    for cell in found.cells:
        assert cell.alone == 10.0 * (cell.notation.count("conv_1x1") + cell.notation.count("conv_3x3"))
        assert 0 <= cell.shared <= 100
    pairs = [cell.shared for cell in found.cells], [cell.alone for cell in found.cells]
    assert found.spearman == pytest.approx(spearmanr(*pairs).statistic)
    assert (tmp_path / "out" / "sharing.svg").stat().st_size > 1000
    assert main(["study", "sharing", str(run), "--data", tables, "--cells", "0", "--out", str(tmp_path / "o2")]) == 0
    assert "eigenvalue in α" in capsys.readouterr().out


def test_two_diagnoses_never_work_in_one_folder(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["study", "sharing", str(run), "--cells", "0", "--out", str(tmp_path)]
    with leased(tmp_path):
        assert main(command) == 2
        assert "is working on" in capsys.readouterr().err
        assert [path.name for path in tmp_path.iterdir()] == ["lease.json"]
    assert main(command) == 0
    assert not (tmp_path / "lease.json").exists()


def test_a_killed_diagnosis_goes_on(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"tables": str(everything(tmp_path)), "cells": 6, "samples": 40}
    whole = sharing(run, **given, folder=tmp_path / "whole")
    home = tmp_path / "killed"

    def die(task: str, done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sharing(run, **given, folder=home, on_done=die)
    [journal] = home.iterdir()
    with journal.open("a") as file:
        file.write('{"notation": "half a li')  # as kill −9 leaves it
    judged: list[object] = []
    accuracy = SharedTraining.accuracy

    def noted(at: SharedTraining, blend: Blend, batches: Sequence[Pair]) -> float:
        judged.append(blend)
        return accuracy(at, blend, batches)

    monkeypatch.setattr(SharedTraining, "accuracy", noted)
    assert sharing(run, **given, folder=home) == whole
    assert len(judged) == 2, "four of six were on disk"
    assert sorted(path.name for path in home.iterdir()) == ["sharing.json", "sharing.png", "sharing.svg"]


def test_what_cannot_be_diagnosed_gets_a_sentence(run: Path, tmp_path: Path) -> None:
    initio.search("nb201", "votes", "noise", first=6, rounds=0, channels=2, cells=1, pixels=8, folder=tmp_path / "v")
    with pytest.raises(InputError, match="votes shares no weights"):
        sharing(tmp_path / "v")
    with pytest.raises(InputError, match="at least 3 cells, not 2"):
        sharing(run, cells=2)
    checkpoint = run / "shared-0.checkpoint"
    content = checkpoint.read_bytes()
    try:
        checkpoint.write_bytes(content[:-1])
        with pytest.raises(InputError, match="the run has no trained network any more: .* damaged"):
            sharing(run, cells=0)
    finally:
        checkpoint.write_bytes(content)
