"""Problems for searches that ask: a pool, a budget, and whoever answers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from initio.records import Architecture
from initio.scores.table import ScoreTable
from initio.searches import Budget, Problem, SearchResult, drive
from initio.searches.problem import Evaluate
from initio.spaces import Space


def asking(
    space: Space,
    budget: Budget,
    pool: Sequence[Architecture] = (),
    scores: ScoreTable | None = None,
    epochs: tuple[int, ...] = (),
) -> Problem:
    return Problem(space, budget=budget, pool=pool, scores=scores, epochs=epochs)


def ask(
    search: Any, problem: Problem, evaluate: Evaluate, *, seed: int, done: Sequence[Any] = (), on_step: Any = None
) -> SearchResult:
    return drive(search, replace(problem, evaluate=evaluate), seed=seed, done=done, on_step=on_step)
