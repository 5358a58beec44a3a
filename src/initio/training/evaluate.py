"""Who answers a search's queries by real training: `Training`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from torch import nn

from initio.data import Data, Noise
from initio.errors import InputError
from initio.files import write_text
from initio.records import Architecture, Observation, Query
from initio.scores.measure import home_of, subject
from initio.spaces import NetworkSettings, Space
from initio.training.examples import Examples, examples_of
from initio.training.fit import OnNote, OnProgress, fit
from initio.training.machine import laid_out
from initio.training.settings import TrainingSettings

FORMAT = 3  # of the files; a change of what a training computes changes it too


@dataclass(frozen=True, eq=False)
class Training:
    """A function from a query to an observation: trains the architecture and measures its validation accuracy.

    The value depends on (space, data, network, settings, seed, query) alone, whatever was trained before. With a
    folder, a training that was interrupted goes on from its last epoch, and one that was finished is never repeated.
    Architectures with the same representative (`Space.canonical`) are one network, hence one training.

    Args:
        space: of the architectures that will be asked for.
        data: what to learn; noise is refused. A seeded share of each class is held out for validation.
        network: the size of the networks, where not that of the space for training; shape and classes are the data's.
        settings: how to train.
        seed: of the split, the weights, the order of samples and augmentation.
        folder: where checkpoints and answers live; None keeps nothing.
        on_progress: hears of each update.
        on_note: hears a sentence when a checkpoint is not usable and when a training diverges.
    """

    space: Space
    data: Data = field(repr=False)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    seed: int = 0
    folder: Path | None = None
    on_progress: OnProgress | None = field(default=None, repr=False)
    on_note: OnNote | None = field(default=None, repr=False)

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
        identity = self._identity(arch, settings)
        stem = hashlib.sha256(identity.encode()).hexdigest()[:16]
        if self.folder is None:
            return self._train(arch, settings, identity, None)
        self.folder.mkdir(parents=True, exist_ok=True)
        answer, checkpoint = self.folder / f"{stem}.json", self.folder / f"{stem}.checkpoint"
        if (known := read_answer(answer, identity)) is None:
            known = self._train(arch, settings, identity, checkpoint)
            write_answer(answer, identity, known)
        checkpoint.unlink(missing_ok=True)
        return known

    def build(self, arch: Architecture) -> nn.Module:
        """The network of an architecture, as every training of it begins."""
        return laid_out(home_of(self.space, arch).build(arch, self.network, seed=self.seed))

    def _train(
        self, arch: Architecture, settings: TrainingSettings, identity: str, checkpoint: Path | None
    ) -> Observation:
        return fit(
            self.build(arch),
            self.examples,
            settings,
            seed=self.seed,
            checkpoint=checkpoint,
            identity=identity,
            on_progress=self.on_progress,
            on_note=self.on_note,
        )

    def _identity(self, arch: Architecture, settings: TrainingSettings) -> str:
        """All that decides the weights, as JSON."""
        return json.dumps(
            {
                "format": FORMAT,
                "space": arch.space,
                "choices": arch.choices,
                "network": asdict(self.network),
                "settings": asdict(settings),
                "seed": self.seed,
                "data": self.examples.fingerprint,
                "torch": version("torch"),
            }
        )


# --- answers on disk ----------------------------------------------------------------------------------------------


def write_answer(path: Path, identity: str, seen: Observation) -> None:
    """A finished training as a small JSON document."""
    answer = {"accuracy": seen.value, "seconds": seen.seconds, "flag": seen.flag}
    document = {"initio": "training", **answer, "training": json.loads(identity)}
    write_text(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def read_answer(path: Path, identity: str) -> Observation | None:
    """The answer, None if there is none, or none that can be trusted."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["training"] != json.loads(identity):
            return None
        seen = Observation(document["accuracy"], float(document["seconds"]), str(document["flag"]))
        return seen if seen.value is None or 0 <= seen.value <= 100 else None
    except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        return None
