"""Where evaluations live: one SQLite file, or a PostgreSQL server, that several processes may read and write at once.

A score is found by everything that changes its bits: space, canonical architecture, metric, settings, fingerprint of
the data, seed of the weights, and version of the metric's code. What measured it belongs to the settings: `arithmetic`
(compiled kernels or plain torch) and `threads`; scores that were written without them count as unrecorded, are read as
ever, and are never mixed with others. A score is written once and never changed. All scores of one `put` become visible
together, so a process killed at any moment leaves whole architectures and a valid store.
"""

from __future__ import annotations

import json
import lzma
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from initio.errors import InputError
from initio.records import Architecture, Batch, Evaluation, Settings, decode, encode, load_json
from initio.scores.database import PATIENCE, STORE_VERSION, Database, StorePlace, connect, is_server
from initio.scores.packed import PACKED_VERSION, TABLES_OF, Key, ScoreColumn, read_columns, write_columns
from initio.scores.sqlite import PACKED

SHIPPED = Path(__file__).parent / "shipped"
UNRECORDED = {"arithmetic": "unrecorded", "threads": "unrecorded"}  # of measured scores that do not say it
PUT_AT_ONCE = 20_000  # scores of another store, in one transaction
ASKED_AT_ONCE = 500  # architectures, in one question
LARGEST_INTEGER = 2**63 - 1  # that a database keeps
_COLUMNS = ("space", "choices", "settings", "data", "metric", "version", "seed", "value", "flag")
_KEY = "scores.space, scores.choices, settings.text, scores.data, scores.metric, scores.version, scores.seed"
_ROWS = f"SELECT {_KEY}, scores.value, scores.flag FROM scores JOIN settings ON settings.id = scores.settings"

Known = tuple[str, int, int]  # metric, version, seed
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


class Store:
    """An open store; use it in a `with` block.

    >>> import tempfile
    >>> score = Evaluation(Architecture("nb201", (3, 0, 1, 0, 2, 4)), "kappa", float("inf"), seed=0, flag="singular")
    >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "scores.db") as store:
    ...     store.put([score])
    ...     list(store.evaluations()) == [score]
    True
    """

    def __init__(self, place: StorePlace, *, read_only: bool = False, patience: float = PATIENCE) -> None:
        """Opens the file or the server's database; makes the store when it is not there, unless `read_only`."""
        self._db: Database = connect(place, read_only=read_only, patience=patience)
        self._numbers: dict[str, int] = {}  # of settings that were committed
        self._expanded = False
        self._columns: list[ScoreColumn] = []
        try:
            with self._db.sentences():
                if str(place).endswith(PACKED):
                    self._unpack()
                else:
                    self._db.prepare(STORE_VERSION, read_only=read_only)
        except BaseException:
            self._db.close()
            raise

    @property
    def name(self) -> str:
        """The file or the address, without a password."""
        return self._db.name

    # --- writing -----------------------------------------------------

    def put(self, evaluations: Iterable[Evaluation]) -> None:
        """Writes all or none of them; what the store knows already stays as it is."""
        rows = [(*_key(e), e.value, e.flag) for e in evaluations]
        if any(max(row[5:7]) > LARGEST_INTEGER for row in rows):
            raise OverflowError("a seed or a version is too large to be kept")
        with self._db.sentences(), self._db.transaction():
            numbers = self._numbers | self._number(dict.fromkeys(row[2] for row in rows if row[2] not in self._numbers))
            numbered = ((*row[:2], numbers[row[2]], *row[3:]) for row in rows)
            self._db.insert("scores", _COLUMNS, numbered)
        self._numbers = numbers

    def _number(self, texts: Iterable[str]) -> dict[str, int]:
        """By which the store knows these settings, now or from now on."""
        self._db.insert("settings", ("text",), ((text,) for text in texts))
        find = "SELECT id FROM settings WHERE text = ?"
        return {text: int(self._db.execute(find, (text,)).fetchone()[0]) for text in texts}

    def describe(self, batch: Batch) -> None:
        """Remembers what the fingerprint of a batch stands for."""
        self._describe([(batch.fingerprint, batch.source, len(batch))])

    def add(self, other: Store, on_done: Callable[[int], None] = lambda done: None) -> int:
        """Writes all that another store has and this one does not, and says how many scores that were.

        Some at a time: who is interrupted has a part of them, and the same call again goes on. `on_done` hears how many
        of the other's scores are here by now.
        """
        before, done = len(self), 0
        self._describe(other.described())
        scores = other.evaluations()
        while some := list(islice(scores, PUT_AT_ONCE)):
            self.put(some)
            done += len(some)
            on_done(done)
        return len(self) - before

    def _describe(self, data: Iterable[tuple[str, str, int]]) -> None:
        with self._db.sentences(), self._db.transaction():
            self._db.insert("data", ("fingerprint", "source", "size"), data)

    # --- reading -----------------------------------------------------

    def described(self) -> list[tuple[str, str, int]]:
        """The fingerprints of batches, with what they stand for and how many inputs they have."""
        with self._db.sentences():
            return [tuple(row) for row in self._db.execute("SELECT fingerprint, source, size FROM data").fetchall()]

    def known(self, archs: Sequence[Architecture], values: Settings, data: str) -> Iterator[set[Known]]:
        """Which (metric, version, seed) the store has of each of these architectures."""
        number = self.number(values)
        for start in range(0, len(archs), ASKED_AT_ONCE):
            some = archs[start : start + ASKED_AT_ONCE]
            found: dict[tuple[str, str], set[Known]] = {(arch.space, _choices_text(arch)): set() for arch in some}
            for space in sorted({arch.space for arch in some}):
                texts = [choices for home, choices in found if home == space]
                with self._db.sentences():
                    rows = self._ask(
                        "SELECT choices, metric, version, seed FROM scores "
                        "WHERE space = ? AND settings = ? AND data = ? "
                        f"AND choices IN ({', '.join('?' * len(texts))})",
                        (space, number, data, *texts),
                    ).fetchall()
                for choices, *score in rows:
                    found[space, choices].add(tuple(score))
            yield from (found[arch.space, _choices_text(arch)] for arch in some)

    def number(self, values: Settings) -> int:
        """By which the store knows these settings; 0 if it does not."""
        with self._db.sentences():
            found = self._db.execute("SELECT id FROM settings WHERE text = ?", (_settings_text(values),)).fetchone()
        return int(found[0]) if found else 0

    def evaluations(self) -> Iterator[Evaluation]:
        """All scores, in the order of their keys: the same order for the same scores, however they were written."""
        with self._db.sentences():
            self._expand()
            for row in self._db.stream(f"{_ROWS} ORDER BY {_KEY}"):
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
        asks: Callable[[str, tuple[str, ...]], Iterable[Any]] = self._db.stream
        if among is not None:
            question += " AND choices = ?"
            asked, asks = ((arch.space, _choices_text(arch)) for arch in among), self._db.execute
        with self._db.sentences():
            for words in asked:
                self._expand()
                for row in asks(question, words):
                    yield row[:5], row[5], row[6], row[7], row[8]

    def spaces(self) -> set[str]:
        """Those that it has scores of."""
        with self._db.sentences():
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
        with self._db.sentences():
            rows = self._ask(
                "SELECT s.space, t.text, s.data, coalesce(d.source, ''), s.metric, s.version, "
                "count(DISTINCT s.choices), count(DISTINCT s.seed), "
                "count(*) - count(s.value), count(*) FILTER (WHERE s.flag <> ''), t.id "
                "FROM scores s JOIN settings t ON t.id = s.settings LEFT JOIN data d ON d.fingerprint = s.data "
                "GROUP BY s.space, t.text, s.data, d.source, s.metric, s.version, t.id ORDER BY 1, 2, 3, 5, 6"
            ).fetchall()
        for _, _, data, source, metric, version, *_ in rows:
            if not all(isinstance(text, str) for text in (data, source, metric)) or not isinstance(version, int):
                raise self.damaged("a score's data, metric or version is of another type")
        return [Group(row[0], self._read_settings(row[1]), *row[2:]) for row in rows]

    def __len__(self) -> int:
        with self._db.sentences():
            return int(self._ask("SELECT count(*) FROM scores").fetchone()[0])

    def _ask(self, question: str, words: Sequence[Any] = ()) -> Any:
        """A question about rows of scores."""
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
            return _settings_of(text)
        except InputError:
            raise self.damaged(f"settings {text[:40]!r}") from None

    # --- columns of a packed store -----------------------------------------------------

    def _unpack(self) -> None:
        """A packed store is in memory, where its tables are brought up to date."""
        version = self._db.prepare(PACKED_VERSION, read_only=True, oldest=min(TABLES_OF))
        if version == PACKED_VERSION:
            self._columns = self._read_columns()
        for number in range(TABLES_OF[version], STORE_VERSION):
            self._db.migrate(number)

    def _read_columns(self) -> list[ScoreColumn]:
        """Its `scores` are empty until someone asks for them one by one."""
        try:
            return read_columns(self._db)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self.damaged(error) from None

    def _groups_of_columns(self) -> list[Group]:
        with self._db.sentences():
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
        """Makes the rows of a packed store from its columns, in memory, once."""
        if self._expanded:
            return
        self._expanded = True
        with self._db.sentences():
            for block in self._columns:
                space, settings, *rest = block.key
                numbers = [None if math.isnan(value) else value for value in block.values.tolist()]
                places = enumerate(zip(block.choices, numbers, strict=True))
                named = ((choices, value, block.flags.get(place, "")) for place, (choices, value) in places)
                rows = ((space, choices, settings, *rest, block.seed, value, flag) for choices, value, flag in named)
                self._db.insert("scores", _COLUMNS, rows)

    def damaged(self, what: object) -> InputError:
        """The sentence about what nobody can have written."""
        return InputError(f"the store {self.name!r} is damaged: {what}")

    def close(self) -> None:
        """Ends the connection."""
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- where stores are -----------------------------------------------------


def pack(store: Store, path: Path) -> None:
    """Writes a small copy that can be read but not added to: a file that ends in .xz."""
    if path.suffix != PACKED:
        raise InputError(f"a packed store ends in {PACKED}, not {path.name!r}")
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        plain, packed = Path(folder) / "plain.db", Path(folder) / "packed"
        with Store(plain) as copy, store._db.sentences():
            for table, columns in {"settings": ("id", "text"), "data": ("fingerprint", "source", "size")}.items():
                rows = store._db.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
                copy._db.insert(table, columns, rows)
            write_columns(copy._db, store.blocks(store.spaces()))
            copy._db.execute("PRAGMA journal_mode = DELETE")
        packed.write_bytes(lzma.compress(plain.read_bytes(), preset=9))
        packed.replace(path)


def shipped() -> dict[str, Path]:
    """The scores that come with Initio, by name."""
    return {file.name.partition(".")[0]: file for file in sorted(SHIPPED.glob(f"*{PACKED}"))}


def find_store(name: str) -> StorePlace:
    """The file `name`, the store on a server, or the scores of that name that come with Initio.

    >>> find_store("no_such_scores.db")
    Traceback (most recent call last):
    initio.errors.InputError: there is no store 'no_such_scores.db'...
    """
    path = Path(name)
    if is_server(name):
        return name
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


@lru_cache(maxsize=256)
def _settings_of(text: str) -> Settings:
    """Many rows have the same."""
    found: Settings = decode(Settings, load_json(text, "settings"))
    return found


def _settings_text(values: Settings) -> str:
    """JSON with sorted names."""
    return json.dumps(encode(dict(sorted(values))), allow_nan=False)
