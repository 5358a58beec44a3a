"""Searches that learn from trainings: a generator yields a `Query` and receives an `Answer`.

A plain loop that reads like the paper's algorithm. It never sees a test accuracy, counts no budget and writes no file:
`QuerySearch.run` asks whoever trains (a table, a surrogate, a real training), never twice for the same query, and stops
at the budget. Since a search is a pure function of (problem, seed, answers), feeding it the recorded answers of an
interrupted run in their order brings it back to where it was.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from initio.errors import InputError
from initio.records import Architecture, Cost, Observation, Query
from initio.searches.base import Search, SearchRun, SearchStep
from initio.searches.problem import Budget, Evaluate, Problem

REPEATS = 1000  # known answers in a row, after which a search is taken to have nothing new to ask


@dataclass(frozen=True)
class Answer:
    """What a search hears of a training.

    One without a value counts as the worst so far. Where no training has one yet, there is no worst: then the value is
    −inf, which is below all that may come, and no number to calculate with.
    """

    value: float
    seconds: float = 0.0
    flag: str = ""


Proposals = Generator[Query, Answer, Architecture | None]


@dataclass(frozen=True)
class Trained(SearchStep):
    """One training: what was asked, and what came out."""

    number: int
    architecture: Architecture
    value: float | None
    seconds: float
    epochs: int | None = None  # None: the full training of whoever answers
    flag: str = ""

    @property
    def query(self) -> Query:
        """What was asked."""
        return Query(self.architecture, self.epochs)

    @property
    def strength(self) -> tuple[float, float]:
        """Of several lengths of training only the longest competes; without a value there is nothing to compare."""
        if self.value is None:
            return -math.inf, -math.inf
        if self.epochs is None:
            return math.inf, self.value
        return self.epochs, self.value

    @property
    def cost(self) -> Cost:
        """A query, and the seconds that it stands for."""
        return Cost(steps=1, queries=1, published_seconds=self.seconds)

    def told(self) -> str:
        """The value."""
        return self.flag if self.value is None else f"{self.value:.2f}"


@dataclass(frozen=True)
class QuerySearch(Search[Trained]):
    """A search that learns from trainings; `propose` is the method."""

    trains: ClassVar[bool] = True
    step_types: ClassVar[tuple[type[SearchStep], ...]] = (Trained,)

    @abstractmethod
    def propose(self, problem: Problem, seed: int) -> Proposals:
        """Yields what to train next and receives how good it is; may return its choice, else the best seen is it."""

    def run(self, problem: Problem, seed: int, done: Sequence[Trained]) -> SearchRun[Trained]:
        """Asks until the budget is spent or nothing new is asked; what is in `done` is not asked again."""
        evaluate, budget = _who_answers(problem, self.name)
        ledger, recorded, proposals = Ledger(), deque(done), self.propose(problem, seed)
        answer: Answer | None = None
        choice: Architecture | None = None
        repeats = 0
        while repeats < REPEATS:
            try:
                query = proposals.send(answer)  # type: ignore[arg-type]  # the first one must be None
            except StopIteration as stop:
                choice = stop.value
                break
            answer = ledger.answers.get(query)
            if answer is not None:
                repeats += 1
                continue
            if budget.spent(len(ledger.steps), ledger.seconds):
                break
            repeats = 0
            if recorded:
                step = recorded.popleft()
                if step.query != query:
                    raise InputError(
                        f"query {step.number} of the run differs from what the search asks now: "
                        f"the data, the scores or the code have changed, start the search again"
                    )
                answer = ledger.add(step)
            else:
                seen = evaluate(query)
                if budget.seconds is not None and ledger.seconds + seen.seconds > budget.seconds:
                    break  # this training would not have ended in time
                step = ledger.step(query, seen)
                answer = ledger.add(step)
                yield step
        proposals.close()
        if recorded:
            raise InputError(f"the run has {len(done)} queries, more than this search asks: start the search again")
        return choice or ledger.best()

    def n_steps(self, problem: Problem) -> int | None:
        """One a query."""
        return problem.queries

    def why(self, problem: Problem, steps: Sequence[Trained], chosen: Architecture) -> str:
        """How good it was."""
        own = max((step for step in steps if step.architecture == chosen), key=lambda s: s.strength, default=None)
        if own is None or own.value is None:
            return f"the search's own choice after {len(steps)} trainings"
        return f"largest validation accuracy, {own.value:.2f} %, of {len(steps)} trainings"


@dataclass
class Ledger:
    """What was asked so far, in order; the same question costs nothing the second time."""

    steps: list[Trained] = field(default_factory=list)
    answers: dict[Query, Answer] = field(default_factory=dict)
    seconds: float = 0.0

    def step(self, query: Query, seen: Observation) -> Trained:
        """A new answer as the next step."""
        value = None if seen.value is None else float(seen.value)
        number = len(self.steps) + 1
        return Trained(number, query.architecture, value, float(seen.seconds), query.epochs, seen.flag)

    def add(self, step: Trained) -> Answer:
        """Records it, and says what the search hears."""
        value = step.value
        if value is None:
            value = min((known.value for known in self.steps if known.value is not None), default=-math.inf)
        answer = self.answers[step.query] = Answer(value, step.seconds, step.flag)
        self.steps.append(step)
        self.seconds += step.seconds
        return answer

    def best(self) -> Architecture:
        """The first of the best."""
        if not self.steps:
            raise InputError("nothing was trained: the budget is smaller than one training")
        best = max(self.steps, key=lambda step: step.strength)
        if best.value is None:
            raise InputError(f"none of the {len(self.steps)} trainings has a value: {best.flag}")
        return best.architecture


def _who_answers(problem: Problem, method: str) -> tuple[Evaluate, Budget]:
    if problem.evaluate is None or problem.budget is None:
        raise InputError(f"{method} learns from trainings: give it a budget and someone who trains")
    return problem.evaluate, problem.budget
