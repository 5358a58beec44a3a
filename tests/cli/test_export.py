"""`initio export` as a user meets it."""

import subprocess
import sys
import warnings
from pathlib import Path
from typing import get_type_hints

import pytest
import torch

from initio import SearchResult, build, to_json
from initio.cli import main
from initio.cli.export import ExportCommand
from initio.spaces import NB201
from initio.spaces.exports import FORMATS

CELL = "|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|nor_conv_1x1~1|avg_pool_3x3~2|"


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "result.json").write_text(to_json(SearchResult("nasi-fit", "nb201", 0, (NB201.parse(CELL),))))
    return folder


def test_the_formats_are_those_of_the_library() -> None:
    assert get_type_hints(ExportCommand)["format"].__args__ == tuple(FORMATS)


def test_a_run_becomes_a_program(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "net.py"
    assert main(["export", str(run_folder), "--format", "python", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"wrote {out}\n"
    done = subprocess.run([sys.executable, "-I", out], capture_output=True, text=True, check=True)
    assert done.stdout == f"{sum(p.numel() for p in build(CELL).parameters()):,} parameters\n"


def test_text_goes_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", CELL, "--format", "genotype"]) == 0
    assert capsys.readouterr().out == CELL + "\n"
    assert main(["export", CELL]) == 0
    assert "class Network(nn.Module):" in capsys.readouterr().out


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_written_whole(format: str, run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run_folder / "architecture"
    small = ["--channels", "4", "--cells", "1", "--classes", "3", "--shape", "1x8x8"]
    assert main(["export", str(run_folder), f"--format={format}", f"--out={out}", *small]) == 0
    assert out.stat().st_size > 50
    assert sorted(path.name for path in run_folder.iterdir()) == ["architecture", "result.json"]


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["nowhere", "--format", "json", "--out", "a"], "'nowhere' is not an architecture"),
        ([CELL, "--format", "keras", "--out", "a"], "--format"),
        ([CELL, "--format", "onnx"], "name a file for it by --out"),
        ([CELL, "--format", "python", "--out", "a", "--shape", "32"], "needs inputs of shape"),
        ([CELL, "--format", "python", "--out", "a", "--shape", "big"], "--shape must look like 3x32x32, not 'big'"),
        ([CELL, "--format", "python", "--out", "a", "--shape", "3x0x32"], "shape must hold positive whole numbers"),
        (
            [CELL, "--format", "python", "--out", "a", "--classes", "0"],
            "classes must be a whole number of at least 1, not 0",
        ),
        ([CELL, "--format", "json", "--out", "nowhere/a"], "the folder 'nowhere' does not exist"),
        ([CELL, "--format", "json", "--out", "."], "cannot"),
        ([CELL, "--format", "torchscript", "--out", "a", "--weights", "w.pt"], "the file of weights 'w.pt' does not"),
        ([CELL, "--format", "python", "--out", "a", "--weights", "w.pt"], "holds no weights"),
    ],
)
def test_mistakes_get_one_sentence(
    argv: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert sentence in captured.err
    assert not list(tmp_path.iterdir())


def test_weights_reach_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    size = ["--channels", "4", "--cells", "1"]
    model = build(CELL, channels=4, cells=1, seed=5)
    torch.save(model.state_dict(), "w.pt")
    assert main(["export", CELL, "--format", "torchscript", "--out", "a", *size, "--weights", "w.pt"]) == 0
    assert main(["export", CELL, "--format", "torchscript", "--out", "b", *size, "--seed", "5"]) == 0
    a, b = (_load(tmp_path / name) for name in "ab")
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(a(x), model.eval()(x))
    torch.testing.assert_close(b(x), a(x))


def _load(path: Path) -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        return torch.jit.load(path)
