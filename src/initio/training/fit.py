"""Trains one network: `fit`."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from initio.autodiff.threads import one_thread
from initio.data import Dataset
from initio.data.draw import AUGMENT, LAYERS, ORDER, SPLIT, SUBSET, generator
from initio.data.split import stratified
from initio.errors import InputError
from initio.records import Observation
from initio.training import checkpoints
from initio.training.augment import augmentation
from initio.training.checkpoints import Checkpoint, UnusableError
from initio.training.settings import TrainingSettings

VALIDATION_BATCH = 256


@dataclass(frozen=True)
class TrainingProgress:
    """Where a training is, after each update."""

    epoch: int  # the current one, from 1
    epochs: int
    batch: int  # the one just learned, from 1
    batches: int
    loss: float  # mean over the epoch so far
    accuracy: float  # in percent, on the training batches of the epoch so far
    seconds: float  # since the training began
    left: float  # estimate of the seconds to its end


OnProgress = Callable[[TrainingProgress], None]
OnNote = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and labels in memory, to train on and to validate on."""

    x: Tensor
    y: Tensor
    x_validation: Tensor
    y_validation: Tensor
    classes: int

    @classmethod
    def of(cls, data: Dataset, settings: TrainingSettings, seed: int) -> Examples:
        """The data's samples, split by `seed`; whoever trains with it sees the same split."""
        numbers = np.arange(len(data))
        if settings.samples is not None and settings.samples < len(data):
            numbers = stratified(data.labels, settings.samples / len(data), generator(seed, SUBSET))[1]
        learn, validate = (
            numbers[part] for part in stratified(data.labels[numbers], settings.validation, generator(seed, SPLIT))
        )
        if len(learn) < 2 or not len(validate):
            raise InputError(
                f"{len(numbers)} samples of {data.name} with a validation share of {settings.validation} are "
                f"{len(learn)} to train on and {len(validate)} to validate on: use more samples or another share"
            )
        (x, y), (x_validation, y_validation) = (map(torch.from_numpy, data.arrays(part)) for part in (learn, validate))
        return cls(x, y, x_validation, y_validation, data.classes)

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with any input, label or part."""
        digest = hashlib.sha256(f"{tuple(self.x.shape)} {self.classes}".encode())
        for tensor in (self.x, self.y, self.x_validation, self.y_validation):
            digest.update(tensor.numpy().data)
        return digest.hexdigest()[:16]


@dataclass
class _Average:
    """Loss and accuracy of an epoch so far."""

    loss: float = 0.0
    correct: int = 0
    seen: int = 0

    def add(self, loss: float, outputs: Tensor, y: Tensor) -> None:
        self.loss += loss * len(y)
        self.correct += int((outputs.argmax(1) == y).sum())
        self.seen += len(y)


@dataclass(frozen=True, eq=False)
class _Trainer:
    network: nn.Module
    examples: Examples
    settings: TrainingSettings
    seed: int
    optimizer: torch.optim.Optimizer
    on_progress: OnProgress
    start: float  # when the training would have begun, had it never been interrupted

    @property
    def batches(self) -> int:
        """Updates in an epoch: nearly equal batches of up to `batch_size`, none of a single input (batch norm)."""
        n = len(self.examples)
        return max(1, min(math.ceil(n / self.settings.batch_size), n // 2))

    def epoch(self, epoch: int) -> None:
        """All training samples once; `epoch` counts from 0 and decides every random number."""
        order = generator(self.seed, ORDER, epoch).permutation(len(self.examples))
        noise = generator(self.seed, AUGMENT, epoch)
        layers = int(generator(self.seed, LAYERS, epoch).integers(2**62))
        augment = augmentation(self.settings.augment, tuple(self.examples.x.shape[1:]))
        average, total = _Average(), self.settings.epochs * self.batches
        begin = time.perf_counter()
        self.network.train()
        for batch, numbers in enumerate(torch.from_numpy(order).tensor_split(self.batches)):
            x, y = augment(self.examples.x[numbers], noise), self.examples.y[numbers]
            step = epoch * self.batches + batch
            self._learning_rate(self.settings.lr / 2 * (1 + math.cos(math.pi * step / total)))  # η_t, docs/training.md
            with _layers_draw_from(layers + batch):
                loss, outputs = self._update(x, y)
            if not math.isfinite(loss):
                raise _DivergedError(f"the loss is not finite in epoch {epoch + 1}, update {batch + 1}")
            average.add(loss, outputs, y)
            now = time.perf_counter()
            self.on_progress(
                TrainingProgress(
                    epoch=epoch + 1,
                    epochs=self.settings.epochs,
                    batch=batch + 1,
                    batches=self.batches,
                    loss=average.loss / average.seen,
                    accuracy=100 * average.correct / average.seen,
                    seconds=now - self.start,
                    left=(now - begin) / (batch + 1) * (total - step - 1),
                )
            )

    def _learning_rate(self, lr: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def _update(self, x: Tensor, y: Tensor) -> tuple[float, Tensor]:
        outputs, auxiliary = self._outputs(x)
        loss = functional.cross_entropy(outputs, y)
        if auxiliary is not None:
            loss = loss + self.settings.auxiliary * functional.cross_entropy(auxiliary, y)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if self.settings.clip is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.clip)
        self.optimizer.step()
        return loss.item(), outputs.detach()

    def _outputs(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        outputs, auxiliary = self.network(x), None
        if isinstance(outputs, tuple):
            outputs, auxiliary = outputs
        expected = (len(x), self.examples.classes)
        shape = tuple(getattr(outputs, "shape", ()))
        if not isinstance(outputs, Tensor) or shape != expected:
            given = shape or type(outputs).__name__
            raise InputError(f"the network must give outputs of shape {expected} for this data, not {given}")
        return outputs, auxiliary

    @torch.inference_mode()
    def accuracy(self) -> float:
        """Validation accuracy in percent."""
        self.network.eval()
        correct, x, y = 0, self.examples.x_validation, self.examples.y_validation
        for start in range(0, len(y), VALIDATION_BATCH):
            outputs, _ = self._outputs(x[start : start + VALIDATION_BATCH])
            if not torch.isfinite(outputs).all():
                raise _DivergedError("the outputs are not finite after training")
            correct += int((outputs.argmax(1) == y[start : start + VALIDATION_BATCH]).sum())
        return 100 * correct / len(y)

    def seconds(self) -> float:
        return time.perf_counter() - self.start


class _DivergedError(Exception):
    """Why a training has no accuracy of its own."""


def fit(
    network: nn.Module,
    examples: Examples,
    settings: TrainingSettings,
    *,
    seed: int = 0,
    checkpoint: Path | None = None,
    identity: str = "",
    on_progress: OnProgress | None = None,
    on_note: OnNote | None = None,
) -> Observation:
    """Trains the network in place and measures its validation accuracy, on one thread.

    The result depends on (network, examples, settings, seed) alone. With `checkpoint`, the state is written there after
    each epoch, and a call that finds it goes on to the same accuracy, to the last bit on the same machine; `identity`
    says which training it is. A training whose loss is not finite ends at once: its value is None, its flag says why.

    Args:
        network: as it is at initialisation.
        examples: what to learn and what to measure on.
        settings: how to train.
        seed: of the order of samples, of augmentation and of layers that draw.
        checkpoint: a file, which need not exist.
        identity: any text that tells this training from others.
        on_progress: hears of each update.
        on_note: hears a sentence about a checkpoint that was not usable and about divergence.
    """
    say: OnNote = on_note or (lambda _: None)
    show: OnProgress = on_progress or (lambda _: None)
    parameters = [p for p in network.parameters() if p.requires_grad]
    if not parameters:
        raise InputError("the network has no parameters that could be trained")
    momentum, decay = settings.momentum, settings.weight_decay
    optimizer = torch.optim.SGD(parameters, settings.lr, momentum, nesterov=momentum > 0, weight_decay=decay)
    done, before = 0, 0.0
    if checkpoint is not None and checkpoint.is_file():
        try:
            saved = checkpoints.load(checkpoint, identity)
            saved.restore(network, optimizer)
            done, before = saved.epoch, saved.seconds
        except UnusableError as reason:
            say(f"the checkpoint {str(checkpoint)!r} is not used, the training starts over: {reason}")
    trainer = _Trainer(network, examples, settings, seed, optimizer, show, time.perf_counter() - before)
    with one_thread():
        try:
            for epoch in range(done, settings.epochs):
                trainer.epoch(epoch)
                if checkpoint is not None:
                    state = Checkpoint.of(network, optimizer, identity, epoch + 1, trainer.seconds())
                    checkpoints.save(checkpoint, state)
            return Observation(trainer.accuracy(), trainer.seconds())
        except _DivergedError as reason:
            flag = f"the training diverged: {reason}"
            say(flag)
            return Observation(None, trainer.seconds(), flag)


@contextmanager
def _layers_draw_from(seed: int) -> Iterator[None]:
    """Dropout and its like know only torch's global generator: seeded here, and put back as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
