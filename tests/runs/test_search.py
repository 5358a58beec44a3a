"""The verb: what it refuses, that it goes on, and what its result can do."""

from pathlib import Path
from typing import Any

import pytest

import initio
from initio import InputError, Limits
from initio.data import load
from initio.records import from_json, to_json
from initio.runs.search import make_search
from initio.searches import SearchResult, Trained
from initio.searches.methods.nasi_fit import NasiFit

TINY: dict[str, Any] = {"channels": 2, "cells": 1, "pixels": 8, "batch_size": 8}
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
            {"method": "random", "data": "digits", "limits": Limits(9)},
            "max_params is not an option of random",
        ),
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
