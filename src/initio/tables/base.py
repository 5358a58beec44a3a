"""What a table is: trainings of a benchmark that were done once, to be asked for again.

A `Table` has two sides, and they are different objects. Its `Validation` answers queries: this is what may select,
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

    def length(self, epochs: int | None) -> int:
        """A length of training, checked; None stands for the default."""
        if epochs is None:
            return self.default_epochs
        if epochs not in self.epochs:
            raise InputError(f"there are trainings of {listed(self.epochs)} epochs, not of {epochs}")
        return epochs


@dataclass(frozen=True)
class NoValidation(Validation):
    """The validation of a table that can only report."""

    why: str
    epochs: tuple[int, ...] = ()
    default_epochs: int = 0

    @classmethod
    def for_queries(cls, why: str, epochs: int | None) -> NoValidation:
        """Whoever asks for a length of training means to query: then why there is no validation is an error."""
        if epochs is not None:
            raise InputError(why)
        return cls(why)

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
    def regret(self, arch: Architecture) -> float | None:
        """Validation accuracy of the best architecture minus that of this one; None when the best is not known."""

    @abstractmethod
    def rank(self, arch: Architecture) -> int | None:
        """1 for the best by validation; equals share a rank. None when the best is not known."""

    def best(self) -> dict[str, float]:
        """The largest number of each column, of all that the space reaches; none where that is not known."""
        return {}

    def index(self, arch: Architecture) -> int:
        """The benchmark's own number of the architecture."""
        raise InputError("this table does not number its architectures")


@dataclass(frozen=True, eq=False)
class Table:
    """A published benchmark: a space, what may select in it, and what may only report."""

    name: str
    space: Space
    validation: Validation
    report: Report

    @property
    def architectures(self) -> tuple[Architecture, ...] | None:
        """See `Validation`."""
        return self.validation.architectures


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
