"""REINFORCE (Williams, 1992) on one categorical a decision: REINFORCE in HNAS, Table 4."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np

from initio.errors import InputError, positive
from initio.records import Architecture, Query
from initio.searches.problem import DRAWS, Problem
from initio.searches.queries import Proposals, QuerySearch
from initio.spaces import Decision

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # of Adam


@dataclass(frozen=True)
class Reinforce(QuerySearch):
    """Policy gradient on one categorical a decision.

    Its probabilities are the softmax of logits a, ascended along

        ∂/∂a (R − b) log p(A) = (R − b) (onehot(A) − p),

    R the validation accuracy and b its moving average, by Adam. As in NAS-Bench-201's baseline, b begins at 0 and has
    seen R when R is compared with it; unlike there, an architecture drawn again is answered from memory. The driver
    ends the search when the policy proposes nothing new any more.

    Args:
        lr: Adam's learning rate; NAS-Bench-201 takes 0.001, NATS-Bench 0.01.
        momentum: of the moving average b.
    """

    lr: float = 0.001
    momentum: float = 0.9

    name: ClassVar[str] = "reinforce"

    def __post_init__(self) -> None:
        positive(self, "lr")
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum must be in [0, 1), not {self.momentum}")

    def propose(self, problem: Problem, seed: int) -> Proposals:
        """Draws from the policy, learns from the answer, for ever."""
        rng, policy, b = Random(f"{self.name} {seed}"), Policy(problem.space.decisions), 0.0
        while True:
            arch = policy.draw(problem, rng)
            R = (yield Query(arch)).value
            if not math.isfinite(R):
                continue  # nothing has a value yet: nothing is learnt
            b = self.momentum * b + (1 - self.momentum) * R
            policy.ascend([(R - b) * slope for slope in policy.slopes(arch)], self.lr)


class Policy:
    """Independent categoricals with Adam's two moments."""

    def __init__(self, decisions: Sequence[Decision]) -> None:
        self.logits = [np.zeros(len(decision)) for decision in decisions]
        self.first = [np.zeros_like(a) for a in self.logits]
        self.second = [np.zeros_like(a) for a in self.logits]
        self.steps = 0

    @property
    def probabilities(self) -> list[np.ndarray]:
        """p = softmax(a), decision by decision."""
        powers = [np.exp(a - a.max()) for a in self.logits]
        return [power / power.sum() for power in powers]

    def draw(self, problem: Problem, rng: Random) -> Architecture:
        """An architecture that may be trained; where the policy finds none, a random one."""
        p = [q.tolist() for q in self.probabilities]
        for _ in range(DRAWS):
            choices = tuple(rng.choices(range(len(q)), q)[0] for q in p)
            if (arch := problem.member(Architecture(problem.space.name, choices))) is not None:
                return arch
        return problem.draw(rng)

    def slopes(self, arch: Architecture) -> list[np.ndarray]:
        """∂ log p(A) / ∂a = onehot(A) − p."""
        return [np.eye(len(p))[choice] - p for choice, p in zip(arch.choices, self.probabilities, strict=True)]

    def ascend(self, gradient: Sequence[np.ndarray], lr: float) -> None:
        """One step of Adam, upwards."""
        self.steps += 1
        for a, m, v, g in zip(self.logits, self.first, self.second, gradient, strict=True):
            m += (1 - BETA_1) * (g - m)
            v += (1 - BETA_2) * (g * g - v)
            m_hat, v_hat = m / (1 - BETA_1**self.steps), v / (1 - BETA_2**self.steps)
            a += lr * m_hat / (np.sqrt(v_hat) + EPSILON)
