"""From data to an exported network: in its time, after a kill, and honest about what it was compared with."""

import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import initio
from initio import InputError
from initio.cli import main
from initio.cli.options import parse
from initio.cli.solve import SolveCommand
from initio.data.look import look
from initio.records import from_json, to_json
from initio.report.page import DataTable, LineChart
from initio.runs.folders.solution import NAMES, HeldOutScore, SolveFolder, SolveResult, verdict
from initio.runs.pages.sections import sections
from initio.runs.pages.subjects import read_folder
from initio.runs.pages.summaries import summary
from initio.runs.solve import resume_solve, solve
from tests.copies import killed_once, needs_copies
from tests.runs.printed import printed

TIME = 10  # seconds


@pytest.fixture(scope="module", autouse=True)
def _few_epochs() -> Iterator[None]:
    """Networks that would learn for all of the time are known after some epochs."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("initio.runs.solve.MOST_EPOCHS", 8)
        yield


@pytest.fixture(scope="module")
def easy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of 8x8 images that differ in brightness, with a test part."""
    rng = np.random.default_rng(0)
    parts = {}
    for split, n in (("train", 240), ("test", 60)):
        y = np.arange(n) % 3
        parts[f"x_{split}"] = (rng.integers(0, 60, (n, 8, 8)) + 70 * y[:, None, None]).astype(np.uint8)
        parts[f"y_{split}"] = y
    path = tmp_path_factory.mktemp("easy") / "easy.npz"
    np.savez(path, **parts)
    return path


@pytest.fixture(scope="module")
def solved(easy: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[SolveResult, Path, list[Any]]:
    folder, heard = tmp_path_factory.mktemp("solved") / "s", list[Any]()
    return solve(str(easy), TIME, limits={"max_params": 60_000}, folder=folder, on_event=heard.append), folder, heard


def test_all_stages_end_with_a_network_that_others_can_use(solved: tuple[SolveResult, Path, list[Any]]) -> None:
    solution, folder, heard = solved
    assert "240 samples to learn from, grey images of 8x8 pixels" in heard
    assert "3 classes, 80 samples in each" in heard
    assert set(solution.scores) == {"found", "resnet", "linear"}
    assert solution.score.accuracy > 50  # chance is 33
    assert max(solution.parameters.values()) <= 60_000
    assert solution.files[0].endswith("model.py")
    assert all((folder / file).is_file() for file in solution.files)
    assert from_json(SolveResult, to_json(solution)) == solution
    page = (folder / "README.md").read_text()
    assert all(sentence in page for sentence in solution.verdicts())
    assert all(NAMES[name] in str(solution) for name in solution.scores)
    model = initio.load_model(folder / solution.kept)
    tested = initio.evaluate(model, save=False)
    assert tested.accuracy == solution.score.accuracy
    plans = [initio.load_model(folder / name).plan for name in ("found", "resnet")]
    assert plans[0].fingerprint == plans[1].fingerprint  # the same split


def test_a_finished_run_is_read(solved: tuple[SolveResult, Path, list[Any]], easy: Path) -> None:
    solution, folder, _ = solved
    assert resume_solve(folder) == solution
    assert solve(str(easy), TIME, limits={"max_params": 60_000}, folder=folder, resume=True) == solution
    with pytest.raises(InputError, match="the solved task was started with budget"):
        solve(str(easy), TIME + 1, folder=folder, resume=True)
    with pytest.raises(InputError, match="is not empty: give another folder, or go on with `initio solve --res"):
        solve(str(easy), TIME, folder=folder)


@needs_copies
@pytest.mark.filterwarnings("ignore:.*fork")
def test_after_a_kill_it_goes_on_and_the_time_that_was_used_counts(easy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "s"
    work = partial(solve, str(easy), TIME, folder=folder, baseline=False)
    killed_once((folder / "search" / "run.json").is_file, work)
    used = SolveFolder(folder).used()
    design = (folder / "design.json").read_bytes()
    assert used > 0
    begin = time.perf_counter()
    solution = resume_solve(folder)
    assert solution.seconds >= used + (time.perf_counter() - begin) - 1
    assert (folder / "design.json").read_bytes() == design
    assert set(solution.scores) == {"found", "linear"}
    assert "resnet" not in solution.parameters


def test_features_are_learned_by_an_mlp(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(150) % 2
    np.savez(tmp_path / "f.npz", x=(rng.standard_normal((150, 5)) + 2 * y[:, None]).astype(np.float32), y=y)
    solution = solve(str(tmp_path / "f.npz"), 5, folder=tmp_path / "s", method="votes")
    assert (initio.load(tmp_path / "s" / "search").method, solution.design.method) == ("votes", "votes")
    assert solution.design.space == "mlp-3"
    assert set(solution.scores) == {"found", "linear"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"data": "noise"}, "noise has nothing to learn"),
        ({"budget": 0}, "the budget must be a positive number of seconds, not 0"),
        ({"recipe": "magic"}, "there is no recipe 'magic'"),
        ({"space": "magic"}, "magic"),
        ({"limits": {"max_parms": 3}}, "max_parms is not a limit"),
    ],
)
def test_what_makes_no_sense_is_refused_before_there_is_a_folder(
    arguments: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=sentence):
        solve(**{"data": "digits", "budget": 60, "folder": tmp_path / "s", **arguments})
    assert not (tmp_path / "s").exists()


def test_a_folder_of_pictures_is_looked_at_and_all_bad_files_are_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for label, count in (("cat", 40), ("dog", 8)):
        (tmp_path / "p" / label).mkdir(parents=True)
        for number in range(count):
            side = 20 + number % 3
            Image.fromarray(rng.integers(0, 255, (side, 24, 3)).astype(np.uint8)).save(
                tmp_path / "p" / label / f"{number}.png"
            )
    report, learned, test = look(str(tmp_path / "p"))
    assert (report.classes, report.channels, report.widths) == (2, 3, (24, 24))
    assert report.heights == (20, 22)
    assert not report.small(32)
    assert len(learned) + len(test) == 48
    assert any("uneven" in note for note in report.notes)
    assert any("several sizes" in note for note in report.notes)
    for name in ("cat/1.png", "dog/2.png"):
        (tmp_path / "p" / name).write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"2 of 48 pictures cannot be read: .*cat/1.png.*dog/2.png"):
        look(str(tmp_path / "p"))
    report, learned, test = look(str(tmp_path / "p"), skip_bad=True)
    assert len(learned) + len(test) == 46
    assert "pictures that cannot be read are left out" in report.notes


def test_a_folder_of_pictures_from_end_to_end(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of several sizes, one of them unreadable, by the command; what is exported needs no Initio."""
    rng = np.random.default_rng(0)
    for label, level in (("dark", 0), ("light", 150)):
        (tmp_path / "p" / label).mkdir(parents=True)
        for number in range(60):
            picture = level + rng.integers(0, 100, (18 + number % 3, 20, 3))
            Image.fromarray(picture.astype(np.uint8)).save(tmp_path / "p" / label / f"{number}.jpg")
    (tmp_path / "p" / "dark" / "7.jpg").write_bytes(b"no picture")
    where = ("--data", str(tmp_path / "p"), "--out", str(tmp_path / "s"))
    words = ["solve", *where, "--budget", "7s", "--no-baseline", "--json"]
    assert main(words) == 2
    assert "7.jpg is not a readable image" in capfd.readouterr().err
    assert main([*words, "--skip-bad"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["scores"]["found"]["accuracy"] > 70
    code = "import sys; sys.modules['initio'] = None; import model; print(model.CLASSES)"
    home = (tmp_path / "s" / found["files"][0]).parent
    ran = subprocess.run([sys.executable, "-c", code], cwd=home, capture_output=True, text=True, check=False)
    assert "dark" in ran.stdout, ran.stderr


def test_a_verdict_says_when_a_search_was_not_worth_it() -> None:
    low, high = HeldOutScore(80.0, 75.0, 84.0, ""), HeldOutScore(90.0, 86.0, 93.0, "")
    assert verdict("ResNet", low, high) == "the found network does not beat the ResNet: 10.00 points less"
    assert verdict("ResNet", high, low) == "the found network beats the ResNet by 10.00 points"
    assert verdict("ResNet", low, low).endswith("they have the same accuracy")


def test_its_report_shows_the_answer_and_both_trainings(
    solved: tuple[SolveResult, Path, list[Any]], tmp_path: Path
) -> None:
    solution, folder, _ = solved
    subject = read_folder(folder)
    shown = {section.title: section.blocks for section in sections(subject)}
    assert list(shown)[:2] == ["The answer", "The cell"]
    answer = shown["The answer"][0]
    assert isinstance(answer, DataTable)
    assert answer.columns["accuracy, %"] == [score.accuracy for score in solution.scores.values()]
    assert any("resnet training" in chart.lines for chart in shown["The trainings"] if isinstance(chart, LineChart))
    assert f"{solution.score.accuracy:.2f} % of what was kept aside" in summary(subject)
    assert subject.task is not None
    command = parse(SolveCommand, shlex.split(subject.task.command())[2:])
    assert (command.data, command.budget, command.max_params) == (subject.task.data, f"{TIME}s", "60000")
    assert [len(printed(folder / part)) for part in ("", "search", "found", "resnet")] == [2, 1, 1, 1]
    [searching] = printed(folder / "search")
    assert searching._asked()["target"].channels == solution.design.channels
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "solution.json").unlink()
    with pytest.raises(InputError, match="is not finished: go on with `initio solve --resume"):
        read_folder(copy)
