"""Logs for machines, and the tab key."""

import json
import subprocess

import pytest

from initio.cli import COMMANDS, main


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
