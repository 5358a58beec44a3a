"""NASI (Shu et al., 2022), its Algorithm 1 with its objective: `--method nasi`.

For t = 1..T: draw a batch and Gumbel noise g_t; the sample A_t takes argmax(α₀ + g_t) in every categorical of a
one-shot network with fixed parameters θ₀; G_t = ∇_α R(A_t) at α₀ = 0 through the straight-through Gumbel-softmax, with
R = T − μ max(0, T − ν) and T = ‖b⁻¹ Σ ∇θ ℓ‖² [NASI 12, 13, 42]. Then [NASI 18]

    α* = (ξ/T) Σ_t G_t / max(‖G_1‖, ..., ‖G_t‖),    ξ = 1,

and the most probable architecture under α* is chosen. docs/nasi.md has the derivatives. `nasi_fit.py` rewards another
part of the trace and estimates it by regression.

Every step draws from (seed, t) alone and keeps G_t, so the steps of an interrupted search are its state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from initio.errors import InputError, at_least, finite, positive
from initio.networks.graphs import ZERO
from initio.records import Architecture, Batch
from initio.searches.base import SearchRun, SearchStep, by_space, in_order
from initio.searches.problem import Problem, heaviest
from initio.searches.traces import TraceSearch, TraceStep, read_nu
from initio.spaces import GraphSpace
from initio.spaces.base import Decision

if TYPE_CHECKING:
    from initio.networks.supernet import Supernet

WORDS = ("adaptive", "fixed")  # that ν may be, beside a number
PROBES = 50  # random architectures whose mean T is the fixed ν
XI = 1.0
Weights = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Sampled(TraceStep):
    """A sample of the one-shot network: a probe of T before the first step, or a step with its gradient G."""

    choices: tuple[int, ...]  # one option a categorical
    nu: float | None = None  # None for a probe
    reward: float | None = None
    gradient: tuple[float, ...] | None = None  # G, all categoricals in a row
    flag: str = ""


@dataclass(frozen=True)
class Nasi(TraceSearch[Sampled]):
    """NASI's Algorithm 1.

    Args:
        steps: T, the number of sampled architectures.
        mu: weight of the penalty on T above ν.
        nu: `adaptive`, ν_t = t⁻¹(ν₀ + Σ_τ<t T(A_τ)) [NASI 41]; `fixed`, the mean of T over 50 random architectures; or
            a number.
        nu_0: where the adaptive ν begins.
        gates: derivative with respect to the sampled `path` alone, or to `all` options of the one-shot network.
    """

    steps: int = 100
    mu: float = by_space(1.0, darts=2.0)  # as published, like nu_0
    nu: str = by_space("adaptive", nb201="fixed")  # nothing is published for nb201; docs/results/nasi.md compares
    nu_0: float = by_space(1000.0, darts=500.0)
    gates: Literal["path", "all"] = "path"

    name: ClassVar[str] = "nasi"
    step_types: ClassVar[tuple[type[SearchStep], ...]] = (Sampled,)

    def n_steps(self, problem: Problem) -> int:
        """The probes of a fixed ν, then the steps."""
        return self.probes + self.steps

    def why(self, problem: Problem, steps: Sequence[Sampled], chosen: Architecture) -> str:
        """Which decision was the closest, and how much the largest step weighed."""
        norms = sorted((float(np.linalg.norm(G)) for G in gradients(steps)), reverse=True)
        share = sum(norms[: max(1, len(norms) // 100)]) / (sum(norms) or 1.0)
        told = ["most probable under α*", self._closest(problem, steps)]
        weighed = f"the largest 1 % of the steps hold {share:.0%} of the gradient norms"
        return "; ".join([*filter(None, told), weighed])

    def _closest(self, problem: Problem, steps: Sequence[Sampled]) -> str:
        """The decision whose two most probable options are nearest to each other; nothing where all have but one."""
        found = []
        for decision, row in zip(relaxed(problem.graphs).relaxation, self.alpha(problem, steps), strict=True):
            if len(row) > 1:
                first, second = (int(place) for place in np.argsort(row)[::-1][:2])
                names = decision.name, decision.options[second], decision.options[first]
                found.append((math.exp(row[second] - row[first]), names))
        if not found:
            return ""
        ratio, (name, second_name, first_name) = max(found)
        return f"the closest decision is {name}, where {second_name} is {ratio:.3g} times as probable as {first_name}"

    def __post_init__(self) -> None:
        at_least(self, steps=1)
        positive(self, "nu_0")
        finite(self, mu=0)
        if self.nu not in (*WORDS, None):
            read_nu(self.nu, WORDS)
        if self.gates not in ("all", "path"):
            raise InputError(f"gates must be 'all' or 'path', not {self.gates!r}")

    def check(self, problem: Problem) -> None:
        """Refuses a space without a one-shot network."""
        space = relaxed(problem.graphs)
        space.supernet([0] * len(space.relaxation), space.resolve(problem.network))

    @property
    def probes(self) -> int:
        """How many samples come before the first step."""
        return PROBES * (self.nu == "fixed")

    def run(self, problem: Problem, seed: int, done: Sequence[Sampled]) -> SearchRun[Sampled]:
        """Samples, averages, and takes the most probable architecture within the limits."""
        steps = in_order(done)
        supernet = one_shot(problem, seed)
        for number in range(len(steps), self.probes + self.steps):
            steps.append(self._step(problem, supernet, seed, number, steps))
            yield steps[-1]
        if not any(np.any(G) for G in gradients(steps)):
            raise InputError(
                "no step has a gradient, so all architectures are equally probable: the penalty undoes every reward "
                "(μ = 1 and each T above ν: raise --nu), or the data have a single class"
            )
        return best(problem, self.alpha(problem, steps), seed)

    def _step(self, problem: Problem, supernet: Supernet, seed: int, number: int, before: Sequence[Sampled]) -> Sampled:
        """A probe of T, or a step of Algorithm 1 (lines 3 to 5)."""
        t = number - self.probes + 1
        rng = np.random.default_rng([seed, number])
        batch = problem.batch(int(rng.integers(2**31)))
        g = noise(relaxed(problem.graphs).relaxation, rng)
        choices = tuple(int(np.argmax(row)) for row in g)
        if t < 1:
            T, _ = _measure(supernet, batch, choices, all_options=False)
            return Sampled(number, T, choices)
        nu = self.nu_after([step.trace for step in before])
        T, dT = _measure(supernet, batch, choices, all_options=self.gates == "all")
        # R = T − μ max(0, T − ν) [NASI 13], hence dR/dT = 1 up to ν and 1 − μ above it.
        slope = 1.0 - self.mu if nu < T else 1.0
        G = [straight_through_slope(row, slope * np.array(dT_row)) for row, dT_row in zip(g, dT, strict=True)]
        flat = tuple(float(value) for row in G for value in row)
        if not (math.isfinite(T) and all(map(math.isfinite, flat))):
            return Sampled(number, None, choices, nu, flag="T or its gradient is not finite")
        return Sampled(number, T, choices, nu, T - self.mu * max(0.0, T - nu), flat)

    def nu_after(self, T: Sequence[float | None]) -> float:
        """ν for the next step; `T` are all traces so far, probes first. A missing one does not count."""
        if self.nu not in WORDS:
            return read_nu(self.nu, WORDS)
        finite = [value for value in T[: self.probes or None] if value is not None]
        if self.nu == "adaptive":
            return (self.nu_0 + sum(finite)) / (1 + len(finite))  # Equation (41).
        if not finite:
            raise InputError("none of the 50 random architectures has a finite trace: check the data")
        return sum(finite) / len(finite)

    @property
    def penalty(self) -> float:
        """μ."""
        return self.mu

    def nu_of(self, T: np.ndarray) -> float:
        """A fixed ν is the mean of these traces, an adaptive one what the next step would have."""
        return float(T.mean()) if self.nu == "fixed" else self.nu_after(T.tolist())

    def samples_built(self, problem: Problem) -> bool:
        """Not on darts: a sample has one input a node, a chosen cell two."""
        return relaxed(problem.graphs) == problem.graphs

    def leading(self, problem: Problem, steps: Sequence[Sampled]) -> Architecture | None:
        """The most probable architecture under the α* of these steps."""
        if len(steps) <= self.probes:
            return None
        return relaxed(problem.graphs).decode(self.alpha(problem, steps))

    def alpha(self, problem: Problem, steps: Sequence[Sampled]) -> list[list[float]]:
        """α* from the steps of a search, one row a categorical of the one-shot network; −inf for `none`."""
        decisions = relaxed(problem.graphs).relaxation
        sizes = [len(decision) for decision in decisions]
        delta = one_step(gradients(steps) or [np.zeros(sum(sizes))], self.steps)
        rows = np.split(delta, np.cumsum(sizes)[:-1])
        return [without_none(decision, row).tolist() for decision, row in zip(decisions, rows, strict=True)]


def one_step(gradients: Sequence[np.ndarray], steps: int) -> np.ndarray:
    """Δ* = (ξ/T) Σ_t G_t / max(‖G_1‖, ..., ‖G_t‖) [NASI 18].

    >>> one_step([np.array([3.0, 4.0]), np.array([0.0, 1.0])], steps=2).tolist()
    [0.3, 0.5]
    """
    total, largest = np.zeros(len(gradients[0])), 0.0
    for G in gradients:
        largest = max(largest, float(np.linalg.norm(G)))
        if largest > 0:
            total = total + G / largest
    return XI / steps * total


def straight_through_slope(logits: np.ndarray, dR: np.ndarray) -> np.ndarray:
    """∂R/∂α through one-hot gates h: Σ_k ∂R/∂h_k ∂p_k/∂α_j = p_j (∂R/∂h_j − Σ_k p_k ∂R/∂h_k), p = softmax(α + g).

    The one-hot vector takes the derivative of the relaxed sample p [NASI B.3]. The sum over j is zero.

    >>> straight_through_slope(np.zeros(2), np.array([1.0, 0.0])).tolist()
    [0.25, -0.25]
    """
    p = np.exp(logits - logits.max())
    p /= p.sum()
    return np.asarray(p * (dR - p @ dR))


def noise(decisions: Sequence[Decision], rng: np.random.Generator) -> list[np.ndarray]:
    """Gumbel(0, 1) for every option."""
    return [without_none(decision, rng.gumbel(size=len(decision))) for decision in decisions]


def without_none(decision: Decision, row: np.ndarray) -> np.ndarray:
    """−inf for an option `none`, which NASI's spaces do not have."""
    return np.where([option != ZERO for option in decision.options], row, -np.inf)


def relaxed(space: GraphSpace) -> GraphSpace:
    """The space with NASI's own relaxation: that of darts has one input and one operation a node [NASI B.2]."""
    return space.by_node


def one_shot(problem: Problem, seed: int) -> Supernet:
    """The one-shot network with its parameters θ₀."""
    from initio.networks.supernet import Supernet

    return Supernet(relaxed(problem.graphs), problem.network, seed=seed).to(problem.computes_on)


def best(problem: Problem, alpha: Weights, seed: int) -> Architecture:
    """The most probable architecture under α*; within limits, the best that climbing finds from a feasible one."""
    return heaviest(problem, relaxed(problem.graphs), alpha, Random(f"nasi literal {seed}"))


def _measure(
    supernet: Supernet, batch: Batch, choices: Sequence[int], *, all_options: bool
) -> tuple[float, list[list[float]]]:
    import torch

    device = supernet.like.device
    x, y = torch.from_numpy(batch.x.copy()).to(device), torch.from_numpy(batch.y.copy()).to(device)
    if x.ndim == 4:
        x = x.contiguous(memory_format=torch.channels_last)  # 1.5 to 2 times faster
    return supernet.trace_gradient(x, y, choices, all_options=all_options)


def gradients(steps: Sequence[Sampled]) -> list[np.ndarray]:
    """G of each step that has one."""
    return [np.array(step.gradient) for step in steps if step.gradient is not None]
