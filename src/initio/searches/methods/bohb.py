"""BOHB (Falkner et al., 2018): Hyperband's brackets, filled by a kernel density model instead of at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from random import Random
from typing import ClassVar

import numpy as np

from initio.errors import InputError, at_least, positive
from initio.records import Architecture, Query
from initio.searches.methods.random_search import draw_new
from initio.searches.problem import Problem
from initio.searches.queries import Ahead, Proposals, QuerySearch
from initio.spaces import Decision

Length = int | None  # of a training in epochs; None where there is only one


@dataclass(frozen=True)
class Bohb(QuerySearch):
    """Many short trainings, few long ones, of architectures that resemble the good and not the bad ones so far.

    The lengths of training are those that the problem allows. With a single one every bracket is a single training and
    BOHB is the tree-structured Parzen estimator. The defaults of `samples`, `random_fraction`, `bandwidth_factor` and
    `min_bandwidth` are those of NAS-Bench-201's baseline; BOHB's own are 64, 1/3, 3 and 0.001.

    Args:
        samples: how many draws of the model compete for the next training.
        random_fraction: share of the trainings that are random instead.
        good: share of the observations that count as good.
        bandwidth_factor: how much wider than the good ones' kernel the draws are.
        min_bandwidth: of a kernel; 0 would never leave what was seen.
    """

    samples: int = 4
    random_fraction: float = 0.0
    good: float = 0.15
    bandwidth_factor: float = 3.0
    min_bandwidth: float = 0.3

    name: ClassVar[str] = "bohb"

    def __post_init__(self) -> None:
        at_least(self, samples=1)
        positive(self, "bandwidth_factor")
        if not 0 <= self.random_fraction <= 1:
            raise InputError(f"random_fraction must be in [0, 1], not {self.random_fraction}")
        if not 0 < self.good < 1:
            raise InputError(f"good must be in (0, 1), not {self.good}")
        if not 0 < self.min_bandwidth <= 1:
            raise InputError(f"min_bandwidth must be in (0, 1], not {self.min_bandwidth}")

    def propose(self, problem: Problem, seed: int) -> Proposals:
        """Bracket after bracket, until nothing new is left to begin with."""
        rng, seen = Random(f"{self.name} {seed}"), Seen(problem.space.decisions)
        for rungs in cycle(brackets(problem.epochs or (None,))):
            racing: list[Architecture] = []
            for number, (length, size) in enumerate(rungs):
                values: dict[Architecture, float] = {}
                yield Ahead(tuple(Query(arch, length) for arch in racing[:size]))
                for place in range(size):
                    arch = self._next(problem, rng, seen) if number == 0 else racing[place]
                    if arch is None:
                        return None
                    values[arch] = (yield Query(arch, length)).value
                    seen.add(arch, length, values[arch])
                racing = sorted(values, key=values.__getitem__, reverse=True)
        return None

    def _next(self, problem: Problem, rng: Random, seen: Seen) -> Architecture | None:
        """What to begin with: the model's best draw, or a random architecture."""
        split = None if rng.random() < self.random_fraction else seen.split(self.good)
        if split is not None:
            good, bad = (Density(rows, seen.decisions, self.min_bandwidth) for rows in split)
            drawn = (
                Architecture(problem.space.name, good.draw(rng, self.bandwidth_factor)) for _ in range(self.samples)
            )
            new = {arch for other in drawn if (arch := problem.member(other)) is not None and arch not in seen.archs}
            if new:
                return max(sorted(new), key=lambda arch: good.log(arch.choices) - bad.log(arch.choices))
        return draw_new(problem, rng, seen.archs)


def brackets(lengths: Sequence[Length]) -> list[list[tuple[Length, int]]]:
    """Hyperband's brackets: for each, the lengths of training and how many architectures reach them.

    A bracket that starts with trainings of length r_s out of R begins with ⌈(s_max + 1)/(s + 1) · R/r_s⌉ architectures
    and keeps the share r_i/r_(i+1) of them at each promotion; Hyperband has r_(i+1) = η r_i, here they are given.

    >>> brackets([4, 12, 36])
    [[(4, 9), (12, 3), (36, 1)], [(12, 5), (36, 1)], [(36, 3)]]
    >>> brackets([None])
    [[(None, 1)]]
    """
    if len(lengths) == 1:
        return [[(lengths[0], 1)]]
    r = [length for length in lengths if length is not None]
    out: list[list[tuple[Length, int]]] = []
    for first in range(len(r)):
        n = math.ceil(len(r) / (len(r) - first) * r[-1] / r[first])
        out.append([(length, max(1, n * r[first] // length)) for length in r[first:]])
    return out


@dataclass
class Seen:
    """The observations, by length of training."""

    decisions: Sequence[Decision]
    values: dict[Length, dict[Architecture, float]] = field(default_factory=dict)
    archs: set[Architecture] = field(default_factory=set)

    def add(self, arch: Architecture, length: Length, value: float) -> None:
        """Records one."""
        self.values.setdefault(length, {})[arch] = value
        self.archs.add(arch)

    def split(self, good: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Choices of the good and of the bad ones at the longest training that has enough; None if none has.

        Enough is one more good and one more bad one than decisions, and two to spare (BOHB, section 3.2).
        """
        least = len(self.decisions) + 1
        for length in sorted(self.values, key=lambda r: math.inf if r is None else r, reverse=True):
            values = self.values[length]
            if len(values) >= least + 2:
                ranked = np.array([a.choices for a in sorted(values, key=values.__getitem__, reverse=True)])
                n_good = max(least, int(good * len(ranked)))
                n_bad = max(least, len(ranked) - n_good)
                return ranked[:n_good], ranked[-n_bad:]
        return None


class Density:
    """A kernel density over independent categoricals, the kernel of Aitchison and Aitken (1976):

        p(x) = n⁻¹ Σ_i Π_k (1 − h_k if x_k = x_ik else h_k/(c_k − 1)),

    with h by the normal reference rule 1.06 σ n^(−1/(4 + d)). σ² is half the probability that two observations differ:
    the variance of a binary code, and for more options it does not depend on how they are numbered.
    """

    def __init__(self, rows: np.ndarray, decisions: Sequence[Decision], least: float) -> None:
        self.rows, self.options = rows, np.array([len(decision) for decision in decisions])
        n, d = rows.shape
        same = np.array([np.square(np.bincount(column) / n).sum() for column in rows.T])
        reference = 1.06 * np.sqrt((1 - same) / 2) * n ** (-1 / (4 + d))
        self.h = np.clip(reference, least, (self.options - 1) / self.options)  # at the upper end it is uniform

    def log(self, choices: Sequence[int]) -> float:
        """log p of one architecture."""
        other = self.h / np.maximum(1, self.options - 1)
        factors = np.where(self.rows == np.array(choices), 1 - self.h, other)
        return float(np.log(factors.prod(axis=1).mean()))

    def draw(self, rng: Random, factor: float) -> tuple[int, ...]:
        """One of the observations, each decision drawn anew with probability h · factor."""
        row = rng.choice(self.rows)
        return tuple(
            rng.randrange(c) if rng.random() < factor * h else int(x)
            for x, h, c in zip(row, self.h, map(int, self.options), strict=True)
        )
