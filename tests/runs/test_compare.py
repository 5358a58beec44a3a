"""Runs side by side: facts in one order, the settings that differ, how far the choices are apart."""

from shutil import copytree

import pytest

import initio
from initio.cli import main
from initio.errors import InputError
from initio.report.page import CellPictures, LineChart
from initio.runs.pages.compare import compared, comparison, differing, distance, named
from initio.runs.pages.subjects import read_folder

SMALL = {"channels": 2, "cells": 1, "pixels": 8}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    for name, seed in (("a", 0), ("b", 1)):
        initio.search("nb201", "nasi-fit", "noise", seed=seed, steps=20, folder=home / name, **SMALL)
    copytree(home / "a", home / "same")
    initio.train("mlp:relu,tanh", "digits", folder=home / "trained", epochs=2, tensorboard=False)
    return home


def test_facts_stand_in_one_order_with_dashes_where_there_are_none(runs):
    rows = compared([read_folder(runs / "a"), read_folder(runs / "trained")])
    result, model = initio.load(runs / "a"), initio.load_model(runs / "trained")
    assert rows["method"] == ["nasi-fit", "training, quick"]
    assert rows["scorings"] == ["20", "–"]
    assert rows["validation accuracy"] == ["–", f"{model.outcome.accuracy:.2f} % in epoch {model.outcome.epoch}"]
    assert rows["chosen"] == [initio.get_space("nb201").format(result.best), "mlp:relu,tanh"]


def test_only_the_settings_that_differ_are_told(runs):
    assert differing([read_folder(runs / "a"), read_folder(runs / "b")]) == {"seed": ["0", "1"]}
    assert differing([read_folder(runs / "a"), read_folder(runs / "same")]) == {}


def test_how_far_the_choices_are_apart(runs):
    a, same, b, trained = (read_folder(runs / name) for name in ("a", "same", "b", "trained"))
    assert distance([a, same]) == "They chose the same architecture."
    assert distance([a, trained]) == "They are of different spaces."
    apart = sum(x != y for x, y in zip(a.chosen[0].choices, b.chosen[0].choices, strict=True))
    assert apart > 0
    assert distance([a, b]) == f"Their choices differ in {apart} of 6 decisions."


def test_the_page_has_the_cells_and_the_curves_of_all(runs):
    page = comparison([read_folder(runs / name) for name in ("a", "b")])
    blocks = [block for section in page.parts[0].sections for block in section.blocks]
    assert [block.title for block in blocks if isinstance(block, CellPictures)] == ["a", "b"]
    (time,) = [block for block in blocks if isinstance(block, LineChart)]
    assert list(time.lines) == ["a", "b"]
    assert page.html().startswith("<!doctype html>")


def test_those_that_are_called_alike_are_numbered(runs):
    a = read_folder(runs / "a")
    assert list(named([a, a, read_folder(runs / "b")])) == ["a (1)", "a (2)", "b"]
    with pytest.raises(InputError, match="needs two folders"):
        named([a])


def test_the_command_prints_the_table_and_writes_the_page(runs, tmp_path, capsys):
    out = tmp_path / "c.html"
    assert main(["compare", str(runs / "a"), str(runs / "b"), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "settings that differ" in printed
    assert out.stat().st_size > 10_000
    assert main(["compare", str(runs / "a"), str(runs / "b"), "--out", "c.pdf"]) == 2
    assert "a page is a file that ends in .html or .htm, not 'c.pdf'" in capsys.readouterr().err
    assert main(["report", str(runs / "a"), "--out", str(tmp_path / "none" / "r.html")]) == 2
    assert "does not exist" in capsys.readouterr().err
