"""Parts of one's own on the command line, in this process and in workers."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import initio
from initio.cli import main
from initio.cli.bench import BenchCommand
from initio.cli.search import SearchCommand
from initio.metrics import METRICS, Metric

PARTS = """
from torch import nn
import initio
from initio.metrics import Metric

def net(width, shape, classes):
    first = nn.Linear(shape[0] * shape[1] * shape[2], width)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(width, classes))

Tiny = initio.space("tiny", net, width=[2, 3, 4, 5])
Largest = Metric("largest", "max |f|", "here", True, frozenset(), lambda at: float(at.f.abs().max()))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("initio.cli.progress.EVERY", 1e9)
    (tmp_path / "own_parts_here.py").write_text(PARTS)
    return tmp_path


def test_a_space_and_metrics_of_ones_own_are_scored_alike_by_any_number_of_workers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    smallest = Metric("smallest", "min |f|", "here", True, frozenset(), lambda at: float(at.f.abs().min()))
    monkeypatch.setitem(METRICS, "smallest", smallest)  # which no other process knows by name
    for workers in ("1", "2"):
        command = ["score", "own_parts_here:Tiny", "--all", "--data", "noise:1x4x4", "--batch-size", "4"]
        command += ["--metrics", "grad,params,smallest,own_parts_here:Largest", "--workers", workers]
        assert main([*command, "--store", f"{workers}.db", "--export", f"{workers}.csv"]) == 0
    assert (folder / "1.csv").read_text() == (folder / "2.csv").read_text()
    out = capsys.readouterr().out
    assert out.count("own_parts_here:Largest          4") == 2
    assert "own_parts_here:Tiny-" in (folder / "1.csv").read_text()


def test_a_run_in_a_space_of_ones_own_is_read_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["search", "own_parts_here:Tiny", "--method", "random", "--data", "digits", "--queries", "2"]
    assert main([*command, "--epochs", "1", "--out", "run"]) == 0
    loaded = initio.load("run")
    assert loaded.best.space.startswith("own_parts_here:Tiny-")
    assert loaded.build(shape=(1, 8, 8))(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    capsys.readouterr()
    assert main(["show", "run"]) == 0
    assert "own_parts_here:Tiny-" in capsys.readouterr().out
    (folder / "own_parts_here.py").write_text(PARTS.replace("width=[2,", "width=[1, 2,"))
    code = "from initio.cli import main; raise SystemExit(main(['show', 'run']))"
    later = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert later.returncode == 2
    assert "the decisions of own_parts_here:Tiny have changed since" in later.stderr


def test_a_list_of_cells_is_searched_by_training_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "zoo", "--method", "nasi-fit"]) == 2
    assert "nasi-fit does not search zoo: choose one of nb201" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("space", "metric", "message"),
    [
        ("own_parts_here:Tini", "grad", "the search space 'own_parts_here:Tini' cannot be imported: AttributeError"),
        ("nb201", "own_parts_here:net", "own_parts_here:net must be an initio.metrics.Metric, not function"),
        ("nowhere:Tiny", "grad", "cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_what_is_not_there_is_said(
    space: str, metric: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", space, "--sample", "1", "--metrics", metric]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in folder.iterdir() if path.suffix == ".db"] == []


def test_default_folders_have_names_that_windows_allows() -> None:
    search = SearchCommand(space="own_parts_here:Tiny-0f3a9c", method="own_parts_here:Mine")
    bench = BenchCommand(table="nb201", search=("own_parts_here:Mine", "rea"), metric=("own_parts_here:Energy",))
    assert search._folder() == Path("runs/tiny-0f3a9c-mine-seed0")
    assert bench._stem() == "bench-nb201-c10-own_parts_here-Mine-rea-own_parts_here-Energy-x10"
