"""The published benchmarks by name: TABLES, the one list."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from initio.errors import InputError, did_you_mean
from initio.records import Architecture
from initio.spaces import Space, get_space
from initio.tables.base import Table
from initio.tables.compact import Arrays, CompactTable, find_file
from initio.tables.nb101 import NB101Rows, open_nb101
from initio.tables.nb201 import NB201Rows, open_nb201
from initio.tables.nb301 import open_nb301, predicted


@dataclass(frozen=True)
class Benchmark:
    """What was published.

    Args:
        file: where.
        open: who reads it, given path and epochs, and the data set and version where there are several.
        space: the name of its space.
        versions: whether there are several data sets and versions.
        predicts: whether it is a surrogate, which has no rows of its own.
    """

    file: str
    open: Callable[..., Table]
    space: str
    versions: bool = False
    predicts: bool = False


TABLES: dict[str, Benchmark] = {
    # 15,625 cells on CIFAR-10, CIFAR-100 and ImageNet16-120
    "nb201": Benchmark("nb201_tss.npz", open_nb201, "nb201", versions=True),
    "nb101": Benchmark("nb101.npz", open_nb101, "nb101"),  # 423,624 cells on CIFAR-10
    **{
        name: Benchmark("nb101.npz", partial(open_nb101, space=name), name)
        for name in ("nb1shot1-s1", "nb1shot1-s2", "nb1shot1-s3")
    },
    # a surrogate on CIFAR-10
    "nb301": Benchmark("nb301_surrogate_yahpo_v1.npz", open_nb301, "darts", predicts=True),
}


def table_of(space: Space) -> str:
    """The name of the benchmark of a space.

    >>> from initio.spaces import DARTS
    >>> table_of(DARTS)
    'nb301'
    """
    for name, benchmark in TABLES.items():
        if benchmark.space == space.name:
            return name
    raise InputError(f"nothing is published of {space.name}: there are {', '.join(TABLES)}")


def space_of(name: str, folder: Path | str | None = None) -> Space:
    """The space of a benchmark, or of the table in a file.

    >>> space_of("nb301").name
    'darts'
    """
    return get_space(TABLES[_benchmark(name, folder)].space)


def _benchmark(name: str, folder: Path | str | None) -> str:
    """The name in TABLES, also for a file."""
    if name in TABLES:
        return name
    if not name.endswith(".npz"):
        raise InputError(f"there is no benchmark {name!r}: {did_you_mean(name, list(TABLES))}")
    return open_compact(name, folder).space


def open_table(
    name: str,
    folder: Path | str | None = None,
    *,
    dataset: str = "c10",
    epochs: int | None = None,
    version: str | None = None,
    table: Path | str | None = None,
) -> Table:
    """A benchmark by its name in TABLES, or by the file of its table.

    Args:
        name: of the benchmark, or of a table's file.
        folder: where its files are; by default that of INITIO_DATA.
        dataset: whose validation accuracy selects (`nb201` only): c10, c100 or in16.
        epochs: length of training of a query that names none; by default 12 (`nb201`), 108 (`nb101`), 98 (`nb301`).
        version: file of the reported test accuracies (`nb201` only): nb201 or nats; by default the first that is there.
        table: a file in place of the benchmark's own, as `initio convert` writes it.
    """
    kind = _benchmark(str(name), folder)
    if name not in TABLES:
        table = table or name
    options: dict[str, Any] = {}
    if dataset != "c10" or version is not None:
        if not TABLES[kind].versions:
            raise InputError(f"{kind} has one data set, c10, and one version")
        options = {"dataset": dataset, "version": version}
    return TABLES[kind].open(find_file(str(table or TABLES[kind].file), folder), epochs, **options)


def open_compact(name: str, folder: Path | str | None = None, *, among: Iterable[Architecture] = ()) -> CompactTable:
    """The rows and columns in the file `name`, here, in `folder` or in the folder of INITIO_DATA.

    The surrogate `nb301` has no rows: what it predicts for the architectures `among` is its table.
    """
    if name in TABLES and TABLES[name].predicts:
        return predicted(find_file(TABLES[name].file, folder), among)
    arrays = Arrays.read(find_file(name, folder))
    layout: type[NB101Rows | NB201Rows] = NB101Rows if "adj_bits" in arrays else NB201Rows
    return CompactTable(arrays, layout.of(arrays))
