"""The verbs on a cluster of two workers: the same bits as in this process."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import initio
from initio.runs import ensemble as ensemble_verb
from initio.runs.bench import BenchSetup, run_all
from initio.runs.ensemble import resume_ensemble
from initio.runs.folders.ensemble import EnsembleFolder
from initio.searches import Budget
from initio.searches.methods.evolution import RegularisedEvolution
from initio.searches.methods.rsps import Rsps
from initio.system.executors.cluster import _ClusterSession
from tests.runs.conftest import CELL
from tests.runs.test_bench import everything

THIN: dict[str, Any] = {"channels": 2, "cells": 1}


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The tasks that were sent there: some in every test."""
    found, submit = list[Any](), _ClusterSession.submit_all

    def note(session: Any, tasks: Any) -> Any:
        found.extend(tasks)
        return submit(session, tasks)

    monkeypatch.setattr(_ClusterSession, "submit_all", note)
    yield found
    assert found


def test_scores_and_ranks(scheduler: str, sent: list[Any]) -> None:
    here = initio.rank("nb201", 3, batch_size=8, **THIN)
    there = initio.rank("nb201", 3, batch_size=8, cluster=scheduler, **THIN)
    assert len(sent) == len(here.table)
    assert here.table.metrics == there.table.metrics
    for metric in here.table.metrics:
        assert np.array_equal(here.table.each(metric), there.table.each(metric), equal_nan=True)


def test_trainings_of_a_search(scheduler: str, sent: list[Any]) -> None:
    asked: dict[str, Any] = {"queries": 2, "epochs": 1, "pixels": 8, "batch_size": 8, "cache": False, **THIN}
    here = initio.search("nb201", "random", "digits", **asked)
    there = initio.search("nb201", "random", "digits", cluster=scheduler, **asked)
    assert len(sent) == 2
    assert here.best == there.best
    assert [step.value for step in here.steps] == [step.value for step in there.steps]  # type: ignore[attr-defined]


def test_members_of_an_ensemble(
    scheduler: str, tmp_path: Path, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ensemble_verb, "_draw", lambda *_: None)  # pictures, which take long and are not compared
    monkeypatch.setattr("initio.report.save_picture", lambda *_: None)
    here = EnsembleFolder(tmp_path / "here")
    initio.ensemble(
        "nb201", "digits", folder=here.folder, size=2, candidates=3, supernet_epochs=1, posterior_epochs=1,
        posterior_updates=2, samples=80, epochs=1, prior="uniform", sampling="mc", **THIN,
    )  # fmt: skip
    there = EnsembleFolder(tmp_path / "there")
    shutil.copytree(here.folder, there.folder)
    for number in (1, 2):
        shutil.rmtree(there.member(number))
    there.predictions_path.unlink()
    there.result_path.unlink()
    resume_ensemble(there.folder, cluster=scheduler)
    assert len(sent) == 2
    for number in (1, 2):
        weights = [made.member(number) / "last.pt" for made in (here, there)]
        assert weights[0].read_bytes() == weights[1].read_bytes()
    assert here.result_path.read_bytes() == there.result_path.read_bytes()


def test_runs_of_a_bench(scheduler: str, tmp_path: Path, sent: list[Any]) -> None:
    setup = BenchSetup(
        "nb201", Budget(queries=9), str(everything(tmp_path)), images="digits", shared_epochs=1, shared_batch=30
    )
    searches = {"rea": RegularisedEvolution(), "rsps": Rsps(samples=60, candidates=2)}
    here = run_all(setup, searches, range(1))
    there = run_all(setup, searches, range(1), cluster=scheduler, journal=tmp_path / "there" / "unfinished-1.jsonl")
    assert len(sent) == 2
    for one, other in zip(here, there, strict=True):
        assert (one.choices, one.report, one.found_at) == (other.choices, other.report, other.found_at)
        assert [point.report for point in one.curve] == [point.report for point in other.curve]


def test_trainings_of_a_study(scheduler: str, tmp_path: Path, sent: list[Any]) -> None:
    asked: dict[str, Any] = {"n": 1, "rates": (0.1,), "epochs": 1, "samples": 100, **THIN}
    here = initio.convergence(CELL, "digits", folder=tmp_path / "here", **asked)
    there = initio.convergence(CELL, "digits", folder=tmp_path / "there", cluster=scheduler, **asked)
    assert len(sent) == 2
    assert here.curves == there.curves
