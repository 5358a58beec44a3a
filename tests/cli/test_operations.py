"""Logs for machines, and the tab key."""

import json
import logging
import math
import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from initio.cli import COMMANDS, EXIT_CODES, all_commands, main
from initio.cli.bench import BenchCommand
from initio.cli.completion import PARTS, all_parts
from initio.cli.env import EXTRAS, environment, memory_limits
from initio.cli.logs import json_lines
from initio.cli.progress import TrainReporter
from initio.training import TrainedEpoch, TrainingProgress


def test_logs_are_lines_of_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "nosuch", "--log-json"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    entry = json.loads(line)
    assert entry["level"] == "error"
    assert "nosuch" in entry["message"]
    assert entry["time"].endswith("+00:00")
    assert entry["exit_code"] == 2
    assert main(["show", "nosuch"]) == 2
    assert capfd.readouterr().err.startswith("initio: ")


def test_logs_have_numbers_beside_their_sentences(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is counted, how long it takes, what was found: of the type that it has."""
    monkeypatch.setattr("initio.cli.progress.EVERY", 0.0)
    size = ["--batch-size", "8", "--channels", "2", "--cells", "1"]
    command = ["score", "nb201", "--sample", "3", "--metrics", "naswot", *size, "--store", str(tmp_path / "s.db")]
    assert main([*command, "--log-json"]) == 0
    entries = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(entry["task"], entry["done"], entry["total"]) for entry in entries] == [
        ("scoring", done, 3) for done in range(4)
    ]
    last = entries[-1]
    assert last["message"].startswith("scoring: 3 of 3, 0 s left, ")
    assert last["seconds_left"] == 0
    assert last["rate"] > 0
    assert last["restarts"] == 0
    assert "seconds_left" not in entries[0]
    search = ["search", "nb201", "--method", "nasi-fit", "--steps", "2", "--pixels", "8", *size]
    assert main([*search, "--out", str(tmp_path / "run"), "--log-json"]) == 0
    first, *rest = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert first["folder"] == str(tmp_path / "run")
    steps = [entry["step"] for entry in rest if entry.get("task") == "step"]
    assert all(isinstance(step["trace"], float) for step in steps[:2])


def test_warnings_are_lines_of_json_too(capfd: pytest.CaptureFixture[str]) -> None:
    with json_lines():
        logging.getLogger("initio.system").warning("no worker")
        reporter = TrainReporter()
        reporter.every = 0.0
        reporter.hear(TrainingProgress(1, 2, 3, 4, 0.5, 60.0, 1.0, math.inf, 70.0))
        reporter.hear(TrainedEpoch(1, 0.5, 60.0, 0.1, 3.0, 0.25, math.nan, 70.0))
    warning, progress, epoch = (json.loads(line) for line in capfd.readouterr().err.splitlines())
    assert (warning["level"], warning["message"]) == ("warning", "no worker")
    assert {name: progress[name] for name in ("task", "done", "total", "epoch", "loss", "accuracy", "validation")} == {
        "task": "training", "done": 3, "total": 8, "epoch": 1, "loss": 0.5, "accuracy": 60.0, "validation": 70.0,
    }  # fmt: skip
    assert (epoch["epoch"], epoch["lr"], "validation_loss" in epoch) == (1, 0.1, False)
    logging.getLogger("initio").warning("told as ever")
    assert not capfd.readouterr().err.startswith("{")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["initio", "sco"], "score"),
        (["initio", "store", "co"], "copy"),
        (["initio", "score", "nb201", "--clu"], "--cluster"),
        (["initio", "store", "copy", "--js"], "--json"),
        (["initio", "search", "--no-c"], "--no-cache"),
        (["initio", "search", "--rou"], "--rounds"),  # of the default
        (["initio", "search", "nb201", "--method", "hnas", "--seed", "1", "--gro"], "--growth"),
        (["initio", "search", "--method", "=", "hnas", "--rou"], ""),
        (["initio", "search", "--method", "own.module:Search", "--rou"], ""),
        (["initio", "search", "--method", "hn"], "hnas"),
        (["initio", "bench", "nb201", "--search", "robust", "--cand"], "--candidates"),
        (["initio", "bench", "nb201", "--search", "hnas", "random", "--gro"], ""),
        (["initio", "train", "a", "--recipe", "cifar", "--smo"], "--smoothing"),
        (["initio", "train", "a", "--prec"], "--precision"),
        (["initio", "ensemble", "nb201", "--posterior-u"], "--posterior-updates"),  # of its one part
    ],
)
def test_the_tab_key(completion: str, typed: list[str], expected: str) -> None:
    words = " ".join(f'"{word}"' for word in typed)
    script = completion + f'COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; _initio; echo "${{COMPREPLY[*]}}"'
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    assert found == expected


@pytest.fixture(scope="module")
def completion() -> str:
    """The script, made as a shell does that begins: without torch, which takes seconds."""
    code = "import sys; from initio.cli import main; main(['completion']); assert 'torch' not in sys.modules"
    script = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(name in script for name in COMMANDS)
    return script


def test_the_options_of_parts_are_those_of_today() -> None:
    """Otherwise: python -m initio.cli.completion > src/initio/cli/parts.json."""
    assert json.loads(PARTS.read_text()) == all_parts()
    assert set(all_parts()) == {name for name, command in all_commands() if hasattr(command, "parts")}


SECRET = "postgresql://ada:s3cret@127.0.0.1:1/scores?password=s3cret2"


@pytest.mark.parametrize(
    "argv",
    [
        ["score", "nb201", "--sample", "2", "--store", SECRET],
        ["rank", "nb201", "--store", SECRET],
        ["correlate", "x:y", "--store", SECRET],
        ["bench", "nb201", "--store", SECRET],
        ["explain", "darts_v2", "--store", SECRET],
    ],
)
def test_no_password_is_shown_or_kept(
    argv: list[str], capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither with the options, nor in a log, nor in a file; what is shown can be used again."""
    monkeypatch.chdir(tmp_path)
    assert main([*argv, "--print-config"]) == 0
    shown = capfd.readouterr().out
    assert 'store = "postgresql://ada@127.0.0.1:1/scores"' in shown
    assert tomllib.loads(shown)["store"] == "postgresql://ada@127.0.0.1:1/scores"
    main([*argv, "--log-json"])
    told = capfd.readouterr()
    main(["env"])
    facts = capfd.readouterr()
    kept = "".join(f"{path}{path.read_bytes() if path.is_file() else ''}" for path in tmp_path.rglob("*"))
    assert not any("s3cret" in text for text in (shown, told.out, told.err, facts.out, facts.err, kept))


def test_a_bench_is_named_without_a_password() -> None:
    command = BenchCommand("nb201", store="postgresql://ada:s3cret@db")
    assert "s3cret" not in command._stem()
    assert "ada@db" in command._stem()


def test_exit_codes_are_documented(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning.replace('initio store diff', '`initio store diff`')} |" in page
        assert f"{code:<5}{meaning}" in told


def test_an_interrupt_is_130_and_a_broken_pipe_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for error, code in ((KeyboardInterrupt, 130), (BrokenPipeError, 0), (MemoryError, 2)):

        def end(error: type[BaseException] = error) -> str:
            raise error

        monkeypatch.setattr("initio.cli.overview", end)
        assert main(["--help"]) == code


def test_the_environment_is_whole() -> None:
    facts = environment()
    asked = {"initio", "torch", "python", "device", "kernels", "threads", "memory", "stores", "extras"}
    assert asked <= set(facts)
    assert all(f"{extra}: " in facts["extras"] for extra in EXTRAS)
    assert f"distributed {version('distributed')}" in facts["extras"]


def test_the_environment_is_what_this_process_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the whole machine, of which a container or a job has a part."""
    root, own = tmp_path / "groups", tmp_path / "own"
    (root / "job" / "step").mkdir(parents=True)
    (root / "memory" / "job").mkdir(parents=True)
    (root / "job" / "memory.max").write_text("3000000\n")
    (root / "job" / "step" / "memory.max").write_text("max\n")
    (root / "memory" / "job" / "memory.limit_in_bytes").write_text("2000000\n")
    for lines, limits in {
        "0::/job/step\n": [3_000_000], "4:memory:/job\n3:cpuset:/job\n": [2_000_000], "0::/\n": [], "": [],
    }.items():  # fmt: skip
        own.write_text(lines)
        assert list(memory_limits(root, own)) == limits
    assert list(memory_limits(root, tmp_path / "absent")) == []
    monkeypatch.setattr("initio.cli.env.memory_limits", lambda root, own: iter([3_000_000]))
    if hasattr(os, "sched_getaffinity"):
        monkeypatch.setattr("os.sched_getaffinity", lambda who: {3})
        assert environment()["threads"].startswith("one in each process; 1 processors")
    assert environment()["memory"] == "3 MB"


def test_flags_of_all_commands_may_come_first(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    assert main(["-q", "--log-json", "score", "nb201", "--sample", "2", "--metrics", "params", "--store", store]) == 0
    assert capfd.readouterr() == ("", "")
    assert main(["--quiet", "store", "info", store]) == 0
    assert capfd.readouterr() == ("", "")
    assert main(["--log-json", "show", "--", "nosuch"]) == 2
    said = capfd.readouterr()
    assert (said.out, json.loads(said.err)["level"]) == ("", "error")
    assert main(["--quiet"]) == 2
    file = tmp_path / "options.toml"
    for name in ("quiet", "log-json"):
        file.write_text(f"{name} = true\n")
        assert main(["score", "nb201", "--config", str(file)]) == 2
        assert f"--{name} is typed, and not kept in a file" in capfd.readouterr().err


def test_the_tests_say_what_stores_they_ran_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.conftest import pytest_report_header

    for found, said in (
        (None, "stores: SQLite alone, as PostgreSQL is not installed"),
        (Path("/bin"), "PostgreSQL in "),
    ):
        monkeypatch.setattr("studies.servers.postgres_programs", lambda found=found: found)
        assert said in pytest_report_header()
