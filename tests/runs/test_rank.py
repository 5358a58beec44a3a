"""`initio rank` and the verb beneath: pools that are measured, stores, and what is said of them."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import initio
from initio.analysis.ranking import MEMBERS, RANKING, rank
from initio.cli import main
from initio.errors import InputError
from initio.scores.pool import sample
from initio.scores.table import ScoreTable
from initio.spaces import NB201

THIN = {"channels": 2, "cells": 1, "batch_size": 8}
OPTIONS = ["--channels", "2", "--cells", "1", "--batch-size", "8"]
POOL = sample(NB201, 5, 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("initio.cli.progress.EVERY", 1e9)
    return tmp_path


def test_a_measured_pool_is_ranked_by_the_formula_and_kept(folder: Path) -> None:
    found = initio.rank("nb201", 5, store="kept.db", **THIN)
    columns = {member.metric: found.table.each(member.metric) for member in MEMBERS}
    assert np.array_equal(found.ranking.values, rank(columns).values)
    assert found.best == found.table.architectures[int(np.argmax(found.ranking.values))]
    again = initio.rank("kept.db")
    assert [row.value for row in again.rows()] == pytest.approx([row.value for row in found.rows()])
    assert initio.rank("nb201", POOL, store="kept.db", **THIN).best == found.best
    assert initio.rank(found.table).best == found.best


def test_places_of_each_member_are_counted_from_the_best() -> None:
    table = ScoreTable.of(POOL, {"meco": [5.0, 4.0, 4.0, np.nan, 1.0], "naswot": [1.0, 2.0, 3.0, 4.0, 5.0]})
    rows = {row.architecture: row for row in initio.rank(table).rows()}
    places = [rows[NB201.format(arch)].places for arch in POOL]
    assert [place["meco"] for place in places] == [1, 2, 2, None, 4]
    assert [place["naswot"] for place in places] == [5, 4, 3, 2, 1]


def test_the_command_says_who_decided_and_exports_the_column(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rank", "nb201", "--sample", "5", *OPTIONS, "--top", "2", "--export", "out.csv"]) == 0
    out = capsys.readouterr().out
    assert "5 architectures of nb201, ranked by meco, near, naswot, flops, expressivity, progressivity" in out
    assert len(out.splitlines()) == 6  # head, blank, names, two rows, where it was exported
    with (folder / "out.csv").open(newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["metric"] == RANKING]
    assert len(lines) == 5
    assert main(["rank", "nb201", "--sample", "5", *OPTIONS, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    values = [row["value"] for row in facts["best"]]
    assert values == sorted(values, reverse=True)
    assert float(lines[0]["value"]) in values
    assert facts["members"]["flops"]["sign"] == 1


def test_a_list_and_the_shipped_scores_are_ranked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine.txt").write_text("\n".join(NB201.format(arch) for arch in POOL[:3]))
    assert main(["rank", "nb201", "--archs", "mine.txt", *OPTIONS]) == 0
    assert "3 architectures of nb201" in capsys.readouterr().out
    assert main(["rank", "darts", "--top", "1"]) == 0
    assert "architectures of darts, ranked by" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["nosuch"], "there is no search space 'nosuch'"),
        (["nb201", "--sample", "0"], "the sample must have at least 1 architecture, not 0"),
        (["nb201", "--sample", "2", "--archs", "x.txt"], "--sample N or --archs FILE, not both"),
        (["nb201", "--top", "0"], "--top must be at least 1, not 0"),
        (["nb201", "--export", "x.txt"], "exported to a .csv or a .parquet file"),
    ],
)
def test_bad_input_gets_one_sentence(
    argv: list[str], sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rank", *argv]) == 2
    assert sentence in capsys.readouterr().err


def test_nothing_to_rank_by() -> None:
    with pytest.raises(InputError, match="nothing to rank: the table of scores is empty"):
        initio.rank(ScoreTable.of((), {}))
    with pytest.raises(InputError, match="nothing to rank by: of meco"):
        initio.rank(ScoreTable.of(POOL, {"kappa": [1.0, 2.0, 3.0, 4.0, 5.0]}))
