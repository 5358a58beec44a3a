"""Limits: counted ones shape what is drawn, a measured one is asked for late and once."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
import torch

import initio
from initio.data import load
from initio.errors import InputError
from initio.networks.cost import count
from initio.records import Architecture
from initio.runs.search import make_problem
from initio.searches import Limits, Problem, drive
from initio.searches.limits import Stopwatch, forward_seconds
from initio.searches.methods.nasi import Nasi
from initio.searches.methods.nasi_fit import NasiFit
from initio.searches.problem import climb
from initio.spaces import DARTS, NB201, NetworkSettings

SMALL = NetworkSettings(channels=2, cells=1, shape=(3, 8, 8))
PROBLEM = Problem(NB201, load("noise:3x8x8:10"), SMALL, SMALL, batch_size=8)
DARTS_PROBLEM = Problem(DARTS, load("noise:3x8x8:10"), replace(SMALL, cells=3), replace(SMALL, cells=3), batch_size=8)


class Pretended(Stopwatch):
    """Seconds are the number of 3x3 convolutions; remembers who asked."""

    def seconds(self, space: object, arch: Architecture, network: object) -> float:
        self.known[arch] = float(arch.choices.count(3))
        return self.known[arch]


@pytest.mark.parametrize("problem", [PROBLEM, DARTS_PROBLEM], ids=lambda problem: problem.space.name)
def test_tight_limits_are_still_drawn_from(problem: Problem) -> None:
    """A limit just above the smallest network: chance alone would not find it."""
    rng = Random(0)
    smallest = problem._shrink(problem.draw_admitted(rng), rng, most=True)
    limit = count(problem.graphs.network(smallest, problem.target), problem.target).parameters
    tight = replace(problem, limits=Limits(max_params=limit))
    assert tight.accepts(tight.draw_admitted(Random(1)))
    with pytest.raises(InputError, match=f"the smallest has {limit:,} parameters"):
        replace(problem, limits=Limits(max_params=limit - 1)).draw_admitted(Random(1))


def test_loose_limits_do_not_change_what_is_drawn() -> None:
    loose = replace(PROBLEM, limits=Limits(max_params=10**9, max_flops=10**12, max_latency=1e9))
    assert [loose.draw_admitted(Random(k)) for k in range(5)] == [PROBLEM.draw_admitted(Random(k)) for k in range(5)]
    assert not loose.stopwatch.known


@pytest.mark.parametrize("search", [NasiFit(steps=12), Nasi(steps=3, nu="adaptive")], ids=lambda search: search.name)
def test_a_latency_limit_is_kept_with_few_measurements(search: NasiFit | Nasi) -> None:
    problem = replace(PROBLEM, limits=Limits(max_latency=1.0), stopwatch=Pretended())
    problem.check()
    result = drive(search, problem, seed=0)
    assert result.best.choices.count(3) <= 1
    assert len(problem.stopwatch.known) < 200  # of 4096 without `none`
    assert drive(search, problem, seed=0) == result


def test_climbing_asks_for_the_heaviest_first() -> None:
    problem = replace(PROBLEM, limits=Limits(max_latency=9.0), stopwatch=Pretended())
    top = climb(problem, NB201.architecture(*[1] * 6), lambda archs: [sum(arch.choices) for arch in archs])
    assert top == NB201.architecture(*[4] * 6)
    assert len(problem.stopwatch.known) == 6  # one a step: every first guess is accepted


def test_a_latency_that_nothing_keeps_is_refused() -> None:
    impossible = replace(PROBLEM, limits=Limits(max_latency=1e-9))
    with pytest.raises(InputError, match="takes .* ms a forward pass here, not at most 1e-06 ms"):
        impossible.check()
    with pytest.raises(InputError, match="none of the architectures that were tried has at most"):
        drive(NasiFit(steps=3), impossible, seed=0)


def test_a_time_is_positive_kept_and_leaves_the_threads_alone() -> None:
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    arch, heard = NB201.architecture(*[3] * 6), list[tuple[Architecture, float]]()
    watch = Stopwatch()
    watch.on_new = lambda arch, seconds: heard.append((arch, seconds))
    first = watch.seconds(NB201, arch, SMALL)
    assert first > 0
    assert watch.seconds(NB201, arch, SMALL) == first
    assert heard == [(arch, first)]
    assert Stopwatch({arch: 5.0}).seconds(NB201, arch, SMALL) == 5
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_time_is_the_median_after_a_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    times, threads = iter([100.0, 50.0, 7.0, 1.0, 6.0, 2.0, 5.0, 3.0, 4.0]), []

    def timed(model: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> float:
        threads.append(torch.get_num_threads())
        assert not model(x).requires_grad
        assert x.shape == (1, *SMALL.shape)
        return next(times)

    monkeypatch.setattr("initio.searches.limits._timed", timed)
    assert forward_seconds(NB201, NB201.architecture(*[3] * 6), SMALL) == 4
    assert threads == [1] * 9


def test_a_limit_that_the_published_network_breaks_makes_it_thinner_and_shallower() -> None:
    """As `--max-params 500k` on darts, whose published networks have millions."""
    problem = make_problem(DARTS, "noise:3x8x8:10", limits=Limits(max_params=500_000), batch_size=8)
    rng = Random(0)
    assert not any(problem.admits(problem.space.sample(rng)) for _ in range(20))
    fitted = problem.fitted()
    channels, cells = DARTS.size(fitted.target)
    assert 3 <= cells < 20
    assert 4 < channels < 36
    drawn = [fitted.draw_admitted(rng) for _ in range(10)]
    assert len({arch.choices for arch in drawn}) == 10  # no need to make them small
    for arch in drawn:
        assert DARTS.cost(arch, fitted.target).parameters <= 500_000
    larger = replace(fitted, target=replace(fitted.target, channels=channels + 3, cells=cells + 2))
    assert larger._median_excess([larger._draw_sound(rng) for _ in range(25)]) > 1
    assert replace(problem, limits=Limits(max_params=4_000_000)).fitted().target == problem.target
    asked = replace(problem, target=replace(problem.target, channels=30))
    assert asked.fitted() is asked


def test_the_network_that_is_built_keeps_the_limits() -> None:
    small = {"channels": 2, "cells": 3, "pixels": 8, "batch_size": 4, "steps": 2}
    result = initio.search("darts", "nasi-fit", limits={"max_params": 300_000}, **small)
    built = sum(p.numel() for p in result.build().parameters())
    assert built <= result.facts.parameters <= 300_000  # what reaches no output is counted and not built
    assert f"{result.facts.channels} channels, {result.facts.cells} cells" in result.told()["size"]
