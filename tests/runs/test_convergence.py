"""Variants are trained alike; a study that was killed goes on to the same curves."""

import shlex
from functools import partial
from pathlib import Path

import pytest

import initio
from initio.cli import main
from initio.cli.options import parse
from initio.cli.study import StudyConvergence, convergence_page
from initio.errors import InputError
from initio.runs.convergence import ConvergenceCurve, ConvergenceResult
from tests.copies import killed_once, needs_copies

CELL = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|none~1|nor_conv_3x3~2|"
ASK = {"n": 2, "rates": (0.025, 0.1), "epochs": 3, "samples": 100, "channels": 2, "cells": 1}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ConvergenceResult]:
    folder = tmp_path_factory.mktemp("convergence") / "c1"
    return folder, initio.convergence(CELL, "digits", **ASK, folder=folder)


def test_everybody_is_trained_with_each_rate(made: tuple[Path, ConvergenceResult]) -> None:
    folder, found = made
    assert [(one.name, one.lr) for one in found.curves] == [
        (name, rate) for rate in (0.025, 0.1) for name in ("C0", "C1", "C2")
    ]
    assert all(len(one.losses) == len(one.accuracies) == 3 for one in found.curves)
    assert {path.name for path in folder.glob("*.png")} == {"accuracies.png", "losses.png"}
    assert not list(folder.glob("*.pt"))
    page = convergence_page(found, 5.0)
    assert "C2" in page
    assert "epochs to 5 %" in page


@needs_copies
@pytest.mark.filterwarnings("ignore:.*fork")
def test_killed_and_resumed_to_the_same_curves(made: tuple[Path, ConvergenceResult], tmp_path: Path) -> None:
    out = tmp_path / "c2"
    argv = ["study", "convergence", CELL, "--data", "digits", "--variants", "2", "--lr", "0.025,0.1", "--epochs", "3"]
    argv += ["--samples", "100", "--channels", "2", "--cells", "1", "--out", str(out)]
    killed_once(lambda: list(out.glob("*.pt")), partial(main, argv))  # an epoch is behind it
    assert main(argv) == 0
    assert initio.convergence(CELL, "digits", **ASK, folder=out).curves == made[1].curves


def test_only_those_that_are_named_are_trained(made: tuple[Path, ConvergenceResult], tmp_path: Path) -> None:
    chosen = initio.convergence(CELL, "digits", **{**ASK, "only": ("C0", "C2")}, folder=tmp_path / "c3")  # type: ignore[arg-type]
    assert chosen.curves == tuple(one for one in made[1].curves if one.name != "C1")
    words = shlex.split(chosen.plan.command(CELL))[3:]
    command = parse(StudyConvergence, words)
    assert (command.architecture, command.only, command.variants, command.lr) == (CELL, "C0,C2", 2, "0.025,0.1")
    assert (command.epochs, command.samples, command.channels, command.cells) == (3, 100, 2, 1)


def test_area_and_epochs() -> None:
    curve = ConvergenceCurve("C1", 2.0, 4, 0.1, (1.0, 0.5, 0.4), (20.0, 60.0, 70.0), (1.0, 0.6, 0.5))
    assert curve.area == 50.0
    assert [curve.epochs_to(percent) for percent in (20, 55, 90)] == [1, 2, None]
    diverged = ConvergenceCurve("C1", 2.0, 4, 0.1, (1.0,), (20.0,), (1.0,), "the training diverged")
    assert diverged.area is None


@pytest.mark.parametrize(
    ("data", "change", "sentence"),
    [
        ("noise", {}, "nothing to learn"),
        ("digits", {"rates": (0.0,)}, "learning rates are positive"),
        ("digits", {"n": -1}, "0 variants or more"),
        ("digits", {"only": ("C0", "C9")}, "no variant 'C9' among C0, C1, C2"),
    ],
)
def test_mistakes(data: str, change: dict[str, object], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        initio.convergence(CELL, data, **{**ASK, **change}, folder=tmp_path / "c")  # type: ignore[arg-type]
