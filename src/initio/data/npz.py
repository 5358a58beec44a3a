"""numpy's `.npz` archives, read without ever unpickling."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from initio.data.arrays import LabelledArrays, dataset, labelled
from initio.data.dataset import Dataset
from initio.errors import InputError, first_line

KEYS = {  # the names that are looked for, in this order
    "train": (("x_train", "y_train"), ("train_images", "train_labels"), ("x", "y"), ("images", "labels")),
    "test": (("x_test", "y_test"), ("test_images", "test_labels")),
}


def read_npz(path: Path, split: str) -> Dataset:
    """A data set from an archive with `x_train`, `y_train`, `x_test`, `y_test`, or with `x`, `y` alone."""
    parts: dict[str, LabelledArrays] = {}
    with _archive(path) as archive:
        names = set(archive.files)
        for which, pairs in KEYS.items():
            for pair in pairs:
                if which not in parts and names.issuperset(pair):
                    x, y = (_array(archive, name, path) for name in pair)
                    parts[which] = labelled(x, y, f"{path} ({pair[0]}, {pair[1]})")
        if "train" not in parts:
            raise InputError(
                f"{path} holds {_listed(names)}: it needs x_train and y_train (and x_test and y_test), "
                f"or x and y, or images and labels"
            )
        class_names = _class_names(archive, path) if "class_names" in names else ()
    return dataset(path.stem, split, parts, class_names)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an archive; one with damage or Python objects is refused."""
    with _archive(path) as archive:
        return {name: _array(archive, name, path) for name in archive.files}


@contextmanager
def _archive(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    if not path.is_file():  # a pipe would be waited for without end
        raise InputError(f"{path} is not a plain file")
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            raise InputError(f"{path} is not an .npz archive: save it by numpy.savez(path, x=..., y=...)")
        file.seek(0)
        try:
            archive = np.load(file, allow_pickle=False)
        except Exception as error:  # numpy and zipfile raise whatever a damaged file leads them to
            raise InputError(f"{path} is not a readable .npz file: {_reason(error)}") from None
        yield archive


def _array(archive: np.lib.npyio.NpzFile, name: str, path: Path) -> np.ndarray:
    try:
        value = archive[name]
    except Exception as error:  # as above; an array of Python objects and an encrypted member land here too
        raise InputError(f"{name} in {path} cannot be read: {_reason(error)}") from None
    if not isinstance(value, np.ndarray):
        raise InputError(f"{name} in {path} is not an array")
    return value


def _class_names(archive: np.lib.npyio.NpzFile, path: Path) -> tuple[str, ...]:
    found = _array(archive, "class_names", path)
    if found.ndim != 1 or found.dtype.kind not in "US":
        raise InputError(f"class_names in {path} must be a list of texts, not {found.dtype} of shape {found.shape}")
    try:
        if found.dtype.kind == "S":
            found = np.char.decode(found, "utf-8")
        return tuple(map(str, found))
    except ValueError:
        raise InputError(f"class_names in {path} are not UTF-8 text") from None


def _reason(error: Exception) -> str:
    if "allow_pickle" in str(error):
        return "it holds Python objects, which Initio does not load; store plain numbers"
    return first_line(error)


def _listed(names: set[str]) -> str:
    shown = sorted(names)[:8] + ["..."] * (len(names) > 8)
    return ", ".join(shown) or "nothing"
