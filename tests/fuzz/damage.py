"""Ways to damage a valid file: in its bytes, its words, its JSON, its arrays, its tables, or inside what packs it.

Whatever is drawn comes from the generator that is handed in, so (reader, seed, number) names an input.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import sqlite3
import warnings
import zipfile
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import numpy as np

Damage = Callable[[bytes, Random], bytes]

STRANGE: tuple[Any, ...] = (  # values for a place where another one stood
    None, True, False, 0, 1, -1, 3, 255, 2**31, 2**63, -(2**63) - 1, 10**9, 10**30, 0.5, -0.0, 1e-320, 1e308, "", "x",
    "none", "../x", "x" * 5000, "1", "nan", "\x1b[31m", "a\nb", "\u202e", "ü\x00", "os:system", [], {}, [0], [[]],
    {"float": "inf"}, {"float": "nan"}, {"": 0},
)  # fmt: skip
NUMBERS = ("1e400", "-1e400", "NaN", "Infinity", "1" * 5000, "-0", "1E2", "0x10", "1_0", "٣", "1e-400", "9" * 25)
WORDS = (
    "", " ", "\n", "\x00", "\x1b[2J", "\ud7ff", "ﬀ", "|", "~", "+", ":", ",", ";", "=", "(", ")", "[", "]", "{", "}",
    '"', "'", "#", "-", "--", "none", "../../x", "%s", "{0}", "x" * 3000, "[" * 5000, "(" * 3000,
)  # fmt: skip
LONGEST_TEXT = 1_000_000  # bytes: what is repeated again and again would be all memory
LENGTHS = (b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80")


def either(*ways: Damage) -> Damage:
    """One of them, each as often."""
    return lambda raw, rng: rng.choice(ways)(raw, rng)


def inside(unpack: Callable[[bytes], bytes], pack: Callable[[bytes], bytes], damage: Damage) -> Damage:
    """Damage to what is packed, in a packing without any."""
    return lambda raw, rng: pack(damage(unpack(raw), rng))


# --- bytes ------------------------------------------------------------------------------------------------------------


def of_bytes(raw: bytes, rng: Random) -> bytes:
    """One to four changes, or a cut."""
    if rng.random() < 0.15:
        return raw[: rng.randrange(len(raw) + 1)]
    for _ in range(rng.randint(1, 4)):
        raw = rng.choice(BYTE_WAYS)(raw, rng)
    return raw


def _place(raw: bytes, rng: Random) -> int:
    """Anywhere, or near one of the ends, where headers are."""
    last = max(0, len(raw) - 1)
    return rng.choice((rng.randint(0, last), rng.randint(0, min(last, 100)), rng.randint(max(0, last - 100), last)))


def _set(raw: bytes, rng: Random) -> bytes:
    place = _place(raw, rng)
    return raw[:place] + bytes([rng.randrange(256)]) + raw[place + 1 :]


def _flip(raw: bytes, rng: Random) -> bytes:
    place = _place(raw, rng)
    old = raw[place : place + 1]
    return raw[:place] + bytes(value ^ 1 << rng.randrange(8) for value in old) + raw[place + 1 :]


def _length(raw: bytes, rng: Random) -> bytes:
    place, what = _place(raw, rng), rng.choice(LENGTHS)
    return raw[:place] + what + raw[place + len(what) :]


def _remove(raw: bytes, rng: Random) -> bytes:
    place = _place(raw, rng)
    return raw[:place] + raw[place + rng.randint(1, 40) :]


def _repeat(raw: bytes, rng: Random) -> bytes:
    place = _place(raw, rng)
    part = raw[place : place + rng.randint(1, 40)]
    return raw[:place] + part * rng.choice((2, 2, 50)) + raw[place + len(part) :]


def _insert(raw: bytes, rng: Random) -> bytes:
    place = _place(raw, rng)
    return raw[:place] + rng.randbytes(rng.randint(1, 9)) + raw[place:]


def _move(raw: bytes, rng: Random) -> bytes:
    start, to = _place(raw, rng), _place(raw, rng)
    part = raw[start : start + rng.randint(1, 40)]
    return raw[:to] + part + raw[to + len(part) :]


BYTE_WAYS: tuple[Damage, ...] = (_set, _flip, _length, _remove, _repeat, _insert, _move)


# --- text -------------------------------------------------------------------------------------------------------------


def of_text(raw: bytes, rng: Random) -> bytes:
    """Words and signs replaced, repeated, exchanged or left out; sometimes its bytes."""
    if rng.random() < 0.1:
        return of_bytes(raw, rng)
    words = re.findall(r"\w+|\W", raw.decode("utf-8", "replace")) or [""]
    for _ in range(rng.randint(1, 3)):
        place, other = rng.randrange(len(words)), rng.randrange(len(words))
        way = rng.randrange(6)
        if way == 0:
            words[place] = rng.choice((*WORDS, *NUMBERS))
        elif way == 1:
            words[place] *= rng.choice((0, 2, 300))
        elif way == 2:
            words[place], words[other] = words[other], words[place]
        elif way == 3:
            words[place] = words[other]
        elif way == 4:
            words[place : place + rng.randint(1, 8)] = [""]
        else:
            part = words[place : place + rng.randint(1, 8)]
            words[other:other] = part * rng.choice((1, 1, 100))
    return "".join(words).encode()[:LONGEST_TEXT]


# --- plain values: JSON and pickles -----------------------------------------------------------------------------------


def of_values(value: Any, rng: Random) -> Any:
    """The same value with one or two places changed."""
    for _ in range(rng.randint(1, 2)):
        if rng.random() < 0.02 or not _places(value):
            value = deepcopy(rng.choice(STRANGE))
        else:
            _change(rng.choice(_places(value)), rng)
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Everything that something holds: who, and under which key."""
    found: list[tuple[Any, Any]] = []
    for key in keys_of(value):
        found += [(value, key), *_places(value[key])]
    return found


def keys_of(value: Any) -> list[Any]:
    """Of a mapping or a list; whatever else it is has none."""
    if isinstance(value, dict):
        return list(value)
    return list(range(len(value))) if isinstance(value, list) else []


def _change(where: tuple[Any, Any], rng: Random) -> None:
    holder, key = where
    way, old = rng.randrange(8), holder[key]
    if way < 3:
        holder[key] = deepcopy(rng.choice(STRANGE))
    elif way == 3:
        del holder[key]
    elif way == 4:
        holder[key] = rng.choice(([old], {"x": old}, [old, old], str(old), [old] * 500))
    elif way == 5:  # what stands elsewhere in the same list or object
        other = rng.choice(keys_of(holder))
        holder[key], holder[other] = holder[other], old
    elif way == 6 and isinstance(holder, dict):
        holder[rng.choice(("x", "", "version", "kind", "ü\n"))] = holder.pop(key)
    elif isinstance(old, int | float):
        holder[key] = rng.choice((-old, old + 1, old * 10**9, float(old) / 3, old - 0.5))


def of_json(raw: bytes, rng: Random) -> bytes:
    """Other values at some places; numbers that are none; now and then the text itself."""
    if rng.random() < 0.15:
        return either(of_text, of_bytes)(raw, rng)
    text = json.dumps(of_values(json.loads(raw), rng), ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.15:
        numbers = list(re.finditer(r"-?\d+(\.\d+)?", text))
        if numbers:
            found = rng.choice(numbers)
            text = text[: found.start()] + rng.choice((*NUMBERS, "[" * 5000)) + text[found.end() :]
    return text.encode("utf-8", "replace")


def of_lines(raw: bytes, rng: Random) -> bytes:
    """JSON, one document a line: one of them damaged, or lines exchanged, repeated, torn."""
    lines = raw.splitlines()
    place = rng.randrange(len(lines))
    way = rng.randrange(6)
    if way == 0:
        rng.shuffle(lines)
    elif way == 1:
        lines.insert(place, lines[place])
    else:
        lines[place] = of_json(lines[place], rng)
    return b"\n".join(lines) + rng.choice((b"\n", b"\n", b"", b"\n{"))


class Runs:
    """A pickle of this asks its reader to run a command."""

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.system, ("true",)


def of_pickle(raw: bytes, rng: Random) -> bytes:
    """Other plain values, another protocol, a call to be made; or its bytes. The file is trusted: a test wrote it."""
    if rng.random() < 0.5:
        return of_bytes(raw, rng)
    value = of_values(_listed(pickle.loads(raw)), rng)
    if rng.random() < 0.1 and (places := _places(value)):
        holder, key = rng.choice(places)
        holder[key] = Runs()
    return pickle.dumps(value, protocol=rng.randint(0, 5))


def _listed(value: Any) -> Any:
    """Plain mappings and lists, which can be changed."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    if isinstance(value, list | set):
        return [_listed(item) for item in value]
    return value


# --- archives of arrays -----------------------------------------------------------------------------------------------


def of_arrays(raw: bytes, rng: Random) -> bytes:
    """An .npz with other arrays, other names, or an archive that lies about its members; or its bytes."""
    way = rng.randrange(4)
    if way == 0:
        return of_bytes(raw, rng)
    if way == 1:
        return _of_zip(raw, rng)
    with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    for _ in range(rng.randint(1, 2)):
        name = rng.choice(list(arrays))
        changed = _of_array(arrays.pop(name), rng)
        if changed is not None:
            arrays[rng.choice((name, name, name, name, "x", "a/../b"))] = changed
        arrays = arrays or {"x": np.zeros(1)}
    out = io.BytesIO()
    rng.choice((np.savez, np.savez_compressed))(out, **arrays)
    return out.getvalue()


def _of_array(array: np.ndarray, rng: Random) -> np.ndarray | None:
    way = rng.randrange(8)
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        if way == 0:
            return None
        if way == 1:
            return _as(array, rng.choice(("f2", "f8", "i1", "u8", "i8", "c16", "?", "U3", "S2", "M8[s]", "O")))
        if way == 2:
            return array[: rng.randrange(len(array) + 1)] if array.ndim else array.reshape(1)
        if way == 3:
            return np.concatenate([array, array]) if array.ndim else np.array([array, array])
        if way == 4:
            return rng.choice((array[None], array.ravel(), array.T, np.array(array.ravel()[:1]), np.array(3)))
        if array.size and array.dtype.kind in "iuf":
            array = array.copy()
            worst = {"f": (np.nan, np.inf, -1.0, 1e30, 1e-30), "i": (-1, 127, 100), "u": (255, 7, 0)}
            array.ravel()[rng.randrange(array.size)] = rng.choice(worst[array.dtype.kind])
            if way == 5:
                array[...] = array.ravel()[0]
    return array


def _as(array: np.ndarray, kind: str) -> np.ndarray:
    try:
        return array.astype(kind)
    except (ValueError, TypeError):
        return np.zeros(array.shape, kind)


def _of_zip(raw: bytes, rng: Random) -> bytes:
    """The members again with one changed: encrypted, twice, of another name or method, with a header of its own."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    place, out = rng.randrange(len(members)), io.BytesIO()
    way = rng.randrange(5)
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(out, "w") as archive:
        for number, (info, content) in enumerate(members):
            name, chosen = info.filename, number == place
            if chosen and way == 0:
                name = rng.choice(("../x.npy", "/x.npy", "x", "\x1b[31m.npy", "ü" * 200, name.replace(".npy", "")))
            if chosen and way == 1:
                archive.writestr(name, content)
            if chosen and way == 2:
                content = _of_header(content, rng)
            archive.writestr(name, content, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)))
    packed = bytearray(out.getvalue())
    if way > 2:  # flags of encryption, and methods that nobody has
        for mark, flags, method in ((b"PK\x03\x04", 6, 8), (b"PK\x01\x02", 8, 10)):
            start = packed.find(mark)
            while start >= 0:
                at, value = {3: (flags, 1), 4: (method, rng.choice((1, 9, 14, 99)))}[way]
                packed[start + at] |= value
                start = packed.find(mark, start + 1)
    return bytes(packed)


def _of_header(content: bytes, rng: Random) -> bytes:
    """An array whose first line promises another shape or kind than its bytes have."""
    shapes = (b"(99999999999,)", b"(0, 9)", b"(-1,)", b"(2, 'x')", b"(1000000000, 1000000000)", b"()", b"(True,)")
    kinds = (b"'|O'", b"'<V9'", b"'<U99999999'", b"[('a', '<f8')]", b"'x'", b"None")
    what, words = rng.choice(((rb"\(.*?\)", shapes), (rb"'[<|>=][^']*'", kinds)))
    head = re.sub(what, lambda _: rng.choice(words), content[10:128], count=1)
    return content[:8] + len(head).to_bytes(2, "little") + head + content[128:]


# --- stores -----------------------------------------------------------------------------------------------------------


def of_database(raw: bytes, rng: Random) -> bytes:
    """A value of another type in some row, a table or a column less, another version; or its bytes."""
    if rng.random() < 0.5:
        return of_bytes(raw, rng)
    head = bytearray(raw)
    head[18:20] = b"\x01\x01"  # no write-ahead log, which memory cannot have
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.deserialize(bytes(head))
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    table = rng.choice(tables)
    column = rng.choice([row[1] for row in db.execute(f"PRAGMA table_info({table})")])
    values = (None, -1, 1 << 62, 1e308, "", "x", "ü\x1b[2J\n", "9,9", "-1", "1,x", "{}", '{"a": [1]}', b"\xff\xfe", b"")
    statements = (
        *(f"UPDATE {table} SET {column} = :value" + " WHERE random() % 3 = 0" * sparse for sparse in (0, 1, 1, 1)),
        f"UPDATE {table} SET {column} = CAST({column} AS BLOB)",
        f"ALTER TABLE {table} RENAME COLUMN {column} TO other",
        f"DROP TABLE {table}",
        f"DELETE FROM {table}",
        f"PRAGMA user_version = {rng.choice((0, 1, 2, 3, -1))}",
        f"PRAGMA application_id = {rng.choice((0, 7))}",
    )
    try:
        db.execute(rng.choice(statements), {"value": rng.choice(values)})
    except sqlite3.Error:  # the schema forbids it: nobody can have a file with it
        return of_bytes(raw, rng)
    return db.serialize()
