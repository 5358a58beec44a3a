"""The card of a trained network: what it is, what it was trained on and how, how good it is, how it is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from initio.analysis.classification import LEVEL, Judgement
from initio.networks.graphs import NetworkSettings
from initio.records import Scalar
from initio.report.cells import printable
from initio.runs.evaluate import load_evaluation
from initio.runs.folders.ensemble import Ensemble
from initio.runs.folders.model import TrainedModel, Which

UNSTATED = "not stated"


@dataclass(frozen=True)
class InputCard:
    """What the network reads."""

    shape: tuple[int, ...]
    type: str  # of stored values: uint8 or float32
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    steps: tuple[str, ...]  # of the preprocessing, in words


@dataclass(frozen=True)
class HeldOutCard:
    """How good the network is on data that nobody learned from; accuracies are in percent."""

    tested: str
    fingerprint: str
    samples: int
    accuracy: float
    low: float
    high: float
    loss: float
    brier: float
    calibration_error: float

    @classmethod
    def of(cls, tested: str, found: Judgement, fingerprint: str = "") -> HeldOutCard:
        """What is told of a judgement."""
        names = ("samples", "accuracy", "low", "high", "loss", "brier", "calibration_error")
        return cls(tested, fingerprint, **{name: getattr(found, name) for name in names})


@dataclass(frozen=True)
class ModelCard:
    """All that someone who gets the network should know."""

    licence: str
    architecture: str  # in its space's notation
    space: str
    network: NetworkSettings
    parameters: int
    inputs: InputCard
    classes: tuple[str, ...]
    data: str
    fingerprint: str  # of what was learned and validated on
    recipe: str
    settings: dict[str, Scalar]
    seed: int
    which: Which
    epoch: int | None  # of these weights
    weights: str  # their SHA-256
    validation: float | None  # accuracy, on the share that chose the epoch
    test: HeldOutCard | None
    versions: dict[str, str]

    kind: ClassVar[str] = "model card"

    def markdown(self, name: str, files: tuple[str, ...]) -> str:
        """The card as a page; `files` are those that it goes with."""
        return "\n".join(self._lines(name, files)) + "\n"

    def _lines(self, name: str, files: tuple[str, ...]) -> Iterator[str]:
        yield from (f"# {name}", "")
        yield f"A classifier of {len(self.classes)} classes with {self.parameters:,} parameters, trained by Initio."
        yield from ("", f"Licence: {_plain(self.licence)}", "", "## How good it is", "")
        if self.test is None:
            yield "It was not evaluated on data that nobody learned from: `initio evaluate` does that."
        else:
            yield _said(self.test)
        if self.validation is not None:
            yield (
                f"On the share that was held out to choose the epoch: {self.validation:.2f} % "
                f"(the {self.which} epoch, {self.epoch})."
            )
        yield from ("", "## What it reads", "", *_reads(self))
        yield from ("", f"It answers with logits, in this order: {', '.join(map(_plain, self.classes))}.", "")
        yield from ("## Files", "", *(f"- `{file}`: {_use(Path(file))}" for file in files), "")
        yield from ("## How it was made", "", "| | |", "|---|---|")
        yield f"| architecture | `{_plain(self.architecture)}` |"
        yield from _made(self)
        yield f"| seed | {self.seed} |"
        yield f"| weights | of the {self.which} epoch, SHA-256 {self.weights} |"


@dataclass(frozen=True)
class EnsembleCard:
    """All that someone who gets an ensemble should know: how good it is together, and the card of each member."""

    licence: str
    method: str
    test: HeldOutCard
    members: tuple[ModelCard, ...]

    kind: ClassVar[str] = "ensemble card"

    def markdown(self, name: str, files: tuple[str, ...]) -> str:
        """The card as a page; `files` are those that it goes with."""
        return "\n".join(self._lines(name, files)) + "\n"

    def _lines(self, name: str, files: tuple[str, ...]) -> Iterator[str]:
        first, test = self.members[0], self.test
        total = sum(member.parameters for member in self.members)
        yield from (f"# {name}", "")
        yield (
            f"An ensemble of {len(self.members)} classifiers of {len(first.classes)} classes with {total:,} parameters "
            f"in all, chosen by {self.method} and trained by Initio."
        )
        yield from ("", f"Licence: {_plain(self.licence)}", "", "## How good it is", "", _said(test))
        yield from ("", "## What it reads", "", *_reads(first))
        yield from ("", "It answers with the log of the mean of its members' probabilities, in this order: ", "")
        yield from (", ".join(map(_plain, first.classes)) + ".", "", "## Files", "")
        yield from (f"- `{file}`: {_use(Path(file))}" for file in files)
        yield from (
            "",
            "## Its members",
            "",
            "| | architecture | parameters | validation % | seed | weights, SHA-256 |",
        )
        yield "|---|---|---|---|---|---|"
        for number, member in enumerate(self.members, start=1):
            seen = "" if member.validation is None else f"{member.validation:.2f}"
            notation = f"`{_plain(member.architecture)}`"
            yield f"| {number} | {notation} | {member.parameters:,} | {seen} | {member.seed} | {member.weights} |"
        yield from ("", "## How they were made", "", "| | |", "|---|---|", *_made(first))


def ensemble_card(found: Ensemble, licence: str) -> EnsembleCard:
    """The card of a finished ensemble."""
    test = HeldOutCard.of(found.outcome.tested, found.outcome.judgement.whole)
    return EnsembleCard(licence, found.plan.method, test, tuple(make_card(m, "best", licence) for m in found.members))


def make_card(trained: TrainedModel, which: Which, licence: str) -> ModelCard:
    """The card of a trained network; what `initio evaluate` wrote is on it if it is of these weights."""
    plan, outcome = trained.plan, trained.outcome
    how = trained.preprocessing
    seen, test = load_evaluation(trained.folder), None
    if seen is not None and seen.weights == trained.digest(which):
        test = HeldOutCard.of(seen.tested, seen.judgement, seen.fingerprint)
    epoch, validation = {"best": (outcome.epoch, outcome.accuracy), "last": (outcome.epochs, outcome.last)}[which]
    return ModelCard(
        licence=licence,
        architecture=trained.space.format(plan.architecture),
        space=plan.architecture.space,
        network=plan.used,
        parameters=outcome.parameters,
        inputs=InputCard(how.shape, str(how.dtype).removeprefix("torch."), how.scale, how.mean, how.std, how.said()),
        classes=plan.names,
        data=Path(plan.data).name,
        fingerprint=plan.fingerprint,
        recipe=plan.recipe,
        settings=plan.settings,
        seed=plan.seed,
        which=which,
        epoch=epoch,
        weights=trained.digest(which),
        validation=validation,
        test=test,
        versions=plan.versions,
    )


def _said(test: HeldOutCard) -> str:
    return (
        f"On {_plain(test.tested)} ({test.samples:,} samples, which neither the search nor the training saw): "
        f"accuracy {test.accuracy:.2f} %, {100 * LEVEL:.0f} % interval {test.low:.2f} to {test.high:.2f}; "
        f"loss {test.loss:.4f}, Brier score {test.brier:.4f}, "
        f"calibration error {100 * test.calibration_error:.2f} points."
    )


def _reads(card: ModelCard) -> Iterator[str]:
    """What the network expects of its inputs."""
    inputs = card.inputs
    yield f"A batch (m, {', '.join(map(str, inputs.shape))}) of {inputs.type}. Preprocessing:"
    yield from ("", *(f"{number}. {step}" for number, step in enumerate(inputs.steps, start=1)), "")
    if inputs.mean:
        yield f"Mean {_numbers(inputs.mean)}; deviation {_numbers(inputs.std)}."


def _made(card: ModelCard) -> Iterator[str]:
    """Rows on what a network was made of, which members of an ensemble have in common."""
    made = {
        "space": card.space,
        "channels, cells": f"{card.network.channels}, {card.network.cells}",
        "data": f"{_plain(card.data)}, fingerprint {card.fingerprint}",
        "recipe": card.recipe,
        "settings": ", ".join(f"{name} {value}" for name, value in card.settings.items()),
        "versions": ", ".join(f"{name} {version}" for name, version in card.versions.items()),
    }
    yield from (f"| {key} | {value} |" for key, value in made.items())


def _plain(text: str) -> str:
    """Names come from files: they must not become markup or new lines."""
    return printable(text).replace("|", "\\|").replace("`", "'").replace("<", "&lt;")


def _numbers(values: tuple[float, ...]) -> str:
    shown = ", ".join(f"{value:.6g}" for value in values[:12])
    return shown + f", ... ({len(values)} in all)" * (len(values) > 12)


def _use(file: Path) -> str:
    itself = "all steps but the resizing are in it, unless it was exported without them (`--no-preprocess`)"
    ways = {
        ".onnx": f"for ONNX runtimes, `input` to `logits`, any batch size; {itself}",
        ".torchscript": f"for `torch.jit.load`; {itself}",
        ".py": "`network = load(); logits = network(preprocess(images))`; needs only torch and the weights beside it",
        ".pt": "the weights of the Python file, read by `torch.load(path, weights_only=True)`",
        ".safetensors": "the weights alone, for `initio.build` or the Python file",
    }
    return ways[file.suffix]
