"""The table of NASI's quality: what a killed command keeps, and what it prints."""

from functools import partial
from pathlib import Path
from random import Random

import pytest

from initio.data import Noise
from initio.errors import InputError
from initio.searches import Problem
from initio.spaces import NB201, NetworkSettings
from initio.system.executors import Here
from studies import nasi_quality
from studies.nasi_quality import SPACE_TRACE, TRACE, Answer, Job, Journal, Study, connected, gain, line, relations
from tests.copies import die, dies, needs_copies

ROOT = Path(__file__).parents[2]
JOBS = [Job("nasi-fit", "data", seed) for seed in range(4)]


def killed_at_the_third(path: Path) -> None:
    """The command, killed while it works on seed 2."""

    def solve(space: str, methods: object, data: Path, job: Job) -> tuple[dict[Job, Answer], float]:
        if job.seed == 2:
            die()
        return {job: [job.seed]}, 0.0

    nasi_quality.solve = solve
    list(study(path).run(JOBS, lambda job, answer: f"seed {job.seed}"))


def study(path: Path) -> Study:
    return Study("nb201", {}, Path(), Journal(path), Here())


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Searches that answer at once; the list says which seeds were run."""
    ran: list[int] = []

    def solve(space: str, methods: object, data: Path, job: Job) -> tuple[dict[Job, Answer], float]:
        ran.append(job.seed)
        return {job: [job.seed]}, 0.0

    monkeypatch.setattr(nasi_quality, "solve", solve)
    return ran


@needs_copies
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_killed_command_goes_on_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.jsonl"
    dies(partial(killed_at_the_third, path), tmp_path / "said")
    assert "2 of 4: seed 1" in (tmp_path / "said").read_text()
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
    one, other = [(93.0, 70.0), (93.2, 70.0)], [(92.0, 70.5), (92.2, 70.5)]
    assert gain(("C10", "C100"), one, other).startswith("nasi-fit beats parameter count: +0.50±0.14")
    assert gain(("test error",), [(7.0,)] * 2, [(6.5,)] * 2).startswith("nasi-fit does not beat parameter count: -0.50")


def test_one_seed_has_neither_deviation_nor_error() -> None:
    assert line("x", [(93.0, 70.0)]).endswith(" 93.00 / 70.00")
    assert "one seed has no error" in gain(("C10",), [(93.0,)], [(92.0,)])


def test_traces_of_the_space_may_have_none_and_are_connected() -> None:
    problem = Problem(NB201, Noise((3, 8, 8)), NetworkSettings())
    drawn = [connected(problem, Random(f"space {step}")) for step in range(60)]
    assert all(NB201.connected(arch) for arch in drawn)
    assert not all(problem.sound(arch) for arch in drawn)


@pytest.mark.parametrize("pool", [SPACE_TRACE, TRACE])
def test_relations_rank_the_same_architectures_and_leave_out_those_without_a_trace(
    pool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sign = {"data": 1, "random labels": 1, "noise": -1}

    def solve(space: str, methods: object, data: Path, job: Job) -> tuple[dict[Job, Answer], float]:
        assert job.method == pool
        return {job: 0.0 if job.seed == 3 else 2.0 ** (sign[job.mode] * job.seed)}, 0.0

    monkeypatch.setattr(nasi_quality, "solve", solve)
    relations(study(tmp_path / "journal.jsonl"), pool, 10)
    labels, noise = capsys.readouterr().out.splitlines()
    assert labels.startswith("T of 9 ")
    assert "on data and on random labels: Spearman 1.000, Pearson of log T 1.000" in labels
    assert "on data and on noise: Spearman -1.000, Pearson of log T -1.000" in noise
