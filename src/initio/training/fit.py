"""Trains one network: `fit`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from initio.data.draw import AUGMENT, LAYERS, ORDER, generator
from initio.errors import InputError
from initio.records import Observation, decode, encode
from initio.system.tasks import go_on
from initio.training import checkpoints
from initio.training.augment import augmentation
from initio.training.checkpoints import Checkpoint, UnusableError
from initio.training.examples import Examples
from initio.training.machine import PlainMachine
from initio.training.schedules import drop_paths, learning_rate
from initio.training.settings import TrainingSettings


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
    validation: float | None = None  # accuracy after the epoch before, in percent


@dataclass(frozen=True)
class TrainedEpoch:
    """What an epoch came to."""

    epoch: int  # from 1
    loss: float
    accuracy: float  # in percent, on the training batches as they were learned
    lr: float  # of its last update
    seconds: float  # since the training began, validation included
    waited: float  # share of the epoch's time in which nothing was computed for want of data
    validation_loss: float | None = None
    validation: float | None = None  # accuracy in percent; None where nothing was held out or it was not asked for


@dataclass(frozen=True)
class Update:
    """What the next update learns from, told before it happens."""

    epoch: int  # from 0
    batch: int  # from 0
    x: Tensor  # augmented
    y: Tensor
    lr: float
    optimizer: torch.optim.Optimizer


OnProgress = Callable[[TrainingProgress], None]
BeforeUpdate = Callable[[Update], None]  # may draw from torch's generators: they are seeded by (seed, epoch, batch)
OnNote = Callable[[str], None]
OnEpoch = Callable[[TrainedEpoch, nn.Module], str | None]  # a text ends the training, and says why
Enough = Callable[[Sequence[TrainedEpoch]], str]  # asked of the epochs so far; a text ends the training, and says why


@dataclass
class _EpochSums:
    """Loss and accuracy so far, over all processes."""

    loss: float = 0.0
    correct: int = 0
    seen: int = 0

    def add(self, machine: PlainMachine, loss: float, outputs: Tensor, y: Tensor) -> float:
        """Adds a batch; its mean loss over all processes."""
        correct, seen = int((outputs.argmax(1) == y).sum()), len(y)
        if machine.world > 1:
            own = torch.tensor([loss * seen, correct, seen], dtype=torch.float64, device="cpu")
            total, right, count = machine.total(own).tolist()
            loss, correct, seen = total / count, round(right), round(count)
        self.loss += loss * seen
        self.correct += correct
        self.seen += seen
        return loss


@dataclass(frozen=True, eq=False)
class _Trainer:
    network: nn.Module
    wrapped: nn.Module  # the same behind what the machine needs
    average: AveragedModel | None
    examples: Examples
    settings: TrainingSettings
    seed: int
    optimizer: torch.optim.Optimizer
    raw: torch.optim.Optimizer  # the same before the machine has wrapped it
    keeper: _KeptState
    machine: PlainMachine
    on_progress: OnProgress
    start: float  # when the training would have begun, had it never been interrupted
    history: list[TrainedEpoch] = field(default_factory=list)
    before: BeforeUpdate | None = None

    @property
    def model(self) -> nn.Module:
        """What is validated and kept: the network, or the average of its weights."""
        return self.network if self.average is None else self.average.module

    @property
    def batches(self) -> int:
        """Updates in an epoch: nearly equal batches of up to `batch_size`, none of a single input (batch norm)."""
        n = len(self.examples)
        return max(1, min(math.ceil(n / self.settings.batch_size), n // (2 * self.machine.world)))

    def epoch(self, epoch: int, *, validate: bool) -> TrainedEpoch:
        """All training samples once; `epoch` counts from 0 and decides every random number."""
        machine, settings = self.machine, self.settings
        own = (machine.rank,) * (machine.world > 1)  # each process changes its share by random numbers of its own
        order = torch.from_numpy(generator(self.seed, ORDER, epoch).permutation(len(self.examples)))
        whole = order.tensor_split(self.batches)
        groups = [group[machine.rank :: machine.world] for group in whole]
        noise = generator(self.seed, AUGMENT, epoch, *own)
        layers = int(generator(self.seed, LAYERS, epoch, *own).integers(2**62))
        augment = augmentation(settings, self.examples.shape)
        sums, waited, lr = _EpochSums(), 0.0, settings.lr
        drop_paths(self.network, settings, epoch)
        begin = asked = time.perf_counter()
        self.wrapped.train()
        for batch, (x, y) in enumerate(self.examples.learn(groups)):
            waited += time.perf_counter() - asked
            x, y = augment(x.to(machine.device), noise), y.to(machine.device)
            step = epoch * self.batches + batch
            lr = learning_rate(settings, step, self.batches)
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            with layers_draw_from(layers + batch, machine.device):
                if self.before is not None:
                    self.before(Update(epoch, batch, x, y, lr, self.optimizer))
                loss, outputs = self._update(x, y, len(y) * machine.world / len(whole[batch]))
            if not math.isfinite(sums.add(machine, loss, outputs, y)):
                raise _DivergedError(f"the loss is not finite in epoch {epoch + 1}, update {batch + 1}")
            self._tell(step, sums, begin)
            asked = time.perf_counter()
        spent = time.perf_counter() - begin
        loss_held_out, accuracy = self.validate() if validate else (None, None)
        trained, right = sums.loss / sums.seen, 100 * sums.correct / sums.seen
        seconds = time.perf_counter() - self.start
        return TrainedEpoch(epoch + 1, trained, right, lr, seconds, waited / spent, loss_held_out, accuracy)

    def _tell(self, step: int, sums: _EpochSums, begin: float) -> None:
        """How far the training is after this update of an epoch that began then; one that nobody waits for ends."""
        go_on()
        (epoch, batch), now = divmod(step, self.batches), time.perf_counter()
        previous = self.history[-1].validation if self.history else None
        self.on_progress(
            TrainingProgress(
                epoch=epoch + 1,
                epochs=self.settings.epochs,
                batch=batch + 1,
                batches=self.batches,
                loss=sums.loss / sums.seen,
                accuracy=100 * sums.correct / sums.seen,
                seconds=now - self.start,
                left=(now - begin) / (batch + 1) * (self.settings.epochs * self.batches - step - 1),
                validation=previous,
            )
        )

    def _update(self, x: Tensor, y: Tensor, share: float) -> tuple[float, Tensor]:
        """One update; gradients are averaged over processes, so each is weighted: `share` is 1 if all have as much."""
        settings, machine = self.settings, self.machine
        with machine.arithmetic():
            outputs, auxiliary = self._outputs(self.wrapped, x)
            loss = functional.cross_entropy(outputs, y, label_smoothing=settings.smoothing)
            if auxiliary is not None:
                second = functional.cross_entropy(auxiliary, y, label_smoothing=settings.smoothing)
                loss = loss + settings.auxiliary * second
        self.optimizer.zero_grad()
        machine.backward(loss * share)
        if settings.clip is not None:
            machine.clip(self.wrapped, self.optimizer, settings.clip)
        self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.network)
        return loss.item(), outputs.detach()

    def _outputs(self, network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
        outputs, auxiliary = network(x), None
        if isinstance(outputs, tuple):
            outputs, auxiliary = outputs
        expected = (len(x), self.examples.classes)
        shape = tuple(getattr(outputs, "shape", ()))
        if not isinstance(outputs, Tensor) or shape != expected:
            given = shape or type(outputs).__name__
            raise InputError(f"the network must give outputs of shape {expected} for this data, not {given}")
        return outputs, auxiliary

    @torch.inference_mode()
    def validate(self) -> tuple[float | None, float | None]:
        """Mean loss and accuracy in percent on what was held out, if anything was."""
        if not self.examples.validated:
            return None, None
        machine, model, sums = self.machine, self.model.eval(), _EpochSums()
        for x, y in self.examples.validate(slice(machine.rank, None, machine.world)):
            x, y = x.to(machine.device), y.to(machine.device)
            with machine.arithmetic():
                outputs, _ = self._outputs(model, x)
                loss = functional.cross_entropy(outputs, y)
            if not torch.isfinite(outputs).all():
                raise _DivergedError("the outputs are not finite after training")
            sums.add(PlainMachine(), loss.item(), outputs, y)
        own = torch.tensor([sums.loss, sums.correct, sums.seen], dtype=torch.float64, device="cpu")
        total, right, count = machine.total(own).tolist()
        return total / count, 100 * right / count

    def save(self) -> None:
        """Keeps the state, where there is a place for it."""
        if self.keeper.path is not None and self.machine.rank == 0:
            done = [encode(seen) for seen in self.history]
            state = Checkpoint.of(self.network, self.raw, self.average, self.keeper.identity, done, self.seconds())
            checkpoints.save(self.keeper.path, state)

    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def stopped(self) -> str:
        """Why there is no further epoch, if patience has ended."""
        patience = self.settings.patience
        values = [seen.validation for seen in self.history if seen.validation is not None]
        if patience is None or not values or (waited := len(values) - 1 - values.index(max(values))) < patience:
            return ""
        return f"no better validation accuracy in {waited} epochs"


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
    insist: bool = False,
    machine: PlainMachine | None = None,
    on_progress: OnProgress | None = None,
    on_epoch: OnEpoch | None = None,
    on_note: OnNote | None = None,
    enough: Enough | None = None,
) -> Observation:
    """Trains the network in place and measures its validation accuracy.

    On one thread of the CPU, which is the default, the result depends on (network, examples, settings, seed) alone.
    With `checkpoint`, the state is written there after each epoch, and a call that finds it goes on to the same
    accuracy, to the last bit on the same machine; `identity` says which training it is. A training whose loss is not
    finite ends at once: its value is None, its flag says why.

    Args:
        network: as it is at initialisation.
        examples: what to learn and what to measure on.
        settings: how to train.
        seed: of the order of samples, of augmentation and of layers that draw.
        checkpoint: a file, which need not exist.
        identity: any text that tells this training from others.
        insist: refuse a checkpoint that cannot be used, and leave it as it is, instead of starting over.
        machine: where to compute; by default in this process, on one thread.
        on_progress: hears of each update.
        on_epoch: hears of each epoch, then validated, with the network as it would be kept; a text that it returns ends
            the training.
        on_note: hears a sentence about a checkpoint that was not usable and about divergence.
        enough: looks at the epochs so far, those of a checkpoint too, before there is another one.
    """
    say: OnNote = on_note or (lambda _: None)
    machine = machine or PlainMachine()
    trainer = _begin(
        network, examples, settings, seed, _KeptState(checkpoint, identity, insist, say), machine, on_progress
    )
    history = trainer.history
    each = not (on_epoch is None and enough is None and settings.patience is None)

    def why_end() -> str:
        said = ""
        if enough is not None and history:
            said = enough(history)
        return trainer.stopped() or said

    with machine.running():
        try:
            ended = why_end()
            while len(history) < settings.epochs and not ended:
                history.append(trainer.epoch(len(history), validate=each))
                asked = on_epoch and on_epoch(history[-1], trainer.model)
                trainer.save()
                ended = asked or why_end()
            accuracy = history[-1].validation
            if accuracy is None:
                _, accuracy = trainer.validate()
            if accuracy is None:
                return Observation(None, trainer.seconds(), "nothing was held out to measure accuracy on")
            return Observation(accuracy, trainer.seconds(), ended)
        except _DivergedError as reason:
            flag = f"the training diverged: {reason}"
            say(flag)
            return Observation(None, trainer.seconds(), flag)


def fit_epochs(
    network: nn.Module,
    examples: Examples,
    settings: TrainingSettings,
    *,
    seed: int = 0,
    checkpoint: Path | None = None,
    identity: str = "",
    machine: PlainMachine | None = None,
    before: BeforeUpdate | None = None,
    on_progress: OnProgress | None = None,
    on_epoch: Callable[[TrainedEpoch], None] | None = None,
    on_note: OnNote | None = None,
) -> Iterator[Sequence[TrainedEpoch]]:
    """The same training on one thread, an epoch at a time, for a network that is told what to compute.

    Gives the epochs of the checkpoint, of which there may be none, then all epochs so far after each new one, which is
    on disk by then. Nothing is validated. `before` hears of each update before it happens, `on_epoch` of each epoch
    before it is kept. A loss that is not finite is an `InputError`.
    """
    say: OnNote = on_note or (lambda _: None)
    machine = machine or PlainMachine()
    trainer = _begin(
        network, examples, settings, seed, _KeptState(checkpoint, identity, False, say), machine, on_progress
    )
    trainer = replace(trainer, before=before)
    history = trainer.history
    yield history
    while len(history) < settings.epochs:
        with machine.running():
            try:
                history.append(trainer.epoch(len(history), validate=False))
            except _DivergedError as reason:
                raise InputError(f"the training diverged: {reason}; a smaller learning rate may help") from None
            if on_epoch is not None:
                on_epoch(history[-1])
        trainer.save()
        yield history


@dataclass(frozen=True)
class _KeptState:
    """Where a training is kept, under which name, and what happens to a checkpoint that cannot be used."""

    path: Path | None
    identity: str
    insist: bool
    say: OnNote

    def restore(
        self, network: nn.Module, optimizer: torch.optim.Optimizer, average: nn.Module | None
    ) -> tuple[list[TrainedEpoch], float]:
        """The epochs and seconds of the checkpoint, whose state is put back."""
        if self.path is None or not self.path.is_file():
            return [], 0.0
        try:
            saved = checkpoints.load(self.path, self.identity)
            known = [decode(TrainedEpoch, seen) for seen in saved.history]
            saved.restore(network, optimizer, average)
            return known, saved.seconds
        except (UnusableError, InputError) as reason:
            if self.insist:
                raise InputError(
                    f"the checkpoint {str(self.path)!r} cannot be used: {reason}; move it away to start over"
                ) from None
            self.say(f"the checkpoint {str(self.path)!r} is not used, the training starts over: {reason}")
            return [], 0.0


def _bare(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method without what torch wraps around it."""
    return getattr(method, "__wrapped__", method)


class LeanSgd(torch.optim.SGD):
    """torch's SGD, to the bit, without its first import of the compiler: two seconds in which nobody trains."""

    add_param_group = _bare(torch.optim.Optimizer.add_param_group)
    zero_grad = _bare(torch.optim.Optimizer.zero_grad)
    state_dict = _bare(torch.optim.Optimizer.state_dict)
    load_state_dict = _bare(torch.optim.Optimizer.load_state_dict)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update."""
        return _bare(torch.optim.SGD.step)(self, closure)


def _begin(
    network: nn.Module,
    examples: Examples,
    settings: TrainingSettings,
    seed: int,
    keeper: _KeptState,
    machine: PlainMachine,
    on_progress: OnProgress | None,
) -> _Trainer:
    """A training as it begins, or as its checkpoint has it."""
    parameters = [p for p in network.to(machine.device).parameters() if p.requires_grad]
    if not parameters:
        raise InputError("the network has no parameters that could be trained")
    momentum, decay = settings.momentum, settings.weight_decay
    nesterov = settings.nesterov and momentum > 0
    raw = LeanSgd(parameters, settings.lr, momentum, nesterov=nesterov, weight_decay=decay)
    average = None
    if settings.ema:
        average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(settings.ema))  # type: ignore[no-untyped-call]
    history, seconds = keeper.restore(network, raw, average)
    wrapped, optimizer = machine.setup(network, raw)
    show: OnProgress = (on_progress if machine.rank == 0 else None) or (lambda _: None)
    start = time.perf_counter() - seconds
    return _Trainer(
        network, wrapped, average, examples, settings, seed, optimizer, raw, keeper, machine, show, start, history
    )


@contextmanager
def layers_draw_from(seed: int, device: torch.device) -> Iterator[None]:
    """Dropout and its like know only torch's global generators: seeded here, and put back as they were."""
    if device.type == "cpu":
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            yield
    else:
        with torch.random.fork_rng(devices=[device], device_type=device.type):
            torch.manual_seed(seed)
            yield
