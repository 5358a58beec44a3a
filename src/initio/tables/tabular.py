"""A validation and a report that are columns of a table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from initio.errors import InputError
from initio.records import Architecture, Observation, Query
from initio.tables.base import NoValidation, Report, Validation
from initio.tables.compact import Rows


@dataclass(frozen=True, eq=False)
class Fidelity:
    """Trainings of one length, a row each; NaN where there was none."""

    value: np.ndarray  # validation accuracy in percent
    seconds: np.ndarray

    @cached_property
    def known(self) -> np.ndarray:
        """The rows that have both."""
        mask: np.ndarray = np.isfinite(self.value) & (self.seconds >= 0) & np.isfinite(self.seconds)
        return mask


@dataclass(frozen=True, eq=False)
class TableValidation(Validation):
    """Answers from columns of a table."""

    rows: Rows
    fidelities: dict[int, Fidelity]
    default_epochs: int

    def __post_init__(self) -> None:
        self.length(self.default_epochs)

    @property
    def epochs(self) -> tuple[int, ...]:  # type: ignore[override]
        """See `Validation`."""
        return tuple(sorted(self.fidelities))

    @cached_property
    def members(self) -> tuple[tuple[Architecture, ...], np.ndarray]:
        """The architectures that have an answer at the default length, and their rows."""
        return self.rows.members(self.fidelities[self.default_epochs].known)

    @property
    def architectures(self) -> tuple[Architecture, ...]:
        """See `Validation`; made on first use."""
        return self.members[0]

    def __call__(self, query: Query) -> Observation:
        """The row's value at the query's length."""
        fidelity, row = self.locate(query)
        return Observation(float(fidelity.value[row]), float(fidelity.seconds[row]))

    def locate(self, query: Query) -> tuple[Fidelity, int]:
        """Where the answer stands."""
        fidelity = self.fidelities[self.length(query.epochs)]
        row = self.rows.find(query.architecture)
        if row is None or not fidelity.known[row]:
            space = self.rows.space
            raise InputError(f"the table has no validation accuracy of {space.format(query.architecture)}")
        return fidelity, row


@dataclass(frozen=True, eq=False)
class TableReport(Report):
    """Reports columns of a table."""

    rows: Rows
    values: dict[str, np.ndarray]
    validation: TableValidation | NoValidation

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `Report`."""
        return tuple(self.values)

    def __call__(self, arch: Architecture) -> dict[str, float]:
        """The row's values."""
        row = self.index(arch)
        return {name: float(column[row]) for name, column in self.values.items() if np.isfinite(column[row])}

    def index(self, arch: Architecture) -> int:
        """The table's row, which for NAS-Bench-201 is the official index."""
        row = self.rows.find(arch)
        if row is None:
            raise InputError(f"the table has no row for {self.rows.space.format(arch)}")
        return row

    def best(self) -> dict[str, float]:
        """See `Report`."""
        reached = {name: column[self._reached] for name, column in self.values.items()}
        return {name: float(np.nanmax(column)) for name, column in reached.items() if np.isfinite(column).any()}

    def regret(self, arch: Architecture) -> float:
        """See `Report`."""
        value, known = self._standing(arch)
        return float(np.max(known)) - value

    def rank(self, arch: Architecture) -> int:
        """See `Report`; the same row reached by several notations counts once."""
        value, known = self._standing(arch)
        return 1 + int(np.sum(known > value))

    def _standing(self, arch: Architecture) -> tuple[float, np.ndarray]:
        """The validation accuracies of this row, and of all that the space reaches."""
        if isinstance(self.validation, NoValidation):
            raise InputError(self.validation.why)
        fidelity, row = self.validation.locate(Query(arch))
        reached = self._reached[fidelity.known[self._reached]]
        return float(fidelity.value[row]), fidelity.value[reached]

    @cached_property
    def _reached(self) -> np.ndarray:
        assert isinstance(self.validation, TableValidation)
        return np.unique(self.validation.members[1])
