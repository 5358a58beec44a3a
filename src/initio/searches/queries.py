"""Searches that learn from trainings: a generator yields a `Query` and receives an `Answer`.

A plain loop that reads like the paper's algorithm. It never sees a test accuracy, counts no budget and writes no file:
`QuerySearch.run` asks whoever trains (a table, a surrogate, a real training), never twice for the same query, and stops
at the budget. Since a search is a pure function of (problem, seed, answers), feeding it the recorded answers of an
interrupted run in their order brings it back to where it was.

A search that knows what it will ask, whatever the answers, may say so by `yield Ahead(queries)` before it asks: whoever
trains with several workers begins with all of them. It is a hint and changes no answer.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from initio.errors import InputError
from initio.records import Architecture, Cost, Observation, Query
from initio.searches.base import Search, SearchRun, SearchStep
from initio.searches.limits import milliseconds
from initio.searches.problem import Budget, Evaluate, Problem
from initio.system.clock import OutOfTimeError

SLOW = "not trained: takes"  # how the flag begins of what breaks the limit on latency
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


@dataclass(frozen=True)
class Ahead:
    """What will be asked in any case, in this order."""

    queries: tuple[Query, ...]


Proposals = Generator[Query | Ahead, Answer, Architecture | None]


def ask_all(queries: Sequence[Query]) -> Generator[Query | Ahead, Answer, None]:
    """Announces all of them, then asks one after the other."""
    yield Ahead(tuple(queries))
    for query in queries:  # noqa: UP028  # a plain iterator could not be sent the answers
        yield query


@dataclass(frozen=True)
class Trained(SearchStep):
    """One training: what was asked, and what came out."""

    number: int
    architecture: Architecture
    value: float | None
    seconds: float
    epochs: int | None = None  # None: the full training of whoever answers
    flag: str = ""
    curve: tuple[float, ...] | None = None  # validation accuracies of its epochs, where trainings are halved

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
    limited: ClassVar[bool] = True
    step_types: ClassVar[tuple[type[SearchStep], ...]] = (Trained,)

    @abstractmethod
    def propose(self, problem: Problem, seed: int) -> Proposals:
        """Yields what to train next and receives how good it is; may return its choice, else the best seen is it."""

    def run(self, problem: Problem, seed: int, done: Sequence[Trained]) -> SearchRun[Trained]:
        """Asks until the budget is spent or nothing new is asked; what is in `done` is not asked again."""
        evaluate, budget = _who_answers(problem, self.name)
        problem = problem.limited()
        announce: Callable[[list[Query]], None] = getattr(evaluate, "ahead", lambda queries: None)
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
            if isinstance(query, Ahead):
                answer = None
                announce(ledger.unknown(query.queries, budget, problem.halving))
                continue
            answer = ledger.answers.get(query)
            if answer is not None:
                repeats += 1
                continue
            if budget.spent(ledger.queries, ledger.seconds):
                break
            repeats = 0
            if recorded:
                answer = ledger.add(_replayed(recorded.popleft(), query))
            else:
                try:
                    seen = self._seen(problem, query, ledger, evaluate)
                except OutOfTimeError:
                    if ledger.empty:  # then what would have been trained first must do
                        choice = query.architecture
                    break
                if budget.seconds is not None and ledger.seconds + seen.seconds > budget.seconds:
                    break  # this training would not have ended in time
                step = ledger.step(query, seen)
                answer = ledger.add(step)
                yield step
        proposals.close()
        if recorded:
            raise InputError(f"the run has {len(done)} queries, more than this search asks: start the search again")
        return choice or ledger.best()

    def _seen(self, problem: Problem, query: Query, ledger: Ledger, evaluate: Evaluate) -> Observation:
        """What is trained keeps the latency limit too, which is measured only now."""
        limit = problem.limits.max_latency
        if limit is not None and (time := problem.latency(query.architecture)) > limit:
            return Observation(None, 0.0, f"{SLOW} {milliseconds(time)} a forward pass")
        return evaluate(replace(query, hurdles=ledger.hurdles(problem.halving, query.epochs)))

    def n_steps(self, problem: Problem) -> int | None:
        """One a query."""
        return problem.queries

    def why(self, problem: Problem, steps: Sequence[Trained], chosen: Architecture) -> str:
        """How good it was."""
        own = max((step for step in steps if step.architecture == chosen), key=lambda s: s.strength, default=None)
        if own is None or own.value is None:
            done = f"after {len(steps)} trainings" * bool(steps) or "without any training"
            return f"the search's own choice {done}"
        return f"largest validation accuracy, {own.value:.2f} %, of {len(steps)} trainings"


@dataclass
class Ledger:
    """What was asked so far, in order; the same question costs nothing the second time."""

    steps: list[Trained] = field(default_factory=list)
    answers: dict[Query, Answer] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def queries(self) -> int:
        """How many trainings there were; what takes too long is not trained."""
        return sum(not step.flag.startswith(SLOW) for step in self.steps)

    @property
    def empty(self) -> bool:
        """Whether nothing has a value yet."""
        return all(step.value is None for step in self.steps)

    def step(self, query: Query, seen: Observation) -> Trained:
        """A new answer as the next step."""
        value = None if seen.value is None else float(seen.value)
        number = len(self.steps) + 1
        return Trained(number, query.architecture, value, float(seen.seconds), query.epochs, seen.flag, seen.curve)

    def unknown(self, queries: Sequence[Query], budget: Budget, halving: int | None) -> list[Query]:
        """Those of the queries that have no answer and that the budget allows."""
        new = [query for query in dict.fromkeys(queries) if query not in self.answers]
        if budget.queries is not None:
            new = new[: budget.queries - self.queries]
        return [replace(query, hurdles=None if halving is None else ()) for query in new]

    def hurdles(self, halving: int | None, epochs: int | None) -> tuple[tuple[int, float], ...] | None:
        """Successive halving, one training after another: what has to be cleared after 1, η, η², ... epochs.

        Of the trainings of this length that came as far, with the next one among them, the best in η go on.
        """
        if halving is None:
            return None
        curves = [step.curve for step in self.steps if step.curve and step.epochs == epochs]
        found, rung = [], 1
        while values := sorted((curve[rung - 1] for curve in curves if len(curve) >= rung), reverse=True):
            if kept := (len(values) + 1) // halving:
                found.append((rung, values[min(kept, len(values)) - 1]))
            rung *= halving
        return tuple(found)

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


def _replayed(step: Trained, query: Query) -> Trained:
    """The recorded step, which must be the answer to this query."""
    if step.query != query:
        raise InputError(
            f"query {step.number} of the run differs from what the search asks now: "
            f"the data, the scores or the code have changed, start the search again"
        )
    return step


def _who_answers(problem: Problem, method: str) -> tuple[Evaluate, Budget]:
    if problem.evaluate is None or problem.budget is None:
        raise InputError(f"{method} learns from trainings: give it a budget and someone who trains")
    return problem.evaluate, problem.budget
