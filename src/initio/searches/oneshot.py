"""Searches that train one network whose weights all architectures share: `OneShotSearch`.

One trainer, `initio.training.fit`, updates the weights θ of a `SharedNetwork` on one part of the data. Each method
is what differs: how architectures are drawn (`draw`), how what it knows of them is learned on the other part
(`learn`, and `teach` after an epoch), and how the answer is read (`read`). What a method knows (α, a controller) is
a module of tensors without gradients beside the network, so that a checkpoint of the network holds it too.

A step is an epoch. Everything random in it comes from (seed, epoch), and its state is on disk before the step is, so
a run that was killed goes on to the same bits; without a checkpoint it learns again what the steps have.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import version
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from initio.autodiff.devices import apart, find_device
from initio.data import Noise
from initio.data.draw import HELD_OUT, generator
from initio.errors import InputError, at_least, positive
from initio.networks.graphs import NetworkSettings, Norm
from initio.networks.shared import Blend, SharedNetwork, Statistics, shared_graph
from initio.records import Architecture
from initio.searches.base import Search, SearchRun, SearchStep, in_order
from initio.searches.problem import Problem
from initio.spaces import GraphSpace, Space
from initio.spaces.base import Size
from initio.training.augment import augmentation
from initio.training.examples import Examples, Pair, examples_of
from initio.training.fit import TrainedEpoch, Update, fit_epochs, layers_draw_from
from initio.training.machine import PlainMachine, laid_out
from initio.training.settings import TrainingSettings

DRAWS = 50  # within limits, before none is said to be there
SKIP = "skip_connect"
ADAM_EPSILON = 1e-8


class Reading(NamedTuple):
    """What a method would answer now: an architecture, α if it has one, and how undecided it is (1 is uniform)."""

    architecture: Architecture
    alpha: tuple[float, ...] = ()
    entropy: float | None = None


@dataclass(frozen=True)
class SharedEpoch(SearchStep):
    """An epoch of the shared network, and what would be chosen after it."""

    number: int
    architecture: Architecture
    loss: float  # of the weights' batches
    accuracy: float  # in percent, the same
    held_out_loss: float | None  # of the architecture's batches, None where it learned from none
    held_out_accuracy: float | None
    entropy: float | None  # of α, as a share of that of a uniform one, mean over categoricals
    skips: int  # of the architecture
    alpha: tuple[float, ...] = ()  # all categoricals in a row

    def told(self) -> str:
        """Losses, entropy and skips."""
        parts = [f"loss {self.loss:.3f}"]
        if self.held_out_accuracy is not None:
            parts.append(f"held out {self.held_out_accuracy:.1f} %")
        if self.entropy is not None:
            parts.append(f"entropy {self.entropy:.3f}")
        return ", ".join([*parts, f"{self.skips} skips"])


@dataclass(frozen=True)
class Moment:
    """An update, or a time after an epoch, from which everything random follows."""

    epoch: int  # from 0
    epochs: int
    update: Update | None = None

    def random(self, seed: int) -> Random:
        """Of an update."""
        assert self.update is not None
        return Random(f"{seed} {self.epoch} {self.update.batch}")

    @property
    def progress(self) -> float:
        """From 0 in the first epoch to 1 in the last."""
        return self.epoch / max(1, self.epochs - 1)


@dataclass(eq=False)
class SharedTraining:
    """A shared network that learns, with all that a method is told.

    Args:
        problem: what is searched.
        network: the shared weights.
        knows: what the method knows of architectures; a part of the network's state.
        tally: what the architecture's batches came to; the same.
        examples: the weights' part of the data, and the architecture's.
        settings: how weights learn.
        seed: of everything.
        stage: which network it is, of a method that trains several.
    """

    problem: Problem
    network: SharedNetwork
    knows: Learned
    tally: HeldOutSums
    examples: Examples
    settings: TrainingSettings
    seed: int
    stage: int = 0
    held: Iterator[Pair] = field(default_factory=lambda: iter(()))  # batches of this epoch
    pending: Tensor | None = None  # values whose gradient comes with the weights' own

    @property
    def space(self) -> GraphSpace:
        """Where architectures come from."""
        return self.problem.graphs

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.tally.sums.device

    @cached_property
    def other(self) -> Examples:
        """The architecture's part of the data, to learn from."""
        return self.examples.swapped()

    def held_out(self, epoch: int, count: int, *stream: int) -> Iterator[Pair]:
        """So many batches of the architecture's part, augmented as those of the weights are."""
        rng = generator(self.seed, HELD_OUT, epoch, *stream)
        order = torch.from_numpy(rng.permutation(len(self.other)))
        parts = order.tensor_split(max(1, math.ceil(len(order) / self.settings.batch_size)))
        change = augmentation(self.settings, self.other.shape)
        groups = list(islice(cycle(parts), count))
        return ((change(x.to(self.device), rng), y.to(self.device)) for x, y in self.other.learn(groups))

    @torch.no_grad()
    def accuracy(self, blend: Blend, batches: Sequence[Pair]) -> float:
        """In percent, with the shared weights."""
        self.network.eval()
        on = ((x.to(self.device), y.to(self.device)) for x, y in batches)
        right = sum(int((self.network(x, blend).argmax(1) == y).sum()) for x, y in on)
        return 100 * right / sum(len(y) for _, y in batches)


class HeldOutSums(nn.Module):
    """Loss, right answers and number of the architecture's samples in this epoch, as part of a checkpoint."""

    sums: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(3, dtype=torch.float64))

    def add(self, loss: Tensor, logits: Tensor, y: Tensor) -> None:
        """A batch."""
        right = int((logits.argmax(1) == y).sum())
        self.sums += torch.tensor([loss.item() * len(y), right, len(y)], dtype=torch.float64).to(self.sums.device)

    @property
    def means(self) -> tuple[float | None, float | None]:
        """Mean loss, and accuracy in percent."""
        loss, right, seen = self.sums.tolist()
        if not seen:
            return None, None
        return loss / seen, 100 * right / seen


class Learned(nn.Module):
    """A vector that Adam (Kingma and Ba, 2015) learns, with its moments: buffers, so that a checkpoint holds them."""

    values: Tensor
    mean: Tensor
    square: Tensor
    count: Tensor

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", values.detach().clone())
        self.register_buffer("mean", torch.zeros_like(values))
        self.register_buffer("square", torch.zeros_like(values))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def leaf(self) -> Tensor:
        """The values, to differentiate by."""
        return self.values.clone().requires_grad_()

    @torch.no_grad()
    def adam(
        self,
        gradient: Tensor,
        lr: float,
        betas: tuple[float, float],
        decay: float = 0.0,
        epsilon: float = ADAM_EPSILON,
    ) -> None:
        """One update; `decay` is λ of the penalty λ/2 ‖values‖²."""
        if not torch.isfinite(gradient).all():
            raise InputError("the gradient of the architecture is not finite: a smaller learning rate may help")
        gradient = gradient + decay * self.values
        self.count += 1
        t = int(self.count)
        self.mean.lerp_(gradient, 1 - betas[0])
        self.square.lerp_(gradient.square(), 1 - betas[1])
        size = (self.square / (1 - betas[1] ** t)).sqrt() + epsilon
        self.values -= lr / (1 - betas[0] ** t) * self.mean / size


@dataclass(frozen=True)
class OneShotSearch(Search[SharedEpoch]):
    """What all of them have: how the shared weights learn, and on what.

    Args:
        size: of the shared network: small, minutes on a laptop, or that of the papers.
        lr: learning rate of the weights' first update; it falls as half a cosine.
        lr_end: where it falls to.
        momentum: of the weights' SGD.
        weight_decay: λ of the penalty λ/2 ‖θ‖² on the weights.
        clip: the largest norm that a gradient of the weights keeps.
        nesterov: use Nesterov's momentum.
        held_out: share of the data that the architecture learns from or is judged by, and the weights do not see.
        samples: use about so many samples of the data; none uses all.
        affine: let batch norms have parameters.
        statistics: what batch norms use when nothing is learned: those of the batch, or running ones.
    """

    size: Literal["small", "published"] = "small"
    lr: float = 0.025
    lr_end: float = 0.001
    momentum: float = 0.9
    weight_decay: float = 3e-4
    clip: float = 5.0
    nesterov: bool = False
    held_out: float = 0.5
    samples: int | None = None
    affine: bool = False
    statistics: Statistics = "batch"

    learns: ClassVar[bool] = True
    limited: ClassVar[bool] = True
    step_types: ClassVar[tuple[type[SearchStep], ...]] = (SharedEpoch,)
    usual_epochs: ClassVar[int] = 50
    stages: ClassVar[int] = 1  # networks that are trained one after another

    def __post_init__(self) -> None:
        positive(self, "lr", "clip")
        at_least(self, lr_end=0, momentum=0, weight_decay=0, samples=4)
        if not 0 <= self.held_out < 1:
            raise InputError(f"held_out must be at least 0 and below 1, not {self.held_out}")
        for name, allowed in (("size", ("small", "published")), ("statistics", ("batch", "running"))):
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} must be {' or '.join(allowed)}, not {getattr(self, name)!r}")

    # --- what a method is -----------------------------------------------------------------------------------------

    @abstractmethod
    def knowledge(self, space: GraphSpace, stage: int, done: Sequence[SharedEpoch], seed: int) -> Learned:
        """What it knows of architectures before a stage, as tensors without gradients."""

    @abstractmethod
    def draw(self, at: SharedTraining, now: Moment) -> Blend:
        """What the next update of the weights trains."""

    def learn(self, at: SharedTraining, now: Moment) -> None:
        """Before each update of the weights: an update of what it knows."""

    def teach(self, at: SharedTraining, now: Moment) -> None:
        """After an epoch of the weights, before it is kept."""

    @abstractmethod
    def read(self, at: SharedTraining, now: Moment) -> Reading:
        """The answer, were this epoch the last one."""

    def sized(self, at: Problem, stage: int) -> Problem:
        """The problem with the network of a stage."""
        return at

    @property
    def partial(self) -> int:
        """K of partial channels, where a method has them."""
        return 1

    # --- a search like all others ---------------------------------------------------------------------------------

    def network_size(self, space: Space) -> Size:
        """Small, or as published."""
        return {"small": space.sizes.shared, "published": space.sizes.shared_published}[self.size]

    def check(self, problem: Problem) -> None:
        """Refuses a space without a supernet, and data without labels."""
        space = problem.space
        if not (isinstance(space, GraphSpace) and space.one_shot):
            raise InputError(
                f"{self.name} trains a supernet, which {space.name} does not have: `initio spaces` says who"
            )
        if isinstance(problem.known_data, Noise):
            raise InputError("noise has nothing to learn: search on data with labels, as digits, a file or a folder")
        shared_graph(space, self.settings_of(problem), self.partial)

    def settings_of(self, problem: Problem) -> NetworkSettings:
        """The shared network's."""
        data = problem.known_data
        norms: dict[bool, Norm] = {True: "affine", False: "plain"}
        return replace(problem.network, norm=norms[self.affine], classes=data.classes, shape=data.shape)

    def n_epochs(self, problem: Problem) -> int:
        """Of each stage."""
        return next(iter(problem.epochs), self.usual_epochs)

    def n_steps(self, problem: Problem) -> int:
        """A step is an epoch."""
        return self.stages * self.n_epochs(problem)

    def leading(self, problem: Problem, steps: Sequence[SharedEpoch]) -> Architecture | None:
        """What the last epoch speaks for."""
        return steps[-1].architecture if steps else None

    def why(self, problem: Problem, steps: Sequence[SharedEpoch], chosen: Architecture) -> str:
        """When the choice was made, and how sure it is."""
        last, first = steps[-1], len(steps)
        while first and steps[first - 1].architecture == chosen:
            first -= 1
        parts = [f"read off the shared network after {len(steps)} epochs", f"the same since epoch {first + 1}"]
        if last.entropy is not None:
            parts.append(f"entropy {last.entropy:.3f} of 1")
        return "; ".join([*parts, f"{last.skips} skips"])

    def training(self, problem: Problem, seed: int, stage: int = 0, done: Sequence[SharedEpoch] = ()) -> SharedTraining:
        """The shared network of a stage as it begins; `done` are the epochs before it."""
        problem = self.sized(problem, stage)
        settings = TrainingSettings(
            epochs=self.n_epochs(problem), batch_size=problem.batch_size, lr=self.lr, momentum=self.momentum,
            weight_decay=self.weight_decay, clip=self.clip, validation=self.held_out, samples=self.samples,
            nesterov=self.nesterov, lr_end=self.lr_end,
        )  # fmt: skip
        data = problem.known_data
        assert not isinstance(data, Noise)
        network = SharedNetwork(
            problem.graphs, self.settings_of(problem), seed, channels=self.partial, statistics=self.statistics
        )
        knows, tally = self.knowledge(problem.graphs, stage, done, seed), HeldOutSums()
        network.add_module("knows", knows)
        network.add_module("tally", tally)
        examples = examples_of(data, settings, seed)
        return SharedTraining(problem, laid_out(network), knows, tally, examples, settings, seed, stage)

    def trained(self, problem: Problem, seed: int, steps: Sequence[SharedEpoch], device: str = "cpu") -> SharedTraining:
        """The last network of a finished run with its weights, from the checkpoint in the run's folder, on a device."""
        each, last = self.n_epochs(problem), self.stages - 1
        at = self.training(problem, seed, last, tuple(steps[: last * each]))
        path = checkpoint_of(problem.folder, last)
        notes: list[str] = []
        epochs = fit_epochs(
            at.network, at.examples, at.settings, seed=seed, checkpoint=path, identity=self.identity(at),
            machine=PlainMachine(find_device(device, measured=True)), on_note=notes.append,
        )  # fmt: skip
        if len(next(iter(epochs))) < each:
            why = next(iter(notes), f"{str(path)!r} does not hold all its epochs")
            raise InputError(f"the run has no trained network any more: {why}")
        return at

    def run(self, problem: Problem, seed: int, done: Sequence[SharedEpoch]) -> SearchRun[SharedEpoch]:
        """Trains stage by stage; what a checkpoint has is not learned again, what the steps have is not told again."""
        told, each = in_order(done), self.n_epochs(problem)
        steps: list[SharedEpoch] = []
        for stage in range(self.stages):
            end = (stage + 1) * each
            if len(told) >= end and stage + 1 < self.stages:
                steps = told[:end]
                continue
            for step in self._stage(problem, seed, stage, tuple(steps), len(told)):
                steps += told[len(steps) : step.number]
                if step.number >= len(told):
                    yield step
                elif step != told[step.number]:
                    raise InputError(
                        f"epoch {step.number + 1} came out otherwise than the run has it, by another version of torch "
                        f"or on another machine: start the search again"
                    )
                steps.append(step)
            steps += told[len(steps) : end]
        return steps[-1].architecture

    def _stage(
        self, problem: Problem, seed: int, stage: int, before: tuple[SharedEpoch, ...], told: int
    ) -> Iterator[SharedEpoch]:
        """The epochs of one network after those of its checkpoint; the last of these too, if the steps have it not."""
        at = self.training(problem, seed, stage, before)
        checkpoint = checkpoint_of(problem.folder, stage)
        restored: int | None = None
        for history in fit_epochs(
            at.network,
            at.examples,
            at.settings,
            seed=seed,
            checkpoint=checkpoint,
            identity=self.identity(at),
            machine=PlainMachine(problem.computes_on),
            before=partial(self._before, at),
            on_progress=problem.tell,
            on_epoch=partial(self._after, at),
            on_note=problem.tell,
        ):
            number = len(before) + len(history) - 1
            if restored is None:
                restored = len(history)
                if restored and number > told and checkpoint is not None:  # steps were lost, so begin anew
                    checkpoint.unlink()
                    yield from self._stage(problem, seed, stage, before, told)
                    return
                if not restored or number < told:
                    continue
            yield self._step(at, history[-1], number)

    def _before(self, at: SharedTraining, update: Update) -> None:
        if update.batch == 0:
            at.tally.sums.zero_()
            if at.examples.validated:
                at.held = at.held_out(update.epoch, math.ceil(len(at.examples) / at.settings.batch_size))
        now = Moment(update.epoch, at.settings.epochs, update)
        self.learn(at, now)
        at.network.blend = self.draw(at, now)

    def _after(self, at: SharedTraining, seen: TrainedEpoch) -> None:
        with layers_draw_from(int(generator(at.seed, HELD_OUT, seen.epoch, 1).integers(2**62)), at.device):
            self.teach(at, Moment(seen.epoch - 1, at.settings.epochs))

    def _step(self, at: SharedTraining, seen: TrainedEpoch, number: int) -> SharedEpoch:
        with layers_draw_from(int(generator(at.seed, HELD_OUT, seen.epoch, 2).integers(2**62)), at.device):
            reading = self.read(at, Moment(seen.epoch - 1, at.settings.epochs))
        return SharedEpoch(
            number,
            reading.architecture,
            seen.loss,
            seen.accuracy,
            *at.tally.means,
            reading.entropy,
            skips_of(at.space, reading.architecture),
            reading.alpha,
        )

    def identity(self, at: SharedTraining) -> str:
        """All that decides the weights, as JSON."""
        return json.dumps(
            {
                "search": self.name,
                "own": self.settings(),
                "stage": at.stage,
                "space": at.space.name,
                "network": asdict(at.network.supernet.settings),
                "settings": asdict(at.settings),
                "seed": at.seed,
                "data": at.examples.fingerprint,
                "knows": at.knows.values.tolist(),
                "torch": version("torch"),
                **apart(at.problem.device),
            }
        )


def checkpoint_of(folder: Path | None, stage: int) -> Path | None:
    """Where a stage is kept."""
    if folder is None:
        return None
    return folder / f"shared-{stage}.checkpoint"


def skips_of(space: Space, arch: Architecture) -> int:
    """How many of an architecture's operations are skips."""
    return sum(space.relaxation[k].options[option] == SKIP for k, option in space.active(arch))


def best_of(at: SharedTraining, archs: Sequence[Architecture], now: Moment) -> Architecture:
    """The most accurate on a batch of the architecture's part with the shared weights; the first of equals."""
    batch = list(at.held_out(now.epoch, 1, 2))
    return max(archs, key=lambda arch: at.accuracy(Blend.path(at.space, arch), batch))


def candidates(at: SharedTraining, draw: Callable[[], Architecture], count: int) -> list[Architecture]:
    """So many connected architectures, within the limits if there are any; a draw that is neither gives way."""
    limited, rng = str(at.problem.limits) != "", Random(f"candidates {at.seed}")
    found = []
    for _ in range(count):
        arch = draw()
        if limited and not at.problem.accepts(arch):
            arch = at.problem.accepted((at.problem.draw_admitted(rng) for _ in range(DRAWS)), 1)[0]
        if at.space.connected(arch):
            found.append(arch)
    return found or [at.space.decode([[0.0] * len(row) for row in at.space.relaxation])]
