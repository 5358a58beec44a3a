"""What all folders share: their names below `runs`, records as files, and journals with a record a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain, count
from pathlib import Path
from typing import Any, TypeVar

from initio.errors import InputError
from initio.records import encode, from_json, load_json, to_json
from initio.system.files import add_line, read_text, whole_lines, write_text

R = TypeVar("R")


def new_folder(*names: str, seed: int) -> Path:
    """The folder of a work for which none was named; a part of one's own is called by its class.

    >>> new_folder("train", "package.module:Mine", seed=3).name
    'train-mine-seed3'
    """
    return unused("-".join([*(name.rpartition(":")[2].lower() for name in names), f"seed{seed}"]))


def unused(name: str) -> Path:
    """The folder of that name below `runs`, numbered if there is one already."""
    numbered = (f"{name}-{number}" for number in count(2))
    return next(folder for folder in map(Path("runs").joinpath, chain([name], numbered)) if not folder.exists())


def write_record(path: Path, record: Any) -> None:
    """The record as a whole file, or nothing."""
    write_text(path, to_json(record, indent=2) + "\n")


def read_record(kind: type[R], path: Path) -> R:
    """Reads it back; an `InputError` names the file."""
    return from_json(kind, read_text(path), where=str(path))


def add_record(journal: Path, record: Any) -> None:
    """Adds a line with the record; it is on disk when this returns."""
    add_line(journal, json.dumps(encode(record), allow_nan=False))


def read_lines(journal: Path, read: Callable[[Any], R]) -> list[R]:
    """What `read` makes of each line; a last one that a crash left half-written is cut off."""
    found = []
    for number, line in enumerate(whole_lines(journal), start=1):
        where = f"line {number} of {str(journal)!r}"
        try:
            found.append(read(load_json(line, where)))
        except InputError as error:
            raise InputError(f"{where} is damaged: {error}") from None
    return found
