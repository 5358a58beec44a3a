"""Where an architecture stands in a table, by the table's own idea of which architectures are one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from initio.records import Architecture
from initio.spaces import NB101, NB201, GraphSpace
from initio.spaces.nb1shot1 import NB1Shot1Space
from initio.spaces.nb201 import EDGES, OPS
from initio.tables.cells import architectures, as_architectures, class_keys, words_of_rows, words_of_space


class Rows(ABC):
    """The rows of a table."""

    space: GraphSpace

    @abstractmethod
    def find(self, arch: Architecture) -> int | None:
        """The row of an architecture, None when the table does not have it."""

    @abstractmethod
    def members(self, wanted: np.ndarray) -> tuple[tuple[Architecture, ...], np.ndarray]:
        """All architectures of the space whose row is wanted (a mask over rows), and their rows."""


@dataclass(frozen=True, eq=False)
class NB201Rows(Rows):
    """A row for each architecture as written."""

    ops: np.ndarray  # (n, 6)
    space: GraphSpace = NB201

    @cached_property
    def _row(self) -> np.ndarray:
        """The row by the choices read as one number, −1 where there is none."""
        rows = np.full(len(OPS) ** len(EDGES), -1)
        rows[self.ops.astype(np.int64) @ _PLACES] = np.arange(len(self.ops))
        return rows

    def find(self, arch: Architecture) -> int | None:
        """By its choices."""
        row = int(self._row[np.array(NB201.check(arch).choices) @ _PLACES])
        return None if row < 0 else row

    def members(self, wanted: np.ndarray) -> tuple[tuple[Architecture, ...], np.ndarray]:
        """The rows as they are."""
        return as_architectures(NB201.name, self.ops[wanted]), np.flatnonzero(wanted)


_PLACES = len(OPS) ** np.arange(len(EDGES))[::-1]


@dataclass(frozen=True, eq=False)
class NB101Rows(Rows):
    """A row for each class of isomorphic cells, sorted by the benchmark's hash."""

    n_vertices: np.ndarray
    adj_bits: np.ndarray
    ops: np.ndarray  # (n, 5)
    hash64: np.ndarray
    space: GraphSpace = NB101

    def find(self, arch: Architecture) -> int | None:
        """By the benchmark's hash."""
        key = np.uint64(int(NB101.graph_hash(arch)[:16], 16))
        row = int(np.searchsorted(self.hash64, key))
        return row if row < len(self.hash64) and self.hash64[row] == key else None

    def members(self, wanted: np.ndarray) -> tuple[tuple[Architecture, ...], np.ndarray]:
        """Each row's cell, as the table writes it."""
        words = words_of_rows(self.n_vertices[wanted], self.adj_bits[wanted])
        return architectures(words, self.ops[wanted]), np.flatnonzero(wanted)


@dataclass(frozen=True, eq=False)
class NB1Shot1Rows(Rows):
    """Cells of NAS-Bench-101, found from another space's notation."""

    cells: NB101Rows
    space: NB1Shot1Space

    def find(self, arch: Architecture) -> int | None:
        """Through the cell of `nb101`."""
        return self.cells.find(self.space.to_nb101(arch))

    def members(self, wanted: np.ndarray) -> tuple[tuple[Architecture, ...], np.ndarray]:
        """All of the space's ways to write those cells."""
        rows = np.flatnonzero(wanted)
        table = class_keys(
            words_of_rows(self.cells.n_vertices[wanted], self.cells.adj_bits[wanted]), self.cells.ops[wanted]
        )
        order = np.argsort(table)
        words, ops, choices = words_of_space(self.space)
        keys = class_keys(words, ops)
        place = np.minimum(np.searchsorted(table, keys, sorter=order), max(len(table) - 1, 0))
        there = table[order[place]] == keys if len(table) else np.zeros(len(keys), bool)
        return as_architectures(self.space.name, choices[there]), rows[order[place[there]]]
