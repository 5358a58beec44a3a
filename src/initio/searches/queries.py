"""Searches that learn from trainings: what they are told, what they may ask, and the driver that runs any of them.

A search is a generator: it yields a `Query` and receives the `Observation`, in a plain loop that reads like the paper's
algorithm. It never sees a test accuracy, counts no budget and writes no file. The driver `run_queries` does the rest
for all of them: it asks whoever trains (a table, a surrogate, a real training), never twice for the same query, stops
at the budget, records each answer, and goes on from the records of an interrupted run: since a search is a pure
function of (task, seed, answers), feeding it the recorded answers brings it back to where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from random import Random
from typing import ClassVar, Protocol

from initio.errors import InputError
from initio.records import Architecture, Cost, Observation, Query, SearchResult, Settings, settings
from initio.scores.table import ScoreTable
from initio.searches.base import OnRow, get, peak_bytes, versions
from initio.spaces import Space

Evaluate = Callable[[Query], Observation]
Proposals = Generator[Query, "Answer", Architecture | None]

REPEATS = 1000  # known answers in a row, after which a search is taken to have nothing new to ask
DRAWS = 1000  # attempts to find a neighbour inside a pool


@dataclass(frozen=True)
class Answer:
    """What a search hears of a training; one without a value counts as the worst so far."""

    value: float
    seconds: float
    flag: str = ""


@dataclass(frozen=True)
class Budget:
    """When to stop: after so many trainings, or when the next one would exceed so many seconds of training."""

    queries: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.queries is None and self.seconds is None:
            raise InputError("a search that trains needs a budget: a number of queries, or of seconds of training")
        if self.queries is not None and self.queries < 1:
            raise InputError(f"the number of queries must be at least 1, not {self.queries}")
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(f"the seconds of training must be positive, not {self.seconds}")

    def spent(self, queries: int, seconds: float) -> bool:
        """Whether nothing is left."""
        return (self.queries is not None and queries >= self.queries) or (
            self.seconds is not None and seconds >= self.seconds
        )


@dataclass(frozen=True)
class Task:
    """What a search is told.

    Args:
        space: where to search.
        pool: the architectures that may be trained, in a fixed order; empty if all of the space may.
        scores: metrics of the pool, or of a part of it.
        epochs: lengths of training that may be asked for, shortest first; empty if there is only one.
        budget: how much may be trained; a search that plans ahead may look at it, the driver enforces it.
    """

    space: Space
    budget: Budget
    pool: Sequence[Architecture] = field(default=(), repr=False)
    scores: ScoreTable | None = field(default=None, repr=False)
    epochs: tuple[int, ...] = ()

    @cached_property
    def members(self) -> Collection[Architecture]:
        """The pool, for looking up."""
        return frozenset(self.pool)

    def allows(self, arch: Architecture) -> bool:
        """Whether the architecture may be trained."""
        return arch in self.members if self.pool else self.space.contains(arch)

    def draw(self, rng: Random) -> Architecture:
        """A random architecture."""
        return rng.choice(self.pool) if self.pool else self.space.sample(rng)

    def member(self, arch: Architecture) -> Architecture | None:
        """What may be trained in its place: itself, or its representative in a pool of distinct cells (nb101)."""
        if self.allows(arch):
            return arch
        if not self.pool:
            return None
        if arch not in self._twins:
            twin = self.space.canonical(arch) if self.space.contains(arch) else None
            self._twins[arch] = twin if twin in self.members else None
        return self._twins[arch]

    @cached_property
    def _twins(self) -> dict[Architecture, Architecture | None]:
        """Answers of `member`: a search looks around the same few cells again and again."""
        return {}

    def mutate(self, arch: Architecture, rng: Random, *, mutations: int = 1) -> Architecture:
        """So many random mutations away, one that may be trained; where the pool has none, a random architecture."""
        for _ in range(DRAWS):
            child = arch
            for _ in range(mutations):
                child = self.space.mutate(child, rng)
            found = self.member(child)
            if found is not None and found != arch:
                return found
        return self.draw(rng)

    def known_scores(self, method: str) -> ScoreTable:
        """The scores, which `method` cannot do without."""
        if self.scores is None or not len(self.scores):
            raise InputError(f"{method} ranks architectures by their scores: give it a store of scores")
        return self.scores


class QuerySearch(Protocol):
    """A frozen dataclass whose fields are its settings."""

    name: ClassVar[str]

    def propose(self, task: Task, seed: int) -> Proposals:
        """Yields what to train next and receives how good it is; may return its choice, else the best seen is it."""


@dataclass
class Ledger:
    """What was asked so far, in order; the same question costs nothing the second time."""

    answers: dict[Query, Answer] = field(default_factory=dict)
    seconds: float = 0.0
    best: Query | None = None

    def add(self, query: Query, observation: Observation) -> None:
        """Records a new answer; of several lengths of training only the longest competes for the best."""
        value = observation.value
        if value is None:
            value = min((answer.value for answer in self.answers.values()), default=0.0)
        self.answers[query] = Answer(value, observation.seconds, observation.flag)
        self.seconds += observation.seconds
        if self.best is None or self._strength(query) > self._strength(self.best):
            self.best = query

    def _strength(self, query: Query) -> tuple[float, float]:
        return float("inf") if query.epochs is None else query.epochs, self.answers[query].value


def run_queries(
    search: QuerySearch,
    task: Task,
    evaluate: Evaluate,
    *,
    seed: int,
    rows: Sequence[Settings] = (),
    on_row: OnRow | None = None,
) -> SearchResult:
    """Runs a search to the end of its budget; `rows` are an interrupted run's, `on_row` hears of each new one."""
    start, ledger, trace = time.perf_counter(), Ledger(), list[Settings]()
    recorded = {_query(task.space, row): _observation(row) for row in rows}
    proposals, repeats = search.propose(task, seed), 0
    answer: Answer | None = None
    choice: Architecture | None = None
    while repeats < REPEATS:
        try:
            query = proposals.send(answer) if answer is not None else next(proposals)
        except StopIteration as stop:
            choice = stop.value
            break
        if answer := ledger.answers.get(query):
            repeats += 1
            continue
        if task.budget.spent(len(ledger.answers), ledger.seconds):
            break
        repeats = 0
        observation = recorded.get(query)
        new = observation is None
        if observation is None:
            observation = evaluate(query)
        if task.budget.seconds is not None and ledger.seconds + observation.seconds > task.budget.seconds:
            break  # this training would not have ended in time
        ledger.add(query, observation)
        answer = ledger.answers[query]
        trace.append(_row(len(ledger.answers), task.space, query, answer, ledger))
        if new and on_row:
            on_row(trace[-1])
    proposals.close()
    if ledger.best is None:
        raise InputError("nothing was trained: the budget is smaller than one training")
    return SearchResult(
        method=search.name,
        space=task.space.name,
        seed=seed,
        chosen=(choice or ledger.best.architecture,),
        settings=settings(**asdict(search)),  # type: ignore[call-overload]
        trace=tuple(trace),
        cost=Cost(
            steps=len(ledger.answers),
            scorings=0 if task.scores is None else len(task.scores),
            queries=len(ledger.answers),
            seconds=time.perf_counter() - start,
            published_seconds=ledger.seconds,
            peak_bytes=peak_bytes(),
        ),
        versions=versions(),
    )


# --- a query and its answer as a row of the trace -----------------------------------------------------------------


def _row(number: int, space: Space, query: Query, answer: Answer, ledger: Ledger) -> Settings:
    best = ledger.best
    assert best is not None
    return settings(
        query=number,
        architecture=space.format(query.architecture),
        choices=" ".join(map(str, query.architecture.choices)),
        epochs=query.epochs,
        value=float(answer.value),
        seconds=float(answer.seconds),
        total_seconds=ledger.seconds,
        best=float(ledger.answers[best].value),
    )


def _query(space: Space, row: Settings) -> Query:
    choices, epochs = get(row, "choices"), get(row, "epochs")
    assert isinstance(choices, str)
    assert epochs is None or isinstance(epochs, int)
    return Query(Architecture(space.name, tuple(map(int, choices.split()))), epochs)


def _observation(row: Settings) -> Observation:
    value, seconds = get(row, "value"), get(row, "seconds")
    assert isinstance(value, float)
    assert isinstance(seconds, float)
    return Observation(value, seconds)
