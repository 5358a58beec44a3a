"""Data sets of the Hugging Face hub, through the optional package `datasets`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from initio.data.arrays import check_range, wanted
from initio.data.dataset import Dataset
from initio.data.pictures import rgb, sampled_statistics
from initio.errors import InputError, first_line

SPLITS = {"train": "train", "test": "test", "validation": "test", "valid": "test", "val": "test"}


@dataclass(frozen=True)
class HubImages:
    """The image column of a hub data set, as `Images`."""

    rows: Any
    column: str
    name: str

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> np.ndarray:
        try:
            return rgb(self.rows[index][self.column])
        except Exception as error:  # a damaged or foreign row can fail anywhere in `datasets` and Pillow
            raise InputError(f"{self.where(index)} cannot be read: {first_line(error)}") from None

    def where(self, index: int) -> str:
        """The row."""
        return f"image {index} of {self.name}"

    def chosen(self, numbers: np.ndarray) -> HubImages:
        """Some of the rows."""
        return HubImages(self.rows.select(numbers), self.column, self.name)


def read_hub(name: str, split: str) -> Dataset:
    """`NAME` or `NAME:CONFIG`; the first image column and the first column of class labels."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise InputError(f"hf:{name} needs the package datasets: install Initio with its extra, initio[hf]") from None
    dataset_name, _, config = name.partition(":")
    if not dataset_name:
        raise InputError("hf: needs the name of a data set, such as hf:cifar10")
    try:
        content = load_dataset(dataset_name, config or None)
    except Exception as error:  # the network, the hub, the files: `datasets` has no common error
        raise InputError(f"hf:{name} cannot be loaded: {first_line(error)}") from None
    parts: dict[str, Any] = {}
    for theirs, ours in SPLITS.items():
        if theirs in content:
            parts.setdefault(ours, content[theirs])
    return _dataset(f"hf:{name}", split, parts)


def _dataset(name: str, split: str, parts: dict[str, Any]) -> Dataset:
    train, rows = wanted("train", parts, name), wanted(split, parts, name)
    image, label = _column(train, "Image", name), _column(train, "ClassLabel", name)
    class_names = tuple(str(n) for n in train.features[label].names)
    labels = np.array(rows[label], dtype=np.int64)
    check_range(labels, len(class_names), name)  # a label of -1 means "not published"
    mean, std = sampled_statistics(HubImages(train, image, name))
    return Dataset(name, HubImages(rows, image, name), labels, len(class_names), class_names, split, mean, std)


def _column(rows: Any, kind: str, name: str) -> str:
    found = [column for column, feature in rows.features.items() if type(feature).__name__ == kind]
    if not found:
        raise InputError(f"{name} has no column of type {kind}: its columns are {', '.join(rows.features)}")
    return str(found[0])
