"""Scores as a table for other programs: one line for each architecture, metric and seed, as .csv or .parquet."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from initio.errors import InputError
from initio.files import whole_file
from initio.records import Architecture, Evaluation
from initio.spaces import Space, get_space

COLUMNS = ("space", "architecture", "canonical", "metric", "seed", "value", "flag", "data", "settings", "version")
CHUNK = 50_000  # lines that are in memory at once


def check_export(path: Path) -> None:
    """An `InputError` if the file could not be written later, so that nobody waits for that."""
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"scores are exported to a .csv or a .parquet file, not to {path.name!r}")
    if not path.parent.is_dir():
        raise InputError(f"the folder of {str(path)!r} does not exist")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"{str(path)!r} cannot be written: {'it is a folder' if path.is_dir() else 'no permission'}")
    if path.suffix == ".parquet":
        try:
            import_module("pyarrow.parquet")
        except ImportError:
            raise InputError(
                "a .parquet file needs pyarrow: pip install 'initio[parquet]', or export to a .csv file"
            ) from None


def export(path: Path, space: Space, rows: Iterable[tuple[Architecture, Evaluation]]) -> None:
    """Writes pairs of an architecture as written and an evaluation of its network; whole or not at all."""
    check_export(path)
    lines = (_line(space, written, e) for written, e in rows)
    with whole_file(path) as temporary:
        if path.suffix == ".csv":
            _write_csv(temporary, lines)
        else:
            _write_parquet(temporary, lines)


def _line(space: Space, written: Architecture, e: Evaluation) -> tuple[Any, ...]:
    home = space if e.architecture.space == space.name else get_space(e.architecture.space)
    settings = json.dumps(dict(e.settings))
    names = space.format(written), home.format(e.architecture)
    return (written.space, *names, e.metric, e.seed, e.value, e.flag, e.data, settings, e.version)


def _write_csv(path: Path, lines: Iterable[tuple[Any, ...]]) -> None:
    """A value that does not exist is empty; numbers read back to the same bits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(lines)


def _write_parquet(path: Path, lines: Iterable[tuple[Any, ...]]) -> None:
    pa, pq = import_module("pyarrow"), import_module("pyarrow.parquet")  # optional, so not imported above
    types = {"seed": pa.int64(), "value": pa.float64(), "version": pa.int64()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in COLUMNS])
    lines = iter(lines)
    with pq.ParquetWriter(path, schema) as writer:
        while chunk := list(islice(lines, CHUNK)):
            columns = dict(zip(COLUMNS, zip(*chunk, strict=True), strict=True))
            writer.write_table(pa.table({name: list(columns[name]) for name in COLUMNS}, schema=schema))
