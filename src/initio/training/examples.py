"""What a training learns from and is measured on: in memory, or read by workers as it goes on.

`examples_of` splits a data set by a seed. Arrays, and picture files that are small together, are held in memory; larger
trees are read batch by batch in worker processes, which changes no bit of what is learned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from initio.data import Dataset
from initio.data.draw import SPLIT, SUBSET, generator
from initio.data.split import stratified
from initio.errors import InputError
from initio.training.settings import TrainingSettings

VALIDATION_BATCH = 256
MOST_BYTES = 64_000_000  # of pictures that are held in memory, once decoded and normalised
AHEAD = 4  # batches that each worker reads before they are needed
Pair = tuple[Tensor, Tensor]  # inputs and labels


class Examples(Protocol):
    """Inputs and labels, to train on and to validate on."""

    def __len__(self) -> int:
        """How many there are to learn from."""
        ...

    @property
    def validated(self) -> int:
        """How many are held out."""
        ...

    @property
    def classes(self) -> int:
        """Of the labels."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        ...

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with any input, label or part."""
        ...

    def learn(self, groups: Sequence[Tensor]) -> Iterator[Pair]:
        """A batch for each group of numbers, in their order; it may be written to."""
        ...

    def validate(self, share: slice = ...) -> Iterator[Pair]:
        """What is held out in batches, or a share of these batches."""
        ...

    def swapped(self) -> Examples:
        """What is held out to learn from, and the other way round."""
        ...


@dataclass(frozen=True, eq=False)
class HeldExamples:
    """Examples in memory."""

    x: Tensor
    y: Tensor
    x_validation: Tensor
    y_validation: Tensor
    classes: int

    def __len__(self) -> int:
        return len(self.y)

    @property
    def validated(self) -> int:
        """How many are held out."""
        return len(self.y_validation)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return tuple(self.x.shape[1:])

    def learn(self, groups: Sequence[Tensor]) -> Iterator[Pair]:
        """Rows of the tensors."""
        return ((self.x[numbers], self.y[numbers]) for numbers in groups)

    def validate(self, share: slice = slice(None)) -> Iterator[Pair]:
        """Slices of the tensors."""
        for start in range(0, self.validated, VALIDATION_BATCH)[share]:
            rows = slice(start, start + VALIDATION_BATCH)
            yield self.x_validation[rows], self.y_validation[rows]

    def swapped(self) -> HeldExamples:
        """The same tensors in the other's place."""
        return HeldExamples(self.x_validation, self.y_validation, self.x, self.y, self.classes)

    @cached_property
    def fingerprint(self) -> str:
        """Of all inputs and labels."""
        digest = hashlib.sha256(f"{tuple(self.x.shape)} {self.classes}".encode())
        for tensor in (self.x, self.y, self.x_validation, self.y_validation):
            digest.update(tensor.numpy().data)
        return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class StreamedExamples:
    """Examples that workers read as they are needed; never more than a few batches are in memory."""

    data: Dataset = field(repr=False)
    numbers: np.ndarray = field(repr=False)  # of the samples to learn from
    held_out: np.ndarray = field(repr=False)
    workers: int = 1

    @property
    def classes(self) -> int:
        """Of the data."""
        return self.data.classes

    @property
    def validated(self) -> int:
        """How many are held out."""
        return len(self.held_out)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return self.data.shape

    def learn(self, groups: Sequence[Tensor]) -> Iterator[Pair]:
        """Batches in the order of the groups, whichever worker is first."""
        yield from self._read([self.numbers[group.numpy()] for group in groups])

    def validate(self, share: slice = slice(None)) -> Iterator[Pair]:
        """The same of what is held out."""
        starts = range(0, self.validated, VALIDATION_BATCH)[share]
        yield from self._read([self.held_out[start : start + VALIDATION_BATCH] for start in starts])

    def swapped(self) -> StreamedExamples:
        """The same data, read by workers of their own."""
        return StreamedExamples(self.data, self.held_out, self.numbers, self.workers)

    def _read(self, wanted: list[np.ndarray]) -> Iterator[Pair]:
        self._groups[:] = wanted  # the loader asks for them when it is iterated
        for batch in self._loader:
            if isinstance(batch, InputError):
                raise batch
            yield batch

    @cached_property
    def _groups(self) -> list[np.ndarray]:
        return []

    @cached_property
    def _loader(self) -> Any:
        """Workers live as long as this object: to start one takes longer than to read many batches."""
        busy: dict[str, Any] = {}
        if self.workers:
            busy = {"persistent_workers": True, "prefetch_factor": AHEAD}
        return DataLoader(
            _Reader(self.data),  # type: ignore[arg-type]
            batch_sampler=self._groups,  # type: ignore[arg-type]
            num_workers=self.workers,
            collate_fn=_same,
            generator=torch.Generator(),  # and not torch's global one, from which it would draw
            **busy,
        )

    @cached_property
    def fingerprint(self) -> str:
        """Of names, sizes, labels and parts: to read every picture would take as long as an epoch."""
        digest = hashlib.sha256(f"{self.shape} {self.classes} {self.data.mean} {self.data.std}".encode())
        for part in (self.numbers, self.held_out):
            digest.update(self.data.labels[part].tobytes())
            for number in part.tolist():
                digest.update(_stamp(self.data.images, number).encode())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class _Reader:
    """What a worker does: reads, cuts and normalises the samples of a batch; a mistake in the data is an answer too."""

    data: Dataset

    def __getitems__(self, numbers: np.ndarray) -> Pair | InputError:  # a hook of torch's loader
        try:
            x, y = self.data.arrays(numbers)
        except InputError as error:
            return error
        return torch.from_numpy(x), torch.from_numpy(y)

    def __getitem__(self, number: int) -> Pair | InputError:
        return self.__getitems__(np.array([number]))

    def __len__(self) -> int:
        return len(self.data)


def _same(batch: Any) -> Any:
    """A batch is made by the reader already."""
    return batch


def _stamp(images: Any, number: int) -> str:
    """Tells a picture from another one of the same name, where its file has a size."""
    paths = getattr(images, "paths", None)
    size = 0 if paths is None else paths[number].stat().st_size
    return f"{images.where(number)} {size}\n"


def examples_of(data: Dataset, settings: TrainingSettings, seed: int, *, workers: int = 1) -> Examples:
    """The data's samples, split by `seed`; whoever trains with it sees the same split."""
    numbers = np.arange(len(data))
    if settings.samples is not None and settings.samples < len(data):
        numbers = stratified(data.labels, settings.samples / len(data), generator(seed, SUBSET))[1]
    learn, validate = (
        numbers[part] for part in stratified(data.labels[numbers], settings.validation, generator(seed, SPLIT))
    )
    if len(learn) < 2 or (settings.validation and not len(validate)):
        raise InputError(
            f"{len(numbers)} samples of {data.name} with a validation share of {settings.validation} are "
            f"{len(learn)} to train on and {len(validate)} to validate on: use more samples or another share"
        )
    if data.classes < 2:
        raise InputError(f"{data.name} has one class: there is nothing to tell apart")
    if not isinstance(data.images, np.ndarray) and 4 * len(numbers) * np.prod(data.shape) > MOST_BYTES:
        return StreamedExamples(data, learn, validate, workers)
    (x, y), (x_validation, y_validation) = (map(torch.from_numpy, _read(data, part)) for part in (learn, validate))
    return HeldExamples(x, y, x_validation, y_validation, data.classes)


def _read(data: Dataset, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An empty part has no first image whose shape could be asked for."""
    if not len(part):
        return np.zeros((0, *data.shape), dtype=np.float32), data.labels[part]
    return data.arrays(part)
