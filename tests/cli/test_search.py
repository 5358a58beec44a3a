import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from initio.cli import main
from initio.records import SearchResult, Settings, settings
from initio.runs import Run, load

SMALL = ["--steps", "6", "--channels", "2", "--cells", "1", "--pixels", "8", "--batch-size", "8"]


def test_a_search_ends_in_a_run_folder_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "nb201", *SMALL, "--out", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    assert str(tmp_path / "run") in captured.out
    assert "step 6/6" in captured.err
    assert str(load(tmp_path / "run")) in captured.out
    assert main(["show", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize("space", ["darts", "nb1shot1-s1"])
def test_other_spaces_are_searched(space: str, tmp_path: Path) -> None:
    assert main(["search", space, *SMALL, "--cells", "3", "--out", str(tmp_path / "run")]) == 0
    assert load(tmp_path / "run").architecture.space == space


def test_an_mlp_is_searched_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["search", "mlp", "--method", "lambda-min", "--depth", "4", "--data", "digits", "--batch-size", "16"]
    assert main([*argv, "--out", str(tmp_path / "run")]) == 0
    assert "proven optimal over 500 architectures" in capsys.readouterr().out
    assert main(["search", "--resume", str(tmp_path / "run")]) == 0  # starts over, to the same answer
    run = Run(tmp_path / "run")
    assert run.rows() == list(run.result().trace)


@pytest.mark.parametrize("estimator", ["regression", "literal"])
def test_a_killed_search_resumes_to_the_same_answer(estimator: str, tmp_path: Path) -> None:
    small = [*SMALL, "--steps", "40", "--estimator", estimator]
    assert main(["search", "nb201", *small, "--out", str(tmp_path / "whole")]) == 0
    command = [sys.executable, "-m", "initio", "search", "nb201", *small, "--out", str(tmp_path / "killed")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment) as process:
        trace = tmp_path / "killed" / "trace.jsonl"
        deadline = time.monotonic() + 60
        while not (trace.is_file() and trace.read_bytes().count(b"\n") >= 3) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert not Run(tmp_path / "killed").result_path.exists()
    assert main(["search", "--resume", str(tmp_path / "killed")]) == 0
    whole, resumed = Run(tmp_path / "whole").result(), Run(tmp_path / "killed").result()
    assert resumed == whole
    assert (tmp_path / "killed" / "trace.jsonl").read_bytes() == (tmp_path / "whole" / "trace.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["nosuchspace"], "there is no search space 'nosuchspace'"),
        (["nb201", "--nu", "banana"], "nu must be 'adaptive', 'fixed' or a positive number, not 'banana'"),
        (["nb201", "--estimator", "literal", "--nu", "-3"], "nu must be 'adaptive', 'fixed' or a positive number"),
        (["nb201", "--max-params", "1"], "at most 1 parameters"),
        (["nb201", "--max-params", "lots"], "--max-params: expected an amount such as 4M"),
        (["nb201", "--data", "missing.npz"], "missing.npz"),
        (["nb201", "--method", "magic"], "--method: expected one of 'nasi', 'lambda-min', 'eigen-darts', got magic"),
        (["--resume", "missing"], "is not a run"),
        (["nb201", "--batch-size", "0"], "batch size"),
        (["nb201", "--channels", "0"], "channels must be a whole number of at least 1, not 0"),
        (["nb201", "--pixels", "0"], "--pixels must be at least 1, not 0"),
        (["nb201", "--depth", "3"], "--depth is an option of mlp, not of nb201"),
        (["mlp"], "nasi does not search mlp-10: choose one of nb201"),
        (["nb201", "--method", "lambda-min"], "lambda-min does not search nb201: choose one of mlp"),
        (["mlp", "--method", "lambda-min", "--steps", "3"], "--steps is not an option of lambda-min"),
        (["mlp", "--method", "lambda-min", "--estimator", "literal"], "--estimator literal is an option of nasi"),
        (["mlp", "--method", "lambda-min", "--depth", "1"], "an mlp has a depth of at least 2, not 1"),
    ],
)
def test_mistakes_get_one_sentence_and_leave_nothing(
    argv: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["search", *argv]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("saved", [settings(foo=1), settings(space="nb201", steps="abc")])
def test_settings_of_another_version_get_one_sentence(
    saved: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Run.start(tmp_path / "run", SearchResult("nasi", "nb201", 0, (), saved))
    assert main(["search", "--resume", str(tmp_path / "run")]) == 2
    assert "run.json" in capsys.readouterr().err
