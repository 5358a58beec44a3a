"""Benchmarks' own files -> compact tables that `open_table` reads. Nothing in a file is ever executed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from initio.errors import InputError
from initio.system.files import whole_file
from initio.tables.convert.nb101 import nb101_arrays
from initio.tables.convert.nb201 import nats_file, nats_folder, nb201_file
from initio.tables.convert.tfrecord import is_tfrecord

KNOWN = "NAS-Bench-201 .pth, NATS-Bench topology folder or .pickle.pbz2, NAS-Bench-101 .tfrecord"


@dataclass(frozen=True)
class Converted:
    """What was written."""

    kind: str
    path: Path
    length: int
    columns: tuple[str, ...]


def convert(source: Path | str, out: Path | str) -> Converted:
    """Writes the table of a benchmark's file or folder, whole or not at all."""
    source, out = Path(source), Path(out)
    if out.suffix != ".npz":
        raise InputError(f"a table's file is called TABLE.npz, not {str(out)!r}")
    kind, arrays = read_benchmark(source)
    with whole_file(out) as temporary:
        np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]
    return Converted(kind, out, len(arrays["ops"]), tuple(arrays))


def read_benchmark(source: Path) -> tuple[str, dict[str, np.ndarray]]:
    """What a file is, recognised by its content, and the arrays of its table."""
    if source.is_dir():
        return "NATS-Bench", nats_folder(source)
    if not source.is_file():
        raise InputError(f"there is no file or folder {str(source)!r} to convert")
    with source.open("rb") as file:
        start = file.read(12)
    if is_tfrecord(start):
        return "NAS-Bench-101", nb101_arrays(source)
    if start[:3] == b"BZh":
        return "NATS-Bench", nats_file(source)
    if start[:4] == b"PK\x03\x04" or start[:1] == b"\x80":
        return "NAS-Bench-201", nb201_file(source)
    raise InputError(f"{str(source)!r} is none of the files that can be converted: {KNOWN}")


__all__ = ["Converted", "convert", "read_benchmark"]
