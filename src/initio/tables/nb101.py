"""NAS-Bench-101, 423,624 cells on CIFAR-10, and the NAS-Bench-1Shot1 spaces inside it.

A row of its table is a class of isomorphic cells: `n_vertices` and `adj_bits` (n,), `ops` (n, 5), and the first 64 bits
of the benchmark's hash, `hash64`, ascending, here or in the file `..._hash64.npz` beside it. Validation accuracies are
here or, for a part of the rows, in `..._multifidelity_30k.npz`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from initio.errors import InputError
from initio.records import Architecture
from initio.spaces import NB101, GraphSpace, get_space
from initio.spaces.modelspec import MAX_VERTICES, OPS
from initio.spaces.nb1shot1 import NB1Shot1Space
from initio.tables.base import NoValidation, Table
from initio.tables.cells import INNER, architectures, as_architectures, class_keys, words_of_rows, words_of_space
from initio.tables.compact import Arrays, CompactTable, Row, Rows
from initio.tables.tabular import Fidelity, TableReport, TableValidation

FULL = 108  # epochs


@dataclass(frozen=True, eq=False)
class NB101Rows(Rows):
    """A row for each class of isomorphic cells, sorted by the benchmark's hash."""

    n_vertices: np.ndarray
    adj_bits: np.ndarray
    ops: np.ndarray  # (n, 5), −1 for a vertex that is not there
    hash64: np.ndarray
    space: GraphSpace = NB101

    @classmethod
    def of(cls, arrays: Arrays) -> NB101Rows:
        """The rows of a file."""
        n = arrays.length("n_vertices")
        n_vertices = arrays.whole("n_vertices", (n,), 2, MAX_VERTICES).astype(np.int64)
        ops = arrays.whole("ops", (n, INNER), -1, len(OPS) - 1)
        adj_bits = arrays.whole("adj_bits", (n,), 0, 2 ** (MAX_VERTICES * (MAX_VERTICES - 1) // 2) - 1)
        wrong = np.flatnonzero(adj_bits.astype(np.int64) >> (n_vertices * (n_vertices - 1) // 2))
        if len(wrong):
            raise InputError(f"row {wrong[0]} of {arrays.path} has more edges than its {n_vertices[wrong[0]]} vertices")
        return cls(n_vertices, adj_bits, ops, _hashes(arrays, n))

    def __len__(self) -> int:
        return len(self.ops)

    def find(self, arch: Architecture) -> int | None:
        """By the benchmark's hash."""
        key = np.uint64(int(NB101.graph_hash(arch)[:16], 16))
        row = int(np.searchsorted(self.hash64, key))
        return row if row < len(self) and self.hash64[row] == key else None

    def members(self, wanted: np.ndarray) -> tuple[tuple[Architecture, ...], np.ndarray]:
        """Each row's cell, as the table writes it."""
        return architectures(self.words(wanted), self.ops[wanted]), np.flatnonzero(wanted)

    def matching(self, representatives: Collection[Architecture]) -> Iterator[Row]:
        """One row for each representative that the benchmark holds."""
        found = ((self.find(arch), arch) for arch in representatives)
        yield from sorted((row, arch, arch) for row, arch in found if row is not None)

    def words(self, wanted: np.ndarray) -> np.ndarray:
        """The edges of these rows' cells."""
        return words_of_rows(self.n_vertices[wanted], self.adj_bits[wanted])


def _hashes(arrays: Arrays, length: int) -> np.ndarray:
    if "hash64" not in arrays:
        arrays = Arrays.read(arrays.path.with_name(f"{arrays.path.stem}_hash64.npz"))
    found = arrays.whole("hash64", (length,), 0, 2**64 - 1).astype(np.uint64)
    if np.any(found[1:] <= found[:-1]):
        raise InputError(f"hash64 in {arrays.path} is not ascending")
    return found


@dataclass(frozen=True, eq=False)
class NB1Shot1Rows(Rows):
    """Cells of NAS-Bench-101, found from another space's notation."""

    cells: NB101Rows
    space: NB1Shot1Space

    def __len__(self) -> int:
        return len(self.cells)

    def find(self, arch: Architecture) -> int | None:
        """Through the cell of `nb101`."""
        return self.cells.find(self.space.to_nb101(arch))

    def members(self, wanted: np.ndarray) -> tuple[tuple[Architecture, ...], np.ndarray]:
        """All of the space's ways to write those cells."""
        rows = np.flatnonzero(wanted)
        if not len(rows):
            return (), rows
        table = class_keys(self.cells.words(wanted), self.cells.ops[wanted])
        order = np.argsort(table)
        words, ops, choices = words_of_space(self.space)
        keys = class_keys(words, ops)
        place = np.minimum(np.searchsorted(table, keys, sorter=order), len(table) - 1)
        there = table[order[place]] == keys
        return as_architectures(self.space.name, choices[there]), rows[order[place[there]]]

    def matching(self, representatives: Collection[Architecture]) -> Iterator[Row]:
        """Their representatives are cells of `nb101`."""
        return self.cells.matching(representatives)


def open_nb101(path: Path, epochs: int | None = None, *, space: str = "nb101") -> Table:
    """The whole table reports; validation is known for the rows of the multi-fidelity file."""
    arrays, named = Arrays.read(path), get_space(space)
    cells = NB101Rows.of(arrays)
    rows = NB1Shot1Rows(cells, named) if isinstance(named, NB1Shot1Space) else cells
    table = CompactTable(arrays, rows)
    values = {}
    if (name := f"test_acc_{FULL}") in arrays:
        values["c10"] = table.column(name)
    validation = _validation(table, rows, epochs)
    return Table(space, named, validation, TableReport(rows, values, validation))


def _validation(table: CompactTable, rows: Rows, epochs: int | None) -> TableValidation | NoValidation:
    arrays, place = table.arrays, np.arange(len(rows))
    if not any(map(_epochs, arrays)):
        beside = table.path.with_name(f"{table.path.stem}_multifidelity_30k.npz")
        if not beside.is_file():
            why = f"{table.path} has no validation accuracies and there is no {beside.name} beside it"
            return NoValidation.for_queries(why, epochs)
        arrays = Arrays.read(beside)
        place = arrays.whole("row", (arrays.length("row"),), 0, len(rows) - 1)
    fidelities = {}
    for name in arrays:
        if length := _epochs(name):
            columns = arrays.column(name, len(place)), _seconds(arrays, length, len(place))
            fidelities[length] = Fidelity(*(_spread(values, place, len(rows)) for values in columns))
    if not fidelities:
        return NoValidation.for_queries(f"{arrays.path} has no validation accuracies val_acc_{FULL}", epochs)
    return TableValidation(rows, fidelities, epochs or max(fidelities))


def _epochs(column: str) -> int:
    """The length of training that a column of validation accuracies is of; 0 for any other column."""
    match = re.fullmatch(r"val_acc_([1-9][0-9]{0,3})", column)
    return int(match[1] if match else 0)


def _seconds(arrays: Arrays, epochs: int, length: int) -> np.ndarray:
    """The time of that training, or its share of the full one's."""
    own, full = f"train_time_{epochs}_s", f"train_time_{FULL}_s"
    if own in arrays:
        return arrays.column(own, length)
    if full in arrays:
        return arrays.column(full, length) * epochs / FULL
    raise InputError(f"{arrays.path} has validation accuracies but no training times {full}")


def _spread(values: np.ndarray, place: np.ndarray, length: int) -> np.ndarray:
    spread = np.full(length, np.nan)
    spread[place] = values
    return spread
