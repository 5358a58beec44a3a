"""Where evaluations live: one SQLite file that several processes may read and write at once.

A score is found by everything that changes its bits: space, canonical architecture, metric, settings, fingerprint of
the data, seed of the weights, and version of the metric's code. What measured it belongs to the settings: `arithmetic`
(compiled kernels or plain torch) and `threads`; scores that were written without them count as unrecorded, are read as
ever, and are never mixed with others. A score is written once and never changed. All scores of one `put` become visible
together, so a process killed at any moment leaves whole architectures and a valid file.
"""

from __future__ import annotations

import json
import lzma
import math
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from initio.errors import InputError
from initio.records import Architecture, Batch, Evaluation, Settings, decode, encode, load_json

STORE_VERSION = 1
PACKED_VERSION = 2  # of a packed store; there are some of the first version, which are stores as they are
APPLICATION_ID = 0x494E4954  # "INIT": tells a store from any other SQLite file
PACKED = ".xz"
SHIPPED = Path(__file__).parent / "shipped"
PATIENCE = 60.0  # seconds to wait for another process that writes
UNRECORDED = {"arithmetic": "unrecorded", "threads": "unrecorded"}  # of measured scores that do not say it

# A row has 7 columns that name it; the settings' text and the data's description are kept once, beside the scores.
SCHEMA = (
    "CREATE TABLE settings (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)",
    "CREATE TABLE data (fingerprint TEXT PRIMARY KEY, source TEXT NOT NULL, size INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TABLE scores (
        space TEXT NOT NULL, choices TEXT NOT NULL, settings INTEGER NOT NULL REFERENCES settings (id),
        data TEXT NOT NULL, metric TEXT NOT NULL, version INTEGER NOT NULL, seed INTEGER NOT NULL,
        value REAL, flag TEXT NOT NULL,
        PRIMARY KEY (space, choices, settings, data, metric, version, seed)
    ) WITHOUT ROWID""",
)
# A packed store has columns: the values of one kind and seed, in the order of a list of architectures that many share.
PACKED_SCHEMA = (
    "CREATE TABLE pools (id INTEGER PRIMARY KEY, choices TEXT NOT NULL UNIQUE)",
    """CREATE TABLE blocks (
        space TEXT NOT NULL, settings INTEGER NOT NULL REFERENCES settings (id), data TEXT NOT NULL,
        metric TEXT NOT NULL, version INTEGER NOT NULL, seed INTEGER NOT NULL,
        pool INTEGER NOT NULL REFERENCES pools (id), numbers BLOB NOT NULL, flags TEXT NOT NULL
    )""",
)
# SQLite takes any value in any column: what others wrote is checked when it is opened for reading.
NAMED = dict.fromkeys(("space", "data", "metric"), "text") | dict.fromkeys(("settings", "version", "seed"), "integer")
TYPES = {
    "settings": {"id": "integer", "text": "text"},
    "data": {"fingerprint": "text", "source": "text", "size": "integer"},
    "scores": NAMED | {"choices": "text", "flag": "text"},
    "pools": {"id": "integer", "choices": "text"},
    "blocks": NAMED | {"pool": "integer", "numbers": "blob", "flags": "text"},
}
LARGEST = 1 << 30  # bytes of a packed store, unpacked
BLOCK_BYTES = 1 << 20
_KEY = "scores.space, scores.choices, settings.text, scores.data, scores.metric, scores.version, scores.seed"
_ROWS = f"SELECT {_KEY}, scores.value, scores.flag FROM scores JOIN settings ON settings.id = scores.settings"

Known = tuple[str, int, int]  # metric, version, seed
Key = tuple[str, int, str, str, int]  # space, number of the settings, data, metric, version
StoredRow = tuple[Key, str, int, float | None, str]  # key, choices, seed, value, flag


@dataclass(frozen=True)
class Group:
    """Scores of one space that were made alike: the same settings, data, metric and version."""

    space: str
    settings: Settings
    data: str  # fingerprint
    source: str  # what the fingerprint stands for, empty if not known
    metric: str
    version: int
    architectures: int
    seeds: int
    undefined: int  # rows without a value
    flagged: int  # rows with a flag, those without a value included
    number: int = field(compare=False)  # of the settings, in this store

    @property
    def key(self) -> Key:
        """What its rows have in common."""
        return self.space, self.number, self.data, self.metric, self.version

    @property
    def counted(self) -> bool:
        """Costs of architectures as written, without data."""
        return self.data == ""


@dataclass(frozen=True, eq=False)
class ScoreColumn:
    """All values of one kind and seed, NaN where there is none."""

    key: Key
    seed: int
    choices: tuple[str, ...]
    values: np.ndarray
    flags: dict[int, str]  # by place


class Store:
    """An open store; use it in a `with` block.

    >>> import tempfile
    >>> score = Evaluation(Architecture("nb201", (3, 0, 1, 0, 2, 4)), "kappa", float("inf"), seed=0, flag="singular")
    >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "scores.db") as store:
    ...     store.put([score])
    ...     list(store.evaluations()) == [score]
    True
    """

    def __init__(self, path: Path | str, *, read_only: bool = False, patience: float = PATIENCE) -> None:
        """Opens the file; makes it when it is not there, unless `read_only`."""
        self.path = Path(path)
        self._patience = patience
        if not self.path.parent.is_dir():
            raise InputError(f"the folder of the store {str(self.path)!r} does not exist")
        if self.path.is_dir():
            raise InputError(f"the store {str(self.path)!r} is a folder: give the name of a file")
        if self.path.exists() and not self.path.is_file():
            raise InputError(f"the store {str(self.path)!r} is no plain file")
        if read_only and not self.path.is_file():
            raise InputError(f"there is no store {str(self.path)!r}")
        if not read_only and self.path.suffix == PACKED:
            raise InputError(f"the packed store {str(self.path)!r} can only be read: write to an .db file")
        with self._sentences():
            self._db = self._read_only() if read_only else self._connect(self.path.absolute().as_uri())
        try:
            with self._sentences():
                self._prepare(read_only)
        except BaseException:
            self._db.close()
            raise
        self._file = self._file_now()
        self._columns, self._expanded = self._read_columns(), False

    # --- opening -----------------------------------------------------

    def _connect(self, uri: str) -> sqlite3.Connection:
        return sqlite3.connect(uri, uri=True, timeout=self._patience, isolation_level=None)

    def _read_only(self) -> sqlite3.Connection:
        """SQLite cannot read a WAL file in a folder that is write-protected, unless told that nobody writes."""
        if self.path.suffix == PACKED:
            return self._unpacked()
        uri = self.path.absolute().as_uri() + "?mode=ro"
        try:
            db = self._connect(uri)
            try:
                db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            except sqlite3.Error:
                db.close()
                raise
        except sqlite3.OperationalError:
            if Path(f"{self.path}-wal").exists():
                raise
            db = self._connect(uri + "&immutable=1")
        return db

    def _unpacked(self) -> sqlite3.Connection:
        try:
            with lzma.open(self.path) as file:
                raw = bytearray()
                while block := file.read(BLOCK_BYTES):  # a single read would take all of LARGEST at once
                    raw += block
                    if len(raw) > LARGEST:
                        raise InputError(f"the packed store {str(self.path)!r} unpacks to more than {LARGEST:,} bytes")
        except (lzma.LZMAError, EOFError):
            raise InputError(f"the packed store {str(self.path)!r} is damaged") from None
        raw[18:20] = b"\x01\x01"  # SQLite's file header: no write-ahead log, which memory cannot have
        db = sqlite3.connect(":memory:")
        db.deserialize(bytes(raw))
        return db

    def _prepare(self, read_only: bool) -> None:
        if not read_only and self._is_new():
            self._create()
        version = self._pragma("user_version")
        if self._pragma("application_id") != APPLICATION_ID or version < 1:
            raise InputError(f"{str(self.path)!r} is not a store of Initio")
        newest = {True: PACKED_VERSION, False: STORE_VERSION}[self.path.suffix == PACKED]
        if version > newest:
            raise InputError(
                f"the store {str(self.path)!r} has version {version}, this Initio reads up to {newest}: "
                f"install a newer Initio or use another file"
            )
        if read_only:
            self._check_types()
        else:
            self._db.execute("PRAGMA synchronous = NORMAL")  # never corrupt; only a power cut can lose the last scores

    def _check_types(self) -> None:
        tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master")}
        for table in TYPES.keys() & tables:
            wrong = " OR ".join(f"typeof({column}) <> '{kind}'" for column, kind in TYPES[table].items())
            if self._db.execute(f"SELECT 1 FROM {table} WHERE {wrong} LIMIT 1").fetchone():
                raise self.damaged(f"{table} holds a value of another type")

    def _is_new(self) -> bool:
        """An empty database: just made, or left by a process that was killed before it could make the tables."""
        empty = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        return bool(empty) and self._pragma("user_version") == 0 and self._pragma("application_id") == 0

    def _create(self) -> None:
        self._write_ahead()
        with self._transaction():
            if self._is_new():  # another process may have been faster
                for statement in SCHEMA:
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self._db.execute(f"PRAGMA user_version = {STORE_VERSION}")

    def _write_ahead(self) -> None:
        """WAL: readers do not wait for writers. The switch itself does not wait for other processes, so we do."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    def _file_now(self) -> tuple[int, int] | None:
        """Which file bears the name; None if there is none."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    # --- writing -----------------------------------------------------

    def put(self, evaluations: Iterable[Evaluation]) -> None:
        """Writes all or none of them; what the store knows already stays as it is."""
        rows = [(*_key(e), e.value, e.flag) for e in evaluations]
        texts = dict.fromkeys(row[2:3] for row in rows)  # each settings once, in the order of the scores
        with self._sentences(), self._transaction():
            self._db.executemany("INSERT INTO settings (text) VALUES (?) ON CONFLICT DO NOTHING", texts)
            self._db.executemany(
                "INSERT INTO scores VALUES (?, ?, (SELECT id FROM settings WHERE text = ?), ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT DO NOTHING",
                rows,
            )
        if self._file_now() != self._file:  # SQLite goes on with a file that has lost its name, and nobody finds it
            raise InputError(f"the store {str(self.path)!r} was deleted or replaced while it was in use")

    def describe(self, batch: Batch) -> None:
        """Remembers what the fingerprint of a batch stands for."""
        self._describe([(batch.fingerprint, batch.source, len(batch))])

    def add(self, other: Store) -> int:
        """Writes all that another store has and this one does not, and says how many scores that were."""
        before = len(self)
        with other._sentences():
            data = other._db.execute("SELECT fingerprint, source, size FROM data").fetchall()
        self._describe(data)
        self.put(other.evaluations())
        return len(self) - before

    def _describe(self, data: Iterable[tuple[str, str, int]]) -> None:
        with self._sentences(), self._transaction():
            self._db.executemany("INSERT INTO data VALUES (?, ?, ?) ON CONFLICT DO NOTHING", data)

    # --- reading -----------------------------------------------------

    def known(self, arch: Architecture, values: Settings, data: str) -> set[Known]:
        """Which (metric, version, seed) the store has of this architecture."""
        with self._sentences():
            rows = self._ask(
                "SELECT metric, version, seed FROM scores WHERE space = ? AND choices = ? AND data = ? "
                "AND settings = (SELECT id FROM settings WHERE text = ?)",
                (arch.space, _choices_text(arch), data, _settings_text(values)),
            )
            return {(metric, version, seed) for metric, version, seed in rows}

    def number(self, values: Settings) -> int:
        """By which the store knows these settings; 0 if it does not."""
        with self._sentences():
            found = self._db.execute("SELECT id FROM settings WHERE text = ?", (_settings_text(values),)).fetchone()
        return int(found[0]) if found else 0

    def evaluations(self) -> Iterator[Evaluation]:
        """All scores, in the order of their keys: the same order for the same scores, however they were written."""
        with self._sentences():
            for row in self._ask(f"{_ROWS} ORDER BY {_KEY}"):
                yield self._evaluation(row)

    def blocks(self, spaces: Iterable[str], among: Iterable[Architecture] | None = None) -> Iterator[ScoreColumn]:
        """The scores of these spaces, or of a few architectures, as columns."""
        if self._columns and among is None:
            wanted = set(spaces)
            yield from (block for block in self._columns if block.key[0] in wanted)
            return
        found: dict[tuple[Key, int], list[tuple[str, float | None, str]]] = {}
        for key, choices, seed, value, flag in self.rows(spaces, among):
            found.setdefault((key, seed), []).append((choices, value, flag))
        for (key, seed), rows in found.items():
            try:
                values = np.array([value for _, value, _ in rows], dtype=np.float64)
            except (TypeError, ValueError) as error:  # a text where a number belongs
                raise self.damaged(error) from None
            flags = {place: flag for place, (_, _, flag) in enumerate(rows) if flag}
            yield ScoreColumn(key, seed, tuple(choices for choices, _, _ in rows), values, flags)

    def rows(self, spaces: Iterable[str], among: Iterable[Architecture] | None = None) -> Iterator[StoredRow]:
        """The scores of these spaces as plain values, in one sweep; or only those of a few architectures."""
        columns = "space, settings, data, metric, version, choices, seed, value, flag"
        question = f"SELECT {columns} FROM scores WHERE space = ?"
        asked: Iterable[tuple[str, ...]] = ((space,) for space in sorted(spaces))
        if among is not None:
            question += " AND choices = ?"
            asked = ((arch.space, _choices_text(arch)) for arch in among)
        with self._sentences():
            for words in asked:
                for row in self._ask(question, words):
                    yield row[:5], row[5], row[6], row[7], row[8]

    def spaces(self) -> set[str]:
        """Those that it has scores of."""
        with self._sentences():
            return {space for (space,) in self._ask("SELECT DISTINCT space FROM scores")}

    def architecture(self, space: str, choices: str) -> Architecture:
        """The architecture of a row."""
        try:
            return Architecture(space, tuple(int(choice) for choice in choices.split(",") if choice))
        except (ValueError, TypeError, AttributeError) as error:
            raise self.damaged(error) from None

    def groups(self) -> list[Group]:
        """What the store holds, in the order of the keys."""
        if self._columns:
            return self._groups_of_columns()
        with self._sentences():
            rows = self._ask(
                "SELECT s.space, t.text, s.data, coalesce(d.source, ''), s.metric, s.version, "
                "count(DISTINCT s.choices), count(DISTINCT s.seed), sum(s.value IS NULL), sum(s.flag <> ''), t.id "
                "FROM scores s JOIN settings t ON t.id = s.settings LEFT JOIN data d ON d.fingerprint = s.data "
                "GROUP BY s.space, t.text, s.data, s.metric, s.version ORDER BY 1, 2, 3, 5, 6"
            ).fetchall()
        for _, _, data, source, metric, version, *_ in rows:
            if not all(isinstance(text, str) for text in (data, source, metric)) or not isinstance(version, int):
                raise self.damaged("a score's data, metric or version is of another type")
        return [Group(row[0], self._read_settings(row[1]), *row[2:]) for row in rows]

    def __len__(self) -> int:
        with self._sentences():
            return int(self._ask("SELECT count(*) FROM scores").fetchone()[0])

    def _ask(self, question: str, words: Sequence[str] = ()) -> sqlite3.Cursor:
        """A question about rows of scores."""
        if self._columns and not self._expanded:
            self._expand()
        return self._db.execute(question, words)

    def _evaluation(self, row: tuple[Any, ...]) -> Evaluation:
        space, choices, text, data, metric, version, seed, value, flag = row
        arch = self.architecture(space, choices)
        try:
            return Evaluation(arch, metric, value, seed, flag, self._read_settings(text), data, version)
        except (ValueError, TypeError, AttributeError) as error:
            raise self.damaged(error) from None

    def _read_settings(self, text: str) -> Settings:
        try:
            found: Settings = decode(Settings, load_json(text, "settings"))
            return found
        except InputError:
            raise self.damaged(f"settings {text[:40]!r}") from None

    # --- columns of a packed store -----------------------------------------------------

    def _read_columns(self) -> list[ScoreColumn]:
        """Those of a packed store; its `scores` are empty until someone asks for them one by one."""
        if self._pragma("user_version") != PACKED_VERSION:
            return []
        with self._sentences():
            pools = dict(self._db.execute("SELECT id, choices FROM pools"))
            rows = self._db.execute(
                "SELECT space, settings, data, metric, version, seed, pool, numbers, flags FROM blocks"
            ).fetchall()
        try:
            lists = {number: tuple(choices.split(";")) for number, choices in pools.items()}
            return [_block(row, lists) for row in rows]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self.damaged(error) from None

    def _groups_of_columns(self) -> list[Group]:
        with self._sentences():
            settings = dict(self._db.execute("SELECT id, text FROM settings"))
            sources = dict(self._db.execute("SELECT fingerprint, source FROM data"))
        alike: dict[Key, list[ScoreColumn]] = {}
        for block in self._columns:
            alike.setdefault(block.key, []).append(block)
        groups = []
        for (space, number, data, metric, version), blocks in alike.items():
            archs = len(set().union(*{block.choices for block in blocks}))
            undefined = sum(int(np.isnan(block.values).sum()) for block in blocks)
            flagged = sum(len(block.flags) for block in blocks)
            text = settings.get(number, "")
            about = space, self._read_settings(text), data, sources.get(data, ""), metric, version
            groups.append((text, Group(*about, archs, len(blocks), undefined, flagged, number)))
        groups.sort(key=lambda item: (item[1].space, item[0], *item[1].key[2:]))
        return [group for _, group in groups]

    def _expand(self) -> None:
        """Makes the rows of a packed store from its columns, in memory."""
        self._expanded = True
        with self._sentences():
            for block in self._columns:
                space, settings, *rest = block.key
                numbers = [None if math.isnan(value) else value for value in block.values.tolist()]
                self._db.executemany(
                    "INSERT INTO scores VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        (space, choices, settings, *rest, block.seed, value, block.flags.get(place, ""))
                        for place, (choices, value) in enumerate(zip(block.choices, numbers, strict=True))
                    ),
                )

    # --- transactions and errors -----------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")  # waits for other writers here, not in the middle
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # SQLite has rolled back by itself when the disk is full
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        """SQLite's errors as sentences that name the file."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise InputError(f"the store {str(self.path)!r} {self._reason(str(error))}") from error

    def damaged(self, what: object) -> InputError:
        """The sentence about what nobody can have written."""
        return InputError(f"the store {str(self.path)!r} is damaged: {what}")

    def _reason(self, message: str) -> str:
        reasons = {
            "not a database": "is not a store of Initio: it is another kind of file",
            "full": "cannot grow: the disk is full; the scores written so far are kept",
            "locked": f"has been locked by another process for {self._patience:.0f} seconds: end it, or try again",
            "readonly": "cannot be written: the file or its folder is read-only",
            "read-only": "cannot be written: the file or its folder is read-only",
            "unable to open": "cannot be opened: check that you may read and write the file and its folder",
            "disk I/O": "cannot be read or written: the disk is full, a limit is reached, or the disk is failing",
            "malformed": "is damaged: restore a copy or score again into a new file",
            "decode": "is damaged: restore a copy or score again into a new file",
        }
        return next((reason for sign, reason in reasons.items() if sign in message), f"cannot be used: {message}")

    def close(self) -> None:
        """Ends the connection; the last one to close puts everything into the one file."""
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- packed stores -----------------------------------------------------


def pack(store: Store, path: Path) -> None:
    """Writes a small copy that can be read but not added to: a file that ends in .xz."""
    if path.suffix != PACKED:
        raise InputError(f"a packed store ends in {PACKED}, not {path.name!r}")
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        plain, packed = Path(folder) / "plain.db", Path(folder) / "packed"
        with Store(plain) as copy, store._sentences():
            for table, places in (("settings", "?, ?"), ("data", "?, ?, ?")):
                rows = store._db.execute(f"SELECT * FROM {table}")
                copy._db.executemany(f"INSERT INTO {table} VALUES ({places})", rows)
            _write_columns(copy._db, store.blocks(store.spaces()))
            copy._db.execute("PRAGMA journal_mode = DELETE")
        packed.write_bytes(lzma.compress(plain.read_bytes(), preset=9))
        packed.replace(path)


def _write_columns(db: sqlite3.Connection, blocks: Iterable[ScoreColumn]) -> None:
    for statement in PACKED_SCHEMA:
        db.execute(statement)
    db.execute("BEGIN")
    for block in blocks:
        choices = ";".join(block.choices)
        db.execute("INSERT INTO pools (choices) VALUES (?) ON CONFLICT DO NOTHING", (choices,))
        (pool,) = db.execute("SELECT id FROM pools WHERE choices = ?", (choices,)).fetchone()
        flags = json.dumps(block.flags)
        bits = np.ascontiguousarray(block.values, dtype="<f8").view(np.uint8).reshape(-1, 8)
        row = (*block.key, block.seed, pool, bits.T.tobytes(), flags)  # signs and exponents together pack better
        db.execute("INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    db.execute("COMMIT")
    db.execute(f"PRAGMA user_version = {PACKED_VERSION}")


def _block(row: tuple[Any, ...], lists: Mapping[int, tuple[str, ...]]) -> ScoreColumn:
    *key, seed, pool, numbers, flags = row
    choices = lists[pool]
    bits = np.frombuffer(numbers, dtype=np.uint8).reshape(8, len(choices))
    values = np.ascontiguousarray(bits.T).view("<f8").ravel()
    return ScoreColumn(tuple(key), seed, choices, values, {int(at): str(why) for at, why in json.loads(flags).items()})


def shipped() -> dict[str, Path]:
    """The scores that come with Initio, by name."""
    return {file.name.partition(".")[0]: file for file in sorted(SHIPPED.glob(f"*{PACKED}"))}


def find_store(name: str) -> Path:
    """The file `name`, or the scores of that name that come with Initio.

    >>> find_store("no_such_scores.db")
    Traceback (most recent call last):
    initio.errors.InputError: there is no store 'no_such_scores.db'...
    """
    path = Path(name)
    if path.is_file():
        return path
    if name in (ours := shipped()):
        return ours[name]
    raise InputError(f"there is no store {name!r}, and no scores of that name come with Initio ({', '.join(ours)} do)")


# --- comparing -----------------------------------------------------

Pair = tuple[Evaluation | None, Evaluation | None]


def differences(first: Store, second: Store) -> Iterator[Pair]:
    """Scores that only one store has, or whose value or flag differs, as pairs; nothing when the stores are equal."""
    a, b = first.evaluations(), second.evaluations()
    left, right = next(a, None), next(b, None)
    while left is not None or right is not None:
        if right is None or (left is not None and _order(left) < _order(right)):
            yield left, None
            left = next(a, None)
        elif left is None or _order(right) < _order(left):
            yield None, right
            right = next(b, None)
        else:
            if left != right:
                yield left, right
            left, right = next(a, None), next(b, None)


def _order(e: Evaluation) -> tuple[bytes | int, ...]:
    """The key as SQLite orders it: texts by their bytes."""
    *texts, version, seed = _key(e)
    return (*(text.encode() for text in texts), version, seed)


def _key(e: Evaluation) -> tuple[str, str, str, str, str, int, int]:
    arch = e.architecture
    return arch.space, _choices_text(arch), _settings_text(e.settings), e.data, e.metric, e.version, e.seed


def _choices_text(arch: Architecture) -> str:
    return ",".join(map(str, arch.choices))


def _settings_text(values: Settings) -> str:
    """JSON with sorted names."""
    return json.dumps(encode(dict(sorted(values))), allow_nan=False)
