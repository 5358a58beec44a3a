"""NASI to the letter of its Algorithm 1 (Shu et al., 2022): `--estimator literal`.

For t = 1..T: draw a batch and Gumbel noise g_t; the sample A_t takes argmax(α₀ + g_t) in every categorical of a
one-shot network with fixed parameters θ₀; G_t = ∇_α R(A_t) at α₀ = 0 through the straight-through Gumbel-softmax, with
R = T − μ max(0, T − ν) and T = ‖b⁻¹ Σ ∇θ ℓ‖² [NASI 12, 13, 42]. Then [NASI 18]

    α* = (ξ/T) Σ_t G_t / max(‖G_1‖, ..., ‖G_t‖),    ξ = 1,

and the most probable architecture under α* is chosen. docs/nasi.md has the derivatives.

Every step draws from (seed, t) alone and leaves G_t in its row, so the rows of an interrupted search are its state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from initio.errors import InputError
from initio.networks.graphs import ZERO
from initio.records import Architecture, Batch, Cost, SearchResult, Settings, settings
from initio.searches.base import OnRow, Problem, climb, get, known, peak_bytes, positive, versions, whole_trace
from initio.spaces import GraphSpace
from initio.spaces.base import Decision
from initio.spaces.darts import DARTS, DARTS_BY_NODE

if TYPE_CHECKING:
    from initio.networks.supernet import Supernet

PROBES = 50  # random architectures whose mean T is the fixed ν
STARTS = 50  # random architectures within the limits, where the most probable one is not
XI = 1.0
Rows = Sequence[Sequence[float]]


@dataclass(frozen=True)
class LiteralNasi:
    """NASI's Algorithm 1.

    Args:
        steps: T, the number of sampled architectures.
        mu: weight of the penalty on T above ν.
        nu: `adaptive`, ν_t = t⁻¹(ν₀ + Σ_τ<t T(A_τ)) [NASI 41]; `fixed`, the mean of T over 50 random architectures;
            or a number.
        nu_0: where the adaptive ν begins.
        gates: derivative with respect to the sampled `path` alone, or to `all` options of the one-shot network.
    """

    steps: int = 100
    mu: float = 1.0
    nu: str = "adaptive"
    nu_0: float = 1000.0
    gates: Literal["path", "all"] = "path"

    name: ClassVar[str] = "nasi-literal"
    resumes: ClassVar[bool] = True
    limited: ClassVar[bool] = True
    by_space: ClassVar[Mapping[str, Mapping[str, float | str]]] = {
        "darts": {"mu": 2.0, "nu_0": 500.0},  # published
        "nb201": {"nu": "fixed"},  # nothing is published; docs/results/nasi.md compares
    }

    @property
    def n_rows(self) -> int:
        """The probes of a fixed ν, then the steps."""
        return self.probes + self.steps

    def summary(self, problem: Problem, result: SearchResult) -> str:
        """How much the largest step weighed."""
        gradients = [G for row in result.trace if (G := _gradient(row)) is not None]
        norms = sorted((float(np.linalg.norm(G)) for G in gradients), reverse=True)
        share = sum(norms[: max(1, len(norms) // 100)]) / sum(norms) if norms and sum(norms) > 0 else 0.0
        return f"most probable under α*; the largest 1 % of the steps hold {share:.0%} of the gradient norms"

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"steps must be at least 1, not {self.steps}")
        if not (self.mu >= 0 and math.isfinite(self.mu)):
            raise InputError(f"mu must be a number of at least 0, not {self.mu}")
        if not (self.nu_0 > 0 and math.isfinite(self.nu_0)):
            raise InputError(f"nu_0 must be positive, not {self.nu_0}")
        if self.nu not in ("adaptive", "fixed"):
            positive("nu", self.nu)
        if self.gates not in ("all", "path"):
            raise InputError(f"gates must be 'all' or 'path', not {self.gates!r}")

    def check(self, problem: Problem) -> None:
        """Refuses a space without a one-shot network."""
        space = relaxed(problem.space)
        space.supernet([0] * len(space.relaxation), space.resolve(problem.network))

    @property
    def probes(self) -> int:
        """How many rows come before the first step."""
        return PROBES if self.nu == "fixed" else 0

    def run(
        self, problem: Problem, *, seed: int, rows: Sequence[Settings] = (), on_row: OnRow | None = None
    ) -> SearchResult:
        """Samples, averages, and takes the most probable architecture within the limits."""
        start, done = time.perf_counter(), known(rows, "choices", "trace")
        supernet = one_shot(problem, seed)
        for number in range(len(done), self.probes + self.steps):
            row = self._step(problem, supernet, seed, number, done)
            done.append(row)
            if on_row:
                on_row(row)
        if not any(np.any(G) for row in done if (G := _gradient(row)) is not None):
            raise InputError(
                "no step has a gradient, so all architectures are equally probable: the penalty undoes every reward "
                "(μ = 1 and each T above ν: raise --nu), or the data have a single class"
            )
        return SearchResult(
            method=self.name,
            space=problem.space.name,
            seed=seed,
            chosen=(best(problem, self.alpha(problem, done), seed),),
            settings=settings(**asdict(self)),
            trace=tuple(done),
            cost=Cost(self.steps, len(done), seconds=time.perf_counter() - start, peak_bytes=peak_bytes()),
            versions=versions(),
        )

    def _step(
        self, problem: Problem, supernet: Supernet, seed: int, number: int, before: Sequence[Settings]
    ) -> Settings:
        """One row: a probe of T, or a step of Algorithm 1 (lines 3 to 5)."""
        t = number - self.probes + 1
        rng = np.random.default_rng([seed, number])
        batch = problem.batch(int(rng.integers(2**31)))
        g = noise(relaxed(problem.space).relaxation, rng)
        choices = [int(np.argmax(row)) for row in g]
        if t < 1:
            T, _ = _measure(supernet, batch, choices, all_options=False)
            return _row(number, "probe", choices, T)
        nu = self.nu_after([_trace(row) for row in before])
        T, dT = _measure(supernet, batch, choices, all_options=self.gates == "all")
        slope = 1.0 - self.mu if T - nu > 0 else 1.0  # dR/dT
        G = [straight_through(row, slope * np.array(dT_row)) for row, dT_row in zip(g, dT, strict=True)]
        flat = [float(value) for row in G for value in row]
        if not (math.isfinite(T) and all(map(math.isfinite, flat))):
            return _row(number, "step", choices, None, nu=nu, flag="T or its gradient is not finite")
        reward = T - self.mu * max(0.0, T - nu)
        return _row(number, "step", choices, T, nu=nu, reward=reward, gradient=" ".join(map(repr, flat)))

    def nu_after(self, T: Sequence[float | None]) -> float:
        """ν for the next step; `T` holds the trace of every row so far, probes first. A missing one does not count."""
        if self.nu not in ("adaptive", "fixed"):
            return positive("nu", self.nu)
        finite = [value for value in (T if self.nu == "adaptive" else T[:PROBES]) if value is not None]
        if self.nu == "adaptive":
            return (self.nu_0 + sum(finite)) / (1 + len(finite))  # Equation (41).
        if not finite:
            raise InputError("none of the 50 random architectures has a finite trace: check the data")
        return sum(finite) / len(finite)

    measure = staticmethod(whole_trace)

    def objective(self, T: np.ndarray, rewarded: np.ndarray | None = None) -> np.ndarray:
        """log R, R = T − μ max(0, T − ν), not below the smallest log T.

        A fixed ν is the mean of all these T, an adaptive one what the next step would have.
        """
        nu = float(T.mean()) if self.nu == "fixed" else self.nu_after(T.tolist())
        R = (T if rewarded is None else rewarded) - self.mu * np.maximum(0, T - nu)
        r: np.ndarray = np.log(np.maximum(R, np.min(T)))
        return r

    def leading(self, problem: Problem, rows: Sequence[Settings]) -> Architecture | None:
        """The most probable architecture under the α* of these rows."""
        return relaxed(problem.space).decode(self.alpha(problem, rows)) if len(rows) > self.probes else None

    def alpha(self, problem: Problem, rows: Sequence[Settings]) -> list[list[float]]:
        """α* from the rows of a search, one row a categorical of the one-shot network; −inf for `none`."""
        decisions = relaxed(problem.space).relaxation
        delta = one_step([G for row in rows[self.probes :] if (G := _gradient(row)) is not None], self.steps)
        out, start = [], 0
        for decision in decisions:
            row = delta[start : start + len(decision)] if len(delta) else np.zeros(len(decision))
            drawn = [option != ZERO for option in decision.options]
            out.append([float(value) if kept else -math.inf for value, kept in zip(row, drawn, strict=True)])
            start += len(decision)
        return out


def one_step(gradients: Sequence[np.ndarray], steps: int) -> np.ndarray:
    """Δ* = (ξ/T) Σ_t G_t / max(‖G_1‖, ..., ‖G_t‖) [NASI 18].

    >>> one_step([np.array([3.0, 4.0]), np.array([0.0, 1.0])], steps=2).tolist()
    [0.3, 0.5]
    """
    total, largest = np.zeros_like(gradients[0]) if len(gradients) else np.zeros(0), 0.0
    for G in gradients:
        largest = max(largest, float(np.linalg.norm(G)))
        if largest > 0:
            total = total + G / largest
    return XI / steps * total


def straight_through(logits: np.ndarray, dR: np.ndarray) -> np.ndarray:
    """∂R/∂α through one-hot gates h: Σ_k ∂R/∂h_k ∂p_k/∂α_j = p_j (∂R/∂h_j − Σ_k p_k ∂R/∂h_k), p = softmax(α + g).

    The one-hot vector takes the derivative of the relaxed sample p [NASI B.3]. The sum over j is zero.

    >>> straight_through(np.zeros(2), np.array([1.0, 0.0])).tolist()
    [0.25, -0.25]
    """
    p = np.exp(logits - logits.max())
    p /= p.sum()
    return np.asarray(p * (dR - p @ dR))


def noise(decisions: Sequence[Decision], rng: np.random.Generator) -> list[np.ndarray]:
    """Gumbel(0, 1) for every option; −inf for `none`, which NASI's spaces do not have."""
    rows = []
    for decision in decisions:
        g = rng.gumbel(size=len(decision))
        rows.append(np.where([option != ZERO for option in decision.options], g, -np.inf))
    return rows


def relaxed(space: GraphSpace) -> GraphSpace:
    """The space with NASI's own relaxation: that of darts has one input and one operation a node [NASI B.2]."""
    return DARTS_BY_NODE if space == DARTS else space


def one_shot(problem: Problem, seed: int) -> Supernet:
    """The one-shot network with its parameters θ₀."""
    from initio.networks.supernet import Supernet

    return Supernet(relaxed(problem.space), problem.network, seed=seed)


def best(problem: Problem, alpha: Rows, seed: int) -> Architecture:
    """The most probable architecture under α*; within limits, the best that climbing finds from a feasible one."""
    space = relaxed(problem.space)
    arch = space.decode(alpha)
    if problem.accepts(arch):
        return arch

    def weight(arch: Architecture) -> float:
        return sum(alpha[categorical][option] for categorical, option in space.active(arch))

    rng = Random(f"nasi literal {seed}")
    [start] = problem.accepted(sorted((problem.draw(rng) for _ in range(STARTS)), key=weight, reverse=True), 1)
    return climb(problem, start, lambda archs: [weight(arch) for arch in archs])


def _measure(
    supernet: Supernet, batch: Batch, choices: Sequence[int], *, all_options: bool
) -> tuple[float, list[list[float]]]:
    import torch

    x = torch.from_numpy(batch.x.copy())
    if x.ndim == 4:
        x = x.contiguous(memory_format=torch.channels_last)  # 1.5 to 2 times faster
    return supernet.trace_gradient(x, torch.from_numpy(batch.y.copy()), choices, all_options=all_options)


def _row(number: int, kind: str, choices: Sequence[int], T: float | None, **more: float | str) -> Settings:
    return settings(step=number, kind=kind, choices=" ".join(map(str, choices)), trace=T, **more)


def _trace(row: Settings) -> float | None:
    value = get(row, "trace")
    return None if value is None else float(value)


def _gradient(row: Settings) -> np.ndarray | None:
    text = dict(row).get("gradient")
    return None if text is None else np.array([float(word) for word in str(text).split()])
