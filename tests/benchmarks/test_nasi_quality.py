"""The table of NASI's quality: what a killed command keeps, and what it prints."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import nasi_quality
from benchmarks.nasi_quality import Answer, Job, Journal, Study, gain
from initio.errors import InputError

ROOT = Path(__file__).parents[2]
JOBS = [Job("default", "data", seed) for seed in range(4)]

KILLED = """
import os, signal, sys
from pathlib import Path
from benchmarks import nasi_quality as q

def solve(space, methods, data, job):
    if job.seed == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return {job: [job.seed]}, 0.0

q.solve = solve
study = q.Study("nb201", {}, Path(), q.Journal(Path(sys.argv[1])), jobs=1)
study.run([q.Job("default", "data", seed) for seed in range(4)], lambda job, answer: f"seed {job.seed}")
"""


def study(path: Path) -> Study:
    return Study("nb201", {}, Path(), Journal(path), jobs=1)


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Searches that answer at once; the list says which seeds were run."""
    ran: list[int] = []

    def solve(space: str, methods: object, data: Path, job: Job) -> tuple[dict[Job, Answer], float]:
        ran.append(job.seed)
        return {job: [job.seed]}, 0.0

    monkeypatch.setattr(nasi_quality, "solve", solve)
    return ran


def test_a_killed_command_goes_on_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.jsonl"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=ROOT, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert b"2 of 4: seed 1" in killed.stderr
    ran = counting(monkeypatch)
    assert list(study(path).run(JOBS, lambda job, answer: f"seed {job.seed}")) == [[0], [1], [2], [3]]
    assert ran == [2, 3]
    assert "4 of 4: seed 3" in capsys.readouterr().err


def test_a_torn_last_line_is_run_again_and_a_damaged_one_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, ran = tmp_path / "journal.jsonl", counting(monkeypatch)
    list(study(path).run(JOBS, lambda job, answer: ""))
    path.write_bytes(path.read_bytes()[:-5])
    ran.clear()
    assert list(study(path).run(JOBS, lambda job, answer: "")) == [[0], [1], [2], [3]]
    assert ran == [3]
    path.write_text("nonsense\n")
    with pytest.raises(InputError, match=r"line 1 of .* is damaged: delete the file"):
        Journal(path)


def test_accuracies_are_better_when_larger_and_errors_when_smaller() -> None:
    assert gain(("C10", "C100"), [(93.0, 70.0)], [(92.0, 70.5)]).startswith("default beats parameter count: +0.50")
    assert gain(("test error",), [(7.0,)], [(6.5,)]).startswith("default does not beat parameter count: -0.50")
