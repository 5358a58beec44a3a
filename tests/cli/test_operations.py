"""Logs for machines, and the tab key."""

import json
import os
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from initio.cli import COMMANDS, EXIT_CODES, main
from initio.cli.env import EXTRAS, environment, memory_limits


def test_logs_are_lines_of_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "nosuch", "--log-json"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    entry = json.loads(line)
    assert entry["level"] == "error"
    assert "nosuch" in entry["message"]
    assert entry["time"].endswith("+00:00")
    assert main(["show", "nosuch"]) == 2
    assert capfd.readouterr().err.startswith("initio: ")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["initio", "sco"], "score"),
        (["initio", "store", "co"], "copy"),
        (["initio", "score", "nb201", "--clu"], "--cluster"),
        (["initio", "store", "copy", "--js"], "--json"),
    ],
)
def test_the_tab_key(capsys: pytest.CaptureFixture[str], typed: list[str], expected: str) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)
    words = " ".join(f'"{word}"' for word in typed)
    script += f'COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; _initio; echo "${{COMPREPLY[*]}}"'
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert found == [expected]


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
