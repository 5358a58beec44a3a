"""CIFAR-10 and CIFAR-100 as their authors publish them: the python and the binary layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from initio.data.arrays import LabelledArrays, check_range, dataset, labelled, wanted
from initio.data.dataset import Dataset
from initio.data.pickles import as_text, read_pickle
from initio.errors import InputError

LABELS = {10: "labels", 100: "fine_labels"}  # in the python layout, by the number of classes
LABEL_BYTES = {10: 1, 100: 2}  # in the binary one: CIFAR-100 has the coarse label before the fine one
IMAGE = 3 * 32 * 32  # bytes: all of red, then green, then blue, each by rows


@dataclass(frozen=True)
class CifarLayout:
    """Where one of the four archives keeps what."""

    name: str
    classes: int
    train: tuple[str, ...]
    test: tuple[str, ...]
    meta: str
    read: Callable[[Path, int], LabelledArrays]
    read_meta: Callable[[Path], tuple[str, ...]]


def find_layout(folder: Path) -> CifarLayout | None:
    """The layout whose first file is in the folder."""
    found = (layout for layout in LAYOUTS if any((folder / f).is_file() for f in layout.train + layout.test))
    return next(found, None)


def read_cifar(folder: Path, split: str, layout: CifarLayout) -> Dataset:
    """The data set in `folder`; the test file is read only where it is asked for."""
    files = {"train": layout.train, "test": layout.test}
    wanted(split, files, layout.name)
    parts = {which: _joined(folder, files[which], layout) for which in sorted({"train", split})}
    meta = folder / layout.meta
    class_names = layout.read_meta(meta) if meta.is_file() else ()
    if len(class_names) not in (0, layout.classes):
        raise InputError(f"{meta} has {len(class_names)} class names: {layout.name} has {layout.classes} classes")
    return dataset(layout.name, split, parts, class_names, layout.classes)


def _joined(folder: Path, files: tuple[str, ...], layout: CifarLayout) -> LabelledArrays:
    missing = [file for file in files if not (folder / file).is_file()]
    if missing:
        raise InputError(f"{folder} looks like {layout.name} but {missing[0]} is missing")
    parts = [layout.read(folder / file, layout.classes) for file in files]
    where = parts[0].where if len(parts) == 1 else str(folder)
    return LabelledArrays(np.concatenate([p.images for p in parts]), np.concatenate([p.labels for p in parts]), where)


def _checked(images: np.ndarray, labels: np.ndarray, path: Path, classes: int) -> LabelledArrays:
    checked = labelled(images.reshape(-1, 3, 32, 32), labels, str(path))
    check_range(checked.labels, classes, str(path))  # here, where the file is known
    return checked


def _read_python(path: Path, classes: int) -> LabelledArrays:
    content, key = read_pickle(path.read_bytes(), str(path)), LABELS[classes]
    images = content.get("data")
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != IMAGE:
        raise InputError(f"{path} has no 'data' of n x {IMAGE} bytes")
    return _checked(images, _python_labels(content.get(key), key, path), path, classes)


def _python_labels(labels: Any, key: str, path: Path) -> np.ndarray:
    if isinstance(labels, np.ndarray):
        return labels
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise InputError(f"{path} has no list of whole numbers {key!r}")
    wrong = next((i for i, label in enumerate(labels) if not 0 <= label < 2**31), None)
    if wrong is not None:
        raise InputError(f"label {str(labels[wrong])[:20]} of sample {wrong} in {path} is out of range")
    return np.array(labels, dtype=np.int64)


def _read_binary(path: Path, classes: int) -> LabelledArrays:
    labels = LABEL_BYTES[classes]
    raw, record = path.read_bytes(), labels + IMAGE
    if not raw or len(raw) % record:
        raise InputError(f"{path} is truncated or another format: {len(raw)} bytes are no multiple of {record}")
    records = np.frombuffer(raw, np.uint8).reshape(-1, record)
    return _checked(records[:, labels:], records[:, labels - 1], path, classes)


def _python_meta(path: Path) -> tuple[str, ...]:
    content = read_pickle(path.read_bytes(), str(path))
    names = content.get("label_names", content.get("fine_label_names"))
    if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
        raise InputError(f"{path} has no list of class names")
    return tuple(map(as_text, names))


def _binary_meta(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text(encoding="latin-1").split())


_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
_BINARY = tuple(f"{batch}.bin" for batch in _BATCHES)
LAYOUTS = (
    CifarLayout("cifar10", 10, _BATCHES, ("test_batch",), "batches.meta", _read_python, _python_meta),
    CifarLayout("cifar10", 10, _BINARY, ("test_batch.bin",), "batches.meta.txt", _read_binary, _binary_meta),
    CifarLayout("cifar100", 100, ("train",), ("test",), "meta", _read_python, _python_meta),
    CifarLayout("cifar100", 100, ("train.bin",), ("test.bin",), "fine_label_names.txt", _read_binary, _binary_meta),
)
