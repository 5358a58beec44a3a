"""Searches, their trainings and studies on a GPU that is not there: the same choices, and nothing left on the CPU."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import initio
from initio.analysis.landscape import Hessian, measure_point
from initio.cli.bench import BenchCommand
from initio.data import load as load_data
from initio.errors import InputError
from initio.records import Query
from initio.runs.estimates import estimates
from initio.runs.search import make_problem, make_search
from initio.runs.sharing import sharing
from initio.searches import Problem, drive, find_search
from initio.searches.base import SearchStep
from initio.spaces import NB201, NetworkSettings
from initio.training import Training, TrainingSettings
from tests.pretended import GPU, moved, pretended_gpu

pytestmark = pytest.mark.usefixtures("named_device")
SMALL = {"channels": 2, "cells": 1, "pixels": 8}
MEASURING = {
    "votes": {"first": 2, "rounds": 0},
    "nasi-fit": {"steps": 2},
    "nasi": {"steps": 2, "nu": "adaptive"},
}
SHARING = ["rsps", "enas", "darts", "darts-2nd", "gdas", "snas", "pc-darts", "p-darts", "sdarts-adv", "drnas", "nesbs"]
DRAWN = {"enas", "gdas", "snas", "sdarts-adv", "drnas", "nesbs"}  # whose random numbers are the device's own


def steps_on(device: str, method: str, problem: Problem, settings: dict[str, object]) -> tuple[SearchStep, ...]:
    search = make_search(method, problem.space, settings)
    if device == "cpu":
        return drive(search, problem, seed=0).steps
    with pretended_gpu():
        return drive(search, replace(problem, device=device), seed=0).steps


def numbers(steps: tuple[SearchStep, ...]) -> list[float]:
    """All that was measured, in a row."""
    found: list[float] = []
    for step in steps:
        for value in vars(step).values():
            found += [float(one) for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, float)]
    return found


@pytest.mark.parametrize("method", MEASURING)
def test_a_search_that_measures_on_another_device(method: str) -> None:
    problem = make_problem("nb201", "noise", batch_size=4, **SMALL)
    here, there = (steps_on(device, method, problem, MEASURING[method]) for device in ("cpu", "meta"))  # type: ignore[arg-type]
    assert numbers(there) == pytest.approx(numbers(here), rel=1e-5)
    assert len(there) == len(here)


@pytest.mark.parametrize("method", SHARING)
def test_a_search_that_shares_weights_on_another_device(method: str) -> None:
    size = SMALL | {"channels": {"pc-darts": 4}.get(method, 2)}
    problem = replace(make_problem("nb201", "digits", batch_size=16, **size), epochs=(1,))
    settings: dict[str, object] = {"samples": 32}
    if method == "enas":
        settings |= {"steps": 1, "batch": 2, "candidates": 2}
    if method == "nesbs":
        settings |= {"posterior_updates": 1, "posterior_epochs": 1}
    here, there = (steps_on(device, method, problem, settings) for device in ("cpu", "meta"))
    assert len(there) == len(here)
    if method not in DRAWN:
        assert numbers(there) == pytest.approx(numbers(here), rel=1e-4)


def test_eigen_darts_on_another_device() -> None:
    problem = make_problem("mlp-3", "digits", batch_size=8)
    asked: dict[str, object] = {"width": 4, "samples": 16, "steps": 2, "batch": 4}
    here, there = (steps_on(device, "eigen-darts", problem, asked) for device in ("cpu", "meta"))
    assert numbers(there) == pytest.approx(numbers(here), rel=1e-5)


def test_te_nas_measures_on_another_device() -> None:
    search, noise = find_search("te-nas")(images=4, width=2), load_data("noise:3x8x8")
    kept = tuple(((0, 3),) * 6)
    smaller = [((3,), *kept[1:])]
    here = search.changes(NB201, noise, kept, smaller, 5)
    with pretended_gpu():
        there = search.changes(NB201, noise, kept, smaller, 5, "meta")
    assert np.allclose(here, there, rtol=1e-6)


def test_a_searchs_training_on_another_device_is_kept_apart(tmp_path: Path) -> None:
    digits = load_data("digits")
    here = Training(NB201, digits, NetworkSettings(2, 1), TrainingSettings(epochs=1, samples=64), folder=tmp_path)
    there = replace(here, device="meta")
    query = Query(NB201.architecture(3, 0, 1, 0, 2, 4))
    expected = here(query)
    with pretended_gpu():
        assert there(query).value == pytest.approx(expected.value)
    assert len(list(tmp_path.glob("*.json"))) == 2


def test_a_landscape_on_another_device() -> None:
    model = NB201.build(NB201.architecture(3, 0, 1, 0, 2, 4), NetworkSettings(2, 1, 3, (3, 8, 8)), seed=0)
    batch = initio.noise((3, 8, 8), classes=3, batch_size=4, seed=0)
    x, y = torch.tensor(batch.x), torch.tensor(batch.y)
    v = np.random.default_rng(0).standard_normal(Hessian(model, x, y).size)
    point, product = measure_point(model, x, y), Hessian(model, x, y) @ v
    with pretended_gpu():
        x, y = x.to(GPU), y.to(GPU)
        assert vars(measure_point(moved(model), x, y)) == pytest.approx(vars(point), rel=1e-5)
        assert np.allclose(Hessian(model, x, y) @ v, product, rtol=1e-4, atol=1e-6)


def test_a_device_means_the_same_everywhere(tmp_path: Path) -> None:
    for verb in (
        lambda device: initio.search("nb201", device=device, folder=tmp_path / "run"),
        lambda device: initio.rank("nb201", 2, device=device),
        lambda device: initio.explain("darts_v2", measure=True, device=device),
        lambda device: initio.convergence("darts_v2", "digits", n=1, device=device, folder=tmp_path / "study"),
        lambda device: initio.landscape("mlp:relu,tanh", "digits", device=device, folder=tmp_path / "land"),
        lambda device: initio.ensemble("nb201", "digits", device=device, folder=tmp_path / "ensemble"),
        lambda device: initio.solve("digits", 60, device=device, folder=tmp_path / "solve"),
        lambda device: initio.evaluate(tmp_path / "trained", device=device),
        lambda device: initio.attack(tmp_path / "trained", device=device),
        lambda device: sharing(tmp_path / "run", device=device),
        lambda device: estimates([tmp_path / "ensemble"], device=device),
        lambda device: BenchCommand("nb201", device=device).setup(),
    ):
        for name in ("gpu", "cuda"):
            with pytest.raises(InputError, match=rf"a device is .*, not '{name}'"):
                verb(name)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="kernels of infinite width, on the CPU: leave out device"):
        initio.search("mlp-3", "lambda-min", "digits", device="meta")
