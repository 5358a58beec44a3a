"""One reporter for every long work: lines where nobody looks, bars on a terminal, and nothing once it is over."""

import os
import pty
import re
import subprocess
import sys

import pytest

from initio.cli.progress import Reporter, SearchReporter
from initio.runs.search import search
from initio.training import TrainingProgress

SHOWN = re.compile(r"scoring: 1 of 3, \d+ s left, leading")


@pytest.fixture
def talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("initio.cli.progress.EVERY", 0.0)


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter() as reporter:
        for done in range(4):
            reporter.show("scoring", done, 3)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("talkative")
def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter() as reporter:
        reporter.show("scoring", 0, 3)
        reporter.show("scoring", 1, 3, "leading")
        reporter.note("a note")
        reporter.show("steps", 12_345)
        count = reporter.counter("runs", 2)
        count("one")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "scoring: 0 of 3"
    assert SHOWN.fullmatch(lines[1])
    assert lines[2:] == ["a note", "steps: 12,345", "runs: 1 of 2, one"]


def test_the_end_of_what_was_shown_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter() as reporter:
        reporter.shown -= 60
        for done in range(1, 101):
            reporter.show("scoring", done, 100)
    assert capsys.readouterr().err.splitlines() == ["scoring: 1 of 100", "scoring: 100 of 100, 0 s left"]


def test_what_was_done_before_does_not_make_the_rest_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    reporter = Reporter()
    reporter.show("steps", 90, 100)
    now = 8.0
    assert reporter.state("steps", 92, 100) == "92 of 100, 32 s left"


@pytest.mark.usefixtures("talkative")
def test_a_search_tells_its_steps_and_who_leads(capsys: pytest.CaptureFixture[str]) -> None:
    size = {"channels": 2, "cells": 1, "pixels": 8, "batch_size": 8}
    with SearchReporter() as reporter:
        search(
            "nb201",
            "nasi-fit",
            steps=3,
            restarts=2,
            **size,
            on_step=reporter.step,
            on_progress=reporter.progress,  # type: ignore[arg-type]
        )
        reporter.progress("a note")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("run in ")
    assert re.fullmatch(r"step: 1 of 8, restart 1, T \S+", lines[1])
    assert re.fullmatch(r"step: 3 of 8, .* left, restart 1, T \S+, leading: \d \w+.*", lines[3])
    assert "restart 1, finalist" in lines[4]
    assert "step: 8 of 8, 0 s left, restart 2, finalist" in lines[8]
    assert lines[9] == "a note"


@pytest.mark.usefixtures("talkative")
def test_every_training_begins_anew(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter() as reporter:
        for _ in range(2):
            for epoch in (1, 2):
                reporter.training(TrainingProgress(epoch, 2, 1, 1, 0.5, 60.0, 1.0, 1.0))
    lines = capsys.readouterr().err.splitlines()
    assert lines[2] == "training: 1 of 2, network 2, epoch 1 of 2, loss 0.50, 60 %"
    assert lines[3].startswith("training: 2 of 2, 0 s left, network 2, epoch 2 of 2")


BARS = """
import time
from initio.cli.progress import Reporter
try:
    with Reporter() as reporter:
        for done in range(3):
            reporter.shown -= 1
            reporter.show("scoring", done, 3, "[leading]")
        reporter.note("a [note] that stays")
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print("end")
"""


def test_bars_on_a_terminal_leave_nothing_behind() -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", BARS], stderr=theirs, stdout=subprocess.PIPE, env=environment, check=True
    )
    os.close(theirs)
    text = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.stdout == b"end\n"
    assert "2 of 3" in text
    assert "[leading]" in text
    left = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.rpartition("\x1b[2K")[2]).strip()
    assert left == ""
    assert "a [note] that stays" in text
