import json
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from initio.cli import main
from initio.runs.folders.run import RunFolder, load_run
from initio.searches import SearchStep, steps_of
from initio.searches.oneshot import OneShotSearch, SharedTraining
from initio.searches.restarts import steps_of_restart
from initio.spaces import NB201, Size, Sizes
from initio.system.leases import leased
from initio.training.fit import Update
from tests.copies import die, dies, needs_copies

THIN = ["--channels", "2", "--cells", "1", "--pixels", "8", "--batch-size", "8"]
SMALL = ["--first", "3", "--rounds", "1", "--each", "1", *THIN]


def test_a_search_ends_in_a_run_folder_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "nb201", *SMALL, "--out", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    assert str(tmp_path / "run") in captured.out
    assert f"run in {tmp_path / 'run'}" in captured.err
    assert NB201.format(load_run(tmp_path / "run").best) in captured.out
    assert main(["show", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize("space", ["darts", "nb1shot1-s1"])
def test_other_spaces_are_searched(space: str, tmp_path: Path) -> None:
    assert main(["search", space, *SMALL, "--cells", "3", "--out", str(tmp_path / "run")]) == 0
    assert load_run(tmp_path / "run").best.space == space


def test_an_mlp_is_searched_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["search", "mlp", "--method", "lambda-min", "--depth", "4", "--data", "digits", "--batch-size", "16"]
    assert main([*argv, "--out", str(tmp_path / "run")]) == 0
    assert "proven optimal over 500 architectures" in capsys.readouterr().out
    assert main(["search", "--resume", str(tmp_path / "run")]) == 0  # starts over, to the same answer
    run = RunFolder(tmp_path / "run")
    assert run.steps(steps_of("lambda-min")) == list(run.result().steps)


def killed_after(steps: int, argv: list[str]) -> None:
    """The command, killed when so many steps are on disk."""
    append = RunFolder.append

    def append_and_die(run: RunFolder, step: SearchStep, seconds: float) -> None:
        append(run, step, seconds)
        if run.steps_path.read_bytes().count(b"\n") == steps:
            die()

    RunFolder.append = append_and_die  # type: ignore[method-assign]
    main(argv)


@needs_copies
@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize(
    ("method", "settings", "restarts", "after"),
    [
        ("votes", SMALL, "1", 2),
        ("nasi", ["--steps", "4", "--nu", "adaptive", *THIN], "1", 2),
        ("nasi-fit", ["--steps", "4", *THIN], "2", 6),  # in the last restart
    ],
)
def test_a_killed_search_resumes_to_the_same_answer(
    method: str, settings: list[str], restarts: str, after: int, tmp_path: Path
) -> None:
    search = ["search", "nb201", *settings, "--method", method, "--restarts", restarts]
    assert main([*search, "--out", str(tmp_path / "whole")]) == 0
    dies(partial(killed_after, after, [*search, "--out", str(tmp_path / "killed")]))
    assert len(RunFolder(tmp_path / "killed").steps(steps_of(method))) == after
    assert not RunFolder(tmp_path / "killed").result_path.exists()
    before = RunFolder(tmp_path / "killed").seconds()
    assert main(["search", "--resume", str(tmp_path / "killed")]) == 0
    whole, resumed = RunFolder(tmp_path / "whole").result(), RunFolder(tmp_path / "killed").result()
    assert resumed == whole
    assert resumed.cost.seconds > before > 0
    assert (tmp_path / "killed" / "steps.jsonl").read_bytes() == (tmp_path / "whole" / "steps.jsonl").read_bytes()


def killed_in_epoch_2(argv: list[str]) -> None:
    """The command, killed in the middle of an epoch."""
    before = OneShotSearch._before

    def update_or_die(search: OneShotSearch, at: SharedTraining, update: Update) -> None:
        if (update.epoch, update.batch) == (1, 1):
            die()
        before(search, at, update)

    OneShotSearch._before = update_or_die  # type: ignore[method-assign]
    main(argv)


@needs_copies
@pytest.mark.filterwarnings("ignore:.*fork")
def test_shared_weights_killed_in_the_middle_of_an_epoch_end_in_the_same_alpha(tmp_path: Path) -> None:
    small = ["--samples", "60", "--channels", "4", "--pixels", "8", "--batch-size", "16"]
    search = ["search", "nb201", "--method", "darts", "--data", "digits", "--epochs", "3", *small]
    assert main([*search, "--out", str(tmp_path / "d0")]) == 0
    dies(partial(killed_in_epoch_2, [*search, "--out", str(tmp_path / "d1")]))
    assert (tmp_path / "d1" / "steps.jsonl").read_bytes().count(b"\n") == 1
    assert main(["search", "--resume", str(tmp_path / "d1")]) == 0
    for name in ("steps.jsonl", "architecture.txt"):  # α is in the steps
        assert (tmp_path / "d1" / name).read_bytes() == (tmp_path / "d0" / name).read_bytes()


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["nosuchspace"], "there is no search space 'nosuchspace'"),
        (
            ["nb201", "--method", "nasi-fit", "--nu", "banana"],
            "nu must be 'none', 'geometric', 'adaptive', 'fixed' or a positive number, not",
        ),
        (["nb201", "--method", "nasi", "--nu", "-3"], "nu must be 'adaptive', 'fixed' or a positive number"),
        (["nb201", "--max-params", "1"], "at most 1 parameters"),
        (["--max-params", "1"], "no architecture of darts was found that has at most 1 parameters: the smallest has"),
        (["nb201", "--max-latency", "fast"], "--max-latency: expected a time such as 20ms, 0.5s or 10m, got 'fast'"),
        (["nb201", "--max-latency", "0ms"], "--max-latency: expected a time such as 20ms"),
        (
            ["nb201", "--max-latency", "1us"],
            "a forward pass here, not at most 0.001 ms a forward pass",
        ),
        (["nb201", "--restarts", "0"], "restarts must be at least 1, not 0"),
        (["--restarts", "many"], "--restarts: expected a whole number, got 'many'"),
        (["--first", "many"], "--first: expected a whole number, got 'many' (see"),
        (["--method", "nasi-fit", "--counted", "some"], "--counted: expected one of 'chosen', 'all', got 'some' (see"),
        (["nb201", "--method", "nasi-fit", "--mu", "nan"], "mu must be a number of at least 0, not nan"),
        (["nb201", "--method", "nasi-fit", "--mu", "inf"], "mu must be a number of at least 0, not inf"),
        (["nb101", "--method", "nasi"], "nb101 has no supernet"),
        (["nb101", "--method", "nasi", "--restarts", "2"], "nb101 has no supernet"),
        (["nb201", "--queries", "5"], "queries is not an option of votes: it trains nothing"),
        (["nb201", "--metric", "grad"], "--metric is not an option of initio search with votes"),
        (["nb201", "--method", "random", "--data", "digits", "--pool", "5"], "pool is not an option of random"),
        (
            ["nb201", "--method", "random", "--data", "digits", "--labels", "random"],
            "labels is not an option",
        ),
        (
            ["nb201", "--data", "digits@8", "--pixels", "16"],
            "'digits@8' says how large its images are: leave out pixels",
        ),
        (["--resume", ""], "--resume needs the folder of a run, not an empty name"),
        (["nb201", "--out", ""], "--out needs the folder of a run, not an empty name"),
        (["nb201", "--resume", "run"], "--resume goes on with the run's own settings: leave out --space"),
        (["--resume", "run", "--first", "4"], "--resume goes on with the run's own settings: leave out --first"),
        (["nb201", "--nu-0", "-1", "--method", "nasi"], "nu_0 must be a positive number, not -1.0"),
        (["nb201", "--nu-0", "5"], "--nu-0 is not an option of initio search with votes"),
        (["mlp", "--method", "lambda-min", "--restarts", "2"], "restarts is not an option of lambda-min"),
        (["mlp", "--method", "lambda-min", "--max-params", "2k"], "max_params is not an option of lambda-min"),
        (["nb201", "--max-params", "lots"], "--max-params: expected an amount such as 4M"),
        (["nb201", "--data", "missing.npz"], "missing.npz"),
        (["nb201", "--method", "magic"], "there is no search 'magic'"),
        (["--resume", "missing"], "is not a run"),
        (["nb201", "--batch-size", "0"], "batch size"),
        (["nb201", "--channels", "0"], "channels must be a whole number of at least 1, not 0"),
        (["nb201", "--pixels", "0"], "pixels must be at least 1, not 0"),
        (["nb201", "--depth", "3"], "depth is an option of mlp, not of nb201"),
        (["mlp", "--method", "nasi-fit"], "nasi-fit does not search mlp-10: choose one of nb201"),
        (["nb201", "--method", "lambda-min"], "lambda-min does not search nb201: choose mlp"),
        (["nb1shot1-s2", "--channels", "2"], "channels must be at least 3 for this cell's concatenation, not 2"),
        (
            ["mlp", "--method", "lambda-min", "--steps", "3"],
            "--steps is not an option of initio search with lam",
        ),
        (["nb201", "--method", "hnas", "--depth", "3"], "depth is an option of mlp, not of nb201"),
        (["nb201", "--method", "hnas", "--data", "digits", "--channels", "0"], "channels must be a whole number of at"),
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
    plain, one, two = (RunFolder(tmp_path / name).result().steps for name in ("plain", "one", "two"))
    assert plain == one == tuple(steps_of_restart(two[: len(plain)], 0))


def test_a_latency_limit_is_kept_recorded_and_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("initio.searches.limits.forward_seconds", lambda *_: 0.5)
    argv = ["search", "nb201", *SMALL, "--max-latency", "100s", "--out", str(tmp_path / "run")]
    assert main(argv) == 0
    assert "at most 1e+05 ms a forward pass asked for" in capsys.readouterr().out
    run = RunFolder(tmp_path / "run")
    chosen = run.result().best
    assert run.latencies()[chosen] == 0.5
    # had the chosen one been slow, another would have been taken: the recorded times decide
    run.latency_path.unlink()
    for neighbour in (chosen, *NB201.neighbours(chosen)):
        run.add_latency(neighbour, 0.001)
    run.add_latency(chosen, 200.0)
    run.result_path.unlink()
    assert main(["search", "--resume", str(run.folder)]) == 0
    assert run.result().best != chosen


@pytest.mark.parametrize("changed", [{"settings": {"foo": 1}}, {"settings": {"steps": "abc"}}, {"space": 3}])
def test_a_plan_that_was_edited_gets_one_sentence(
    changed: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunFolder(tmp_path / "run")
    assert main(["search", "nb201", *SMALL, "--out", str(run.folder)]) == 0
    run.result_path.unlink()
    run.plan_path.write_text(json.dumps(json.loads(run.plan_path.read_text()) | changed))
    capsys.readouterr()
    assert main(["search", "--resume", str(run.folder)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_finished_run_is_shown_and_not_searched_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a run"
    assert main(["search", "nb201", *SMALL, "--out", str(folder)]) == 0
    first, files = capsys.readouterr().out, {path: path.read_bytes() for path in folder.iterdir()}
    assert main(["search", "--resume", str(folder)]) == 0
    assert capsys.readouterr().out == first
    assert {path: path.read_bytes() for path in folder.iterdir()} == files
    assert f"initio show '{folder}'" in first  # can be pasted
    assert main(["show", str(folder)]) == 0
    shown = capsys.readouterr().out
    for fact in ("method +votes", "seed +0", "why +first of 4 measured", "cost +4 scorings", "settings .*first 3"):
        assert re.search(f"^{fact}", shown, flags=re.MULTILINE)


def test_a_run_keeps_the_settings_of_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = [word for pair in zip(SMALL[::2], SMALL[1::2], strict=True) if pair[0] != "--channels" for word in pair]
    assert main(["search", "nb201", *small, "--out", str(tmp_path / "run")]) == 0
    run = RunFolder(tmp_path / "run")
    first = run.result()
    run.result_path.unlink()
    run.steps_path.write_bytes(b"")
    monkeypatch.setattr("initio.spaces.nb201.NB201Space.sizes", Sizes(Size(16, 5), scoring=Size(16, 2, 16)))
    assert main(["search", "--resume", str(run.folder)]) == 0
    assert run.result() == first
    assert run.plan().versions["initio"]


def test_nobody_else_works_on_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "nb201", *SMALL, "--out", str(tmp_path / "run")]) == 0
    run = RunFolder(tmp_path / "run")
    run.result_path.unlink()
    before = run.steps_path.read_bytes()
    with leased(run.folder):
        assert main(["search", "--resume", str(run.folder)]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"process {os.getpid()} of " in said
    assert said.endswith(f"is working on {str(run.folder)!r}: wait for it, or end it")
    assert run.steps_path.read_bytes() == before
    assert main(["search", "--resume", str(run.folder)]) == 0


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (lambda lines: [*lines[:1], *lines[2:4]], "step 1 of the run has number 2: it is damaged"),
        (lambda lines: [*lines[:2], b"{}"], "a step is of kind None, not one of votedstep, votedfinalist"),
        (lambda lines: [b'{"kind": "votedstep", "number": 0}'], "field 'architecture' is missing"),
    ],
)
def test_damaged_steps_get_one_sentence(
    lines: Callable[[list[bytes]], list[bytes]], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", "nb201", *SMALL, "--out", str(tmp_path / "run")]) == 0
    run = RunFolder(tmp_path / "run")
    run.result_path.unlink()
    run.steps_path.write_bytes(b"\n".join(lines(run.steps_path.read_bytes().splitlines())) + b"\n")
    capsys.readouterr()
    assert main(["search", "--resume", str(run.folder)]) == 2
    assert sentence in capsys.readouterr().err


def test_other_data_are_refused_and_a_relative_path_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)

    def write(offset: int) -> None:
        x = rng.integers(0, 200, (40, 3, 8, 8)).astype(np.uint8) + np.uint8(offset)
        np.savez(tmp_path / "mine.npz", x_train=x, y_train=np.arange(40) % 7)

    write(0)
    monkeypatch.chdir(tmp_path)
    assert main(["search", "nb201", *SMALL, "--data", "mine.npz", "--max-params", "1.2M", "--out", "run"]) == 0
    said = capsys.readouterr().out
    assert "7 classes" in said
    assert "at most 1,200,000 parameters asked for" in said
    run = RunFolder(tmp_path / "run")
    assert load_run(run.folder).build(channels=2, cells=1).classifier.out_features == 7
    assert main(["export", "run", "--format", "python"]) == 0
    assert "classes: int = 7" in capsys.readouterr().out
    run.result_path.unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["search", "--resume", str(run.folder)]) == 0
    run.result_path.unlink()
    write(9)
    assert main(["search", "--resume", str(run.folder)]) == 2
    assert "has changed since the run began" in capsys.readouterr().err


def test_an_interrupted_search_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("initio.searches.methods.votes._properties", interrupt)
    assert main(["search", "nb201", *SMALL, "--out", str(tmp_path / "my run")]) == 130
    said = capsys.readouterr().err
    assert f"run in {tmp_path / 'my run'}" in said
    assert f"go on with: initio search --resume '{tmp_path / 'my run'}'" in said


@pytest.mark.parametrize("taken", [False, True])
def test_the_demo_is_the_search_without_options(
    taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[object, ...]] = []

    def search(space: str = "darts", method: str = "votes", data: str = "noise", **more: object) -> str:
        calls.append((space, method, data, more["seed"], more["folder"]))
        return "the result"

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("initio.runs.search.search", search)
    folder = Path("runs", "darts-votes-seed3" + "-2" * taken)
    if taken:
        Path("runs", "darts-votes-seed3").mkdir(parents=True)
    for command in ("demo", "search"):
        assert main([command, "--seed", "3"]) == 0
    assert calls == [("darts", "votes", "noise", 3, folder)] * 2
    assert f"the result\nrun     {folder}  (draw it again: initio show {folder})" in capsys.readouterr().out


def test_nothing_is_chosen_when_every_reward_is_undone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [
        "search",
        "nb201",
        *THIN,
        "--steps",
        "4",
        "--method",
        "nasi",
        "--nu",
        "1e-9",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(argv) == 2
    assert "no step has a gradient, so all architectures are equally probable" in capsys.readouterr().err
    assert not RunFolder(tmp_path / "run").finished
