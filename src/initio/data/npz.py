"""numpy's `.npz` archives, read without ever unpickling."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np

from initio.data.arrays import Part, dataset, part
from initio.data.dataset import Dataset
from initio.errors import InputError

KEYS = {  # the names that are looked for, in this order
    "train": (("x_train", "y_train"), ("train_images", "train_labels"), ("x", "y"), ("images", "labels")),
    "test": (("x_test", "y_test"), ("test_images", "test_labels")),
}


def read_npz(path: Path, split: str) -> Dataset:
    """A data set from an archive with `x_train`, `y_train`, `x_test`, `y_test`, or with `x`, `y` alone."""
    with path.open("rb") as file:
        archive = _archive(file, path)
        names = set(archive.files)
        parts = {which: _part(archive, pair, path) for which in KEYS if (pair := _pair(which, names))}
        if "train" not in parts:
            raise InputError(
                f"{path} holds {_listed(names)}: it needs x_train and y_train (and x_test and y_test), "
                f"or x and y, or images and labels"
            )
        class_names = _class_names(archive, path) if "class_names" in names else ()
    return dataset(path.stem, split, parts, class_names)


def _archive(file: BinaryIO, path: Path) -> np.lib.npyio.NpzFile:
    try:
        archive = np.load(file, allow_pickle=False)
    except Exception as error:  # numpy and zipfile raise whatever a damaged file leads them to
        raise InputError(f"{path} is not a readable .npz file: {_reason(error)}") from None
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise InputError(f"{path} is a single array, not an .npz archive: save it by numpy.savez(path, x=..., y=...)")
    return archive


def _pair(which: str, names: set[str]) -> tuple[str, str] | None:
    return next((pair for pair in KEYS[which] if names.issuperset(pair)), None)


def _part(archive: np.lib.npyio.NpzFile, pair: tuple[str, str], path: Path) -> Part:
    x, y = (_array(archive, key, path) for key in pair)
    return part(x, y, f"{path} ({pair[0]}, {pair[1]})")


def _array(archive: np.lib.npyio.NpzFile, key: str, path: Path) -> np.ndarray:
    try:
        value = archive[key]
    except Exception as error:  # as above; an array of Python objects lands here too
        raise InputError(f"{key} in {path} cannot be read: {_reason(error)}") from None
    if not isinstance(value, np.ndarray):
        raise InputError(f"{key} in {path} is not an array")
    return value


def _class_names(archive: np.lib.npyio.NpzFile, path: Path) -> tuple[str, ...]:
    names = _array(archive, "class_names", path)
    if names.ndim != 1 or names.dtype.kind not in "US":
        raise InputError(f"class_names in {path} must be a list of texts, not {names.dtype} of shape {names.shape}")
    try:
        return (
            tuple(str(name) for name in np.char.decode(names, "utf-8"))
            if names.dtype.kind == "S"
            else tuple(map(str, names))
        )
    except ValueError:
        raise InputError(f"class_names in {path} are not UTF-8 text") from None


def _reason(error: Exception) -> str:
    if "allow_pickle" in str(error):
        return "it holds Python objects, which Initio does not load; store plain numbers"
    return (str(error).splitlines() or [""])[0] or type(error).__name__


def _listed(names: set[str], most: int = 8) -> str:
    shown = sorted(names)[:most]
    return (", ".join(shown) + (", ..." if len(names) > most else "")) or "nothing"
