"""A benchmark's numbers as arrays: one row for each architecture, one column for each published number.

A compact table is an .npz file. Which layout it has is recognised by what it holds: `nb101.py` and `nb201.py` say what
their rows are. Whatever is used of a file is checked here, once, when it is opened: name, shape, kind and range.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from initio.data.npz import read_arrays
from initio.data.sources import DATA_FOLDER
from initio.errors import InputError, did_you_mean
from initio.records import Architecture
from initio.spaces import GraphSpace

KINDS = {"numbers": "fiu", "whole numbers": "iu"}  # of numpy types

Row = tuple[int, Architecture, Architecture]  # number, architecture as written, its canonical representative


@dataclass(frozen=True, eq=False)
class Arrays:
    """The arrays of one file; what is taken from it is what was asked for, or an `InputError`."""

    path: Path
    by_name: Mapping[str, np.ndarray] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> Arrays:
        """All arrays of a file."""
        return cls(path, read_arrays(path))

    def __contains__(self, name: str) -> bool:
        return name in self.by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def column(self, name: str, length: int) -> np.ndarray:
        """So many numbers, as float64."""
        return self._checked(name, "numbers", (length,)).astype(np.float64)

    def whole(self, name: str, shape: tuple[int, ...], low: int, high: int) -> np.ndarray:
        """Whole numbers from `low` to `high`."""
        values = self._checked(name, "whole numbers", shape)
        if values.size and not low <= int(values.min()) <= int(values.max()) <= high:
            raise InputError(
                f"{name} in {self.path} has numbers from {values.min()} to {values.max()}, "
                f"they should be {low} to {high}"
            )
        return values

    def finite(self, name: str, *shape: int | None) -> np.ndarray:
        """Finite numbers of this shape, as float64; None stands for any length."""
        values = self._checked(name, "numbers", shape)
        if not np.isfinite(values).all():
            raise InputError(f"{name} in {self.path} holds a value that is not a finite number")
        return values.astype(np.float64)

    def length(self, name: str) -> int:
        """How many rows an array has, which must be at least one."""
        values = self.by_name.get(name, np.zeros(1))
        if not values.ndim or not len(values):
            raise InputError(f"{name} in {self.path} has no rows")
        return len(values)

    def _checked(self, name: str, what: str, shape: tuple[int | None, ...]) -> np.ndarray:
        if name not in self.by_name:
            raise InputError(f"{self.path} is not a table of this benchmark: it has no array {name!r}")
        values = self.by_name[name]
        fits = len(shape) == values.ndim and all(n in (None, m) for n, m in zip(shape, values.shape, strict=True))
        if values.dtype.kind not in KINDS[what] or not fits:
            wanted = str(shape).replace("None", "any")
            raise InputError(
                f"{name} in {self.path} should be {what} of shape {wanted}, not {values.dtype} of {values.shape}"
            )
        return values


class Rows(ABC):
    """Where an architecture stands in a table, by the table's own idea of which architectures are one."""

    space: GraphSpace

    @abstractmethod
    def __len__(self) -> int:
        """How many rows there are."""

    @abstractmethod
    def find(self, arch: Architecture) -> int | None:
        """The row of an architecture, None when the table does not have it."""

    @abstractmethod
    def members(self, wanted: np.ndarray) -> tuple[tuple[Architecture, ...], np.ndarray]:
        """All architectures of the space whose row is wanted (a mask over rows), and their rows."""

    @abstractmethod
    def matching(self, representatives: Collection[Architecture]) -> Iterator[Row]:
        """The rows whose canonical architecture is one of these, in the table's order."""


@dataclass(frozen=True, eq=False)
class CompactTable:
    """An open file: its rows, and its columns by name."""

    arrays: Arrays
    index: Rows

    @property
    def path(self) -> Path:
        """The file."""
        return self.arrays.path

    @property
    def space(self) -> str:
        """The name of the space that its rows are of."""
        return self.index.space.name

    @property
    def length(self) -> int:
        """How many rows it has."""
        return len(self.index)

    def rows(self, representatives: Collection[Architecture]) -> Iterator[Row]:
        """The rows whose canonical architecture is one of these, in the table's order."""
        return self.index.matching(representatives)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the arrays that have one number for each row."""
        arrays = self.arrays.by_name.items()
        fits = {name for name, x in arrays if x.shape == (self.length,) and x.dtype.kind in KINDS["numbers"]}
        return tuple(sorted(fits - {"adj_bits", "hash64"}))

    def column(self, name: str) -> np.ndarray:
        """A column as float64, NaN where the table has no value."""
        if name not in self.arrays:
            raise InputError(f"{self.path} has no column {name!r}: {did_you_mean(name, list(self.columns))}")
        return self.arrays.column(name, self.length)


def split_target(text: str) -> tuple[str, str]:
    """TABLE:COLUMN in its two parts.

    >>> split_target("nb201_tss.npz:test_c10_nb201")
    ('nb201_tss.npz', 'test_c10_nb201')
    """
    table, colon, column = text.rpartition(":")
    if not colon or not table or not column:
        raise InputError(f"the target must be TABLE:COLUMN, as in nb201_tss.npz:test_c10_nb201, not {text!r}")
    return table, column


def find_file(name: str, folder: Path | str | None) -> Path:
    """The file `name`, here, in `folder` or in the folder of INITIO_DATA."""
    folders = [Path(place) for place in (folder, os.environ.get(DATA_FOLDER)) if place]
    candidates = [Path(name), *(place / end for place in folders for end in (name, f"{name}.npz"))]
    for path in candidates:
        if path.is_file():
            return path
    looked = f"in {' or in '.join(map(str, folders))}" if folders else f"{DATA_FOLDER} names no folder to look in"
    raise InputError(f"there is no table {name!r} here and {looked}")
