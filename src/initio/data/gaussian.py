"""Noise: the data set that needs no download, because scores at initialisation hardly look at the data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from initio.data.draw import INPUTS, generator, random_labels, whole
from initio.data.resize import Pixels, height_and_width
from initio.errors import InputError
from initio.records import Batch

MOST_VALUES = 2**31  # in one batch: 8 GiB; beyond it a mistyped shape is likelier than a wish


@dataclass(frozen=True)
class Noise:
    """Gaussian inputs x ~ N(0, 1) with uniform random labels, without end.

    It is drawn from as a `Dataset` is, but has no length and cannot be trained on. Its labels are random
    whichever are asked for.
    """

    shape: tuple[int, ...] = (3, 32, 32)  # (channels, height, width) or (features,)
    classes: int = 10

    name: ClassVar[str] = "noise"
    split: ClassVar[str] = "train"
    class_names: ClassVar[tuple[str, ...]] = ()
    mean: ClassVar[tuple[float, ...]] = ()
    std: ClassVar[tuple[float, ...]] = ()

    def __post_init__(self) -> None:
        shape = tuple(whole(n, "size of a noise input", 1) for n in self.shape)
        if len(shape) not in (1, 3):
            raise InputError(f"noise needs a shape (channels, height, width) or (features,), not {shape}")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "classes", whole(self.classes, "number of classes", 1))

    def batch(self, size: int = 64, seed: int = 0, *, labels: str = "random", pixels: Pixels | None = None) -> Batch:
        """A batch that depends on (shape, classes, size, seed) alone."""
        if labels not in ("true", "random"):
            raise InputError(f"labels must be 'true' or 'random', not {labels!r}")
        if pixels is not None:
            return self.resized(pixels).batch(size, seed)
        size = whole(size, "batch size", 1)
        if size * math.prod(self.shape) > MOST_VALUES:
            raise InputError(
                f"a batch of {size} inputs of shape {self.shape} is too large: at most {MOST_VALUES} values"
            )
        x = generator(seed, INPUTS).standard_normal((size, *self.shape), dtype=np.float32)
        return Batch(x, random_labels(size, self.classes, seed), self.classes, self.name)

    def resized(self, pixels: Pixels) -> Noise:
        """The same with another height and width."""
        if len(self.shape) == 1:
            raise InputError(f"noise with {self.shape[0]} features has no pixels to resize")
        return replace(self, shape=(self.shape[0], *height_and_width(pixels)))


def noise(shape: tuple[int, ...] = (3, 32, 32), classes: int = 10, batch_size: int = 64, seed: int = 0) -> Batch:
    """A batch of Gaussian noise with random labels.

    >>> batch = noise((3, 32, 32), classes=10, batch_size=64, seed=0)
    >>> batch.x.shape, batch.classes, batch.fingerprint == noise().fingerprint
    ((64, 3, 32, 32), 10, True)
    """
    return Noise(tuple(shape), classes).batch(batch_size, seed)
