"""A data set: images, labels, and the normalisation that was measured on its training part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np

from initio.data.draw import INPUTS, generator, random_labels, whole
from initio.data.resize import Pixels, height_and_width, resize
from initio.errors import InputError
from initio.records import Batch

Labels = Literal["true", "random"]
CHUNK = 1024  # images that are normalised at a time


class LazyImages(Protocol):
    """Images that are read when they are asked for, each a uint8 array (channels, height, width)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> np.ndarray: ...

    def where(self, index: int) -> str:
        """Names one image in errors."""
        ...

    def chosen(self, numbers: np.ndarray) -> LazyImages:
        """Some of them, in this order."""
        ...


Images = np.ndarray | LazyImages  # an array is (n, channels, height, width) or (n, features)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images; batches of them are x = (v - mean) / std, by channel.

    The values v are in [0, 1] for 8-bit images and as they stand in the file for others. `mean` and `std`
    were measured on the training part, before any resizing, whichever part this is.
    """

    name: str
    images: Images = field(repr=False)
    labels: np.ndarray = field(repr=False)  # int64, (n,)
    classes: int
    class_names: tuple[str, ...] = field(default=(), repr=False)
    split: str = "train"
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    pixels: tuple[int, int] | None = None  # the height and width of what is drawn; None: as stored
    left_out: tuple[str, ...] = field(default=(), repr=False)  # files that could not be read

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input, as it is drawn."""
        stored = tuple(self.images[0].shape)
        return stored if self.pixels is None else (stored[0], *self.pixels)

    @property
    def scale(self) -> float:
        """What stored values are divided by before they are normalised: 255 for 8-bit images, else 1."""
        if self.images[0].dtype == np.uint8:
            return 255.0
        return 1.0

    def resized(self, pixels: Pixels) -> Dataset:
        """The same data, drawn at another size."""
        if self.images[0].ndim == 1:
            raise InputError(f"{self.name} has features, not images: there is nothing to resize")
        return replace(self, pixels=height_and_width(pixels))

    def chosen(self, numbers: np.ndarray, split: str | None = None) -> Dataset:
        """The samples with these numbers, in this order, with the same normalisation."""
        images = self.images
        if isinstance(images, np.ndarray):
            images = images[numbers]
        else:
            images = images.chosen(numbers)
        return replace(self, images=images, labels=self.labels[numbers], split=split or self.split)

    def batch(self, size: int = 64, seed: int = 0, *, labels: Labels = "true", pixels: Pixels | None = None) -> Batch:
        """The first `size` samples of the order that `seed` shuffles the data into: no sample twice.

        `labels="random"` replaces the labels by uniform ones of the same seed; `pixels` resizes the images.

        >>> x, y = np.arange(8, dtype=np.float32).reshape(4, 2), np.array([0, 1, 0, 1])
        >>> data = Dataset("ramp", x, y, classes=2)
        >>> data.batch(2, seed=0).x.tolist() == data.batch(4, seed=0).x[:2].tolist()
        True
        >>> data.batch(5)
        Traceback (most recent call last):
        initio.errors.InputError: a batch of 5 is larger than the train part of ramp, which has 4 samples
        """
        size = whole(size, "batch size", 1)
        if size > len(self):
            raise InputError(
                f"a batch of {size} is larger than the {self.split} part of {self.name}, which has {len(self)} samples"
            )
        if labels not in ("true", "random"):
            raise InputError(f"labels must be 'true' or 'random', not {labels!r}")
        if pixels is not None:
            return self.resized(pixels).batch(size, seed, labels=labels)
        batch = self._take(generator(seed, INPUTS).permutation(len(self))[:size])
        if labels == "random":
            y = random_labels(size, self.classes, seed)
            return replace(batch, y=y, source=f"{batch.source}, random labels")
        return batch

    def minibatches(self, size: int, seed: int) -> Iterator[Batch]:
        """All samples once, in the order that `seed` shuffles them into; the last batch may be smaller."""
        size = whole(size, "batch size", 1)
        order = generator(seed, INPUTS).permutation(len(self))
        for start in range(0, len(order), size):
            yield self._take(order[start : start + size])

    def arrays(self, indices: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The inputs and labels with these numbers, by default all in their stored order, normalised, in memory."""
        wanted = np.arange(len(self)) if indices is None else np.asarray(indices)
        x = np.empty((len(wanted), *self._take(wanted[:1]).shape), dtype=np.float32)
        for start in range(0, len(wanted), CHUNK):  # normalising needs three times the memory of its result
            chunk = self._take(wanted[start : start + CHUNK])
            if chunk.shape != x.shape[1:]:
                self._take(wanted[[0, start]])  # refuses images of two sizes by their names
            x[start : start + CHUNK] = chunk.x
        return x, self.labels[wanted]

    def _take(self, indices: np.ndarray) -> Batch:
        source = f"{self.name} {self.split}"
        if self.pixels is not None:
            source += f" at {self.pixels[0]}x{self.pixels[1]}"
        x = normalised(self._stored(indices), self.mean, self.std)
        if not np.isfinite(x).all():
            where = int(indices[np.argwhere(~np.isfinite(x))[0, 0]])
            raise InputError(f"sample {where} of {source} is infinite once it is divided by the training part's std")
        return Batch(x, self.labels[indices], self.classes, source, self.mean, self.std)

    def _stored(self, indices: np.ndarray) -> np.ndarray:
        if not isinstance(self.images, np.ndarray):
            return _stacked(self.images, indices.tolist(), self.pixels)
        images: np.ndarray = self.images[indices]
        if self.pixels is not None:
            images = resize(images, self.pixels)
        return images


def _stacked(images: LazyImages, indices: list[int], pixels: tuple[int, int] | None) -> np.ndarray:
    read = [images[i] for i in indices]
    if pixels is not None:
        read = [resize(image, pixels) for image in read]
    for i, image in zip(indices, read, strict=True):
        if image.shape != read[0].shape:
            (_, h, w), (_, height, width) = image.shape, read[0].shape
            raise InputError(
                f"{images.where(i)} has {h}x{w} pixels and {images.where(indices[0])} has {height}x{width}: "
                f"state one size for all, such as @32 at the end of the data's name"
            )
    return np.stack(read)


def normalised(stored: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]) -> np.ndarray:
    """(v - mean) / std by channel, in double precision, rounded once to float32.

    >>> normalised(np.array([[0, 255]], dtype=np.uint8), mean=(0.5, 0.5), std=(0.25, 0.5))
    array([[-2.,  1.]], dtype=float32)
    """
    values = stored.astype(np.float64)
    if stored.dtype == np.uint8:
        values = values / 255.0
    channels = (-1,) + (1,) * (stored.ndim - 2)
    if mean:
        values = (values - np.reshape(mean, channels)) / np.reshape(std, channels)
    with np.errstate(over="ignore"):
        return values.astype(np.float32)
