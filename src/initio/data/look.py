"""What someone would want to know of a data set before anything is learned from it: `look`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from initio.data.dataset import Dataset
from initio.data.draw import INPUTS, generator
from initio.data.gaussian import Noise
from initio.data.sources import Data, load_parts, located
from initio.errors import InputError

MEASURED = 200  # pictures whose sizes are looked at
UNEVEN = 3.0  # times as many samples in the largest class as in the smallest, from which on that is worth saying
FEW = 20  # samples of a class, below which that is worth saying


@dataclass(frozen=True)
class DataReport:
    """What was seen.

    Args:
        data: its name, an absolute path where it is one.
        samples: to learn from.
        tested: how many are kept aside for the end.
        test: a sentence on where these come from.
        classes: how many there are.
        smallest: the fewest samples that a class has.
        largest: the most.
        channels: of the images; the number of features where they are none.
        heights: the smallest and the largest, of images; None for features.
        widths: likewise.
        notes: what a user should know.
    """

    data: str
    samples: int
    tested: int
    test: str
    classes: int
    smallest: int
    largest: int
    channels: int
    heights: tuple[int, int] | None
    widths: tuple[int, int] | None
    notes: tuple[str, ...]

    kind: ClassVar[str] = "data report"

    @property
    def side(self) -> int | None:
        """The larger side of the smallest image, None for features."""
        if self.heights is None or self.widths is None:
            return None
        return max(self.heights[0], self.widths[0])

    def small(self, side: int) -> bool:
        """Whether all images that were looked at have the same size, and no side is larger than this."""
        bounds = list(filter(None, (self.heights, self.widths)))
        return all(low == high <= side for low, high in bounds)

    def told(self) -> list[str]:
        """A few sentences."""
        what = f"{self.channels} features each"
        if self.heights is not None and self.widths is not None:
            colours = {1: "grey", 3: "colour"}.get(self.channels, f"{self.channels}-channel")
            sizes = f"{_range(self.heights)}x{_range(self.widths)}"
            what = f"{colours} images of {sizes} pixels"
        balance = f"{_range((self.smallest, self.largest))} samples in each"
        return [
            f"{self.samples:,} samples to learn from, {what}",
            f"{self.classes} classes, {balance}",
            f"kept aside for the end: {self.tested:,} samples ({self.test})",
            *self.notes,
        ]


def look(spec: str, *, skip_bad: bool = False) -> tuple[DataReport, Dataset, Dataset]:
    """The report, what may be learned from, and what is kept aside; pictures that cannot be read may be left out."""
    data, test, sentence = load_parts(spec, skip_bad=skip_bad)
    learned = labelled(data)
    if test is None:
        raise InputError(f"{sentence}: give more data, or a test part")
    counts = np.bincount(learned.labels, minlength=learned.classes)
    notes = ["pictures that cannot be read are left out"] * skip_bad
    if learned.classes < 2 or np.count_nonzero(counts) < 2:
        raise InputError(f"{learned.name} has one class: there is nothing to tell apart")
    if empty := int((counts == 0).sum()):
        notes.append(f"{empty} classes have no sample to learn from")
    if counts.max() > UNEVEN * max(1, counts.min()):
        always = 100 * np.bincount(test.labels, minlength=learned.classes).max() / len(test)
        notes.append(f"the classes are uneven: the most frequent answer alone would be right in {always:.1f} %")
    if 0 < counts.min() < FEW:
        notes.append(f"some classes have only {counts.min()} samples: expect little of them")
    heights, widths = _sizes(learned)
    if any(low != high for low, high in filter(None, (heights, widths))):
        notes.append("the images have several sizes and are brought to one")
    shape = learned.images[0].shape
    report = DataReport(
        data=located(spec),
        samples=len(learned),
        tested=len(test),
        test=sentence,
        classes=learned.classes,
        smallest=int(counts.min()),
        largest=int(counts.max()),
        channels=int(shape[0]),
        heights=heights,
        widths=widths,
        notes=tuple(notes),
    )
    return report, learned, test


def labelled(data: Data) -> Dataset:
    """The data, which must have something to learn."""
    if isinstance(data, Noise):
        raise InputError("noise has nothing to learn: give data with labels, as digits, a file or a folder")
    return data


def _sizes(data: Dataset) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """The smallest and the largest height and width."""
    if data.images[0].ndim == 1:
        return None, None
    if isinstance(data.images, np.ndarray):
        _, height, width = data.images[0].shape
        return (height, height), (width, width)
    numbers = generator(0, INPUTS).permutation(len(data))[:MEASURED].tolist()
    shapes = np.array([data.images[number].shape for number in numbers])
    low, high = shapes.min(axis=0), shapes.max(axis=0)
    return (int(low[1]), int(high[1])), (int(low[2]), int(high[2]))


def _range(bounds: tuple[int, int]) -> str:
    """
    >>> _range((8, 8)), _range((8, 1200))
    ('8', '8 to 1,200')
    """
    low, high = bounds
    if low == high:
        return f"{low:,}"
    return f"{low:,} to {high:,}"
