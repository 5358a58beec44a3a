"""Benchmarks that are tables: NAS-Bench-201, NAS-Bench-101, and the NAS-Bench-1Shot1 spaces inside the latter."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from initio.errors import InputError
from initio.records import Architecture, Observation, Query
from initio.spaces import NB101, NB201
from initio.spaces.nb1shot1 import NB1Shot1Space
from initio.tables.base import Benchmark, NoValidation, Report, Validation
from initio.tables.compact import NB101Table, NB201Table, Table, load_arrays
from initio.tables.rows import NB1Shot1Rows, NB101Rows, NB201Rows, Rows

DATASETS = ("c10", "c100", "in16")  # CIFAR-10, CIFAR-100, ImageNet16-120
VERSIONS = ("nb201", "nats")  # the two published files of NAS-Bench-201's trainings
SHORT, LONG = 12, 200  # epochs of NAS-Bench-201
FULL = 108  # epochs of NAS-Bench-101


@dataclass(frozen=True, eq=False)
class Fidelity:
    """Trainings of one length, a row each; NaN where there was none."""

    value: np.ndarray  # validation accuracy in percent
    seconds: np.ndarray


@dataclass(frozen=True, eq=False)
class TableValidation(Validation):
    """Answers from columns of a table."""

    rows: Rows
    fidelities: dict[int, Fidelity]
    default_epochs: int

    @property
    def epochs(self) -> tuple[int, ...]:  # type: ignore[override]
        """See `Validation`."""
        return tuple(sorted(self.fidelities))

    @cached_property
    def members(self) -> tuple[tuple[Architecture, ...], np.ndarray]:
        """The architectures that have an answer at the default length, and their rows."""
        return self.rows.members(np.isfinite(self.fidelities[self.default_epochs].value))

    @property
    def architectures(self) -> tuple[Architecture, ...]:
        """See `Validation`; made on first use."""
        return self.members[0]

    def __call__(self, query: Query) -> Observation:
        """The row's value at the query's length."""
        fidelity = self.fidelities[self.epochs_of(query)]
        row = self.rows.find(query.architecture)
        if row is None or not np.isfinite(fidelity.value[row]):
            space = self.rows.space
            raise InputError(f"the table has no validation accuracy of {space.format(query.architecture)}")
        return Observation(float(fidelity.value[row]), float(fidelity.seconds[row]))


@dataclass(frozen=True, eq=False)
class TableReport(Report):
    """Reports columns of a table."""

    rows: Rows
    values: dict[str, np.ndarray]
    validation: Validation
    devices: Path | None = None  # a table of the same rows with measurements on devices

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

    def regret(self, arch: Architecture, epochs: int | None = None) -> float:
        """See `Report`."""
        value = self.validation(Query(arch, epochs)).value or 0.0
        return float(np.max(self._known(epochs))) - value

    def rank(self, arch: Architecture, epochs: int | None = None) -> int:
        """See `Report`; the same row reached by several notations counts once."""
        value = self.validation(Query(arch, epochs)).value
        return 1 + int(np.sum(self._known(epochs) > value))

    def _known(self, epochs: int | None) -> np.ndarray:
        """Validation accuracies of all rows that the space reaches."""
        assert isinstance(self.validation, TableValidation)  # any other has raised when it was asked
        fidelity = self.validation.fidelities[epochs or self.validation.default_epochs]
        known: np.ndarray = fidelity.value[self._reached]
        finite: np.ndarray = known[np.isfinite(known)]
        return finite

    @cached_property
    def _reached(self) -> np.ndarray:
        assert isinstance(self.validation, TableValidation)
        return np.unique(self.validation.members[1])

    def optimum(self) -> dict[str, float]:
        """See `Report`; over all rows of the table."""
        return {name: float(np.nanmax(column)) for name, column in self.values.items() if np.isfinite(column).any()}

    def hardware(self, arch: Architecture) -> dict[str, float]:
        """HW-NAS-Bench's measurements of the row; those that failed (−1 in the table) are left out."""
        if self.devices is None:
            return super().hardware(arch)
        row = self.index(arch)
        found = {name: float(column[row]) for name, column in self._devices.items()}
        return {name: value for name, value in found.items() if value >= 0}

    @cached_property
    def _devices(self) -> dict[str, np.ndarray]:
        assert self.devices is not None
        if not self.devices.is_file():
            raise InputError(f"measurements on devices are read from {self.devices}, which is not there")
        return load_arrays(self.devices)


def nb201(table: Table, dataset: str, version: str | None) -> Benchmark:
    """Validation of one data set; the report has the test accuracies of all three."""
    if dataset not in DATASETS:
        raise InputError(f"the data sets of NAS-Bench-201 are {', '.join(DATASETS)}, not {dataset!r}")
    if version not in (None, *VERSIONS):
        raise InputError(f"the versions of NAS-Bench-201 are {' and '.join(VERSIONS)}, not {version!r}")
    if not isinstance(table, NB201Table):
        raise InputError(f"{table.path} is a table of {table.space}, not of nb201")
    arrays = load_arrays(table.path)
    rows = NB201Rows(arrays["ops"])
    names = [f"test_{{}}_{v}" for v in ([version] if version else VERSIONS)]
    name = next((name for name in names if any(name.format(d) in arrays for d in DATASETS)), None)
    if name is None:
        raise InputError(f"{table.path} has no test accuracies {names[0].format(dataset)}")
    values = {d: _float(arrays[name.format(d)]) for d in DATASETS if name.format(d) in arrays}
    validation = _nb201_validation(rows, arrays, dataset, table.path)
    return Benchmark(
        "nb201", NB201, validation, TableReport(rows, values, validation, _beside(table, "nb201_hwnasbench"))
    )


def _nb201_validation(rows: Rows, arrays: dict[str, np.ndarray], dataset: str, path: Path) -> Validation:
    columns = {
        SHORT: [f"val12_{dataset}"],
        LONG: [f"val_{dataset}_nats", f"val_{dataset}_nb201"],
    }
    time = f"time200_{dataset}"
    found = {epochs: next((name for name in names if name in arrays), "") for epochs, names in columns.items()}
    fidelities = {
        epochs: Fidelity(_float(arrays[name]), _float(arrays[time]) * epochs / LONG)
        for epochs, name in found.items()
        if name and time in arrays
    }
    if not fidelities:
        return NoValidation(f"{path} has no validation accuracies and times of {dataset}")
    return TableValidation(rows, fidelities, min(fidelities))


def nb101(table: Table, space: NB1Shot1Space | None = None) -> Benchmark:
    """The whole table reports; validation is known for the rows of the multi-fidelity file."""
    if not isinstance(table, NB101Table):
        raise InputError(f"{table.path} is a table of {table.space}, not of nb101")
    arrays = load_arrays(table.path)
    cells = NB101Rows(arrays["n_vertices"], arrays["adj_bits"], arrays["ops"], table.hashes())
    rows: Rows = NB1Shot1Rows(cells, space) if space else cells
    name = f"test_acc_{FULL}"
    values = {"c10": _float(arrays[name])} if name in arrays else {}
    validation = _nb101_validation(rows, arrays, table)
    named = space or NB101
    return Benchmark(named.name, named, validation, TableReport(rows, values, validation))


def _nb101_validation(rows: Rows, arrays: dict[str, np.ndarray], table: Table) -> Validation:
    beside = _beside(table, f"{table.path.stem}_multifidelity_30k")
    place: np.ndarray | slice = slice(None)
    if not any(name.startswith("val_acc_") for name in arrays):
        if not beside.is_file():
            return NoValidation(f"{table.path} has no validation accuracies and there is no {beside.name} beside it")
        arrays = load_arrays(beside)
        place = arrays["row"]
    fidelities = {}
    for name in arrays:
        if match := re.fullmatch(r"val_acc_([0-9]{1,4})", name):
            epochs = int(match[1])
            seconds = _seconds(arrays, epochs, beside)
            fidelities[epochs] = Fidelity(*(_spread(a, place, table.length) for a in (_float(arrays[name]), seconds)))
    return TableValidation(rows, fidelities, max(fidelities))


def _seconds(arrays: dict[str, np.ndarray], epochs: int, path: Path) -> np.ndarray:
    """The time of that training, or its share of the full one's."""
    own, full = f"train_time_{epochs}_s", f"train_time_{FULL}_s"
    if own not in arrays and full not in arrays:
        raise InputError(f"{path} has validation accuracies but no training times {full}")
    return _float(arrays[own]) if own in arrays else _float(arrays[full]) * epochs / FULL


def _spread(values: np.ndarray, place: np.ndarray | slice, length: int) -> np.ndarray:
    spread = np.full(length, np.nan)
    spread[place] = values
    return spread


def _beside(table: Table, stem: str) -> Path:
    return table.path.with_name(f"{stem}.npz")


def _float(values: np.ndarray) -> np.ndarray:
    wide: np.ndarray = values.astype(np.float64)
    return wide
