"""Amounts, times, sizes and facts as people write and read them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from initio.errors import InputError, did_you_mean
from initio.networks.graphs import NetworkSettings
from initio.records import Settings, encode, to_json
from initio.report.cells import printable

AMOUNTS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
BEGAN: ContextVar[float | None] = ContextVar("when the command began, which a budget of time counts from", default=None)
PER_SECOND = {"us": 1e6, "ms": 1e3, "s": 1.0, "m": 1 / 60, "min": 1 / 60, "h": 1 / 3600}


def amount(option: str, text: str | None) -> int | None:
    """`4M`, `500k`, `1.5G` or a plain number.

    >>> amount("--max-params", "1.5M"), amount("--max-params", "12 k")
    (1500000, 12000)
    """
    if text is None:
        return None
    number, unit = _split(text)
    if unit not in AMOUNTS:
        raise InputError(f"{option}: expected an amount such as 4M, 500k or 120000, got {text!r}")
    return round(number * AMOUNTS[unit])


def seconds(option: str, text: str | None) -> float | None:
    """`20ms`, `0.5s`, `10m` or `1h`.

    >>> seconds("--max-latency", "20ms"), seconds("--budget", "10m")
    (0.02, 600.0)
    """
    if text is None:
        return None
    number, unit = _split(text)
    if unit not in PER_SECOND or not number:
        raise InputError(f"{option}: expected a time such as 20ms, 0.5s or 10m, got {text!r}")
    return number / PER_SECOND[unit]


def limits(command: Any) -> dict[str, float | None]:
    """The limits that a command was given, as the verbs take them."""
    return {
        "max_params": amount("--max-params", command.max_params),
        "max_flops": amount("--max-flops", command.max_flops),
        "max_latency": seconds("--max-latency", command.max_latency),
    }


def byte_count(option: str, text: str | None) -> int | None:
    """`600MB`, `2GB`, `64k` or a plain number of bytes.

    >>> byte_count("--memory", "600MB"), byte_count("--memory", "1.5 gb"), byte_count("--memory", "4096")
    (600000000, 1500000000, 4096)
    """
    if text is None:
        return None
    number, unit = _split(text)
    prefix = unit.upper().removesuffix("B").replace("K", "k")
    if prefix not in AMOUNTS or not number:
        raise InputError(f"{option}: expected a number of bytes as in 600MB or 2GB, got {text!r}")
    return int(number * AMOUNTS[prefix])


def _split(text: str) -> tuple[float, str]:
    """The number and its unit; the unit `?` if there is no number."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)", text.strip(), flags=re.ASCII)
    return (float(match[1]), match[2]) if match else (0.0, "?")


def duration(time: float) -> str:
    """Seconds as people say them.

    >>> duration(42.2), duration(1000), duration(20_000)
    ('42 s', '17 min', '5.6 h')
    """
    if time < 100:
        return f"{time:.0f} s"
    if time < 6000:
        return f"{time / 60:.0f} min"
    return f"{time / 3600:.1f} h"


def size(count: int) -> str:
    """Bytes as people say them.

    >>> size(600_000_000), size(12_345_678_901), size(999)
    ('600 MB', '12.3 GB', '999 bytes')
    """
    if count >= 10**10:
        return f"{count / 1e9:.1f} GB"
    if count >= 10**6:
        return f"{count / 1e6:.0f} MB"
    return f"{count:,} bytes"


def settings_line(values: Settings) -> str:
    """Settings in one line; they may come from a file.

    >>> settings_line((("cells", 5), ("init", "he\\x1b[31m")))
    'cells=5, init=he?[31m'
    """
    return printable(", ".join(f"{name}={value}" for name, value in values))


def names(*words: str | None) -> list[str]:
    """Names with commas or spaces between them, each once.

    >>> names("grad, trace,"), names("grad", "trace,grad"), names(None)
    (['grad', 'trace'], ['grad', 'trace'], [])
    """
    parts = ",".join(filter(None, words)).split(",")
    return list(dict.fromkeys(part.strip() for part in parts if part.strip()))


def pairs(option: str, text: str | None) -> dict[str, str]:
    """`name=value` with commas between them.

    >>> pairs("--where", "cells=5, batch-norm=frozen")
    {'cells': '5', 'batch_norm': 'frozen'}
    """
    found: dict[str, str] = {}
    for part in names(text):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if not name or not value:
            raise InputError(f"{option} must look like cells=5,batch_norm=frozen, not {text!r}")
        found[name.replace("-", "_")] = value
    return found


def network(option: str, text: str | None) -> NetworkSettings | None:
    """A network's size, and how it is built.

    >>> network("--target", "channels=16, cells=2, shape=1x28x28").shape
    (1, 28, 28)
    """
    if text is None:
        return None
    given: dict[str, Any] = {}
    for name, word in pairs(option, text).items():
        if name not in OF_NETWORK:
            raise InputError(f"{option} cannot say {name}: {did_you_mean(name, list(OF_NETWORK))}")
        try:
            given[name] = OF_NETWORK[name](word)
        except ValueError:
            example = "channels=16,cells=2,shape=3x32x32"
            raise InputError(f"{option}: {name} cannot be {word!r}; write it as in {example}") from None
    return NetworkSettings(**given)


def _shape(word: str) -> tuple[int, ...]:
    return tuple(map(int, word.split("x")))


OF_NETWORK: Mapping[str, Callable[[str], Any]] = {
    "channels": int, "cells": int, "shape": _shape, "norm": str, "init": str, "drop_path": float,
}  # fmt: skip


def print_json(value: object) -> None:
    """A record, or plain values, for programs.

    >>> print_json({"seed": 3, "value": float("inf")})
    {
      "seed": 3,
      "value": {
        "float": "inf"
      }
    }
    """
    print(json.dumps(encode(value), indent=2, ensure_ascii=False, allow_nan=False))


def tell(sentence: str, facts: Mapping[str, object], *, json: bool) -> None:
    """What was done: a sentence for people, the facts for programs.

    >>> tell("packed 3 scores", {"scores": 3}, json=False)
    packed 3 scores
    """
    if json:
        print_json(facts)
    else:
        print(sentence)


def tell_record(sentence: str, record: object, *, json: bool) -> None:
    """The same with a record, which programs can read back."""
    print(to_json(record, indent=2) if json else sentence)


def page_file(name: str) -> Path:
    """Where a page is written; an `InputError` before any work where it could not be."""
    return _new_file(name, "page", (".html", ".htm"))


def picture_file(name: str) -> Path:
    """Where a picture is written, likewise."""
    return _new_file(name, "picture", (".svg", ".pdf", ".png"))


def _new_file(name: str, what: str, endings: tuple[str, ...]) -> Path:
    path = Path(name)
    if path.suffix.lower() not in endings:
        raise InputError(f"a {what} is a file that ends in {' or '.join(endings)}, not {path.name!r}")
    if not path.parent.is_dir():
        raise InputError(f"the folder of {name!r} does not exist")
    return path


def number(value: float | None, digits: int = 3) -> str:
    """A number, or a dash where there is none.

    >>> number(0.12345), number(None)
    ('0.123', '-')
    """
    return "-" if value is None else f"{value:.{digits}f}"
