"""Columns of a packed store: values of one kind and seed, in the order of a list of architectures that is shared."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from initio.scores.database import Database, Row

PACKED_VERSION = 2  # of a packed store; there are some of the first version, which are stores as they are
PACKED_SCHEMA = (
    "CREATE TABLE pools (id INTEGER PRIMARY KEY, choices TEXT NOT NULL UNIQUE)",
    """CREATE TABLE blocks (
        space TEXT NOT NULL, settings INTEGER NOT NULL REFERENCES settings (id), data TEXT NOT NULL,
        metric TEXT NOT NULL, version INTEGER NOT NULL, seed INTEGER NOT NULL,
        pool INTEGER NOT NULL REFERENCES pools (id), numbers BLOB NOT NULL, flags TEXT NOT NULL
    )""",
)
TABLES_OF = {1: 1, PACKED_VERSION: 1}  # the version of a store's tables in a packed one of each version

Key = tuple[str, int, str, str, int]  # space, number of the settings, data, metric, version


@dataclass(frozen=True, eq=False)
class ScoreColumn:
    """All values of one kind and seed, NaN where there is none."""

    key: Key
    seed: int
    choices: tuple[str, ...]
    values: np.ndarray
    flags: dict[int, str]  # by place


def write_columns(db: Database, blocks: Iterable[ScoreColumn]) -> None:
    """Makes a packed store of an SQLite file that has settings and data alone."""
    for statement in PACKED_SCHEMA:
        db.execute(statement)
    with db.transaction():
        for block in blocks:
            choices = ";".join(block.choices)
            db.insert("pools", ("choices",), [(choices,)])
            (pool,) = db.execute("SELECT id FROM pools WHERE choices = ?", (choices,)).fetchone()
            flags = json.dumps(block.flags)
            bits = np.ascontiguousarray(block.values, dtype="<f8").view(np.uint8).reshape(-1, 8)
            row = (*block.key, block.seed, pool, bits.T.tobytes(), flags)  # signs and exponents together pack better
            db.execute("INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        db.set_version(PACKED_VERSION)


def read_columns(db: Database) -> list[ScoreColumn]:
    """Those of a packed store; an error of Python's own where something else is there."""
    pools = db.execute("SELECT id, choices FROM pools").fetchall()
    rows = db.execute(
        "SELECT space, settings, data, metric, version, seed, pool, numbers, flags FROM blocks"
    ).fetchall()
    lists = {number: tuple(choices.split(";")) for number, choices in pools}
    return [_column(row, lists) for row in rows]


def _column(row: Row, lists: Mapping[int, tuple[str, ...]]) -> ScoreColumn:
    *key, seed, pool, numbers, flags = row
    choices = lists[pool]
    bits = np.frombuffer(numbers, dtype=np.uint8).reshape(8, len(choices))
    values = np.ascontiguousarray(bits.T).view("<f8").ravel()
    return ScoreColumn(tuple(key), seed, choices, values, {int(at): str(why) for at, why in json.loads(flags).items()})
