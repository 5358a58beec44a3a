"""The landscape of a trained network: numbers and pictures, resumed after kill −9 to the same ones."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

import initio
from initio.cli import main
from initio.errors import InputError
from initio.records import from_json
from initio.runs.landscape import LandscapeResult, load_landscape, surfaces_of
from tests.copies import killed_once, needs_copies

ASK = {"grid": 5, "samples": 40, "epochs": 2, "steps": 5, "probes": 4}
ARCH = "mlp:relu,tanh"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LandscapeResult]:
    folder = tmp_path_factory.mktemp("landscape") / "l1"
    return folder, initio.landscape(ARCH, "digits", **ASK, to="1", channels=16, folder=folder)


def test_numbers_and_pictures(made: tuple[Path, LandscapeResult]) -> None:
    folder, found = made
    assert {path.name for path in folder.glob("*.png")} == {
        "contour.png", "variance.png", "surface.png", "variance-3d.png", "line.png"
    }  # fmt: skip
    at, loss, variance = surfaces_of(folder)
    assert loss.shape == variance.shape == (5, 5)
    assert found.numbers.center == loss[2, 2]
    assert found.curvature is not None
    assert found.curvature.eigenvalues[0] > 0
    assert found.barrier is not None
    assert found.line[5] == pytest.approx(loss[2, 2], rel=1e-5)  # t = 0 is the first solution
    assert from_json(LandscapeResult, (folder / "study/result.json").read_text()) == found
    assert at.tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]


def test_workers_change_nothing(made: tuple[Path, LandscapeResult], tmp_path: Path) -> None:
    _, found = made
    again = initio.landscape(found.plan.trained, **{**ASK, "grid": 3}, workers=2, folder=tmp_path / "l2")
    one = initio.landscape(found.plan.trained, **{**ASK, "grid": 3}, folder=tmp_path / "l3")
    assert (again.numbers, again.curvature) == (one.numbers, one.curvature)


@needs_copies
@pytest.mark.filterwarnings("ignore:.*fork")
def test_killed_and_resumed_to_the_same_numbers_and_pictures(
    made: tuple[Path, LandscapeResult], tmp_path: Path
) -> None:
    folder, found = made
    out = tmp_path / "l4"
    argv = ["study", "landscape", ARCH, "--data", "digits", "--grid", "5", "--samples", "40", "--epochs", "2"]
    argv += ["--steps", "5", "--probes", "4", "--to", "1", "--channels", "16", "--out", str(out)]
    points = out / "study/points.jsonl"
    killed_once(lambda: points.is_file() and points.read_bytes().count(b"\n") >= 3, partial(main, argv))
    before = points.read_bytes().count(b"\n")
    with points.open("ab") as file:
        file.write(b'{"task": 9, "los')  # a line that the crash tore
    assert main(argv) == 0
    assert 3 <= before <= 25
    for mine, its in zip(surfaces_of(out), surfaces_of(folder), strict=True):
        assert np.array_equal(mine, its)
    again = load_landscape(out)
    whole = (found.numbers, found.curvature, found.line, found.barrier)
    assert (again.numbers, again.curvature, again.line, again.barrier) == whole
    for picture in folder.glob("*.png"):
        assert (out / picture.name).read_bytes() == picture.read_bytes()


def test_another_question_in_the_same_folder_is_refused(made: tuple[Path, LandscapeResult]) -> None:
    folder, found = made
    with pytest.raises(InputError, match="was started with grid 5, not 7"):
        initio.landscape(
            found.plan.trained, **{**ASK, "grid": 7}, to="1", folder=folder
        )  # trained as the first one was


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"grid": 2}, "3 points on a side"),
        ({"span": 0.0}, "positive number"),
        ({"samples": 1}, "2 samples or more"),
        ({"to": "nowhere"}, "folder of a trained network or a seed"),
    ],
)
def test_mistakes(made: tuple[Path, LandscapeResult], change: dict[str, object], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        initio.landscape(made[1].plan.trained, **{**ASK, **change}, folder=tmp_path / "l")  # type: ignore[arg-type]


def test_the_page_names_the_numbers(made: tuple[Path, LandscapeResult], capsys: pytest.CaptureFixture[str]) -> None:
    page = str(made[1])
    for word in ("near-convex", "gradient variance", "Hessian's largest", "line to the other"):
        assert word in page
    assert main(["study", "variants", "darts_v2", "--n", "2", "--kind", "adapted"]) == 0
    assert "adapted: 4c, 2" in capsys.readouterr().out
