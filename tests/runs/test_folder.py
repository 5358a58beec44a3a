import json
from pathlib import Path

import pytest

import initio
from initio.errors import InputError
from initio.records import encode
from initio.runs.folders.run import RunFolder, RunPlan, load_run
from initio.runs.search import resume_run
from initio.searches import Limits, SearchResult
from initio.searches.methods.nasi_fit import Measured
from initio.spaces import NB201

ARCH = NB201.architecture(3, 1, 0, 0, 2, 4)
PLAN = RunPlan(
    "nb201", "nasi-fit", "noise", 3, "true", 64, 1, Limits(max_params=9), {"steps": 2, "nu": "none"}, pixels=16
)
STEPS = [Measured(0, float("inf"), ARCH, 0.5), Measured(1, None, ARCH, flag="no gradient", restart=1)]
KINDS = (Measured,)


def test_a_run_is_started_and_finished(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "deep" / "run").start(PLAN)
    for step in STEPS:
        run.append(step, 2.0)
    run.finish(SearchResult("nasi-fit", "nb201", 3, (ARCH,), tuple(STEPS)))
    again = RunFolder.open(run.folder)
    assert again.plan() == PLAN
    assert again.steps(KINDS) == STEPS
    assert again.result().steps == tuple(STEPS)
    assert again.seconds() == 2.0
    names = {path.name for path in run.folder.iterdir()}
    assert names == {
        "run.json",
        "steps.jsonl",
        "clock.jsonl",
        "result.json",
        "architecture.txt",
        "cell.svg",
        "cell.png",
    }


def test_a_half_written_last_line_is_cut_off(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run").start(PLAN)
    run.append(STEPS[0], 1.0)
    with run.steps_path.open("ab") as file:
        file.write(b'{"step": 1, "val')
    assert run.steps(KINDS) == STEPS[:1]
    run.append(STEPS[1], 2.0)
    assert run.steps(KINDS) == STEPS


def test_seconds_of_an_interrupted_run_are_those_of_its_last_whole_line(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run").start(PLAN)
    assert run.seconds() == 0
    run.append(STEPS[0], 1.5)
    with run.clock_path.open("ab") as file:
        file.write(b'{"secon')
    assert run.seconds() == 1.5
    run.append(STEPS[1], 2.5)
    assert run.seconds() == 2.5
    assert run.restart() == []
    assert run.seconds() == 0
    run.clock_path.write_text('{"second": 1}\n')
    with pytest.raises(InputError, match="line 1 of .*clock.jsonl' is damaged: field 'seconds'"):
        run.seconds()


@pytest.mark.parametrize("line", ["[1, 2]", "7", '{"kind": "trained"}', '{"kind": "measured", "number": "two"}', "{"])
def test_damage_inside_the_steps_is_named(tmp_path: Path, line: str) -> None:
    run = RunFolder(tmp_path / "run").start(PLAN)
    run.append(STEPS[0], 1.0)
    with run.steps_path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(InputError, match="line 2 of .*steps.jsonl' is"):
        run.steps(KINDS)


def test_times_are_kept(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run").start(PLAN)
    assert run.latencies() == {}
    run.add_latency(ARCH, 0.0125)
    assert RunFolder.open(run.folder).latencies() == {ARCH: 0.0125}
    run.latency_path.write_bytes(json.dumps({"architecture": encode(ARCH), "seconds": "soon"}).encode() + b"\n")
    with pytest.raises(InputError, match="line 1 of .*latency.jsonl' is damaged"):
        run.latencies()


def test_a_folder_with_something_in_it_is_never_written_to(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run").start(PLAN)
    with pytest.raises(InputError, match="is not empty: give another folder, or go on with `initio search --resume"):
        RunFolder(tmp_path / "run").start(PLAN)
    with pytest.raises(InputError, match="is not a run: it has neither run.json nor result.json"):
        RunFolder.open(tmp_path)


def test_a_loaded_run_builds_a_plain_module(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run").start(PLAN)
    with pytest.raises(InputError, match="is not finished: go on with `initio search --resume"):
        load_run(run.folder)
    run.finish(SearchResult("nasi-fit", "nb201", 3, (ARCH,)))
    found = initio.load(run.folder)
    assert found.best == ARCH
    assert found.build(classes=7, channels=4, cells=1).classifier.out_features == 7


def test_a_newer_result_is_refused(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run").start(PLAN)
    run.finish(SearchResult("nasi-fit", "nb201", 3, (ARCH,)))
    document = json.loads(run.result_path.read_text()) | {"version": 99}
    run.result_path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="result.json has format version 99"):
        load_run(run.folder)


def test_a_run_of_an_earlier_format_is_refused_in_one_sentence(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run").start(PLAN)
    run.finish(SearchResult("nasi-fit", "nb201", 3, (ARCH,)))
    for path, kind in ((run.result_path, "search result"), (run.plan_path, "run")):
        path.write_text(json.dumps({"initio": kind, "version": 1, "trace": []}))
    for read in (run.plan, run.result):
        with pytest.raises(InputError, match="format version 1, .* does not read any more: run the search again"):
            read()


def test_runs_from_before_the_searches_had_their_names_are_read_right(tmp_path: Path) -> None:
    """`nasi` was the fit, and `nasi-literal` Algorithm 1: what they were asked says which is which."""
    for was, now, settings in (
        ("nasi", "nasi-fit", {"steps": 4, "ridge": 1.0}),
        ("nasi-literal", "nasi", {"steps": 3, "nu": "50"}),
        ("nasi", "nasi", {"steps": 3, "nu": "50"}),
    ):
        size = {"channels": 2, "cells": 1, "pixels": 8, "batch_size": 8}
        folder = tmp_path / f"{was}-{now}"
        whole = initio.search("nb201", now, folder=folder, **settings, **size)
        for path in (folder / "run.json", folder / "result.json"):
            path.write_text(path.read_text().replace(f'"method": "{now}"', f'"method": "{was}"'))
        assert json.loads((folder / "run.json").read_text())["method"] == was
        assert load_run(folder) == whole
        (folder / "result.json").unlink()
        assert initio.search("nb201", now, folder=folder, resume=True, **settings, **size) == whole
        assert resume_run(folder).method == now
