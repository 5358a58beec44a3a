"""NAS-Bench-201: 15,625 cells, each trained for 12 and for 200 epochs on three data sets.

A row of its table is an architecture as written: `ops` (n, 6), the choices of the space `nb201`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from initio.errors import InputError
from initio.records import Architecture
from initio.spaces import NB201, GraphSpace
from initio.spaces.nb201 import EDGES, OPS, representative_choices
from initio.tables.base import NoValidation, Table
from initio.tables.cells import as_architectures
from initio.tables.compact import Arrays, CompactTable, Row, Rows
from initio.tables.tabular import Fidelity, TableReport, TableValidation

DATASETS = ("c10", "c100", "in16")  # CIFAR-10, CIFAR-100, ImageNet16-120
VERSIONS = ("nb201", "nats")  # the two published files of the trainings
SHORT, LONG = 12, 200  # epochs
PLACES = len(OPS) ** np.arange(len(EDGES))[::-1]  # of the choices, read as the digits of one number


@dataclass(frozen=True, eq=False)
class NB201Rows(Rows):
    """A row for each architecture as written."""

    ops: np.ndarray  # (n, 6)
    space: GraphSpace = NB201

    @classmethod
    def of(cls, arrays: Arrays) -> NB201Rows:
        """The rows of a file."""
        return cls(arrays.whole("ops", (arrays.length("ops"), len(EDGES)), 0, len(OPS) - 1))

    def __len__(self) -> int:
        return len(self.ops)

    @cached_property
    def _row(self) -> np.ndarray:
        """The row by the choices read as one number, −1 where there is none."""
        rows = np.full(len(OPS) ** len(EDGES), -1)
        rows[self.ops.astype(np.int64) @ PLACES] = np.arange(len(self.ops))
        return rows

    def find(self, arch: Architecture) -> int | None:
        """By its choices."""
        row = int(self._row[np.array(NB201.check(arch).choices) @ PLACES])
        return row if row >= 0 else None

    def members(self, wanted: np.ndarray) -> tuple[tuple[Architecture, ...], np.ndarray]:
        """The rows as they are."""
        return as_architectures(NB201.name, self.ops[wanted]), np.flatnonzero(wanted)

    def matching(self, representatives: Collection[Architecture]) -> Iterator[Row]:
        """All members of the classes."""
        by_choices = {arch.choices: arch for arch in representatives if arch.space == NB201.name}
        for number, choices in enumerate(map(tuple, self.ops.tolist())):
            if (representative := by_choices.get(representative_choices()[choices])) is not None:
                yield number, Architecture(NB201.name, choices), representative


def open_nb201(path: Path, epochs: int | None = None, *, dataset: str = "c10", version: str | None = None) -> Table:
    """Validation of one data set; the report has the test accuracies of all three."""
    if dataset not in DATASETS:
        raise InputError(f"the data sets of NAS-Bench-201 are {', '.join(DATASETS)}, not {dataset!r}")
    if version not in (None, *VERSIONS):
        raise InputError(f"the versions of NAS-Bench-201 are {' and '.join(VERSIONS)}, not {version!r}")
    arrays = Arrays.read(path)
    table = CompactTable(arrays, NB201Rows.of(arrays))
    validation = _validation(table, dataset, epochs)
    return Table("nb201", NB201, validation, TableReport(table.index, _tests(table, dataset, version), validation))


def _tests(table: CompactTable, dataset: str, version: str | None) -> dict[str, np.ndarray]:
    """The test accuracies of the asked version, or of the first that is there."""
    versions = [version] if version else VERSIONS
    for v in versions:
        if names := {d: f"test_{d}_{v}" for d in DATASETS if f"test_{d}_{v}" in table.arrays}:
            return {d: table.column(name) for d, name in names.items()}
    raise InputError(f"{table.path} has no test accuracies test_{dataset}_{versions[0]}")


def _validation(table: CompactTable, dataset: str, epochs: int | None) -> TableValidation | NoValidation:
    """A training of 12 epochs counts its share of the time that 200 take."""
    time = f"time200_{dataset}"
    columns = [(SHORT, f"val12_{dataset}"), (LONG, f"val_{dataset}_nb201"), (LONG, f"val_{dataset}_nats")]
    fidelities = {
        length: Fidelity(table.column(name), table.column(time) * length / LONG)
        for length, name in columns
        if name in table.arrays and time in table.arrays
    }
    if not fidelities:
        return NoValidation.for_queries(f"{table.path} has no validation accuracies and times of {dataset}", epochs)
    return TableValidation(table.index, fidelities, epochs or min(fidelities))
