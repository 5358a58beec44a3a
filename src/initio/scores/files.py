"""Scores as a table for other programs: one line for each architecture, metric and seed, as .csv or .parquet."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from initio.errors import InputError
from initio.scores.measure import home_of
from initio.scores.table import ScoreTable
from initio.spaces import Space
from initio.system.files import whole_file

COLUMNS = ("space", "architecture", "canonical", "metric", "seed", "value", "flag", "data", "settings", "version")
CHUNK = 50_000  # lines that are in memory at once


def check_export(path: Path) -> None:
    """An `InputError` if the file could not be written later, so that nobody waits for that."""
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"scores are exported to a .csv or a .parquet file, not to {path.name!r}")
    if not path.parent.is_dir():
        raise InputError(f"the folder of {str(path)!r} does not exist")
    if path.is_dir():
        raise InputError(f"{str(path)!r} cannot be written: it is a folder")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{str(path)!r} cannot be written: no permission")
    if path.suffix == ".parquet":
        try:
            import_module("pyarrow.parquet")
        except ImportError:
            raise InputError(
                "a .parquet file needs pyarrow: pip install 'initio[parquet]', or export to a .csv file"
            ) from None


def export(path: Path, space: Space, table: ScoreTable) -> None:
    """Writes a table of architectures as written; whole or not at all."""
    check_export(path)
    with whole_file(path) as temporary:
        if path.suffix == ".csv":
            _write_csv(temporary, _lines(space, table))
        else:
            _write_parquet(temporary, _lines(space, table))


def _lines(space: Space, table: ScoreTable) -> Iterator[tuple[Any, ...]]:
    """One for each score that was made, with or without a value."""
    settings = {metric: json.dumps(dict(table.origin(metric).settings)) for metric in table.metrics}
    for row, written in enumerate(table.architectures):
        same = space.canonical(written)
        texts = {True: space.format(written), False: home_of(space, same).format(same)}
        for metric in table.metrics:
            made = table.origin(metric)
            for draw, (seed, data) in enumerate(made.draws):
                value, flag = table.value(metric, draw, row), table.flag(metric, draw, row)
                if value is not None or flag:
                    names = written.space, texts[True], texts[made.counted], metric, seed
                    yield (*names, value, flag, data, settings[metric], made.version)


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
