"""A part by name: from a room's own list, from an entry point of an installed package, or as `package.module:Name`."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from initio.errors import InputError, did_you_mean

KINDS = {"metrics": "metric", "spaces": "search space", "searches": "search", "data": "data source"}  # of one part


def find(kind: str, name: str, own: Mapping[str, Any]) -> Any:
    """The part of this name.

    Args:
        kind: one of `KINDS`; others' packages announce theirs in the entry point group `initio.<kind>`.
        name: a key of `own`, the name of an entry point, or `package.module:Name`.
        own: the room's list; a value that is a string is `module:Name`, imported only now.

    >>> find("searches", "tree", {"nasi": "initio.errors:InputError", "three": 3})
    Traceback (most recent call last):
    initio.errors.InputError: there is no search 'tree': did you mean 'three'?
    """
    if name in own:
        part = own[name]
        return _imported(part) if isinstance(part, str) else part
    if is_path(name):
        return _loaded(kind, EntryPoint(name, name, f"initio.{kind}"))
    found = announced(kind)
    if name in found:
        return _loaded(kind, found[name])
    raise InputError(f"there is no {KINDS[kind]} {name!r}: {did_you_mean(name, [*own, *found])}")


def is_path(name: str) -> bool:
    """Whether a name is written `package.module:Name`.

    >>> [is_path(name) for name in ("examples.own_metric:Mine", "noise:3x16x16", "mlp:relu", "hf:mnist")]
    [True, False, True, True]
    """
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(word.isidentifier() for word in (*module.split("."), *attribute.split(".")))


def look_here(words: Iterable[str]) -> None:
    """Modules of the current folder are found too, if one of these words, which a user has typed, names a part.

    Not so for a name in a file (a run, a store, an architecture): someone else's file must not choose what is run.
    """
    named = any(is_path(name) for word in words for name in re.split("[=,]", word))
    if named and (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # at the end: what lies there never hides what is installed


def announced(kind: str) -> dict[str, EntryPoint]:
    """The parts of a kind that installed packages bring, by name."""
    return {point.name: point for point in entry_points(group=f"initio.{kind}")}


def _imported(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _loaded(kind: str, point: EntryPoint) -> Any:
    """What a part of someone else's is; whatever fails on the way, the user reads one sentence."""
    try:
        return point.load()
    except Exception as error:
        why = f"{type(error).__name__}: {error}".replace("\n", " ")
        if isinstance(error, ModuleNotFoundError):
            why += "; install it, or set PYTHONPATH to its folder"
        raise InputError(f"the {KINDS[kind]} {point.name!r} cannot be imported: {why}") from error
