"""Searches for the largest expected objective of the trace T of the kernel; `Restarts` runs them often."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from initio.errors import InputError
from initio.records import Architecture, Cost
from initio.searches.base import Search, SearchStep
from initio.searches.problem import Problem


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

    def restarted(self, restarts: int) -> Search[Any]:
        """Several searches, whose choices are compared on common draws."""
        from initio.searches.restarts import Restarts

        return Restarts(self, restarts)

    @property
    @abstractmethod
    def penalty(self) -> float:
        """μ."""

    @abstractmethod
    def nu_of(self, T: np.ndarray) -> float:
        """ν, which may follow from all the traces of a search."""

    def objective(self, T: np.ndarray, rewarded: np.ndarray | None = None, nu: float | None = None) -> np.ndarray:
        """log R of each trace, kept finite where a strong penalty makes R negative or nothing is rewarded.

        `rewarded` is the part of each trace that is rewarded, by default all of it; ν follows from these traces
        if it is not given.
        """
        rewarded = T if rewarded is None else rewarded
        R = penalised(rewarded, T, self.penalty, self.nu_of(T) if nu is None else nu)
        r: np.ndarray = np.maximum(np.log(np.maximum(R, np.finfo(float).tiny)), log(rewarded).min())
        return r

    def samples_built(self, problem: Problem) -> bool:
        """Whether the traces of its steps are those of networks as `measure` builds them, and may be compared."""
        return True

    def measure(self, problem: Problem, arch: Architecture, draw: int) -> Traces:
        """T and its rewarded part, with the batch and the initialisation of one draw."""
        return whole_trace(problem, arch, draw)


def whole_trace(problem: Problem, arch: Architecture, draw: int) -> Traces:
    """T, all of it rewarded, as in the paper."""
    from initio.metrics import evaluate

    found = evaluate(problem.build(arch, draw), problem.batch(draw), "nasi")["nasi"]
    return Traces(found.value, found.value, found.flag)


def penalised(rewarded: np.ndarray, T: np.ndarray, mu: float, nu: float) -> np.ndarray:
    """R = rewarded − μ max(0, T − ν) [NASI 13].

    >>> penalised(np.array([1.0, 2.0, 2.0]), np.array([2.0, 3.0, 5.0]), mu=1.0, nu=3.0).tolist()
    [1.0, 2.0, 0.0]
    """
    R: np.ndarray = rewarded - mu * np.maximum(0, T - nu)
    return R


def log(part: np.ndarray) -> np.ndarray:
    """ln of a part of T; a cell of poolings alone has T_c = 0, which counts as the smallest that is not."""
    if not (part > 0).any():
        raise InputError(
            "no measured architecture has a chosen operation with parameters: --counted all rewards the whole trace"
        )
    logs: np.ndarray = np.log(np.maximum(part, part[part > 0].min()))
    return logs


def read_nu(text: str, words: Sequence[str]) -> float:
    """ν as a positive number, where one of these words could have stood."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(f"nu must be {', '.join(map(repr, words))} or a positive number, not {text!r}")
    return value
