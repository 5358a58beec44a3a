import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from initio.cli import main
from initio.records import SearchResult, Settings, settings
from initio.runs import Run, load
from initio.search.restarts import untagged
from initio.spaces import NB201

SMALL = ["--steps", "6", "--channels", "2", "--cells", "1", "--pixels", "8", "--batch-size", "8"]


def test_a_search_ends_in_a_run_folder_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "nb201", *SMALL, "--out", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    assert str(tmp_path / "run") in captured.out
    assert "step 6/6" in captured.err
    assert "leading: " in captured.err
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
@pytest.mark.parametrize("restarts", ["1", "3"])
def test_a_killed_search_resumes_to_the_same_answer(estimator: str, restarts: str, tmp_path: Path) -> None:
    small = [*SMALL, "--steps", "40" if restarts == "1" else "12", "--estimator", estimator, "--restarts", restarts]
    stop_after = 3 if restarts == "1" else 15  # rows: in the second restart
    assert main(["search", "nb201", *small, "--out", str(tmp_path / "whole")]) == 0
    command = [sys.executable, "-m", "initio", "search", "nb201", *small, "--out", str(tmp_path / "killed")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment) as process:
        trace = tmp_path / "killed" / "trace.jsonl"
        deadline = time.monotonic() + 60
        while not (trace.is_file() and trace.read_bytes().count(b"\n") >= stop_after) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert not Run(tmp_path / "killed").result_path.exists()
    before = Run(tmp_path / "killed").seconds()
    assert main(["search", "--resume", str(tmp_path / "killed")]) == 0
    whole, resumed = Run(tmp_path / "whole").result(), Run(tmp_path / "killed").result()
    assert resumed == whole
    assert resumed.cost.seconds > before > 0
    assert (tmp_path / "killed" / "trace.jsonl").read_bytes() == (tmp_path / "whole" / "trace.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["nosuchspace"], "there is no search space 'nosuchspace'"),
        (["nb201", "--nu", "banana"], "nu must be 'none', 'geometric', 'adaptive', 'fixed' or a positive number, not"),
        (["nb201", "--estimator", "literal", "--nu", "-3"], "nu must be 'adaptive', 'fixed' or a positive number"),
        (["nb201", "--max-params", "1"], "at most 1 parameters"),
        (["--max-params", "1"], "no architecture of darts was found that has at most 1 parameters: the smallest has"),
        (["nb201", "--max-latency", "fast"], "--max-latency: expected a time such as 20ms or 0.5s, got 'fast'"),
        (["nb201", "--max-latency", "0ms"], "--max-latency: expected a time such as 20ms"),
        (
            ["nb201", "--max-latency", "1us"],
            "a forward pass here, not at most 0.001 ms a forward pass",
        ),
        (["nb201", "--restarts", "0"], "restarts must be at least 1, not 0"),
        (["--restarts", "many"], "--restarts: expected a value of type int, got many"),
        (["nb201", "--nu-0", "-1", "--estimator", "literal"], "nu_0 must be positive, not -1.0"),
        (["nb201", "--nu-0", "5"], "--nu-0 is not an option of nasi"),
        (["mlp", "--method", "lambda-min", "--restarts", "2"], "--restarts is not an option of lambda-min"),
        (["mlp", "--method", "lambda-min", "--max-params", "2k"], "--max-params is not an option of lambda-min"),
        (["nb201", "--max-params", "lots"], "--max-params: expected an amount such as 4M"),
        (["nb201", "--data", "missing.npz"], "missing.npz"),
        (["nb201", "--method", "magic"], "--method: expected one of 'nasi', 'lambda-min',"),
        (["--resume", "missing"], "is not a run"),
        (["nb201", "--batch-size", "0"], "batch size"),
        (["nb201", "--channels", "0"], "channels must be a whole number of at least 1, not 0"),
        (["nb201", "--pixels", "0"], "--pixels must be at least 1, not 0"),
        (["nb201", "--depth", "3"], "--depth is an option of mlp, not of nb201"),
        (["mlp"], "nasi does not search mlp-10: choose one of nb201"),
        (["nb201", "--method", "lambda-min"], "lambda-min does not search nb201: choose one of mlp"),
        (["nb1shot1-s2", "--channels", "2"], "channels must be at least 3 for this cell's concatenation, not 2"),
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


def test_restarts_are_reported_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert main(["search", "nb201", *SMALL, "--restarts", "3", "--out", str(run)]) == 0
    assert "largest mean objective of 3 restarts" in capsys.readouterr().out
    assert main(["show", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "of 3 restarts chose it" in shown
    assert len(re.findall(r"^.*: (?:nor_conv|skip|avg_pool).* [123] of 3$", shown, flags=re.MULTILINE)) == 6
    assert main(["show", str(run), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert sum(str(value).endswith(" of 3") for value in facts.values()) == 6


def test_one_restart_is_the_plain_search(tmp_path: Path) -> None:
    for name, more in (("plain", []), ("one", ["--restarts", "1"]), ("two", ["--restarts", "2"])):
        assert main(["search", "nb201", *SMALL, *more, "--out", str(tmp_path / name)]) == 0
    plain, one, two = (Run(tmp_path / name).result().trace for name in ("plain", "one", "two"))
    assert plain == one == tuple(untagged(row) for row in two[: len(plain)])


def test_a_latency_limit_is_kept_recorded_and_used_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["search", "nb201", *SMALL, "--max-latency", "100s", "--out", str(tmp_path / "run")]
    assert main(argv) == 0
    assert "at most 1e+05 ms asked for" in capsys.readouterr().out
    run = Run(tmp_path / "run")
    chosen = run.result().chosen[0]
    assert chosen in run.latencies()
    # had the chosen one been slow, another would have been taken: the recorded times decide
    run.latency_path.unlink()
    for neighbour in (chosen, *NB201.neighbours(chosen)):
        run.add_latency(neighbour, 0.001)
    run.add_latency(chosen, 200.0)
    run.result_path.unlink()
    assert main(["search", "--resume", str(run.folder)]) == 0
    assert run.result().chosen[0] != chosen


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["darts"], {"mu": 2.0, "nu_0": 500.0}),
        (["darts", "--mu", "1.5"], {"mu": 1.5, "nu_0": 500.0}),
        (["darts", "--nu-0", "70"], {"mu": 2.0, "nu_0": 70.0}),
        (["nb201"], {"mu": 1.0, "nu_0": 1000.0}),
        (["nb1shot1-s2"], {"mu": 1.0, "nu_0": 1000.0}),
    ],
)
def test_the_literal_estimator_has_the_published_settings_of_its_space(
    argv: list[str], expected: dict[str, float], tmp_path: Path
) -> None:
    small = [*SMALL, "--cells", "3", "--channels", "8", "--steps", "1", "--estimator", "literal"]
    assert main(["search", *argv, *small, "--out", str(tmp_path / "run")]) == 0
    used = dict(Run(tmp_path / "run").result().settings)
    assert {name: used[name] for name in expected} == expected


@pytest.mark.parametrize("saved", [settings(foo=1), settings(space="nb201", steps="abc")])
def test_settings_of_another_version_get_one_sentence(
    saved: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Run.start(tmp_path / "run", SearchResult("nasi", "nb201", 0, (), saved))
    assert main(["search", "--resume", str(tmp_path / "run")]) == 2
    assert "run.json" in capsys.readouterr().err
