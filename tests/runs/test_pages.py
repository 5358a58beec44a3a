"""A report shows what a folder or a store holds, section by section, and leaves out what is not there."""

import json
import shlex
import shutil
from dataclasses import replace
from random import Random

import numpy as np
import pytest

import initio
from initio.cli.options import parse
from initio.cli.search import SearchCommand
from initio.cli.train import TrainCommand
from initio.errors import InputError
from initio.records import Architecture, Evaluation, Query, settings
from initio.report.page import (
    CellPictures,
    DataTable,
    FactList,
    LineChart,
    Listing,
    PointChart,
    Prose,
    Section,
    SurfaceChart,
)
from initio.runs.folders.run import RunFolder, RunPlan
from initio.runs.pages import sections as known
from initio.runs.pages.report import report
from initio.runs.pages.sections import sections, train_command
from initio.runs.pages.subjects import read_folder, read_store
from initio.runs.pages.summaries import summary
from initio.runs.search import make_search
from initio.scores.read import read_table
from initio.scores.store import Store, find_store
from initio.searches import SEARCHES, find_search
from initio.tables import open_table
from tests.runs.printed import parsed, printed
from tests.tables.files import SHARED, needs_data

SMALL = {"channels": 2, "cells": 1, "pixels": 8}
BUSY = Architecture("nb201", (3, 3, 3, 1, 0, 3))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A search from noise, one with trainings and a scored pool, and a training."""
    home = tmp_path_factory.mktemp("runs")
    limits = {"max_params": 4_000_000, "max_flops": None, "max_latency": None}
    initio.search("nb201", "nasi-fit", "noise", steps=20, folder=home / "noise", limits=limits, **SMALL)
    initio.search("nb201", "hnas", "digits", queries=3, epochs=1, pool=8, folder=home / "hnas", **SMALL)
    initio.train("mlp:relu,tanh", "digits", folder=home / "trained", epochs=3, tensorboard=False)
    return home


def blocks(subject, kind):
    return [block for section in sections(subject) for block in section.blocks if isinstance(block, kind)]


def test_a_search_from_noise(runs):
    subject = read_folder(runs / "noise")
    result = initio.load(runs / "noise")
    titles = [section.title for section in sections(subject)]
    assert titles == ["The cell", "The search", "What it cost", "To do it again"]
    (picture,) = blocks(subject, CellPictures)
    assert tuple(picture.cells) == initio.get_space("nb201").cells(result.best)
    (points,) = blocks(subject, PointChart)
    assert points.columns["trace"] == [step.trace for step in result.steps]
    assert points.names == [initio.get_space("nb201").format(step.architecture) for step in result.steps]
    (time,) = blocks(subject, LineChart)
    assert list(time.lines["work"][0]) == list(range(1, 21))
    assert summary(subject).startswith("nasi-fit chose this architecture of nb201")
    assert "without trainings" not in summary(subject)


def test_a_search_with_trainings_shows_its_pool_and_the_best_so_far(runs):
    subject = read_folder(runs / "hnas")
    steps = initio.load(runs / "hnas").steps
    assert [section.title for section in sections(subject)][2] == "Scores"
    trained, pool = blocks(subject, PointChart)
    assert trained.columns["value"] == [step.value for step in steps]
    assert list(trained.marked.values()) == ["chosen"]
    known = [value for value in pool.columns["trained accuracy"] if value is not None]
    assert set(known) <= {step.value for step in steps}
    assert len(known) > 0
    best = blocks(subject, LineChart)[0].lines["best so far"]
    assert best[1] == np.maximum.accumulate([step.value for step in steps]).tolist()
    assert best[0] == pytest.approx(np.cumsum([step.seconds for step in steps]))


def test_a_trained_network_shows_its_curves(runs):
    subject = read_folder(runs / "trained")
    model = initio.load_model(runs / "trained")
    loss, accuracy, _ = blocks(subject, LineChart)
    assert loss.lines["training"] == ([1, 2, 3], [epoch.loss for epoch in model.epochs])
    assert accuracy.lines["validation"] == ([1, 2, 3], [epoch.validation for epoch in model.epochs])
    (table,) = blocks(subject, DataTable)
    assert table.length == 3
    assert f"{model.outcome.accuracy:.2f} %" in summary(subject)


def test_a_trained_network_that_was_evaluated_shows_the_test(runs, tmp_path):
    assert "The test" not in [section.title for section in sections(read_folder(runs / "trained"))]
    shutil.copytree(runs / "trained", tmp_path / "t")
    seen = initio.evaluate(tmp_path / "t")
    subject = read_folder(tmp_path / "t")
    assert "The test" in [section.title for section in sections(subject)]
    assert blocks(subject, DataTable)[1].columns["recall"] == [found.recall for found in seen.judgement.classes]
    assert f"{seen.accuracy:.2f} % are right." in summary(subject)
    assert report([subject]).html().startswith("<!doctype html>")


def titles(subject):
    return [section.title for section in sections(subject)]


def test_a_landscape_shows_its_surfaces_its_line_and_its_training(tmp_path):
    home = tmp_path / "l1"
    found = initio.landscape(
        "mlp:relu,tanh", "digits", grid=3, samples=30, epochs=1, steps=3, probes=2, channels=8, to="1", folder=home
    )
    subject = read_folder(home)
    assert titles(subject) == ["The cell", "The landscape", "The training", "To do it again"]
    loss, deviation = blocks(subject, SurfaceChart)
    assert loss.values[1][1] == found.numbers.center
    assert deviation.values[1][1] == pytest.approx(found.numbers.variance**0.5)
    line = blocks(subject, LineChart)[0]
    assert line.lines["loss"] == (found.places, found.line)
    assert {"network": found.notation} | blocks(subject, FactList)[0].facts == found.told()
    assert f"is {found.numbers.center:.3f} at the centre" in summary(subject)
    assert shlex.split(blocks(subject, Listing)[1].text)[:4] == ["initio", "study", "landscape", found.plan.trained]
    assert parsed(blocks(subject, Listing)[1].text).architecture == found.plan.trained
    (home / "study/result.json").unlink()
    with pytest.raises(InputError, match="is not finished: ask the same again"):
        read_folder(home)


def test_a_landscape_whose_network_is_elsewhere_says_what_it_knows(tmp_path, runs):
    found = initio.landscape(str(runs / "trained"), grid=3, samples=30, steps=3, probes=2, folder=tmp_path / "l2")
    text = (tmp_path / "l2/study/result.json").read_text().replace(found.plan.trained, "/nowhere")
    (tmp_path / "l2/study/result.json").write_text(text)
    subject = read_folder(tmp_path / "l2")
    assert titles(subject) == ["The cell", "The landscape", "To do it again"]
    assert blocks(subject, Listing)[0].text == "mlp:relu,tanh"


def test_a_study_of_convergence_shows_a_curve_for_each_cell(tmp_path):
    home = tmp_path / "c1"
    ask = {"n": 1, "rates": (0.025, 0.1), "epochs": 2, "samples": 60, "channels": 2, "cells": 1}
    found = initio.convergence(initio.get_space("nb201").format(BUSY), "digits", **ask, folder=home)
    subject = read_folder(home)
    assert titles(subject) == ["The cells", "Convergence", "To do it again"]
    assert [chart.title for chart in blocks(subject, LineChart)] == ["Learning rate 0.025", "Learning rate 0.1"]
    (table,) = blocks(subject, DataTable)
    assert table.columns["area"] == [one.area for one in found.curves]
    assert table.columns["last test accuracy"] == [one.accuracies[-1] for one in found.curves]
    assert "2 cells, trained alike for 2 epochs" in summary(subject)
    assert blocks(subject, Listing)[-1].text.startswith('initio study convergence "|')
    assert parsed(blocks(subject, Listing)[-1].text).epochs == 2


def test_the_command_of_a_run_asks_for_the_same_run(runs):
    for name in ("noise", "hnas"):
        plan = RunFolder.open(runs / name).plan()
        command = parse(SearchCommand, shlex.split(plan.command())[2:])
        unset = {name: None for name, value in plan.arguments().items() if value is None}
        assert unset | command._asked() | {"limits": plan.limits} == plan.arguments()
        assert initio.Limits(**command._asked()["limits"]) == plan.limits


FULL = initio.NetworkSettings(12, 2, shape=(1, 28, 28), norm="plain", init="he", prune=False, drop_path=0.1)


@pytest.mark.parametrize("target", [None, initio.NetworkSettings(None, 3, prune=False), FULL])
@pytest.mark.parametrize("name", [*SEARCHES, "examples.own_search:Mine"])
def test_the_command_of_every_method_asks_for_the_same_run(name, target):
    method, more = find_search(name), {}
    if method.trains:
        more = {"queries": 3, "budget": 90.5, "halving": 3, "cache": False}
    settings = make_search(name, initio.get_space("darts"), {}).settings()
    limits = initio.Limits(max_params=500_000, max_flops=10**9, max_latency=2e-5)
    plan = RunPlan(
        "darts", name, "my photos", 3, "true", 8, 1, limits, settings, channels=4, epochs=2, target=target,
        device="cuda:1", **more,
    )  # fmt: skip
    asked = parsed(plan.command())._asked()
    assert initio.Limits(**asked.pop("limits")) == limits
    wanted = asked.pop("target")
    assert wanted == (target and replace(target, prune=True))
    rest = {key: value for key, value in plan.arguments().items() if key not in ("limits", "target")}
    assert {key: None for key, value in rest.items() if value is None} | asked == rest


def test_every_command_on_a_page_can_be_run(runs):
    for name, count in (("noise", 1), ("hnas", 1), ("trained", 1)):
        assert len(printed(runs / name)) == count


def test_the_command_of_a_training_asks_for_the_same_training(runs):
    subject = read_folder(runs / "trained")
    plan = subject.model.plan
    command = parse(TrainCommand, shlex.split(train_command(subject, plan))[2:])
    assert (command.architecture, command.data, command.recipe) == ("mlp:relu,tanh", plan.data, plan.recipe)
    assert dict(command.settings) == {name: value for name, value in plan.settings.items() if value is not None}


def test_several_runs_stand_on_one_page(runs, tmp_path):
    initio.write_report([runs / "noise", runs / "trained"], tmp_path / "both.html")
    html = (tmp_path / "both.html").read_text()
    assert '<h2 class="part">noise</h2>' in html
    assert '<h2 class="part">trained</h2>' in html


def test_a_new_kind_of_run_adds_a_function_and_a_line(runs, monkeypatch):
    def of_my_own(subject):
        return Section("Mine", [Prose(subject.title)])

    monkeypatch.setattr(known, "SECTIONS", (*known.SECTIONS, of_my_own))
    assert sections(read_folder(runs / "noise"))[-1].title == "Mine"


@pytest.mark.parametrize(
    ("name", "file", "sentence"),
    [
        ("noise", "result.json", "is not finished: go on with `initio search --resume"),
        ("trained", "trained.json", "is not finished: go on with `initio train --resume"),
    ],
)
def test_what_is_not_finished_says_how_to_go_on(runs, tmp_path, name, file, sentence):
    shutil.copytree(runs / name, tmp_path / name)
    (tmp_path / name / file).unlink()
    with pytest.raises(InputError, match=sentence):
        read_folder(tmp_path / name)


def test_bad_folders_get_a_sentence(tmp_path):
    with pytest.raises(InputError, match="is not a run"):
        read_folder(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        read_folder(tmp_path / "absent")
    with pytest.raises(InputError, match="nothing to report"):
        report([])


# --- stores ---------------------------------------------------------------------------------------------------------


def test_scores_belong_to_every_architecture_with_the_same_network():
    subject = read_store("nb201")
    nb201 = initio.get_space("nb201")
    (points,) = blocks(subject, PointChart)
    assert len(points.names) == len(set(points.names)) == 15_625
    value = dict(zip(points.names, points.columns["trace"], strict=True))
    for seed in range(20):
        arch = nb201.sample(Random(seed))
        same = value[nb201.format(nb201.canonical(arch))]
        assert value[nb201.format(arch)] == pytest.approx(same, rel=0, nan_ok=True)
    with Store(find_store("nb201"), read_only=True) as store:
        table = read_table(store, nb201)
    for arch in table.architectures[::500]:
        assert value[nb201.format(arch)] == pytest.approx(table["trace"][table.rows[arch]], nan_ok=True)
    assert "5,260 different networks" in summary(subject)


@needs_data
def test_published_accuracies_become_axes():
    table = open_table("nb201", SHARED)
    subject = read_store("nb201", data=str(SHARED))
    (points,) = blocks(subject, PointChart)
    assert points.y == "test c10 accuracy"
    for row in (0, 5000, 15_000):
        arch = subject.scores.architectures[row]
        assert points.columns["validation accuracy"][row] == table.validation(Query(arch)).value
        assert points.columns["test c10 accuracy"][row] == table.report(arch)["c10"]
    (ranks,) = blocks(subject, DataTable)
    assert list(ranks.columns["metric"]) == list(subject.scores.metrics)


def store_with(path, *spaces):
    with Store(path) as store:
        store.put(
            Evaluation(Architecture(space, (number,)), "trace", float(number), 0, settings=settings(cells=1), data="d")
            for space in spaces
            for number in range(3)
        )


def test_a_space_that_is_not_known_here_is_shown_by_its_numbers(tmp_path):
    name = "<script>alert(1)</script>"
    store_with(tmp_path / "own.db", name)
    subject = read_store(str(tmp_path / "own.db"))
    (points,) = blocks(subject, PointChart)
    assert points.names[0] == f"{name} (0,)"
    assert not any(points.cells)
    html = report([subject]).html()
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


def test_a_store_of_several_spaces_asks_which(tmp_path):
    store_with(tmp_path / "two.db", "a", "b")
    with pytest.raises(InputError, match=r"has scores of a, b: choose one with --space"):
        read_store(str(tmp_path / "two.db"))
    assert read_store(str(tmp_path / "two.db"), space="b").space == "b"


def test_a_run_in_a_space_that_is_not_known_here(runs, tmp_path):
    """As numbers, and without a picture."""
    folder = tmp_path / "own"
    shutil.copytree(runs / "noise", folder)
    for file in ("result.json", "run.json"):
        text = (folder / file).read_text().replace('"nb201"', json.dumps("<script>alert(1)</script>"))
        (folder / file).write_text(text)
    subject = read_folder(folder)
    assert not blocks(subject, CellPictures)
    assert blocks(subject, Listing)[0].text.startswith("<script>alert(1)</script> (")
    assert "<script>alert" not in report([subject]).html()
    assert not any("size" in block.facts for block in blocks(subject, FactList))
