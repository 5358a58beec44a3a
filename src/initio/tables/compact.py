"""A benchmark's table as arrays: one row for each architecture, one column for each published number.

A table is an .npz file in one of two layouts, recognised by what they hold:

- `ops` (n, 6): NAS-Bench-201, a row for each architecture as written (15,625);
- `n_vertices`, `adj_bits`, `ops` (n, 5): NAS-Bench-101, a row for each class of isomorphic cells, with the
  benchmark's hashes as `hash64`, here or in the file `..._hash64.npz` beside it.
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from initio.errors import InputError, did_you_mean
from initio.records import Architecture
from initio.spaces import NB101, NB201

DATA_FOLDER = "INITIO_DATA"  # the environment variable that names the folder of tables and data

Row = tuple[int, Architecture, Architecture]  # number, architecture as written, its canonical representative


@dataclass(frozen=True)
class Table(ABC):
    """An open table of the space `space`."""

    path: Path
    space: str
    length: int
    columns: tuple[str, ...] = field(repr=False)

    @abstractmethod
    def rows(self, representatives: Collection[Architecture]) -> Iterator[Row]:
        """The rows whose canonical architecture is one of these, in the table's order."""

    def column(self, name: str) -> np.ndarray:
        """A column as float64, NaN where the table has no value."""
        if name not in self.columns:
            raise InputError(f"{self.path} has no column {name!r}: {did_you_mean(name, list(self.columns))}")
        values: np.ndarray = load_arrays(self.path, name)[name].astype(np.float64)
        return values


@dataclass(frozen=True)
class NB201Table(Table):
    """NAS-Bench-201: the table lists every architecture as written."""

    def rows(self, representatives: Collection[Architecture]) -> Iterator[Row]:
        """All members of the classes."""
        for number, choices in enumerate(load_arrays(self.path, "ops")["ops"].tolist()):
            written = NB201.architecture(*choices)
            if (representative := NB201.canonical(written)) in representatives:
                yield number, written, representative


@dataclass(frozen=True)
class NB101Table(Table):
    """NAS-Bench-101: the table lists classes, found by their hash."""

    def rows(self, representatives: Collection[Architecture]) -> Iterator[Row]:
        """One row for each representative that the benchmark holds."""
        hashes = self.hashes()
        found = []
        for arch in representatives:
            key = np.uint64(int(NB101.graph_hash(arch)[:16], 16))
            number = int(np.searchsorted(hashes, key))
            if number < len(hashes) and hashes[number] == key:
                found.append((number, arch, arch))
        yield from sorted(found)

    def hashes(self) -> np.ndarray:
        """The first 64 bits of each row's hash, ascending."""
        arrays = load_arrays(self.path)
        beside = self.path.with_name(f"{self.path.stem}_hash64.npz")
        found = arrays["hash64"] if "hash64" in arrays else load_arrays(beside, "hash64")["hash64"]
        if found.shape != (self.length,) or np.any(found[1:] <= found[:-1]):
            raise InputError(f"the hashes of {self.path} are not one for each row, ascending")
        return found


def split_target(text: str) -> tuple[str, str]:
    """TABLE:COLUMN in its two parts.

    >>> split_target("nb201_tss.npz:test_c10_nb201")
    ('nb201_tss.npz', 'test_c10_nb201')
    """
    table, colon, column = text.rpartition(":")
    if not colon or not table or not column:
        raise InputError(f"the target must be TABLE:COLUMN, as in nb201_tss.npz:test_c10_nb201, not {text!r}")
    return table, column


def open_table(name: str, folder: Path | str | None = None) -> Table:
    """The table in the file `name`, or in the file of that name in `folder` or in the folder of INITIO_DATA."""
    path = find_table(name, folder)
    arrays = load_arrays(path)
    if "ops" not in arrays:
        raise InputError(f"{path} is not a benchmark's table that Initio knows: it has no array 'ops'")
    ops = arrays["ops"]
    columns = tuple(sorted(_numbers(arrays, len(ops))))
    if {"adj_bits", "n_vertices"} <= set(arrays):
        return NB101Table(path, "nb101", len(ops), columns)
    if ops.ndim == 2 and ops.shape[1] == 6:
        return NB201Table(path, "nb201", len(ops), columns)
    raise InputError(f"{path} is not a benchmark's table that Initio knows: 'ops' has shape {ops.shape}")


def _numbers(arrays: dict[str, np.ndarray], length: int) -> Iterator[str]:
    for name, values in arrays.items():
        if name not in ("adj_bits", "hash64") and values.shape == (length,) and values.dtype.kind in "fiu":
            yield name


def find_table(name: str, folder: Path | str | None) -> Path:
    """The file `name`, here, in `folder` or in the folder of INITIO_DATA."""
    folders = [Path(place) for place in (folder, os.environ.get(DATA_FOLDER)) if place]
    candidates = [Path(name), *(place / end for place in folders for end in (name, f"{name}.npz"))]
    for path in candidates:
        if path.is_file():
            return path
    where = " or in ".join(map(str, folders))
    hint = f"and in {where}" if folders else f"and {DATA_FOLDER} names no folder to look in"
    raise InputError(f"there is no table {name!r} here {hint}")


def load_arrays(path: Path, *names: str) -> dict[str, np.ndarray]:
    """The arrays of these names, or all."""
    try:
        arrays = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
        if isinstance(arrays, np.ndarray):
            raise InputError(f"the table {path} is not an .npz file")
        return {name: arrays[name] for name in names or arrays.files}
    except InputError:
        raise
    except KeyError as error:
        raise InputError(f"the table {path} cannot be read: {error.args[0]}") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise InputError(f"the table {path} cannot be read: {error}") from None
