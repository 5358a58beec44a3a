"""NASI (Shu et al., "NASI: label- and data-agnostic neural architecture search at initialization", 2022).

The goal is the architecture with the largest R(A) = T(A) − μ max(0, T(A) − ν), where T(A) = ‖b⁻¹ Σ ∇ℓ‖², the mini-batch
approximation of the trace norm of the neural tangent kernel at initialisation [NASI 12, 13].

Algorithm 1 estimates ∇_α E[R] with one relaxed architecture a step. T is heavy-tailed, so a few steps decide. The
default estimator here asks the same question of whole architectures, in two stages:

1. It measures T on n random ones and fits r(A) = c + Σ_(k, o active in A) w_ko by ridge regression, r the rank of R(A)
   among the n. The slopes w are the gradient of E[r] with respect to the probabilities of the options at the uniform
   distribution, what Algorithm 1's one step from α₀ = 0 follows; ranks tame the tail. An option called `none` is left
   out, as in the darts space: an edge without an operation has no gradient to measure.
2. The finalists, the architectures with the largest predicted r, are measured several times on common draws, and the
   one with the largest mean log R is chosen: a sum over options cannot say which of them go together. In nb201, where
   all finalists have traces far above the others, the largest is an extreme of the noise and of the complexity that the
   penalty of [NASI 13] is against: there the median finalist is chosen (docs/results/nasi.md has both).

In nb101, nb1shot1 and darts T says how deep a cell is and nearly nothing about its operations: stem, projections and
classifier, which all cells share, hold most of it. There the reward is T_c(A), the part of T that the chosen
operations' own parameters hold, and T itself is what the penalty limits: R(A) = T_c(A) − μ max(0, T(A) − ν). This is
not the paper's objective; docs/results/nasi.md says how it was found.
"""

from __future__ import annotations

import heapq
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from scipy.stats import rankdata

from initio.errors import InputError
from initio.graphs import ZERO
from initio.records import Architecture, Cost, Scalar, SearchResult, Settings, settings
from initio.search.base import OnRow, Problem, Traces, climb, get, peak_bytes, positive, versions, whole_trace

if TYPE_CHECKING:
    from torch import nn

    from initio.records import Batch

CHOSEN = re.compile(r"\.(vertex|edge|node)_")  # in the name of a parameter: it belongs to a chosen operation


@dataclass(frozen=True)
class Nasi:
    """NASI with the regression estimator.

    Args:
        steps: how many random architectures are measured.
        mu: weight of the penalty on T above ν.
        nu: `none` for no penalty; `adaptive` or `fixed` for the mean of the measured T, `median` for their median; or a
            number.
        ridge: strength of the regression's prior, in units of one observation an option.
        finalists: how many of the best predicted architectures are measured again; 1 trusts the prediction.
        draws: on how many fresh batches and initialisations, the same for all finalists.
        taken: which finalist is chosen, the one with the `largest` mean log R or the `median` one.
        counted: what is rewarded: T, of `all` parameters, or T_c, of those of the `chosen` operations.
    """

    steps: int = 200
    mu: float = 1.0
    nu: str = "none"
    ridge: float = 1.0
    finalists: int = 20
    draws: int = 3
    taken: Literal["largest", "median"] = "largest"
    counted: Literal["all", "chosen"] = "all"

    name: ClassVar[str] = "nasi"
    resumes: ClassVar[bool] = True
    limited: ClassVar[bool] = True
    by_space: ClassVar[Mapping[str, Mapping[str, float | str]]] = {  # a minute of one core
        "darts": {"steps": 120, "finalists": 10, "counted": "chosen", "nu": "median"},
        "nb201": {"steps": 300, "finalists": 30, "draws": 2, "taken": "median"},
        "nb101": {"steps": 120, "finalists": 10, "counted": "chosen", "nu": "median"},
        "nb1shot1": {"steps": 120, "finalists": 10, "counted": "chosen", "nu": "median"},
    }

    @property
    def n_rows(self) -> int:
        """One row a measurement."""
        return self.steps + (self.finalists * self.draws if self.finalists > 1 else 0)

    def summary(self, problem: Problem, result: SearchResult) -> str:
        """How well the options explain the trace, and which categoricals are undecided."""
        fit = self._fit_rows(problem, result.trace)
        ties = fit.ties(problem)
        undecided = f"within one standard error of another option: {', '.join(ties)}" if ties else "no ties"
        measured = self.compare(problem, result.trace)
        why = "largest predicted trace"
        if measured:
            first = measured[result.chosen[0]]
            R = "T" if self.nu == "none" and self.counted == "all" else "R"
            why = f"{self.taken} of {len(measured)} measured traces, log {R} = {first[0]:.2f}±{first[1]:.2f}"
        return f"{why}; the options explain {fit.explained:.0%} of the ranks of T; {undecided}"

    def __post_init__(self) -> None:
        if self.steps < 2:
            raise InputError(f"steps must be at least 2, not {self.steps}")
        self.nu_of(np.ones(1))
        if self.mu < 0 or self.ridge <= 0:
            raise InputError("mu must not be negative and ridge must be positive")
        if self.finalists < 1 or self.draws < 1:
            raise InputError("finalists and draws must be at least 1")
        if self.taken not in ("largest", "median"):
            raise InputError(f"taken must be 'largest' or 'median', not {self.taken!r}")
        if self.counted not in ("all", "chosen"):
            raise InputError(f"counted must be 'all' or 'chosen', not {self.counted!r}")

    def run(
        self, problem: Problem, *, seed: int, rows: Sequence[Settings] = (), on_row: OnRow | None = None
    ) -> SearchResult:
        """Measures, fits, measures the finalists within the limits again, and takes the best of them."""
        start, done = time.perf_counter(), list(rows)

        def hear(row: Settings) -> None:
            done.append(row)
            if on_row:
                on_row(row)

        for step in range(len(done), self.steps):
            hear(self._step(problem, seed, step))
        fit = self._fit_rows(problem, done)
        chosen = fit.best(problem, [_arch(problem, row) for row in done[: self.steps]])
        if self.finalists > 1:
            plan = [
                (arch, repeat) for arch in fit.first(problem, chosen, self.finalists) for repeat in range(self.draws)
            ]
            for step in range(len(done) - self.steps, len(plan)):
                hear(self._final(problem, seed, self.steps + step, *plan[step]))
            measured = {arch: r for arch, r in self.compare(problem, done).items() if problem.accepts(arch)}
            chosen = self._take(measured) if measured else chosen
        return SearchResult(
            method=self.name,
            space=problem.space.name,
            seed=seed,
            chosen=(chosen,),
            settings=settings(**asdict(self)),
            trace=tuple(done),
            cost=Cost(
                steps=self.steps,
                scorings=len(done),
                seconds=time.perf_counter() - start,
                peak_bytes=peak_bytes(),
            ),
            versions=versions(),
        )

    def _take(self, measured: Mapping[Architecture, tuple[float, float]]) -> Architecture:
        """One of the finalists."""
        ordered = sorted(measured, key=lambda arch: measured[arch][0])
        return ordered[-1] if self.taken == "largest" else ordered[(len(ordered) - 1) // 2]

    def leading(self, problem: Problem, rows: Sequence[Settings]) -> Architecture | None:
        """The largest prediction from these rows."""
        try:
            fit = self._fit_rows(problem, rows)
        except InputError:
            return None  # too few rows yet
        return problem.space.decode(fit.weights(problem))

    def compare(self, problem: Problem, rows: Sequence[Settings]) -> dict[Architecture, tuple[float, float]]:
        """Mean and standard error of log R of each finalist that has a gradient on every draw."""
        first = [row for row in rows[: self.steps] if (_trace(row) or 0) > 0]
        finals = [row for row in rows[self.steps :] if (_trace(row) or 0) > 0]
        r = self._objective([*first, *finals])[len(first) :]
        by_arch: dict[Architecture, list[float]] = {}
        for row, value in zip(finals, r, strict=True):
            by_arch.setdefault(_arch(problem, row), []).append(float(value))
        return {
            arch: (float(np.mean(v)), float(np.std(v, ddof=1) / math.sqrt(len(v))) if len(v) > 1 else 0.0)
            for arch, v in by_arch.items()
            if len(v) == self.draws
        }

    def _step(self, problem: Problem, seed: int, step: int) -> Settings:
        """A random architecture, a batch, an initialisation, all drawn from (seed, step)."""
        rng = Random(f"nasi {seed} {step}")
        return self._row(problem, problem.draw(rng), rng.randrange(2**31), step)

    def _final(self, problem: Problem, seed: int, step: int, arch: Architecture, repeat: int) -> Settings:
        """A finalist, on a draw that is common to all of them."""
        return self._row(problem, arch, Random(f"nasi finalists {seed} {repeat}").randrange(2**31), step)

    def measure(self, problem: Problem, arch: Architecture, draw: int) -> Traces:
        """T of an architecture, and T_c if that is rewarded, with the batch and the initialisation of one draw."""
        if self.counted == "all":
            return whole_trace(problem, arch, draw)
        return traces(problem.build(arch, draw), problem.batch(draw))

    def _row(self, problem: Problem, arch: Architecture, draw: int, step: int) -> Settings:
        measured = self.measure(problem, arch, draw)
        row: dict[str, Scalar] = {"step": step, "architecture": problem.space.format(arch)}
        row |= {"choices": " ".join(map(str, arch.choices)), "trace": measured.T, "flag": measured.flag}
        return settings(**row) if self.counted == "all" else settings(**row, chosen_trace=measured.rewarded)

    def _fit_rows(self, problem: Problem, rows: Sequence[Settings]) -> Fit:
        """The regression on the random architectures that have a gradient."""
        first = [row for row in rows[: self.steps] if (_trace(row) or 0) > 0]
        if len(first) < 2:
            raise InputError("fewer than two of the measured architectures have a gradient: check the data")
        return self._regress(problem, [_arch(problem, row) for row in first], self._objective(first))

    def fit(self, problem: Problem, archs: Sequence[Architecture], T: Sequence[float | None]) -> Fit:
        """The regression of the rank of R, from 0 to 1, on the options; architectures without a T are left out."""
        measured = [(arch, t) for arch, t in zip(archs, T, strict=True) if t is not None and t > 0]
        if len(measured) < 2:
            raise InputError("fewer than two of the measured architectures have a gradient: check the data")
        return self._regress(problem, [a for a, _ in measured], self.objective(np.array([t for _, t in measured])))

    def _regress(self, problem: Problem, archs: Sequence[Architecture], objective: np.ndarray) -> Fit:
        r = rankdata(objective) / len(objective)
        X = design(problem, archs)
        centred = X - X.mean(axis=0)
        gram = centred.T @ centred + self.ridge * np.eye(X.shape[1])
        w = np.linalg.solve(gram, centred.T @ (r - r.mean()))
        residual = r - r.mean() - centred @ w
        hat = np.trace(np.linalg.solve(gram, centred.T @ centred))  # how many slopes are free
        variance = float(residual @ residual) / max(1.0, len(r) - 1 - float(hat))
        spread = np.linalg.solve(gram, centred.T)  # w = spread @ r, so this carries the residuals' variance to w
        error = np.sqrt(variance * np.square(spread).sum(axis=1))
        explained = 1 - residual.var() / r.var() if r.var() > 0 else 0.0
        return Fit(tuple(w), tuple(error), float(r.mean() - X.mean(axis=0) @ w), float(explained))

    def nu_of(self, T: np.ndarray) -> float:
        """ν, given all the measured traces."""
        if self.nu == "none":
            return math.inf
        if self.nu == "median":
            return float(np.median(T))
        if self.nu in ("adaptive", "fixed"):
            return float(T.mean())
        return positive("nu", self.nu, ("none", "median", "adaptive", "fixed"))

    def _objective(self, rows: Sequence[Settings]) -> np.ndarray:
        """log R of rows that have a T."""
        T = np.array([_trace(row) for row in rows], float)
        return self.objective(
            T, None if self.counted == "all" else np.array([get(row, "chosen_trace") for row in rows])
        )

    def objective(self, T: np.ndarray, rewarded: np.ndarray | None = None) -> np.ndarray:
        """log R, R = T − μ max(0, T − ν) [NASI 13], kept positive where a strong penalty would make it negative."""
        rewarded = T if rewarded is None else rewarded
        R = rewarded - self.mu * np.maximum(0, T - self.nu_of(T))
        smallest = np.min(rewarded[rewarded > 0], initial=np.max(T))  # a cell of poolings alone has T_c = 0
        r: np.ndarray = np.log(np.maximum(R, smallest))
        return r


@dataclass(frozen=True)
class Fit:
    """Slopes w with their standard errors, one an option of each categorical, and the share of variance explained."""

    w: tuple[float, ...]
    error: tuple[float, ...]
    constant: float
    explained: float

    def predict(self, problem: Problem, archs: Sequence[Architecture]) -> np.ndarray:
        """r(A) for each architecture."""
        return np.asarray(design(problem, archs) @ np.array(self.w) + self.constant)

    def weights(self, problem: Problem) -> list[list[float]]:
        """The slopes as α*, one row a categorical."""
        rows, start = [], 0
        for decision in problem.space.relaxation:
            w = self.w[start : start + len(decision)]
            rows.append([-math.inf if o == ZERO else slope for o, slope in zip(decision.options, w, strict=True)])
            start += len(decision)
        return rows

    def best(self, problem: Problem, measured: Sequence[Architecture]) -> Architecture:
        """The architecture with the largest prediction; within limits, the best that climbing finds."""
        best = problem.space.decode(self.weights(problem))
        if problem.accepts(best):
            return best
        order = np.argsort(-self.predict(problem, measured), kind="stable")
        start = problem.first_accepted(measured[place] for place in order)
        return climb(problem, start, lambda archs: self.predict(problem, archs).tolist())

    def first(self, problem: Problem, best: Architecture, count: int) -> list[Architecture]:
        """The best predicted architectures that are accepted, each of another network, best first.

        They are found by going from better to worse through neighbours. Where options add up, each one is worse than a
        neighbour nearer to the best, so none is missed.
        """
        queue = [(-float(self.predict(problem, [best])[0]), best.choices)]
        seen, networks = {best.choices}, set[Architecture]()
        found: list[Architecture] = []
        while queue and len(found) < count:
            arch = Architecture(problem.space.name, heapq.heappop(queue)[1])
            network = problem.space.canonical(arch)
            if network not in networks and problem.accepts(arch):
                networks.add(network)
                found.append(arch)
            around = [near for near in problem.space.neighbours(arch) if near.choices not in seen]
            seen |= {near.choices for near in around}
            around = [near for near in around if problem.sound(near)]
            for near, r in zip(around, self.predict(problem, around), strict=True) if around else ():
                heapq.heappush(queue, (-float(r), near.choices))
        return found

    def ties(self, problem: Problem) -> list[str]:
        """Categoricals whose two best options differ by less than the standard error of their difference."""
        names, start = [], 0
        for decision in problem.space.relaxation:
            w = np.array(self.w[start : start + len(decision)])
            error = np.array(self.error[start : start + len(decision)])
            start += len(decision)
            if len(w) > 1:
                second, first = np.argsort(w)[-2:]
                if w[first] - w[second] < math.hypot(error[first], error[second]):
                    names.append(decision.name)
        return names


def design(problem: Problem, archs: Sequence[Architecture]) -> np.ndarray:
    """One row an architecture: 1 for each option it uses."""
    sizes = [len(decision) for decision in problem.space.relaxation]
    starts = np.cumsum([0, *sizes[:-1]])
    X = np.zeros((len(archs), sum(sizes)))
    for row, arch in enumerate(archs):
        for categorical, option in problem.space.active(arch):
            X[row, starts[categorical] + option] = 1
    return X


def traces(network: nn.Module, batch: Batch) -> Traces:
    """T, the part T_c of it that the parameters of the chosen operations hold, and a flag."""
    import torch

    from initio.metrics import METRICS, Options
    from initio.metrics.base import Measurement

    x, y = torch.from_numpy(batch.x.copy()), torch.from_numpy(batch.y.copy())
    at = Measurement(network, x, y, Options(), METRICS["nasi"].needs)
    T = METRICS["nasi"].value(at)
    if T.value is None:
        return Traces(None, None, T.flag)
    own = {name: g for name, g in at.g.items() if CHOSEN.search(name)}
    return Traces(T.value, float(at.dot(own, own)), T.flag)


def _arch(problem: Problem, row: Settings) -> Architecture:
    text = get(row, "choices")
    assert isinstance(text, str)
    return Architecture(problem.space.name, tuple(map(int, text.split())))


def _trace(row: Settings) -> float | None:
    value = get(row, "trace")
    assert value is None or isinstance(value, float)
    return value
