"""Which architectures make an ensemble [NESBS 5.2.3]: sampled from a posterior, judged with inherited weights.

Everything here is plain arrays: whoever predicts is a function from an architecture to probabilities.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice
from random import Random
from typing import Literal

import numpy as np
from scipy.stats import norm, rankdata, spearmanr

from initio.errors import InputError
from initio.records import Architecture
from initio.searches.models.bayes import GaussianProcess
from initio.searches.models.particles import Blocks, relaxed, settled, shares
from initio.spaces import Space

Predict = Callable[[Architecture], np.ndarray]  # probabilities (m, classes)
Members = tuple[Architecture, ...]
Sampling = Literal["svgd", "mc"]
DeltaBy = Literal["grid", "bayes"]

LEAST, MOST, GRID = -2.0, 1.0, 7  # of δ [NESBS 5.3.4], and how many values a grid has
DRAWS = 100  # attempts to draw a network that an ensemble does not have
ROUNDS = 20  # in which ensembles are drawn again for those that were none, or known
LEAST_KNOWN = 10  # networks whose losses say whether the posterior agrees
FOUNDERS = 5  # one in so many of NES-RE's networks is random, the others are children


class TooSureError(InputError):
    """A posterior of which no ensemble of different networks can be drawn."""


@dataclass(frozen=True)
class ArchitecturePosterior:
    """A product of categoricals over a space's relaxation.

    Args:
        space: of the architectures.
        alpha: all categoricals in a row, learned under a uniform prior.
        temperature: what α is divided by [NESBS 5.6]; more is flatter.
        prior: log π of another prior, of the same length; none is uniform. Bayes' rule multiplies by it: with KL(p ‖ π)
            in place of KL(p ‖ uniform), the optimum of the evidence bound has logits α + log π wherever the
            likelihood is a product over decisions, as the family of p takes it to be. An α that was stopped before its
            optimum gives the prior more weight than that.
    """

    space: Space
    alpha: tuple[float, ...]
    temperature: float = 1.0
    prior: tuple[float, ...] = ()

    @cached_property
    def logits(self) -> list[np.ndarray]:
        """One row a categorical."""
        logits = np.array(self.alpha)
        if self.prior:
            logits = logits + np.array(self.prior)
        return self._rows(logits / self.temperature)

    @cached_property
    def distributions(self) -> list[np.ndarray]:
        """One for each group of `Space.rivals`: a categorical's own, or that of all edges into a node."""
        return [shares(np.concatenate([self.logits[k] for k in group])) for group in self.space.rivals]

    @cached_property
    def marginals(self) -> list[np.ndarray]:
        """The probability of each option, by categorical."""
        return self._rows(self._in_order(np.concatenate(self.distributions)))

    @property
    def entropies(self) -> list[float]:
        """Of each categorical's distribution, as a share of a uniform one's."""
        own = {}
        for group, p in zip(self.space.rivals, self.distributions, strict=True):
            entropy = float(-(p * np.log(np.maximum(p, 1e-300))).sum() / np.log(max(2, len(p))))
            own.update(dict.fromkeys(group, entropy))
        return [own[k] for k in range(len(own))]

    @property
    def mode(self) -> Architecture:
        """The likeliest architecture."""
        return self.space.decode([row.tolist() for row in self.marginals])

    def log_p(self, arch: Architecture) -> float:
        """log p of an architecture's options, up to a constant."""
        return float(sum(np.log(max(self.marginals[k][option], 1e-300)) for k, option in self.space.active(arch)))

    def sample(self, rng: np.random.Generator) -> Architecture:
        """One architecture: the largest log p + Gumbel noise of each distribution, as Algorithm 5.2 draws them.

        Where that is not connected the space's `decode` moves to the nearest that is.
        """
        noisy = [np.log(np.maximum(p, 1e-300)) + rng.gumbel(size=len(p)) for p in self.marginals]
        return self.space.decode([row.tolist() for row in noisy])

    def sets(self, size: int, deltas: Sequence[float], rng: np.random.Generator) -> list[Members]:
        """An ensemble for each δ by SVGD-RD (Algorithm 5.3), all moved at once from starts of their own."""
        operations = [len(self.space.relaxation[group[0]]) for group in self.space.rivals]
        target: Blocks = relaxed([np.log(np.maximum(p, 1e-300)) for p in self.distributions], operations)
        particles = settled(target, target.draw(rng, (len(deltas), size)), np.array(deltas))
        return [
            tuple(self.space.decode([own.tolist() for own in self._rows(self._in_order(x))]) for x in together)
            for together in particles
        ]

    @cached_property
    def _starts(self) -> np.ndarray:
        """Where each categorical begins in a row of all, and its end."""
        return np.cumsum([0, *(len(decision) for decision in self.space.relaxation)])

    def _rows(self, values: np.ndarray) -> list[np.ndarray]:
        return np.split(values, self._starts[1:-1])

    def _in_order(self, values: np.ndarray) -> np.ndarray:
        """Group by group → categorical by categorical."""
        order = [i for group in self.space.rivals for k in group for i in range(*self._starts[k : k + 2])]
        out = np.empty_like(values)
        out[order] = values
        return out


@dataclass(frozen=True)
class Candidate:
    """An ensemble that was compared: its members, its estimated loss, and the δ that it was drawn with."""

    members: Members
    loss: float
    delta: float | None = None


class Estimates:
    """Losses of ensembles with inherited weights; each path predicts once, whatever it is a member of.

    Isomorphic architectures are one network when they are built, but other edges of the shared network, with other
    weights: each answers for itself.

    Args:
        space: of the architectures, which names the representative of equal networks.
        predict: probabilities on held-out samples.
        labels: of these samples.
    """

    def __init__(self, space: Space, predict: Predict, labels: np.ndarray) -> None:
        self.space, self.predict, self.labels = space, predict, labels
        self.known: dict[Architecture, np.ndarray] = {}

    def of(self, arch: Architecture) -> np.ndarray:
        """Its probabilities."""
        if arch not in self.known:
            self.known[arch] = self.predict(arch)
        return self.known[arch]

    def loss(self, members: Sequence[Architecture]) -> float:
        """The mean of −log p(label), p the mean of the members' probabilities."""
        mean = np.mean([self.of(arch) for arch in members], axis=0)
        return float(-np.log(np.maximum(mean[np.arange(len(self.labels)), self.labels], 1e-12)).mean())

    def different(self, members: Sequence[Architecture]) -> bool:
        """Whether no two are the same network."""
        return len({self.space.canonical(arch) for arch in members}) == len(members)


def nesbs(
    posterior: ArchitecturePosterior,
    estimates: Estimates,
    size: int,
    count: int,
    rng: np.random.Generator,
    sampling: Sampling = "svgd",
    delta_by: DeltaBy = "grid",
) -> list[Candidate]:
    """`count` different ensembles of the posterior with their estimated losses, the best first (Algorithm 5.1).

    Ensembles in which two members are the same network are drawn again: no more can be learned of them than of smaller
    ones. A posterior that is nearly sure gives fewer than `count`.
    """
    if sampling == "mc":
        found = _redrawn(
            lambda missing: [(tuple(posterior.sample(rng) for _ in range(size)), None) for _ in range(missing)],
            estimates, count,
        )  # fmt: skip
    elif delta_by == "grid":
        grid = np.linspace(LEAST, MOST, GRID)
        if count < GRID:
            grid = np.linspace(MOST, LEAST, count)  # the most different first
        turns = cycle(grid.tolist())

        def moved(missing: int) -> list[tuple[Members, float | None]]:
            deltas = list(islice(turns, missing))
            return list(zip(posterior.sets(size, deltas, rng), deltas, strict=True))

        found = _redrawn(moved, estimates, count)
    else:
        found = _by_bayes(posterior, estimates, size, count, rng)
    if not found:
        raise TooSureError(
            f"none of {ROUNDS * count} draws has {size} different networks, since the posterior is too sure or the "
            f"ensemble too large: take a higher temperature, more candidates or fewer members"
        )
    return sorted(found, key=lambda candidate: candidate.loss)


def _redrawn(
    draw: Callable[[int], Sequence[tuple[Members, float | None]]], estimates: Estimates, count: int
) -> list[Candidate]:
    """So many ensembles of different networks, no two of which are the same; fewer where the last rounds find none."""
    found: dict[frozenset[Architecture], Candidate] = {}
    for _ in range(ROUNDS):
        _keep(found, draw(count - len(found)), estimates)
        if len(found) == count:
            break
    return list(found.values())


def _keep(
    found: dict[frozenset[Architecture], Candidate],
    drawn: Sequence[tuple[Members, float | None]],
    estimates: Estimates,
) -> list[Candidate]:
    """Adds those that are ensembles and new; all that are ensembles."""
    judged = _judged(drawn, estimates)
    for candidate in judged:
        found.setdefault(frozenset(candidate.members), candidate)
    return judged


def _judged(drawn: Sequence[tuple[Members, float | None]], estimates: Estimates) -> list[Candidate]:
    return [
        Candidate(members, estimates.loss(members), delta) for members, delta in drawn if estimates.different(members)
    ]


def _by_bayes(
    posterior: ArchitecturePosterior, estimates: Estimates, size: int, count: int, rng: np.random.Generator
) -> list[Candidate]:
    """δ by Bayesian optimisation: each is judged by the best of a few ensembles drawn with it.

    A δ with which no draw has different networks has no value; the optimiser is told nothing of it, and the next δ is
    drawn at random.
    """
    optimiser = GaussianProcess(1, seed=int(rng.integers(2**31)), start=(((0 - LEAST) / (MOST - LEAST),),))
    found: dict[frozenset[Architecture], Candidate] = {}
    each, barren = max(1, count // GRID), False
    for _ in range(ROUNDS * GRID):
        place = float(rng.random()) if barren else optimiser.suggest()[0]
        delta = LEAST + place * (MOST - LEAST)
        drawn = [(members, delta) for members in posterior.sets(size, [delta] * min(each, count - len(found)), rng)]
        own = _keep(found, drawn, estimates)
        barren = not own
        if own:
            optimiser.observe((place,), -min(candidate.loss for candidate in own))
        if len(found) == count:
            break
    return list(found.values())


def uniform(space: Space, estimates: Estimates, size: int, count: int, seed: int) -> list[Candidate]:
    """`count` ensembles of uniform architectures, the best first."""
    rng = Random(f"ensembles {seed}")
    drawn = [(tuple(_others(space, size, rng)), None) for _ in range(count)]
    return sorted(_judged(drawn, estimates), key=lambda candidate: candidate.loss)


def nes_rs(space: Space, estimates: Estimates, size: int, pool: int, seed: int) -> list[Candidate]:
    """NES-RS (Zaidi et al., 2021): the greedy selection of a random pool."""
    chosen = _greedy(list(_others(space, max(pool, size), Random(f"ensembles {seed}"))), estimates, size)
    return [Candidate(tuple(chosen), estimates.loss(chosen))]


def nes_re(space: Space, estimates: Estimates, size: int, pool: int, seed: int) -> list[Candidate]:
    """NES-RE (Zaidi et al., 2021): regularised evolution, whose parents are good together.

    A fifth of the pool is random. Then a member of the population's greedy selection, drawn at random, has a child by
    one mutation, and the oldest of the population dies. The answer is the greedy selection of all that ever lived.
    """
    rng, pool = Random(f"ensembles {seed}"), max(pool, size)
    history = list(_others(space, max(size, pool // FOUNDERS), rng))
    population, known = deque(history), {space.canonical(arch) for arch in history}
    while len(history) < pool:
        parents = _greedy(population, estimates, size)
        child = _child(space, parents, known, rng)
        if child is None:
            break
        known.add(space.canonical(child))
        history.append(child)
        population.append(child)
        population.popleft()
    chosen = _greedy(history, estimates, size)
    return [Candidate(tuple(chosen), estimates.loss(chosen))]


def _child(space: Space, parents: Sequence[Architecture], known: set[Architecture], rng: Random) -> Architecture | None:
    """A mutation of one of them that is a new, connected network; None where none is found."""
    for _ in range(DRAWS):
        child = space.mutate(rng.choice(parents), rng)
        if space.connected(child) and space.canonical(child) not in known:
            return child
    return None


def _greedy(pool: Iterable[Architecture], estimates: Estimates, size: int) -> list[Architecture]:
    """Adds whichever network lowers the ensemble's loss most, again and again."""
    left, chosen = list(pool), list[Architecture]()
    for _ in range(size):
        best = min(left, key=lambda arch: estimates.loss([*chosen, arch]))
        left.remove(best)
        chosen.append(best)
    return chosen


def foresight(posterior: ArchitecturePosterior, estimates: Estimates) -> float | None:
    """Spearman of log p and −loss over all networks that have predicted; None of fewer than 10, or of equals."""
    known = list(estimates.known)
    if len(known) < LEAST_KNOWN:
        return None
    logs, losses = [posterior.log_p(arch) for arch in known], [estimates.loss([arch]) for arch in known]
    if len(set(logs)) == 1 or len(set(losses)) == 1:
        return None
    return -float(spearmanr(logs, losses).statistic)


def prior_of(space: Space, archs: Sequence[Architecture], values: np.ndarray) -> tuple[float, ...]:
    """log π of a product of categoricals that prefers architectures of large values, all categoricals in a row.

    The normal scores of the values' ranks are fitted by a sum over options, the smallest of all least squares; so an
    architecture that is one deviation better is e times as likely beforehand.
    """
    sizes = [len(decision) for decision in space.relaxation]
    starts = np.cumsum([0, *sizes[:-1]])
    design = np.zeros((len(archs), sum(sizes)))
    for row, arch in zip(design, archs, strict=True):
        row[[starts[categorical] + option for categorical, option in space.active(arch)]] = 1
    scores = norm.ppf((rankdata(values) - 0.5) / len(values))
    weights, *_ = np.linalg.lstsq(design - design.mean(0), scores - scores.mean(), rcond=None)
    return tuple(float(w) for w in weights)


def _others(space: Space, count: int, rng: Random) -> Iterator[Architecture]:
    """So many connected architectures, no two of which are the same network."""
    seen: set[Architecture] = set()
    for _ in range(DRAWS * count):
        if len(seen) == count:
            return
        arch = space.sample(rng)
        if space.connected(arch) and space.canonical(arch) not in seen:
            seen.add(space.canonical(arch))
            yield arch
    if len(seen) < count:
        raise InputError(f"{space.name} does not seem to have {count} different networks: ask for fewer")
