"""The trace of the chosen operations, fitted on random architectures: `--method nasi-fit`, our variant of NASI.

NASI (Shu et al., 2022; `nasi.py`) looks for the architecture with the largest T(A) − μ max(0, T(A) − ν), where
T(A) = ‖b⁻¹ Σ ∇ℓ‖² is the mini-batch approximation of the trace norm of the neural tangent kernel at initialisation
[NASI 12, 13], and estimates ∇_α of its expectation with one relaxed architecture a step. T is heavy-tailed, so a few
steps decide, and its largest values belong to bad cells.

This search departs from that in two ways; docs/results/nasi.md says how they were found and what each is worth.

**What is rewarded.** T = T_c + T_o: the chosen operations' own parameters hold T_c, all others (stem, projections,
classifier) hold T_o. T_o says how deep a cell is and little about its operations, so

    R(A) = T_c(A) − μ max(0, T(A) − ν),

ν the geometric mean of T over random architectures: the paper's "medium complexity" for a quantity that spans five
orders of magnitude.

**How R is estimated.** Gradients multiply along a path, so the logarithm of each part of T is nearly a sum over the
options that A uses, while R is not. So T_c and T_o are measured on n random architectures, ln T_c and ln T_o are each
fitted by ridge regression, and R is computed from the two predictions. The architecture with the largest predicted R
is chosen. An option called `none` is left out, as in the darts space: an edge without an operation has no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from initio.errors import InputError, at_least, finite, positive
from initio.records import Architecture
from initio.searches.base import SearchRun, SearchStep, by_space, in_order
from initio.searches.models.additive import DRAWN, Sums, design, regress
from initio.searches.problem import Problem, climb
from initio.searches.traces import Traces, TraceSearch, TraceStep, log, penalised, read_nu, whole_trace
from initio.spaces import SPACES, GraphSpace, Space

if TYPE_CHECKING:
    from torch import nn

    from initio.records import Batch
    from initio.spaces.base import GraphSpace

WORDS = ("none", "geometric", "adaptive", "fixed")  # that ν may be, beside a number
STARTS = 10  # measured architectures from which a better predicted one is climbed to
LISTED = 6  # ties that are named


@dataclass(frozen=True)
class Measured(TraceStep):
    """A random architecture, and its T."""

    architecture: Architecture
    chosen_trace: float | None = None  # T_c; None where all of T is rewarded, or there is none
    flag: str = ""

    @property
    def traces(self) -> Traces:
        """T, and T_c where that was measured."""
        rewarded = self.trace if self.chosen_trace is None else self.chosen_trace
        return Traces(self.trace, rewarded, self.flag)


@dataclass(frozen=True)
class NasiFit(TraceSearch[Measured]):
    """Our variant of NASI: the trace of the chosen operations, by regression.

    Args:
        steps: how many random architectures are measured.
        mu: weight of the penalty on T above ν.
        nu: `geometric` for the geometric mean of the measured T, `adaptive` or `fixed` for their mean; `none` for no
            penalty; or a number.
        ridge: strength of the regression's prior, in units of one observation an option.
        counted: what is rewarded: T_c, of the parameters of the `chosen` operations, or T, of `all`, as in the paper.
        shared: whether an operation has one slope in all places of a cell, which each place changes a little. This is
            for a space with about as many options as measurements, as darts, which has 196.
    """

    steps: int = by_space(300, darts=150)  # about a minute
    mu: float = 1.0
    nu: str = "geometric"
    ridge: float = 1.0
    counted: Literal["chosen", "all"] = "chosen"
    shared: bool = by_space(False, darts=True)

    name: ClassVar[str] = "nasi-fit"
    step_types: ClassVar[tuple[type[SearchStep], ...]] = (Measured,)

    def n_steps(self, problem: Problem) -> int:
        """One a measurement."""
        return self.steps

    def check(self, problem: Problem) -> None:
        """Refuses a space without relaxation, or whose networks do not say which parameters belong to a choice."""
        space = problem.space
        if not (isinstance(space, GraphSpace) and space.chosen and space.relaxation):
            searched = ", ".join(name for name, other in SPACES.items() if other.chosen and other.relaxation)
            raise InputError(f"{self.name} does not search {space.name}: choose one of {searched}, or another --method")

    def __post_init__(self) -> None:
        at_least(self, steps=2)
        positive(self, "ridge")
        self.nu_of(np.ones(1))
        finite(self, mu=0)
        if self.counted not in ("chosen", "all"):
            raise InputError(f"counted must be 'chosen' or 'all', not {self.counted!r}")

    def why(self, problem: Problem, steps: Sequence[Measured], chosen: Architecture) -> str:
        """How well the options predict the trace, and which decisions are open."""
        fit = self._fit_steps(problem, steps)
        names = ("T_c", "T_o") if self.counted == "chosen" else ("T",)
        shares = [
            f"{share:.0%} of log {name}" if share > 0 else f"nothing of log {name}"
            for name, share in zip(names, fit.sums.predicted, strict=True)
        ]
        ties = fit.ties(problem, chosen)
        where = ", ".join(ties) if len(ties) <= LISTED else f"{len(ties)} of {len(problem.space.decisions)} decisions"
        undecided = f"a change within one standard error is possible in {where}" if ties else "no ties"
        R = "T" if self.nu == "none" and self.counted == "all" else "R"
        value = fit.predict(problem, [chosen])[0]
        told = [f"largest predicted {R}, {value:.3g}", fit.runner_up(problem, chosen)]
        return "; ".join([*filter(None, told), f"the options predict {' and '.join(shares)}", undecided])

    def run(self, problem: Problem, seed: int, done: Sequence[Measured]) -> SearchRun[Measured]:
        """Measures, fits, and takes the best predicted architecture within the limits."""
        steps = in_order(done)
        for number in range(len(steps), self.steps):
            steps.append(self.step(problem, seed, number))
            yield steps[-1]
        return self._fit_steps(problem, steps).best(problem, [step.architecture for step in steps])

    def leading(self, problem: Problem, steps: Sequence[Measured]) -> Architecture | None:
        """The best predicted of those that these steps measured."""
        try:
            fit = self._fit_steps(problem, steps)
        except InputError:
            return None  # too few steps yet
        measured = [step.architecture for step in steps]
        return measured[int(np.argmax(fit.predict(problem, measured)))]

    def step(self, problem: Problem, seed: int, number: int) -> Measured:
        """A random architecture, a batch, an initialisation, all drawn from (seed, number)."""
        rng = Random(f"nasi {seed} {number}")
        arch = problem.draw_admitted(rng)
        T, rewarded, flag = self.measure(problem, arch, rng.randrange(2**31))
        if self.counted == "all":
            rewarded = None  # the same as T
        return Measured(number, T, arch, rewarded, flag)

    def measure(self, problem: Problem, arch: Architecture, draw: int) -> Traces:
        """T of an architecture, and T_c if that is rewarded, with the batch and the initialisation of one draw."""
        if self.counted == "all":
            return whole_trace(problem, arch, draw)
        return traces(problem.graphs, problem.build(arch, draw), problem.batch(draw))

    def _fit_steps(self, problem: Problem, steps: Sequence[Measured]) -> TraceFit:
        return self.fit(
            problem,
            [step.architecture for step in steps],
            [step.trace for step in steps],
            [step.traces.rewarded for step in steps],
        )

    def fit(
        self,
        problem: Problem,
        archs: Sequence[Architecture],
        T: Sequence[float | None],
        rewarded: Sequence[float | None] | None = None,
    ) -> TraceFit:
        """The regression of each part of T on the options; architectures without a T are left out."""
        pairs = list(zip(T, T if rewarded is None else rewarded, strict=True))
        live = [place for place, (t, _) in enumerate(pairs) if t is not None and t > 0]
        if len(live) < 2:
            raise InputError("fewer than two of the measured architectures have a gradient: check the data")
        whole, own = np.array([pairs[place] for place in live], float).T
        X = design(problem, [archs[place] for place in live], shared=self.shared)
        parts = (whole,) if self.counted == "all" else (own, whole - own)
        sums = regress(X, np.array([log(part) for part in parts]), self.ridge)
        return TraceFit(sums, self.mu, self.nu_of(whole), self.shared)

    def nu_of(self, T: np.ndarray) -> float:
        """ν, given all the measured traces."""
        if self.nu == "none":
            return math.inf
        if self.nu == "geometric":
            return float(np.exp(np.log(T).mean()))
        if self.nu in ("adaptive", "fixed"):
            return float(T.mean())
        return read_nu(self.nu, WORDS)

    @property
    def penalty(self) -> float:
        """μ."""
        return self.mu


@dataclass(frozen=True, eq=False)
class TraceFit:
    """The logarithms of the parts of T, the rewarded one first, and what makes R of them."""

    sums: Sums
    mu: float
    nu: float
    shared: bool = False

    def predict(self, problem: Problem, archs: Sequence[Architecture]) -> np.ndarray:
        """R of each architecture."""
        return self.of(design(problem, archs, shared=self.shared))

    def of(self, X: np.ndarray) -> np.ndarray:
        """R of each row of a design."""
        return self._objective(self.sums.of(X))

    def _objective(self, logs: np.ndarray) -> np.ndarray:
        values = np.exp(logs)
        return penalised(values[..., 0, :], values.sum(axis=-2), self.mu, self.nu)

    def best(self, problem: Problem, measured: Sequence[Architecture]) -> Architecture:
        """The largest prediction within the limits that climbing from the best measured ones finds."""
        order = np.argsort(-self.predict(problem, measured), kind="stable")
        ranked = dict.fromkeys(measured[place] for place in order)
        starts = problem.accepted(ranked, STARTS)
        tops = [climb(problem, start, lambda archs: self.predict(problem, archs).tolist()) for start in starts]
        return tops[int(np.argmax(self.predict(problem, tops)))]

    def errors(self, X: np.ndarray) -> np.ndarray:
        """Standard error of R of the first row minus R of each other one: half of what holds two thirds of draws."""
        drawn = self._objective(self.sums.drawn(X, DRAWN))
        low, high = np.quantile(drawn[:, :1] - drawn[:, 1:], (0.159, 0.841), axis=0)
        errors: np.ndarray = (high - low) / 2
        return errors

    def runner_up(self, problem: Problem, chosen: Architecture) -> str:
        """The nearest other network one decision away: what it has instead, and how much less that is worth."""
        near = self._near(problem, chosen)
        if not near:
            return ""
        X = design(problem, [chosen, *near], shared=self.shared)
        R = self.of(X)
        place = int(np.argmax(R[1:]))
        error = self.errors(X[[0, place + 1]])[0]
        behind = f"{R[0] - R[place + 1]:.2g} behind with a standard error of {error:.2g}"
        return f"the runner-up has {changes(problem.space, chosen, near[place])} and is {behind}"

    def _near(self, problem: Problem, chosen: Architecture) -> list[Architecture]:
        """Other networks one decision away that keep the counted limits."""
        same, space = problem.space.canonical(chosen), problem.space
        return [a for a in space.neighbours(chosen) if problem.admits(a) and space.canonical(a) != same]

    def ties(self, problem: Problem, chosen: Architecture) -> list[str]:
        """Decisions in which another option is predicted to lose less than the standard error of the difference."""
        near = self._near(problem, chosen)
        if not near:
            return []
        X = design(problem, [chosen, *near], shared=self.shared)
        R = self.of(X)
        close = R[0] - R[1:] < self.errors(X)
        changed = np.array([a.choices for a in near]) != np.array(chosen.choices)
        return [problem.space.decisions[place].name for place in np.flatnonzero(changed[close].any(axis=0))]


def changes(space: Space, first: Architecture, second: Architecture) -> str:
    """What the second has in place of the first, in words.

    >>> from initio.spaces import NB201
    >>> changes(NB201, NB201.architecture(3, 1, 0, 0, 2, 4), NB201.architecture(3, 1, 0, 0, 1, 4))
    'skip_connect instead of nor_conv_1x1 at edge 1-3'
    """
    told = []
    for decision, before, after in zip(space.decisions, first.choices, second.choices, strict=True):
        if before != after:
            told.append(f"{decision.options[after]} instead of {decision.options[before]} at {decision.name}")
    return " and ".join(told)


def traces(space: GraphSpace, network: nn.Module, batch: Batch) -> Traces:
    """T, the part T_c of it that the parameters of the chosen operations hold, and a flag."""
    import torch

    from initio.autodiff.parts import Parts
    from initio.metrics import METRICS, Options
    from initio.metrics.base import Measurement

    device = Parts(network).device
    x, y = torch.from_numpy(batch.x.copy()).to(device), torch.from_numpy(batch.y.copy()).to(device)
    at = Measurement(network, x, y, Options(), METRICS["nasi"].needs)
    T = METRICS["nasi"].value(at)
    if T.value is None:
        return Traces(None, None, T.flag)
    own = {name: g for name, g in at.g.items() if space.is_chosen(name)}
    return Traces(T.value, float(at.dot(own, own)), T.flag)
