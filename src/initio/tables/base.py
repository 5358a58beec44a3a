"""What a benchmark is: trainings that were done once, to be asked for again.

A `Benchmark` has two sides, and they are different objects. Its `Validation` answers queries: this is what may select,
and all that a search is given. Its `Report` knows test accuracies and how good a choice was: it is for the reader of a
finished search. No attribute leads from the first to the second.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from initio.errors import InputError
from initio.records import Architecture, Observation, Query
from initio.spaces import Space


class Validation(ABC):
    """What may select: a query's answer is a validation accuracy, and what its training cost as published."""

    epochs: tuple[int, ...]  # lengths of training that can be asked for, ascending
    default_epochs: int  # that of a query which names none

    @property
    @abstractmethod
    def architectures(self) -> tuple[Architecture, ...] | None:
        """All that have an answer at the default length, as written; None when there is no end of them."""

    @abstractmethod
    def __call__(self, query: Query) -> Observation:
        """The answer, or an `InputError` when there is none."""

    def __contains__(self, arch: object) -> bool:
        """Whether the architecture has an answer at the default length."""
        try:
            return isinstance(arch, Architecture) and bool(self(Query(arch)))
        except InputError:
            return False

    def epochs_of(self, query: Query) -> int:
        """The query's length of training, checked."""
        epochs = self.default_epochs if query.epochs is None else query.epochs
        if epochs not in self.epochs:
            raise InputError(f"there are trainings of {listed(self.epochs)} epochs, not of {epochs}")
        return epochs


@dataclass(frozen=True)
class NoValidation(Validation):
    """The validation of a benchmark that can only report."""

    why: str
    epochs: tuple[int, ...] = ()
    default_epochs: int = 0

    @property
    def architectures(self) -> tuple[Architecture, ...]:
        """None at all."""
        return ()

    def __call__(self, query: Query) -> Observation:
        """Says why not."""
        raise InputError(self.why)


class Report(ABC):
    """What may only report: test accuracies, and the regret and rank of a choice by the validation a search may see."""

    columns: tuple[str, ...]

    @abstractmethod
    def __call__(self, arch: Architecture) -> dict[str, float]:
        """The published numbers of an architecture, by `columns`; those that were not measured are left out."""

    @abstractmethod
    def regret(self, arch: Architecture, epochs: int | None = None) -> float | None:
        """Validation accuracy of the best architecture minus that of this one; None when the best is not known."""

    @abstractmethod
    def rank(self, arch: Architecture, epochs: int | None = None) -> int | None:
        """1 for the best by validation; equals share a rank. None when the best is not known."""

    @abstractmethod
    def optimum(self) -> dict[str, float]:
        """The largest value of each column, where it is known: no search can report more."""

    def index(self, arch: Architecture) -> int:
        """The benchmark's own number of the architecture."""
        raise InputError("this benchmark does not number its architectures")

    def hardware(self, arch: Architecture) -> dict[str, float]:
        """Latencies and energies on devices, for those that were measured."""
        raise InputError("this benchmark has no measurements on devices")


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A space, what may select in it, and what may only report."""

    name: str
    space: Space
    validation: Validation
    report: Report

    @property
    def architectures(self) -> tuple[Architecture, ...] | None:
        """See `Validation`."""
        return self.validation.architectures

    @property
    def epochs(self) -> tuple[int, ...]:
        """See `Validation`."""
        return self.validation.epochs

    def validate(self, query: Query) -> Observation:
        """See `Validation`."""
        return self.validation(query)


def listed(numbers: tuple[int, ...]) -> str:
    """Numbers as a reader wants them.

    >>> listed((4, 12, 108))
    '4, 12 and 108'
    >>> listed(tuple(range(1, 99)))
    '1 to 98'
    """
    if len(numbers) > 2 and numbers == tuple(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return " and ".join(filter(None, [", ".join(map(str, numbers[:-1])), *map(str, numbers[-1:])]))
