import json
from pathlib import Path

import pytest

import initio
from initio.errors import InputError
from initio.records import SearchResult, settings
from initio.runs.folder import Run, load
from initio.spaces import NB201

ARCH = NB201.architecture(3, 1, 0, 0, 2, 4)
PLAN = SearchResult("nasi", "nb201", 3, (), settings(steps=2))
ROWS = [settings(step=0, value=float("inf")), settings(step=1, value=None, flag="no gradient")]


def test_a_run_is_planned_traced_and_finished(tmp_path: Path) -> None:
    run = Run.start(tmp_path / "deep" / "run", PLAN)
    for row in ROWS:
        run.append(row, 2.0)
    run.finish(SearchResult("nasi", "nb201", 3, (ARCH,), trace=tuple(ROWS)), 3.5)
    again = Run.open(run.folder)
    assert again.plan() == PLAN
    assert again.rows() == ROWS
    assert again.result().trace == tuple(ROWS)
    assert again.seconds() == 2.0
    assert again.result().cost.seconds == 3.5
    names = {path.name for path in run.folder.iterdir()}
    assert names == {
        "run.json",
        "trace.jsonl",
        "clock.jsonl",
        "result.json",
        "architecture.txt",
        "cell.svg",
        "cell.png",
    }


def test_a_half_written_last_line_is_cut_off(tmp_path: Path) -> None:
    run = Run.start(tmp_path / "run", PLAN)
    run.append(ROWS[0], 1.0)
    with run.trace_path.open("ab") as file:
        file.write(b'{"step": 1, "val')
    assert run.rows() == ROWS[:1]
    run.append(ROWS[1], 2.0)
    assert run.rows() == ROWS


def test_seconds_of_an_interrupted_run_are_those_of_its_last_whole_line(tmp_path: Path) -> None:
    run = Run.start(tmp_path / "run", PLAN)
    assert run.seconds() == 0
    run.append(ROWS[0], 1.5)
    with run.clock_path.open("ab") as file:
        file.write(b'{"secon')
    assert run.seconds() == 1.5
    run.append(ROWS[1], 2.5)
    assert run.seconds() == 2.5
    assert run.restart() == []
    assert run.seconds() == 0
    run.clock_path.write_text('{"second": 1}\n')
    with pytest.raises(InputError, match="clock.jsonl' has no seconds: delete the file"):
        run.seconds()


def test_damage_inside_the_trace_is_named(tmp_path: Path) -> None:
    run = Run.start(tmp_path / "run", PLAN)
    run.trace_path.write_bytes(b'{"step": 0}\n[1, 2]\n')
    with pytest.raises(InputError, match="line 2 of .*trace.jsonl' is damaged"):
        run.rows()


def test_times_are_kept(tmp_path: Path) -> None:
    run = Run.start(tmp_path / "run", PLAN)
    assert run.latencies() == {}
    run.add_latency(ARCH, 0.0125)
    assert Run.open(run.folder).latencies() == {ARCH: 0.0125}
    run.latency_path.write_bytes(b'{"space": "nb201", "choices": "1 2", "seconds": "soon"}\n')
    with pytest.raises(InputError, match="line 1 of .*latency.jsonl' is damaged"):
        run.latencies()


def test_a_folder_with_something_in_it_is_never_written_to(tmp_path: Path) -> None:
    Run.start(tmp_path / "run", PLAN)
    with pytest.raises(InputError, match="is not empty: give another --out, or go on with it by --resume"):
        Run.start(tmp_path / "run", PLAN)
    with pytest.raises(InputError, match="is not a run: it has neither run.json nor result.json"):
        Run.open(tmp_path)


def test_a_loaded_run_builds_a_plain_module(tmp_path: Path) -> None:
    run = Run.start(tmp_path / "run", PLAN)
    with pytest.raises(InputError, match="is not finished: go on with `initio search --resume"):
        load(run.folder)
    run.finish(SearchResult("nasi", "nb201", 3, (ARCH,)))
    found = initio.load(run.folder)
    assert str(found) == NB201.format(ARCH)
    assert found.build(classes=7, channels=4, cells=1).classifier.out_features == 7


def test_a_newer_result_is_refused(tmp_path: Path) -> None:
    run = Run.start(tmp_path / "run", PLAN)
    run.finish(SearchResult("nasi", "nb201", 3, (ARCH,)))
    document = json.loads(run.result_path.read_text()) | {"version": 99}
    run.result_path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="result.json has format version 99"):
        load(run.folder)
