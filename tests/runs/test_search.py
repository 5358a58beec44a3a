"""The verb: what it refuses, that it goes on, and what its result can do."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import initio
from initio import InputError, Limits
from initio.data import load
from initio.records import Observation, from_json, to_json
from initio.runs.search import make_problem, make_search
from initio.searches import Budget, SearchResult, Trained, drive
from initio.searches.methods.nasi_fit import NasiFit
from initio.searches.methods.random_search import RandomSearch
from initio.system.executors import Here

TINY: dict[str, Any] = {"channels": 2, "cells": 1, "pixels": 8, "batch_size": 8}
BIG = initio.NetworkSettings(16, 5, prune=False)
QUICK: dict[str, Any] = {**TINY, "queries": 2, "epochs": 1}


@pytest.fixture(scope="module")
def result() -> SearchResult:
    return initio.search("nb201", "nasi-fit", seed=1, steps=5, **TINY)


def test_a_name_and_an_object_are_the_same_search(result: SearchResult) -> None:
    assert initio.search("nb201", NasiFit(steps=5), seed=1, **TINY) == result
    size = {name: TINY[name] for name in ("channels", "cells", "batch_size")}
    assert (
        initio.search(initio.get_space("nb201"), "nasi-fit", load("noise", pixels=8), seed=1, steps=5, **size) == result
    )


def test_a_result_builds_prints_and_tabulates(result: SearchResult) -> None:
    assert result.build(channels=4, cells=1).classifier.out_features == 10
    assert result.why in str(result)
    assert initio.get_space("nb201").format(result.best) in str(result)
    frame = result.to_frame()
    assert list(frame.columns[:3]) == ["number", "trace", "architecture"]
    assert len(frame) == 5
    html = result._repr_html_()
    assert "<svg" in html
    assert "parameters" in html
    assert from_json(SearchResult, to_json(result)) == result


def test_a_table_without_pandas_is_one_sentence(result: SearchResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(InputError, match="needs pandas"):
        result.to_frame()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"method": "nasi-fit", "stepz": 4}, "stepz is not a setting of nasi-fit: did you mean 'steps'?"),
        ({"method": "nasi-fit", "steps": "4"}, "field 'steps' must be of type int, not '4'"),
        ({"method": NasiFit(), "steps": 4}, "steps is a setting of the method: give it to NasiFit"),
        ({"method": NasiFit}, "the method must be a name or a search such as Nasi"),
        ({"method": "magic"}, "there is no search 'magic'"),
        ({"method": "initio.errors:InputError"}, "is not a search: derive its class from initio.Search"),
        ({"method": "nasi-fit", "queries": 4}, "queries is not an option of nasi-fit: it trains nothing"),
        (
            {"method": "lambda-min", "space": "mlp", "limits": {"max_params": 4}},
            "max_params is not an option of lambda-min: it keeps no limits",
        ),
        ({"method": "random", "data": "digits", "pool": 4}, "pool is not an option of random: it needs no scores"),
        ({"method": "random", "data": "digits", "labels": "random"}, "labels is not an option of random"),
        (
            {"method": "random", "data": "digits", "space": "nb201", "limits": Limits(9)},
            "no architecture of nb201 was found that has at most 9 parameters",
        ),
        ({"method": "nasi-fit", "budget": 9.0}, "budget is not an option of nasi-fit: it trains nothing"),
        (
            {"method": "random", "data": "digits", "budget": -1},
            "the budget must be a positive number of seconds, not -1",
        ),
        ({"method": "random", "data": "digits", "halving": 1}, "halving must be at least 2, not 1"),
        ({"method": "random", "data": "digits", "workers": 0}, "workers must be at least 1, not 0"),
        ({"method": "random"}, "noise has nothing to learn"),
        ({"method": "hnas", "data": "digits", "pool": -1}, "the pool must not be negative, not -1"),
        (
            {"space": "mlp-3", "method": "hnas", "data": "digits", "pool": 51},
            "mlp-3 has 50 architectures: the pool cannot have 51",
        ),
        ({"method": "hnas", "data": "digits", "channels": 0}, "channels must be a whole number of at least 1, not 0"),
        ({"method": "nasi-fit", "channels": 0}, "channels must be a whole number of at least 1, not 0"),
        ({"method": "nasi-fit", "limits": {"max_parms": 4}}, "max_parms is not a limit: did you mean 'max_params'?"),
        ({"method": "robust", "data": "digits", "restarts": 2}, "restarts is not an option of robust"),
        ({"method": "nasi-fit", "resume": True}, "to resume a search, say in which folder its run is"),
        ({"method": "nasi-fit", "data": load("digits"), "pixels": 8}, "pixels is an option for data by name"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    folder = {} if "resume" in arguments else {"folder": tmp_path / "run"}
    with pytest.raises(InputError, match=sentence):
        initio.search(**{"space": "nb201", **folder, **arguments})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("space", "given", "expected"),
    [
        ("darts", {}, {"mu": 2.0, "nu": "adaptive", "nu_0": 500.0}),
        ("darts", {"mu": 1.5}, {"mu": 1.5, "nu_0": 500.0}),
        ("darts", {"nu_0": 70.0}, {"mu": 2.0, "nu_0": 70.0}),
        ("nb201", {}, {"mu": 1.0, "nu": "fixed", "nu_0": 1000.0}),
        ("nb1shot1-s2", {}, {"mu": 1.0, "nu": "adaptive", "nu_0": 1000.0}),
    ],
)
def test_the_literal_estimator_has_the_published_settings_of_its_space(
    space: str, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    used = make_search("nasi", initio.get_space(space), given).settings()
    assert {name: used[name] for name in expected} == expected


def test_the_best_trained_is_chosen_and_an_interrupted_run_ends_alike(tmp_path: Path) -> None:
    whole = initio.search("nb201", "hnas", "digits", folder=tmp_path / "whole", pool=6, **QUICK)
    values = {step.architecture: step.value for step in whole.steps if isinstance(step, Trained)}
    assert values[whole.best] == max(value for value in values.values() if value is not None)
    assert 0 < whole.cost.scorings <= 6

    class StoppedError(Exception):
        pass

    def stop(step: Trained) -> None:
        raise StoppedError

    call: dict[str, Any] = {**QUICK, "folder": tmp_path / "parts", "pool": 6}
    with pytest.raises(StoppedError):
        initio.search("nb201", "hnas", "digits", on_step=stop, **call)
    with pytest.raises(InputError, match="the run was started with seed 0, not 1: give another folder"):
        initio.search("nb201", "hnas", "digits", seed=1, resume=True, **call)
    again = initio.search("nb201", "hnas", "digits", resume=True, **call)
    assert [step.value for step in again.steps] == [step.value for step in whole.steps]  # type: ignore[attr-defined]
    assert again.best == whole.best == initio.load(tmp_path / "parts").best
    assert initio.search("nb201", "hnas", "digits", resume=True, **call) == again  # finished: read, not run
    with pytest.raises(InputError, match="the run was started with queries 2, not 3"):
        initio.search("nb201", "hnas", "digits", resume=True, **{**call, "queries": 3})


def test_the_pool_of_a_small_space_is_the_whole_of_it() -> None:
    found = initio.search("examples.own_space:Mine", "robust", "digits", queries=1, epochs=1)
    assert found.cost.scorings == 8


def test_cells_of_nb1shot1_find_the_scores_of_their_networks() -> None:
    """A network is scored once for all spaces that have it, under nb101."""
    size = {**QUICK, "channels": 8, "queries": 1}
    found = initio.search("nb1shot1-s1", "zero-cost", "digits", pool=4, **size)
    assert found.best.space == "nb1shot1-s1"
    assert found.cost.scorings > 0


def test_trainings_are_shared_by_runs_unless_that_is_not_wanted(tmp_path: Path, capsys: Any) -> None:
    from initio.cli import main
    from initio.system.files import cache_folder

    def search(folder: str, **more: Any) -> tuple[SearchResult, list[str]]:
        updates: list[str] = []
        found = initio.search(
            "nb201", "random", "digits", folder=tmp_path / folder,
            on_progress=lambda what: updates.append(type(what).__name__),
            **QUICK, **more,
        )  # fmt: skip
        return found, [name for name in updates if name == "TrainingProgress"]

    first, trained = search("a")
    assert trained
    assert len(list(cache_folder("trainings").glob("*.json"))) == 2
    second, again = search("b")
    assert not again
    assert [step.value for step in first.steps] == [step.value for step in second.steps]
    alone, once_more = search("c", cache=False)
    assert once_more
    assert len(list((tmp_path / "c" / "trainings").glob("*.json"))) == 2
    assert [step.value for step in alone.steps] == [step.value for step in first.steps]
    assert main(["cache", "info"]) == 0
    assert "2 finished, 0 interrupted" in capsys.readouterr().out
    assert main(["cache", "empty"]) == 0
    assert "forgot 2 trainings" in capsys.readouterr().out
    assert search("d")[1]


def test_a_budget_of_time_is_kept_and_what_was_used_before_a_stop_counts(tmp_path: Path) -> None:
    from initio.runs.folders.run import RunFolder

    begin = time.perf_counter()
    folder = tmp_path / "run"
    asked: dict[str, Any] = {**TINY, "budget": 5.0, "folder": folder}

    def stop(what: object) -> None:
        if type(what).__name__ == "TrainingProgress" and RunFolder(folder).seconds() > 0.3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        initio.search("nb201", "hnas", "digits", on_progress=stop, **asked)
    used = RunFolder(folder).seconds()
    assert used > 0.3
    sizes = RunFolder(folder).sizes()
    result = initio.search("nb201", "hnas", "digits", resume=True, **asked)
    assert time.perf_counter() - begin < 10
    assert RunFolder(folder).sizes() == sizes
    assert sizes is not None
    assert result.steps
    assert len(result.steps) <= sizes.queries
    assert result.cost.seconds < 7.5


def test_networks_are_measured_on_all_cores_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def executor(workers: int, *_: object) -> Here:
        asked.append(workers)
        return Here()

    monkeypatch.setattr("initio.runs.search.cores", lambda: 3)
    monkeypatch.setattr("initio.runs.search.executor_for", executor)
    initio.search("nb201", "votes", **TINY, first=4, rounds=0)
    assert asked[-1] == 3


def test_limits_hold_for_the_network_that_is_wanted() -> None:
    space, size = initio.get_space("nb201"), initio.NetworkSettings(4, 1)
    limit = 6_000
    for method in ("random", "rea"):
        result = initio.search(
            "nb201", method, "digits", limits={"max_params": limit}, target=size, queries=3, epochs=1, **TINY
        )
        built = replace(size, prune=False, shape=(1, 8, 8))
        assert all(space.cost(step.architecture, built).parameters <= limit for step in result.steps)


def test_slow_networks_are_not_trained() -> None:
    first = initio.search("nb201", "random", "digits", queries=3, epochs=1, **TINY)
    slowest = max(first.steps, key=lambda step: initio.get_space("nb201").cost(step.architecture, BIG).flops)
    from initio.searches.limits import Stopwatch

    known = {step.architecture: 0.01 for step in first.steps} | {slowest.architecture: 1.0}
    problem = replace(
        make_problem("nb201", "digits", limits=Limits(max_latency=0.5)),
        budget=Budget(2),
        stopwatch=Stopwatch(known),
        evaluate=lambda query: Observation(50.0, 1.0),
        pool=tuple(step.architecture for step in first.steps),
    )
    steps = drive(RandomSearch(), problem, seed=0).steps
    late = [step for step in steps if step.architecture == slowest.architecture]
    assert all(step.flag == "not trained: takes 1e+03 ms a forward pass" for step in late)
    assert sum(step.value is not None for step in steps) == 2  # it costs no query
