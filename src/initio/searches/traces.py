"""Searches for the largest expected objective of the trace T of the kernel; `Restarts` runs them often."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from initio.errors import InputError
from initio.records import Architecture, Cost
from initio.searches.base import Search, SearchStep
from initio.searches.problem import Problem

if TYPE_CHECKING:
    import numpy as np


class Traces(NamedTuple):
    """T of one architecture on one draw, the part of it that is rewarded, and why there is none."""

    T: float | None
    rewarded: float | None
    flag: str = ""


@dataclass(frozen=True)
class TraceStep(SearchStep):
    """A step that measured T."""

    number: int
    trace: float | None

    @property
    def traces(self) -> Traces:
        """T, all of it rewarded unless a search says otherwise."""
        return Traces(self.trace, self.trace)

    @property
    def cost(self) -> Cost:
        """One scoring."""
        return Cost(steps=1, scorings=1)

    def told(self) -> str:
        """T."""
        return "no T" if self.trace is None else f"T {self.trace:.3g}"


T = TypeVar("T", bound=TraceStep)


@dataclass(frozen=True)
class TraceSearch(Search[T]):
    """A search that maximises an objective of T."""

    limited = True

    @abstractmethod
    def objective(self, T: np.ndarray, rewarded: np.ndarray | None = None) -> np.ndarray:
        """What is maximised, of each trace; ν, where it is not given, follows from all of them.

        `rewarded` is the part of each trace that is rewarded, all of it if nothing is given.
        """

    def measure(self, problem: Problem, arch: Architecture, draw: int) -> Traces:
        """T and its rewarded part, with the batch and the initialisation of one draw."""
        return whole_trace(problem, arch, draw)


def whole_trace(problem: Problem, arch: Architecture, draw: int) -> Traces:
    """T, all of it rewarded, as in the paper."""
    from initio.metrics import evaluate

    found = evaluate(problem.build(arch, draw), problem.batch(draw), "nasi")["nasi"]
    return Traces(found.value, found.value, found.flag)


def read_nu(text: str, words: Sequence[str]) -> float:
    """ν as a positive number, where one of these words could have stood."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(f"nu must be {', '.join(map(repr, words))} or a positive number, not {text!r}")
    return value
