"""What a store needs of a database: a few SQL statements that all understand, and their own words for the rest."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from initio.errors import InputError

StorePlace = Path | str  # a file, or postgresql://user@host/database
Row = tuple[Any, ...]
PATIENCE = 60.0  # seconds to wait for another process that writes
URLS = ("postgresql://", "postgres://")
HOW = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %40, %2F, %23 or %25 for @, /, # or % in a password"
# What somebody meant for an address, or what has a password in it, is never taken for the name of a file.
MEANT = re.compile(r"(?i)\s*(jdbc:|postgres(ql)?[:/])")
SECRET = re.compile(r"(?i)(?!^[a-z]:[\\/])[^\s:]{1,99}:\S{1,999}@|\b(password|dbname)\s*=")  # C:\\ is no user

# Each entry brings a store from one version to the next; {words} are the database's own.
# A row has 7 columns that name it; the settings' text and the data's description are kept once, beside the scores.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE settings (id {number}, text {text} NOT NULL UNIQUE)",
        "CREATE TABLE data (fingerprint {text} PRIMARY KEY, source {text} NOT NULL, size {integer} NOT NULL){end}",
        """CREATE TABLE scores (
            space {text} NOT NULL, choices {text} NOT NULL, settings {integer} NOT NULL REFERENCES settings (id),
            data {text} NOT NULL, metric {text} NOT NULL, version {integer} NOT NULL, seed {integer} NOT NULL,
            value {real}, flag {text} NOT NULL,
            PRIMARY KEY (space, choices, settings, data, metric, version, seed)
        ){end}""",
    ),
)
STORE_VERSION = len(MIGRATIONS)


class Database(ABC):
    """An open connection. Questions have `?` where words go, and no other question mark."""

    words: ClassVar[dict[str, str]]  # for what MIGRATIONS leaves open
    name: str  # in messages: without a password

    def prepare(self, newest: int, *, read_only: bool, oldest: int | None = None) -> int:
        """Makes the tables or brings them up to date, unless `read_only`, and returns the version of the store.

        With `read_only`, what is not up to date is refused, unless it is as new as `oldest`.
        """
        version = self.version()
        if version > newest:
            raise InputError(
                f"the store {self.name!r} has version {version}, this Initio reads up to {newest}: "
                f"install a newer Initio or use another store"
            )
        if read_only and not version:
            raise InputError(f"{self.name!r} is not a store of Initio")
        if read_only and version >= (oldest or newest):
            return version
        if read_only:
            raise InputError(
                f"the store {self.name!r} has version {version}, this Initio reads version {newest}: "
                f"bring it up to date with initio store update"
            )
        if version < newest:
            with self.changing():
                for number in range(self.version(), newest):  # another process may have been faster
                    self.migrate(number)
                    self.set_version(number + 1)
        return newest

    def migrate(self, number: int) -> None:
        """Changes the tables of a store of this version into those of the next."""
        for statement in MIGRATIONS[number]:
            self.execute(statement.format_map(self.words))

    @abstractmethod
    def version(self) -> int:
        """Of the store; 0 where there is none yet. What holds something else is refused."""

    @abstractmethod
    def set_version(self, version: int) -> None:
        """Notes it, in the transaction that is under way."""

    @abstractmethod
    def execute(self, question: str, words: Sequence[Any] = ()) -> Any:
        """One statement; its answer has `fetchone` and `fetchall`."""

    @abstractmethod
    def stream(self, question: str, words: Sequence[Any] = ()) -> Iterator[Row]:
        """The rows of a long answer, which need not fit into memory."""

    @abstractmethod
    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Adds rows of these columns; what is there already stays as it is."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing of what is written inside."""

    def changing(self) -> AbstractContextManager[None]:
        """A transaction in which nobody else changes tables."""
        return self.transaction()

    @abstractmethod
    def sentences(self) -> AbstractContextManager[None]:
        """The database's errors as sentences that name the store."""

    @abstractmethod
    def close(self) -> None:
        """Ends the connection."""


def is_server(place: StorePlace) -> bool:
    """Whether a store is on a server; an address of another kind than Initio knows is refused.

    >>> is_server("postgresql://db/scores"), is_server("scores.db"), is_server("./postgres/scores.db")
    (True, False, False)
    >>> is_server("ada:secret@db/scores")
    Traceback (most recent call last):
    initio.errors.InputError: what is given for a store looks like an address, which is postgresql://USER:PASSWORD@H...
    """
    text = str(place)
    if text.startswith(URLS):
        return True
    if SECRET.search(text) or (MEANT.match(text) and not _in_folder(place)):
        raise InputError(f"what is given for a store looks like an address, which is {HOW}; of a file, begin with ./")
    if kind := re.match(r"[a-zA-Z][\w+.-]+:/", text):
        raise InputError(f"a store is a file or begins with {URLS[0]}, not with {kind[0]}: give one of these")
    return False


def _in_folder(place: StorePlace) -> bool:
    """Whether this is a file in a folder that is called like a server: a path has lost the ./ in front."""
    return isinstance(place, Path) and place.parts[0].lower() in ("postgres", "postgresql")


def connect(place: StorePlace, *, read_only: bool, patience: float) -> Database:
    """Opens the database; makes a file that is not there, unless `read_only`."""
    if is_server(place):
        from initio.scores.postgres import PostgresDatabase

        return PostgresDatabase(str(place), read_only=read_only, patience=patience)
    from initio.scores.sqlite import SqliteDatabase

    return SqliteDatabase(Path(place), read_only=read_only, patience=patience)


def store_name(place: StorePlace) -> str:
    """A store as it may be shown and written down: without a password."""
    if is_server(place):
        from initio.scores.postgres import address

        return address(str(place)).name
    return str(place)
