"""Mean and standard deviation of each channel, the same to the last bit wherever they are computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np

CHUNK = 1024  # images that are widened to 8 bytes a value at a time


def of_array(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(mean, std) of each channel of (n, c, h, w), or feature of (n, f); uint8 counts as values in [0, 1].

    A channel that is constant has nothing to divide by: its std is given as 1.

    >>> of_array(np.array([[[[0, 255]], [[51, 51]]]], dtype=np.uint8))
    ((0.5, 0.2), (0.5, 1.0))
    """
    if images.dtype == np.uint8:
        return of_bytes(_by_channel(chunk) for chunk in _chunks(images))
    return _of_floats(images)


def of_bytes(blocks: Iterable[np.ndarray]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The same of uint8 blocks (channels, any number of values), from exact integer sums."""
    n, s1, s2 = 0, list[int](), list[int]()
    for block in blocks:
        wide = block.astype(np.int64)
        n += wide.shape[1]
        s1 = _added(s1, wide.sum(axis=1))
        s2 = _added(s2, (wide * wide).sum(axis=1))
    mean = tuple(a / (255 * n) for a in s1)
    std = tuple(math.sqrt(n * b - a * a) / (255 * n) or 1.0 for a, b in zip(s1, s2, strict=True))
    return mean, std


def _of_floats(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    def total(values: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        sums = [values(_by_channel(c).astype(np.float64)).sum(axis=1) for c in _chunks(images)]
        return np.asarray(np.sum(sums, axis=0))

    first = _by_channel(images[:1])
    n = len(images) * first.shape[1]
    mean = total(lambda x: x) / n
    constant = total(lambda x: x != first[:, :1]) == 0
    mean = np.where(constant, first[:, 0], mean)  # a constant's mean is that constant, without rounding
    std = np.sqrt(total(lambda x: (x - mean[:, None]) ** 2) / n)
    return tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist())


def _added(totals: list[int], sums: np.ndarray) -> list[int]:
    """Python's integers, because squares of a large data set pass 2^63 when they are multiplied by n."""
    new: list[int] = sums.tolist()
    return [a + b for a, b in zip(totals or [0] * len(new), new, strict=True)]


def _chunks(images: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(images), CHUNK):
        yield images[start : start + CHUNK]


def _by_channel(images: np.ndarray) -> np.ndarray:
    """(n, c, ...) -> (c, n ...)."""
    return np.moveaxis(images, 1, 0).reshape(images.shape[1], -1)
