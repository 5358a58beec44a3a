"""The default: a few metrics vote, and the measured architecture that no metric speaks against wins.

Three properties that a network should have together, none of which needs a label, each with a fixed sign:

    naswot ↑   inputs that fall into different linear regions can be told apart
    flops ↑    more computation holds more functions
    nasi ↓     T = ‖b⁻¹ Σ ∇ℓ‖²: gradients grow through batch norms, layer by layer, where no shortcut is. A condition
               and no goal, as in NASI, whose penalty begins at ν: below the median of what was measured, less is no
               better

Large networks have the first two and not the third, so the best has to be in between. Nothing is fitted on accuracies.

**Where to look.** `first` random architectures are measured. The votes of each metric, as quantiles of N(0, 1), are
nearly sums over decisions: ridge regression with slopes that places share (`models/additive.py`). From the best
predicted of them the mean of the predictions is climbed, the `each` best predicted networks on the way and around the
top are measured too, and all that again, `rounds` times.

**What to take.** A fit is true on average and wrong in corners, where its largest values are. So the choice is one of
those measured: the first by the mean of log-shares (`analysis/ranking.py`), a soft "and" that a single bad one spoils.
The fit's sum looks for the corner, since a logarithm of shares is flat at the top, and the "and" judges what is there.
The shares of naswot and FLOPs are of random architectures, not of what the rounds looked at.
T of one draw is noisy: the less of it the decisions predict, the more it is drawn towards their prediction.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from random import Random
from typing import ClassVar, NamedTuple

import numpy as np

from initio.analysis.ranking import Member, Ranking, rank
from initio.autodiff.threads import one_thread
from initio.errors import InputError, at_least, positive
from initio.records import Architecture, Batch, Cost
from initio.searches.base import Search, SearchRun, SearchStep, in_order
from initio.searches.models.additive import Sums, design, open_decisions, regress
from initio.searches.models.model_average import gaussianised
from initio.searches.problem import Problem
from initio.searches.restarts import Finalist, Restarts, of_kind

CHOOSERS = (
    Member("naswot", 1, "inputs that fall into different linear regions can be told apart"),
    Member("flops", 1, "more computation holds more functions"),
    Member("nasi", -1, "gradients grow through batch norms where no shortcut is", enough=0.5),
)
MEASURED = tuple(member.metric for member in CHOOSERS if member.metric != "flops")
TOLD = {"naswot": "naswot", "flops": "FLOPs", "nasi": "a small trace"}
STARTS = 3  # measured architectures from which the fit is climbed
LOOKED = 200  # architectures whose neighbours are predicted in a round
NAMESAKES = 4  # names under which a network is looked at
DESIGN = {"shared": True, "canonical": True}  # a network is described in one way, whatever it is called
DRAWS = 100  # random architectures at most for each one that is measured: a small space has few networks
LISTED = 6  # open decisions that are named


class Properties(NamedTuple):
    """What is measured of one architecture on one draw; None where a value does not exist, and why."""

    naswot: float | None
    nasi: float | None
    flops: float | None
    flag: str = ""


@dataclass(frozen=True)
class VotedStep(SearchStep):
    """An architecture that was measured: a random one, or one of the best predicted in some round."""

    number: int
    architecture: Architecture
    round: int  # 0 for random ones
    naswot: float | None
    trace: float | None
    flops: float | None
    flag: str = ""

    @property
    def properties(self) -> Properties:
        """By the names of metrics."""
        return Properties(self.naswot, self.trace, self.flops, self.flag)

    @property
    def cost(self) -> Cost:
        """One scoring."""
        return Cost(steps=1, scorings=1)

    def told(self) -> str:
        """T, and whether it was predicted."""
        kind = "predicted" if self.round else "random"
        return f"{kind}, no T" if self.trace is None else f"{kind}, T {self.trace:.3g}"


@dataclass(frozen=True)
class VotedFinalist(Finalist):
    """What a restart chose, with naswot and FLOPs beside T on each common draw."""

    naswot: tuple[float | None, ...] = ()
    flops: float | None = None

    @property
    def properties(self) -> list[Properties]:
        """Draw by draw."""
        return [Properties(naswot, T, self.flops) for naswot, T in zip(self.naswot, self.traces, strict=True)]


@dataclass(frozen=True)
class VotingSearch(Search[VotedStep]):
    """The default: naswot, FLOPs and a small trace vote; the best measured one wins.

    Args:
        first: how many random architectures are measured.
        rounds: how often the best predicted are measured.
        each: how many of them in a round.
        ridge: strength of the regression's prior, in units of one observation an option.
    """

    first: int = 100
    rounds: int = 2
    each: int = 25
    ridge: float = 1.0

    name: ClassVar[str] = "votes"
    step_types: ClassVar[tuple[type[SearchStep], ...]] = (VotedStep, VotedFinalist)
    limited: ClassVar[bool] = True
    parallel: ClassVar[bool] = True

    def __post_init__(self) -> None:
        at_least(self, first=2, rounds=0, each=1)
        positive(self, "ridge")

    def n_steps(self, problem: Problem) -> int:
        """One a measurement; a small space may have fewer networks."""
        return self.first + self.rounds * self.each

    def check(self, problem: Problem) -> None:
        """Refuses a space whose networks cannot be built, or whose architectures are no choices."""
        if not problem.space.decisions:
            raise InputError(f"{self.name} does not search {problem.space.name}, where nothing is to be decided")
        rng = Random(f"votes of {problem.space.name}")
        problem.build(problem.draw_admitted(rng), 0)

    def restarted(self, restarts: int) -> Search[SearchStep]:
        """Several searches, whose choices are compared on common draws."""
        return VotedRestarts(self, restarts)

    def run(self, problem: Problem, seed: int, done: Sequence[VotedStep]) -> SearchRun[VotedStep]:
        """Measures at random, then what the fit predicts to be best, and takes the best measured one within limits."""
        steps = in_order(done)
        for now in range(self.rounds + 1):
            before = [step for step in steps if step.round < now]
            count = self.each if now else self.first
            archs = list(islice(self._candidates(problem, seed, before), len(steps) - len(before), count))
            for arch, its in zip(archs, self._measured(problem, seed, archs, len(steps)), strict=True):
                steps.append(VotedStep(len(steps), arch, now, its.naswot, its.nasi, its.flops, its.flag))
                yield steps[-1]
        order = self._judged(problem, steps).order
        return problem.accepted((steps[row].architecture for row in order), 1)[0]

    def _measured(
        self, problem: Problem, seed: int, archs: Sequence[Architecture], number: int
    ) -> Iterator[Properties]:
        """Each on a batch and an initialisation of its own, in as many processes as the problem has."""
        draws = [Random(f"votes {seed} {number + k} draw").randrange(2**31) for k in range(len(archs))]
        tasks = [(arch, draw, problem.batch(draw)) for arch, draw in zip(archs, draws, strict=True)]
        return problem.executor.ordered(partial(_properties, problem.bare), tasks)

    def measure(self, problem: Problem, arch: Architecture, draw: int) -> Properties:
        """All of it from one pass of the scoring network, with the batch and the initialisation of one draw."""
        return _properties(problem, (arch, draw, problem.batch(draw)))

    def why(self, problem: Problem, steps: Sequence[VotedStep], chosen: Architecture) -> str:
        """By what it is ahead of the next, what decided, and which decisions are open."""
        found = self._judged(problem, steps)
        if not found.members:
            return "no metric tells the measured architectures apart: the first one"
        heard = [TOLD[member.metric] for member in found.members]
        text = f"first of {len(steps)} measured by the log-shares of {_listed(heard)}"
        networks = {problem.space.canonical(chosen)}
        first = next(row for row in found.order if steps[row].architecture == chosen)
        others = (row for row in found.order if problem.space.canonical(steps[row].architecture) not in networks)
        second = next(others, None)
        if second is not None:
            ahead = found.values[first] - found.values[second]
            text += f", {ahead:.2g} ahead of the next"
            if name := found.between(first, second):
                text += f" by {TOLD[name]}"
        fit = self._fit(problem, steps)
        if fit is None:
            return text
        names, sums = fit
        known = np.maximum(sums.predicted, 0)
        shares = ", ".join(f"{share:.0%} of {TOLD[name]}" for share, name in zip(known, names, strict=True))
        ties = open_decisions(problem, chosen, sums, _mean, **DESIGN)
        where = ", ".join(ties) if len(ties) <= LISTED else f"{len(ties)} of {len(problem.space.decisions)} decisions"
        return f"{text}; the options predict {shares}; " + (f"open: {where}" if ties else "no ties")

    def leading(self, problem: Problem, steps: Sequence[VotedStep]) -> Architecture | None:
        """The best measured so far."""
        return steps[self._judged(problem, steps).order[0]].architecture if steps else None

    def _judged(self, problem: Problem, steps: Sequence[VotedStep]) -> Ranking:
        """By log-shares, log T drawn towards its prediction by the share that the decisions do not predict."""
        columns = columns_of([step.properties for step in steps])
        T = columns["nasi"]
        there = np.isfinite(T)
        if there.sum() > 1 and np.ptp(T[there]) > 0:
            archs = [step.architecture for step, known in zip(steps, there, strict=True) if known]
            X = design(problem, archs, **DESIGN)
            fit = regress(X, T[None, there], self.ridge)
            share = max(float(fit.predicted[0]), 0.0)
            T[there] = share * T[there] + (1 - share) * fit.of(X)[0]
        return rank(columns, CHOOSERS, _random(steps))

    # --- what to measure next -------------------------------------------------------------------------------------

    def _candidates(self, problem: Problem, seed: int, before: Sequence[VotedStep]) -> Iterator[Architecture]:
        """Networks that no earlier round measured, each once: the best predicted, or random ones to begin with."""
        known = {problem.space.canonical(step.architecture) for step in before}
        fit = self._fit(problem, before)
        found = self._random(problem, seed) if fit is None else self._predicted(problem, fit[1], before)
        for arch in found:
            network = problem.space.canonical(arch)
            if network not in known:
                known.add(network)
                yield arch

    def _random(self, problem: Problem, seed: int) -> Iterator[Architecture]:
        rng = Random(f"votes {seed}")
        return (problem.draw_admitted(rng) for _ in range(DRAWS * self.first))

    def _fit(self, problem: Problem, steps: Sequence[VotedStep]) -> tuple[tuple[str, ...], Sums] | None:
        """The members that tell the steps apart, as quantiles of N(0, 1), on the steps that have all of them."""
        columns = columns_of([step.properties for step in steps])
        members = rank(columns, CHOOSERS, _random(steps)).members
        table = np.array([member.sign * columns[member.metric] for member in members])
        rows = np.flatnonzero(~np.isnan(table).any(axis=0)) if len(members) else np.array([], dtype=int)
        if len(rows) < 2:
            return None
        Z = np.array([gaussianised(row) for row in table[:, rows]])
        X = design(problem, [steps[row].architecture for row in rows], **DESIGN)
        return tuple(member.metric for member in members), regress(X, Z, self.ridge)

    def _predicted(self, problem: Problem, fit: Sums, steps: Sequence[VotedStep]) -> Iterator[Architecture]:
        """The best predicted first, as far as climbing and looking around finds them."""

        def weigh(archs: Sequence[Architecture]) -> list[float]:
            values: list[float] = _mean(fit.of(design(problem, archs, **DESIGN))).tolist()
            return values

        measured = [step.architecture for step in steps]
        order = np.argsort(-np.array(weigh(measured)), kind="stable")
        starts = problem.accepted((measured[row] for row in order), STARTS)
        return iter(climbed(problem, starts, weigh, LOOKED))


def climbed(
    problem: Problem,
    starts: Sequence[Architecture],
    weigh: Callable[[Sequence[Architecture]], Sequence[float]],
    looks: int,
) -> list[Architecture]:
    """Accepted architectures, the heaviest first: `looks` times the neighbours of the heaviest that was not looked at.

    A network is looked at under NAMESAKES of its names at most: in nb101 a vertex comes in two steps, the first of
    which, an edge that leads nowhere, changes nothing.
    """
    heap = [(-weight, arch) for weight, arch in zip(weigh(starts), starts, strict=True)]
    heapq.heapify(heap)
    seen, found = set(starts), list[tuple[float, Architecture]]()
    names: Counter[Architecture] = Counter()
    while heap and len(found) < looks:
        weight, arch = heapq.heappop(heap)
        network = problem.space.canonical(arch)
        if names[network] == NAMESAKES or not problem.accepts(arch):
            continue
        names[network] += 1
        found.append((weight, arch))
        around = [other for other in problem.space.neighbours(arch) if other not in seen]
        seen.update(around)
        for other_weight, other in zip(weigh(around), around, strict=True):
            heapq.heappush(heap, (-other_weight, other))
    return [arch for _, arch in sorted(found)]


def ranking(measured: Sequence[Properties], among: np.ndarray) -> Ranking:
    """Of everything that was measured, goals by their shares of the random ones."""
    return rank(columns_of(measured), CHOOSERS, among)


def columns_of(measured: Sequence[Properties]) -> dict[str, np.ndarray]:
    """Member by member, all as logarithms, which naswot is; NaN where a value does not exist."""
    columns = {m.metric: np.array([getattr(its, m.metric) for its in measured], float) for m in CHOOSERS}
    return {name: column if name == "naswot" else _log(column) for name, column in columns.items()}


def _random(steps: Sequence[VotedStep]) -> np.ndarray:
    return np.array([step.round == 0 for step in steps], bool)


def _log(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        logs: np.ndarray = np.log(values)
    return logs


def _properties(problem: Problem, task: tuple[Architecture, int, Batch]) -> Properties:
    """What is measured of an architecture with this initialisation on this batch, on one thread wherever that is."""
    from initio.metrics import evaluate

    arch, draw, batch = task
    with one_thread():
        found = evaluate(problem.build(arch, draw), batch, MEASURED)
    flops = problem.space.cost(arch, replace(problem.network, prune=False)).flops
    flags = dict.fromkeys(value.flag for value in found.values() if value.value is None)
    return Properties(found["naswot"].value, found["nasi"].value, float(flops), "; ".join(flags))


def _mean(quantities: np.ndarray) -> np.ndarray:
    mean: np.ndarray = quantities.mean(axis=-2)
    return mean


def _listed(names: Sequence[str]) -> str:
    *most, last = names
    return " and ".join(filter(None, (", ".join(most), last)))


@dataclass(frozen=True)
class VotedRestarts(Restarts):
    """Several voting searches; each finalist is ranked, draw by draw, among all that the restarts measured."""

    search: VotingSearch  # type: ignore[assignment]

    def references(self, problem: Problem) -> int:
        """What the restarts measured is enough."""
        return 0

    def measured(self, problem: Problem, arch: Architecture, draws: Sequence[int]) -> Finalist:
        """All properties on each common draw."""
        found = [self.search.measure(problem, arch, draw) for draw in draws]
        kept = [its for its in found if its.nasi is not None]
        traces = tuple(its.nasi for its in kept if its.nasi is not None)
        flag = next((its.flag for its in found if its.flag), "")
        naswot = tuple(its.naswot for its in kept)
        return VotedFinalist(arch, traces, traces, flag, naswot=naswot, flops=found[0].flops)

    def objectives(self, steps: Sequence[SearchStep]) -> list[tuple[float, ...]]:
        """The mean log-share of each finalist on each draw."""
        beside = list(of_kind(VotedStep, steps))
        own = [final.properties for final in of_kind(VotedFinalist, steps)]
        finals = list(chain.from_iterable(own))
        among = np.append(_random(beside), np.zeros(len(finals), bool))
        values = ranking([*(step.properties for step in beside), *finals], among).values[len(beside) :]
        ends = np.cumsum([len(draws) for draws in own])
        return [tuple(map(float, part)) for part in np.split(values, ends[:-1])]
