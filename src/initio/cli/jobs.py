"""A search as the command line runs it: in a run folder, with progress, and with a sentence on why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from initio.cli.progress import Clock, Line, Progress
from initio.records import Scalar, SearchResult, Settings, settings
from initio.runs.folder import Run
from initio.spaces import GraphSpace, NetworkSettings

if TYPE_CHECKING:
    from initio.data import Data
    from initio.runs.hybrid import Hybrid
    from initio.searches import Problem
    from initio.searches import Search as Strategy


class Job(Protocol):
    """A search with all that it needs."""

    @property
    def fingerprint(self) -> str:
        """Of the data."""

    def resolved(self) -> dict[str, Any]:
        """The settings that the command had left to it."""

    def search(self, run: Run, clock: Clock) -> SearchResult:
        """Goes on with what the run has; the result says what people want to know of the choice."""


@dataclass(frozen=True)
class AtInitialisation:
    """A search that trains nothing."""

    problem: Problem
    strategy: Strategy
    seed: int
    pixels: int | None

    @cached_property
    def fingerprint(self) -> str:
        """Of the first batch."""
        return self.problem.batch(self.seed).fingerprint

    def resolved(self) -> dict[str, Any]:
        """The method's own settings, and the size of the network that scores."""
        own = getattr(self.strategy, "search", self.strategy)  # restarts have one inside
        chosen = {name: getattr(own, name) for name in ("steps", "mu", "nu", "nu_0", "counted") if hasattr(own, name)}
        network = self.problem.network
        return chosen | {"channels": network.channels, "cells": network.cells, "pixels": self.pixels}

    def search(self, run: Run, clock: Clock) -> SearchResult:
        """Row by row."""
        watch = self.problem.stopwatch
        for arch in watch.known.keys() - run.latencies().keys():
            run.add_latency(arch, watch.known[arch])
        watch.on_new = run.add_latency
        rows = run.rows() if self.strategy.resumes else run.restart()
        progress = Progress(self.strategy, self.problem, rows)

        def on_row(row: Settings) -> None:
            run.append(row, clock.seconds())
            progress.step(row)

        result = self.strategy.run(self.problem, seed=self.seed, rows=rows, on_row=on_row)
        progress.close()
        problem, facts = self.problem, {"fingerprint": self.fingerprint}
        facts["why"] = self.strategy.summary(problem, result)
        if str(problem.limits):
            facts["limits"] = str(problem.limits)
        latency = {} if problem.limits.max_latency is None else {"latency": problem.latency(result.chosen[0])}
        return _told(result, problem.space, problem.data, **facts, **latency)


@dataclass(frozen=True)
class FromTrainings:
    """A search that learns from trainings."""

    hybrid: Hybrid
    pixels: int | None

    @cached_property
    def fingerprint(self) -> str:
        """Of the first batch."""
        return self.hybrid.data.batch(self.hybrid.batch_size, self.hybrid.seed).fingerprint

    def resolved(self) -> dict[str, Any]:
        """The budget, the method's own settings, and the size of the network that scores."""
        hybrid = self.hybrid
        own = {name: getattr(hybrid.search, name) for name in ("metric", "k") if hasattr(hybrid.search, name)}
        size = {"channels": hybrid.network.channels, "cells": hybrid.network.cells, "pixels": self.pixels}
        budget = {"queries": hybrid.queries, "epochs": hybrid.training.epochs, "pool": hybrid.pool or None}
        return own | size | budget

    def search(self, run: Run, clock: Clock) -> SearchResult:
        """Training by training."""
        line = Line()
        result = self.hybrid.run(
            run.folder, rows=run.rows(), on_row=lambda row: run.append(row, clock.seconds()),
            on_scoring=line.scoring, on_training=line.training, on_note=line.note,
        )  # fmt: skip
        line.close()
        best = max(float(str(dict(row)["value"])) for row in result.trace)
        trained = f"{result.cost.queries} networks trained for {self.hybrid.training.epochs} epochs"
        why = f"best validation accuracy, {best:.2f} %, of {trained}"
        return _told(result, self.hybrid.space, self.hybrid.data, why=why, fingerprint=self.fingerprint)


def _told(result: SearchResult, space: GraphSpace, data: Data, **facts: Scalar) -> SearchResult:
    """The result with these facts, the data's, and the size of the published network."""
    facts |= {"data": data.name, "classes": data.classes}
    if space.images:
        from initio.networks.cost import count

        published = NetworkSettings(prune=False, classes=data.classes)
        cost = count(space.network(result.chosen[0], published), published)
        facts |= {"parameters": cost.parameters, "flops": cost.flops}
    return replace(result, about=settings(**facts))
