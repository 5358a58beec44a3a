"""A store in one SQLite file, which several processes may read and write at once; or packed, to be read."""

from __future__ import annotations

import lzma
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from initio.errors import InputError
from initio.scores.database import Database, Row

APPLICATION_ID = 0x494E4954  # "INIT": tells a store from any other SQLite file
PACKED = ".xz"
LARGEST = 1 << 30  # bytes of a packed store, unpacked
BLOCK_BYTES = 1 << 20
# SQLite takes any value in any column: what others wrote is checked when it is opened for reading.
NAMED = dict.fromkeys(("space", "data", "metric"), "text") | dict.fromkeys(("settings", "version", "seed"), "integer")
TYPES = {
    "settings": {"id": "integer", "text": "text"},
    "data": {"fingerprint": "text", "source": "text", "size": "integer"},
    "scores": NAMED | {"choices": "text", "flag": "text"},
    "pools": {"id": "integer", "choices": "text"},
    "blocks": NAMED | {"pool": "integer", "numbers": "blob", "flags": "text"},
}


class SqliteDatabase(Database):
    """An open file."""

    words: ClassVar[dict[str, str]] = {
        "number": "INTEGER PRIMARY KEY",
        "text": "TEXT",
        "integer": "INTEGER",
        "real": "REAL",
        "end": " WITHOUT ROWID",
    }

    def __init__(self, path: Path, *, read_only: bool, patience: float) -> None:
        self.path, self.name = path, str(path)
        self._patience = patience
        self._file: tuple[int, int] | None = None
        if not path.parent.is_dir():
            raise InputError(f"the folder of the store {self.name!r} does not exist")
        if path.is_dir():
            raise InputError(f"the store {self.name!r} is a folder: give the name of a file")
        if path.exists() and not path.is_file():
            raise InputError(f"the store {self.name!r} is no plain file")
        if read_only and not path.is_file():
            raise InputError(f"there is no store {self.name!r}")
        if not read_only and path.suffix == PACKED:
            raise InputError(f"the packed store {self.name!r} can only be read: write to an .db file")
        with self.sentences():
            self._db = self._read_only() if read_only else self._connect(path.absolute().as_uri())

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
                        raise InputError(f"the packed store {self.name!r} unpacks to more than {LARGEST:,} bytes")
        except (lzma.LZMAError, EOFError):
            raise InputError(f"the packed store {self.name!r} is damaged") from None
        raw[18:20] = b"\x01\x01"  # SQLite's file header: no write-ahead log, which memory cannot have
        db = sqlite3.connect(":memory:", isolation_level=None)
        db.deserialize(bytes(raw))
        return db

    def prepare(self, newest: int, *, read_only: bool, oldest: int | None = None) -> int:
        """Also checks what others wrote, and remembers which file this is."""
        version = super().prepare(newest, read_only=read_only, oldest=oldest)
        if read_only:
            self._check_types()
        else:
            self.execute("PRAGMA synchronous = NORMAL")  # never corrupt; only a power cut can lose the last scores
        self._file = self._file_now()
        return version

    def version(self) -> int:
        """That of SQLite's own header; an empty file was just made, or left by a process that was killed early."""
        # One statement, so that another process cannot make the store between two answers.
        tables, version, application = self.execute(
            "SELECT (SELECT count(*) FROM sqlite_master), user_version, application_id "
            "FROM pragma_user_version, pragma_application_id"
        ).fetchone()
        if not tables and not version and not application:
            return 0
        if application != APPLICATION_ID or version < 1:
            raise InputError(f"{self.name!r} is not a store of Initio")
        return int(version)

    def set_version(self, version: int) -> None:
        """In the header, with the mark that this is a store."""
        self.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self.execute(f"PRAGMA user_version = {version}")

    @contextmanager
    def changing(self) -> Iterator[None]:
        """WAL: readers do not wait for writers. The switch itself does not wait for other processes, so we do."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                self.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)
        with self.transaction():
            yield

    def _check_types(self) -> None:
        tables = {name for (name,) in self.execute("SELECT name FROM sqlite_master")}
        for table in TYPES.keys() & tables:
            wrong = " OR ".join(f"typeof({column}) <> '{kind}'" for column, kind in TYPES[table].items())
            if self.execute(f"SELECT 1 FROM {table} WHERE {wrong} LIMIT 1").fetchone():
                raise InputError(f"the store {self.name!r} is damaged: {table} holds a value of another type")

    def _file_now(self) -> tuple[int, int] | None:
        """Which file bears the name; None if there is none."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    # --- reading and writing -----------------------------------------------------

    def execute(self, question: str, words: Sequence[Any] = ()) -> sqlite3.Cursor:
        """One statement."""
        return self._db.execute(question, words)

    def stream(self, question: str, words: Sequence[Any] = ()) -> Iterator[Row]:
        """Row by row as SQLite finds them."""
        return self._db.execute(question, words)

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """One statement a row."""
        places = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places}) ON CONFLICT DO NOTHING"
        self._db.executemany(statement, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Waits for other writers at the beginning, not in the middle."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # SQLite has rolled back by itself when the disk is full
                self._db.execute("ROLLBACK")
            raise
        if self._file not in (None, self._file_now()):  # SQLite goes on with a file that has no name any more
            raise InputError(f"the store {self.name!r} was deleted or replaced while it was in use")

    @contextmanager
    def sentences(self) -> Iterator[None]:
        """SQLite's errors as sentences that name the file."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise InputError(f"the store {self.name!r} {self._reason(str(error))}") from error

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
        """The last one to close puts everything into the one file."""
        self._db.close()
