"""NAS-Bench-101's `.tfrecord` -> the columns of `nb101.npz`, its hashes and its multi-fidelity companion, in one file.

A record is a JSON list: the cell's hash, the epochs of the training, the matrix as a text of 0 and 1, the operations
with commas between them, and a protobuf message in base64 with the accuracies. A cell is trained several times at each
length: validation accuracies and times are those of the first training in the file (a search sees one training), the
test accuracy is the mean over all.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from initio.errors import InputError
from initio.spaces import NB101
from initio.spaces.modelspec import INPUT, MAX_VERTICES, OPS, OUTPUT
from initio.tables.convert.tfrecord import records
from initio.tables.nb101 import FULL

HASHES_CHECKED = 200  # cells whose hash is computed again
LARGEST = 1e30  # beyond any accuracy or time, and within float32
VARINT, BYTES = 0, 2  # wire types
FLOATS = {1: struct.Struct("<d"), 5: struct.Struct("<f")}
EVALUATIONS, PARAMETERS = 1, 2  # fields of ModelMetrics
TIME, VALIDATION, TEST = 2, 4, 5  # fields of EvaluationData


@dataclass
class TrainedCell:
    """A cell and what its trainings gave."""

    n_vertices: int
    adj_bits: int
    ops: list[int]
    params: int
    first: dict[int, tuple[float, float]] = field(default_factory=dict)  # epochs -> validation accuracy, seconds
    tests: list[float] = field(default_factory=list)  # of the full trainings

    @property
    def test(self) -> float:
        """The mean over the full trainings, NaN if there was none."""
        return math.fsum(self.tests) / len(self.tests) if self.tests else math.nan


def nb101_arrays(path: Path) -> dict[str, np.ndarray]:
    """The table, rows sorted by hash."""
    cells: dict[str, TrainedCell] = {}
    for number, record in enumerate(records(path)):
        try:
            _add(cells, *json.loads(record))
        except (ValueError, TypeError, AttributeError, IndexError, RecursionError, struct.error) as error:
            raise InputError(f"record {number} of {path} is not one of NAS-Bench-101: {error}") from None
    if not cells:
        raise InputError(f"{path} has no records")
    return _arrays([cells[name] for name in sorted(cells)], sorted(cells))


def _arrays(cells: list[TrainedCell], hashes: list[str]) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {
        "n_vertices": np.array([cell.n_vertices for cell in cells], np.int8),
        "adj_bits": np.array([cell.adj_bits for cell in cells], np.uint32),
        "ops": np.array([cell.ops for cell in cells], np.int8),
        "hash64": np.array([int(name[:16], 16) for name in hashes], np.uint64),
        "params": np.array([cell.params for cell in cells], np.int32),
    }
    arrays[f"test_acc_{FULL}"] = np.array([cell.test for cell in cells], np.float32)
    nothing = (math.nan, math.nan)
    for epochs in sorted({epochs for cell in cells for epochs in cell.first}):
        both = np.array([cell.first.get(epochs, nothing) for cell in cells], np.float32)
        arrays[f"val_acc_{epochs}"], arrays[f"train_time_{epochs}_s"] = both.T
    return arrays


def _add(cells: dict[str, TrainedCell], name: str, epochs: int, matrix: str, ops: str, metrics: str) -> None:
    """One training."""
    if not re.fullmatch("[0-9a-f]{32}", name):
        raise ValueError("its hash is not 32 hexadecimal digits")
    if type(epochs) is not int or not 1 <= epochs <= 9999:
        raise ValueError(f"its training has {epochs!r} epochs")
    message = _message(base64.b64decode(metrics, validate=True))
    if name not in cells:
        cells[name] = _cell(name, matrix, ops, message, check=len(cells) < HASHES_CHECKED)
    last = _message(_field(message, EVALUATIONS)[-1])  # there is one before, one in the middle, one after the training
    validation, seconds, test = (_finite(_field(last, number)[0]) for number in (VALIDATION, TIME, TEST))
    cells[name].first.setdefault(epochs, (100 * validation, seconds))
    if epochs == FULL:
        cells[name].tests.append(100 * test)


def _cell(name: str, matrix: str, ops: str, message: dict[int, list[Any]], *, check: bool) -> TrainedCell:
    n = math.isqrt(len(matrix))
    names = ops.split(",")
    if n * n != len(matrix) or not 2 <= n <= MAX_VERTICES or not set(matrix) <= {"0", "1"}:
        raise ValueError("its matrix is not one of 0 and 1 with 2 to 7 rows")
    if len(names) != n or (names[0], names[-1]) != (INPUT, OUTPUT) or not set(names[1:-1]) <= set(OPS):
        raise ValueError("its operations do not fit its matrix")
    rows = [[int(entry) for entry in matrix[i * n : (i + 1) * n]] for i in range(n)]
    if any(rows[i][j] for i in range(n) for j in range(i + 1)):
        raise ValueError("its matrix has entries below the diagonal")
    numbers = [OPS.index(op) for op in names[1:-1]]
    if check and NB101.graph_hash(NB101.from_matrix(rows, numbers)) != name:
        raise ValueError("its hash is not that of its cell")
    pairs = [(i, j) for j in range(n) for i in range(j)]
    bits = sum(rows[i][j] << k for k, (i, j) in enumerate(pairs))
    params = _field(message, PARAMETERS)[0]
    if not 0 <= params < 1 << 31:
        raise ValueError(f"it has {params} parameters")
    return TrainedCell(n, bits, numbers + [-1] * (MAX_VERTICES - n), params)


def _message(raw: bytes) -> dict[int, list[Any]]:
    """The fields of a protobuf message: number -> its values in order.

    >>> _message(bytes([0x10, 0x96, 0x01]))
    {2: [150]}
    """
    if not isinstance(raw, bytes):
        raise ValueError("a number in place of a message")
    found: dict[int, list[Any]] = {}
    for number, value in _fields(raw):
        found.setdefault(number, []).append(value)
    return found


def _field(message: dict[int, list[Any]], number: int) -> list[Any]:
    if number not in message:
        raise ValueError(f"its message lacks field {number}")
    return message[number]


def _fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    place = 0
    value: Any
    while place < len(raw):
        key, place = _varint(raw, place)
        kind = key & 7
        if kind == VARINT:
            value, place = _varint(raw, place)
        elif kind in FLOATS:
            number = FLOATS[kind]
            (value,) = number.unpack(raw[place : place + number.size])
            place += number.size
        elif kind == BYTES:
            size, place = _varint(raw, place)
            if place + size > len(raw):
                raise ValueError("its message is cut")
            value = raw[place : place + size]
            place += size
        else:
            raise ValueError(f"its message has a field of the unknown kind {kind}")
        yield key >> 3, value


def _varint(raw: bytes, place: int) -> tuple[int, int]:
    """A number in groups of 7 bits, lowest first, and where it ends."""
    value = shift = 0
    while True:
        byte = raw[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _finite(value: Any) -> float:
    if not isinstance(value, float) or not abs(value) < LARGEST:
        raise ValueError("an accuracy or a time is not a number")
    return value
