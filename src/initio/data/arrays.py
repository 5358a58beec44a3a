"""From arrays as files hold them to a `Dataset`: the checks and conventions that all readers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from initio.data import statistics
from initio.data.dataset import Dataset
from initio.errors import InputError

P = TypeVar("P")

USUAL_CHANNELS = (1, 3)
MOST_CLASSES = 1_000_000  # a label beyond it is damage: no output layer could have that many units


class NoPartError(InputError):
    """Data that are fine, but for the part that was asked for."""


@dataclass(frozen=True)
class LabelledArrays:
    """The training or the test part, checked: uint8 or float32 (n, c, h, w) or (n, f), and int64 labels."""

    images: np.ndarray
    labels: np.ndarray
    where: str  # names the labels in errors


def labelled(images: np.ndarray, labels: np.ndarray, where: str) -> LabelledArrays:
    """Checks one part's arrays; `where` names their file.

    >>> labelled(np.zeros((2, 8, 8), dtype=np.uint8), np.array([0, 1]), "toy.npz").images.shape
    (2, 1, 8, 8)
    """
    x, y = _images(images, where), _labels(labels, where)
    if len(x) != len(y):
        raise InputError(f"{where} has {len(x)} images but {len(y)} labels: there must be as many of both")
    return LabelledArrays(x, y, where)


def dataset(
    name: str,
    split: str,
    parts: Mapping[str, LabelledArrays],
    class_names: tuple[str, ...] = (),
    classes: int | None = None,
) -> Dataset:
    """The asked part as a `Dataset`, with the training part's normalisation."""
    train = wanted("train", parts, name)
    chosen = wanted(split, parts, name)
    if chosen.images.shape[1:] != train.images.shape[1:]:
        raise InputError(
            f"{chosen.where} has images of shape {chosen.images.shape[1:]}, "
            f"the training part of {train.images.shape[1:]}"
        )
    if classes is None:
        classes = len(class_names) or 1 + max(int(p.labels.max()) for p in parts.values())
    for each in parts.values():
        check_range(each.labels, classes, each.where)
    mean, std = statistics.of_array(train.images)
    return Dataset(name, chosen.images, chosen.labels, classes, class_names, split, mean, std)


def from_arrays(
    name: str,
    split: str,
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray] | None = None,
    class_names: tuple[str, ...] = (),
) -> Dataset:
    """Images and labels of your own as a `Dataset`: what a data source of your own returns.

    >>> data = from_arrays("toy", "train", (np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 0, 1])))
    >>> data.shape, data.classes
    ((3, 8, 8), 2)
    """
    parts = {"train": labelled(*train, f"{name} (train)")}
    if test is not None:
        parts["test"] = labelled(*test, f"{name} (test)")
    return dataset(name, split, parts, class_names)


def wanted(split: str, parts: Mapping[str, P], name: str) -> P:
    """The part `split`, or a sentence on what there is."""
    if split not in ("train", "test"):
        raise InputError(f"the split must be 'train' or 'test', not {split!r}")
    if split not in parts:
        raise NoPartError(f"{name} has no {split} part, only {' and '.join(parts)}")
    return parts[split]


def check_range(labels: np.ndarray, classes: int, where: str) -> None:
    """Refuses labels outside 0..classes-1.

    >>> check_range(np.array([0, 1, 12]), classes=10, where="toy.npz")
    Traceback (most recent call last):
    initio.errors.InputError: label 12 of sample 2 in toy.npz is out of range: there are classes 0 to 9
    """
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise InputError(
            f"label {labels[wrong[0]]} of sample {wrong[0]} in {where} is out of range: "
            f"there are classes 0 to {classes - 1}"
        )


def _labels(labels: np.ndarray, where: str) -> np.ndarray:
    y = labels
    if y.ndim == 2 and y.shape[1] == 1:
        y = y.reshape(-1)
    if y.ndim != 1 or y.dtype.kind not in "biuf":
        raise InputError(f"the labels in {where} must be one whole number a sample, not {y.dtype} of shape {y.shape}")
    if y.dtype.kind == "f":
        wrong = np.flatnonzero(~np.isfinite(y) | (y != np.trunc(y)))
        if len(wrong):
            raise InputError(f"label {y[wrong[0]]} of sample {wrong[0]} in {where} is not a whole number")
    check_range(y, MOST_CLASSES, where)  # before the cast: it could wrap around
    return y.astype(np.int64)


def _images(images: np.ndarray, where: str) -> np.ndarray:
    if images.dtype.kind not in "biuf":
        raise InputError(f"the images in {where} must be numbers, not {images.dtype}")
    if images.ndim not in (2, 3, 4) or 0 in images.shape:
        raise InputError(
            f"the images in {where} have shape {images.shape}: they must be (n, height, width, channels), "
            f"(n, channels, height, width), (n, height, width) or (n, features), and not empty"
        )
    x = _channels_first(images)
    if x.dtype != np.uint8:
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
        wrong = np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(axis=1))
        if len(wrong):
            raise InputError(f"sample {wrong[0]} in {where} holds a value that is not a finite number")
    return np.ascontiguousarray(x)


def _channels_first(images: np.ndarray) -> np.ndarray:
    """(n, c, h, w) from any order of axes.

    Channels are the axis, second or last, that alone has 1 or 3 entries, else the shorter, else the second.
    """
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 2:
        return images
    first, last = images.shape[1], images.shape[3]
    channels_last = last < first
    if (first in USUAL_CHANNELS) != (last in USUAL_CHANNELS):
        channels_last = last in USUAL_CHANNELS
    if channels_last:
        images = np.moveaxis(images, 3, 1)
    return images
