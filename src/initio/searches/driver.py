"""Runs any search: `drive`, the only place that builds a `SearchResult`."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from initio.records import Architecture, Cost
from initio.searches.base import OnStep, Search
from initio.searches.problem import Problem
from initio.searches.result import Facts, SearchResult
from initio.spaces import GraphSpace
from initio.system.files import peak_bytes


def drive(
    search: Search[Any], problem: Problem, *, seed: int, done: Sequence[Any] = (), on_step: OnStep | None = None,
    method: str | None = None,
) -> SearchResult:  # fmt: skip
    """Runs a search to its end; `done` are the steps of an interrupted run, `on_step` hears of each new one.

    The result calls the search by `method`, under which it can be found again; by default by its own name.
    """
    search = search.resolved(problem.space)
    search.check(problem)
    start = time.perf_counter()
    steps, run = list(done), search.run(problem, seed, tuple(done))
    while True:
        try:
            step = next(run)
        except StopIteration as stop:
            chosen: Architecture = stop.value
            break
        steps.append(step)
        if on_step:
            on_step(step)
    cost = search.cost(steps) + Cost(seconds=time.perf_counter() - start, peak_bytes=peak_bytes())
    if problem.scores is not None:
        cost = replace(cost, scorings=len(problem.scores))
    return SearchResult(
        method=method or search.name,
        space=problem.space.name,
        seed=seed,
        chosen=(chosen,),
        steps=tuple(steps),
        why=search.why(problem, steps, chosen),
        cost=cost,
        settings=search.settings(),
        versions=versions(),
        facts=facts(problem, seed, chosen),
        home=problem.space,
    )


def facts(problem: Problem, seed: int, chosen: Architecture) -> Facts:
    """What people want to know beside the choice: the data, and the size of the network that is wanted."""
    known: dict[str, Any] = {}
    if problem.data is None:
        return Facts()
    if isinstance(problem.space, GraphSpace) and problem.space.images:
        from initio.networks.cost import count

        wanted = replace(problem.target, prune=False, classes=problem.data.classes)
        cost = count(problem.space.network(chosen, wanted), wanted)
        known |= {"parameters": cost.parameters, "flops": cost.flops}
        known |= {"channels": wanted.channels, "cells": wanted.cells}
    if str(problem.limits):
        known["limits"] = str(problem.limits)
    if problem.limits.max_latency is not None:
        known["latency"] = problem.latency(chosen)
    return Facts(problem.data.name, problem.data.classes, problem.batch(seed).fingerprint, **known)


def versions() -> dict[str, str]:
    """What a result depends on beside its seed."""
    return {"initio": version("initio"), "torch": version("torch"), "python": platform.python_version()}
