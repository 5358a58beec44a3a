"""Who answers a search's queries by real training: `Training`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from torch import nn

from initio.autodiff.devices import apart, find_device
from initio.data import Data, Noise
from initio.errors import InputError
from initio.records import Architecture, Observation, Query
from initio.scores.measure import home_of, subject
from initio.spaces import GraphSpace, NetworkSettings, Space
from initio.system.clock import Deadline
from initio.system.files import write_text
from initio.training.examples import Examples, examples_of
from initio.training.fit import Enough, OnNote, OnProgress, TrainedEpoch, TrainingProgress, fit
from initio.training.machine import PlainMachine, laid_out
from initio.training.settings import TrainingSettings

FORMAT = 4  # of the files; a change of what a training computes changes it too


@dataclass(frozen=True, eq=False)
class Training:
    """A function from a query to an observation: trains the architecture and measures its validation accuracy.

    The value depends on (space, data, network, settings, seed, query) alone, whatever was trained before. With a
    folder, which several searches may share, a training that was interrupted or given up goes on from its last epoch,
    and one that was finished is never repeated.
    Architectures with the same representative (`Space.canonical`) are one network, hence one training.

    Args:
        space: of the architectures that will be asked for.
        data: what to learn; noise is refused. A seeded share of each class is held out for validation.
        network: the size of the networks, where not that of the space for training; shape and classes are the data's.
        settings: how to train.
        seed: of the split, the weights, the order of samples and augmentation.
        folder: where checkpoints and answers live; None keeps nothing.
        deadline: when to stop in the middle of a training, by an `OutOfTimeError`.
        on_progress: hears of each update.
        on_note: hears a sentence when a checkpoint is not usable and when a training diverges.
        device: what computes, by its name; the value depends on its kind, too.
    """

    space: Space
    data: Data = field(repr=False)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    seed: int = 0
    folder: Path | None = None
    deadline: Deadline = field(default_factory=Deadline, repr=False)
    on_progress: OnProgress | None = field(default=None, repr=False)
    on_note: OnNote | None = field(default=None, repr=False)
    device: str = "cpu"

    def __post_init__(self) -> None:
        if isinstance(self.data, Noise):
            raise InputError("noise has nothing to learn: train on data with labels, as digits, a file or a folder")
        if not self.settings.validation:
            raise InputError("a search compares validation accuracies: hold out a share for them, as validation=0.3")
        size = self.space.sizes.training
        network = replace(
            self.network,
            channels=self.network.channels or size.channels,
            cells=self.network.cells or size.cells,
            classes=self.data.classes,
            shape=self.data.shape,
        )
        object.__setattr__(self, "network", self.space.resolve(network))

    @cached_property
    def examples(self) -> Examples:
        """The data in memory, read when it is first needed."""
        assert not isinstance(self.data, Noise)
        return examples_of(self.data, self.settings, self.seed)

    def __call__(self, query: Query) -> Observation:
        """Trains, or goes on, or remembers."""
        written = self.space.check(query.architecture)  # a representative is equal to it only where networks are pruned
        arch = subject(self.space, written, counted=not self.network.prune)
        settings = self.settings if query.epochs is None else replace(self.settings, epochs=query.epochs)
        watched = query.hurdles is not None
        identity = self._identity(arch, settings, watched)
        hurdles = Hurdles(dict(query.hurdles or ()), settings.epochs)
        if self.folder is None:
            return self._train(arch, settings, identity, None, hurdles, watched)
        stem = hashlib.sha256(identity.encode()).hexdigest()[:32]
        self.folder.mkdir(parents=True, exist_ok=True)
        answer, checkpoint = self.folder / f"{stem}.json", self.folder / f"{stem}.checkpoint"
        known = read_answer(answer, identity)
        if known is None:
            known = self._train(arch, settings, identity, checkpoint, hurdles, watched)
            if known.flag.startswith(GIVEN_UP):
                return known
            write_answer(answer, identity, known)
        checkpoint.unlink(missing_ok=True)
        return hurdles.applied(known)

    @property
    def machine(self) -> PlainMachine:
        """Where networks are trained."""
        return PlainMachine(find_device(self.device))

    def build(self, arch: Architecture) -> nn.Module:
        """The network of an architecture, as every training of it begins."""
        return laid_out(home_of(self.space, arch).build(arch, self.network, seed=self.seed))

    def _train(
        self,
        arch: Architecture,
        settings: TrainingSettings,
        identity: str,
        checkpoint: Path | None,
        hurdles: Hurdles,
        watched: bool,
    ) -> Observation:
        self.deadline.keep()
        curve: list[float] = []
        seen = fit(
            self.build(arch),
            self.examples,
            settings,
            seed=self.seed,
            checkpoint=checkpoint,
            identity=identity,
            machine=self.machine,
            on_progress=self._hear,
            enough=hurdles.watch(curve) if watched else None,
            on_note=self.on_note,
        )
        if not watched:
            return seen
        return hurdles.applied(replace(seen, curve=tuple(curve), flag=seen.flag * (seen.value is None)))

    def _hear(self, progress: TrainingProgress) -> None:
        self.deadline.keep()
        if self.on_progress is not None:
            self.on_progress(progress)

    def _identity(self, arch: Architecture, settings: TrainingSettings, watched: bool) -> str:
        """All that decides the weights, as JSON."""
        home, graph = home_of(self.space, arch), ""
        if isinstance(home, GraphSpace):
            graph = hashlib.sha256(repr(home.network(arch, self.network)).encode()).hexdigest()[:16]
        return json.dumps(
            {
                "format": FORMAT,
                "watched": watched,
                "space": arch.space,
                "choices": arch.choices,
                "graph": graph,
                "network": asdict(self.network),
                "settings": asdict(settings),
                "seed": self.seed,
                "data": self.examples.fingerprint,
                "torch": version("torch"),
                **apart(self.device),
            }
        )


GIVEN_UP = "given up after epoch"


@dataclass(frozen=True)
class Hurdles:
    """Validation accuracies that a training must reach after certain epochs."""

    least: dict[int, float]
    epochs: int  # of the whole training

    def missed(self, curve: Sequence[float]) -> int:
        """The epoch whose hurdle a training does not clear, 0 if there is none; after the last it is too late."""
        early = enumerate(curve[: self.epochs - 1], start=1)
        return next((epoch for epoch, value in early if value < self.least.get(epoch, value)), 0)

    def flag(self, curve: Sequence[float]) -> str:
        """The same in words."""
        if not (epoch := self.missed(curve)):
            return ""
        reached, least = curve[epoch - 1], self.least[epoch]
        return f"{GIVEN_UP} {epoch} of {self.epochs}, with {reached:.2f} % where {least:.2f} % were reached before"

    def watch(self, curve: list[float]) -> Enough:
        """What looks at the epochs so far, keeps their accuracies and ends a training that misses a hurdle."""

        def look(history: Sequence[TrainedEpoch]) -> str:
            curve[:] = [epoch.validation for epoch in history if epoch.validation is not None]
            return self.flag(curve)

        return look

    def applied(self, seen: Observation) -> Observation:
        """The same answer whether the training was stopped at the hurdle or went on to its end."""
        curve = seen.curve or ()
        if not (epoch := self.missed(curve)):
            return seen
        return replace(seen, value=None, flag=self.flag(curve), curve=curve[:epoch])


# --- answers on disk ----------------------------------------------------------------------------------------------


def write_answer(path: Path, identity: str, seen: Observation) -> None:
    """A finished training as a small JSON document."""
    answer = {"accuracy": seen.value, "seconds": seen.seconds, "flag": seen.flag, "curve": seen.curve}
    document = {"initio": "training", **answer, "training": json.loads(identity)}
    write_text(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def read_answer(path: Path, identity: str) -> Observation | None:
    """The answer, None if there is none, or none that can be trusted."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["training"] != json.loads(identity):
            return None
        curve = document["curve"]
        if curve is not None:
            curve = tuple(float(value) for value in curve)
        seen = Observation(document["accuracy"], float(document["seconds"]), str(document["flag"]), curve)
        return seen if seen.value is None or 0 <= seen.value <= 100 else None
    except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        return None
