"""The verb: `initio.convergence`, an architecture and its variants trained alike, with curves on test data."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from initio.analysis.topology import CellShape, shape
from initio.analysis.variants import Variant, VariantKind, adapted, variants
from initio.autodiff.devices import apart, find_device
from initio.autodiff.threads import one_thread
from initio.autodiff.work import device_of_workers
from initio.data import Noise
from initio.data.sources import load_parts, located
from initio.errors import InputError
from initio.records import Architecture, Scalar, decode, later
from initio.runs.folders.base import new_folder
from initio.runs.folders.named import find_named
from initio.runs.folders.run import option_words, typed
from initio.runs.folders.study import StudyFolder
from initio.spaces import NetworkSettings, get_space
from initio.system.leases import leased
from initio.training import TrainedEpoch, checkpoints
from initio.training.checkpoints import UnusableError
from initio.training.examples import HeldExamples, examples_of
from initio.training.fit import fit
from initio.training.machine import PlainMachine
from initio.training.recipes import make_recipe

OnTrained = Callable[[str, int, int], None]


@dataclass(frozen=True)
class ConvergencePlan:
    """What was asked, with every default as it was then."""

    architecture: Architecture
    variants: tuple[Architecture, ...]  # the first is the original, if it is among them
    names: tuple[str, ...]
    data: str
    rates: tuple[float, ...]
    settings: dict[str, Scalar]  # of the recipe, the learning rate aside
    network: NetworkSettings
    fingerprint: str  # of the data
    seed: int
    drawn: int  # random variants
    varied: VariantKind  # what is random in them
    device: str = later("cpu")

    kind: ClassVar[str] = "convergence plan"

    def command(self, notation: str) -> str:
        """The same for the command line, given the architecture as it is written."""
        rates = ",".join(f"{rate:g}" for rate in self.rates)
        random = [name for name in self.names if name not in ("C0", "adapted")]
        asked: dict[str, Scalar] = {"data": self.data, "variants": self.drawn, "kind": self.varied, "lr": rates}
        if "adapted" in self.names:
            asked["widest"] = True
        if len(random) < self.drawn or "C0" not in self.names:
            asked["only"] = ",".join(self.names)
        size = {"channels": self.network.channels, "cells": self.network.cells, "seed": self.seed}
        chosen = {name: self.settings[name] for name in ("epochs", "samples")} | size | apart(self.device)
        asked |= {name: value for name, value in chosen.items() if value is not None}
        return f"initio study convergence {typed(notation)} {option_words(asked)}"


@dataclass(frozen=True)
class ConvergenceCurve:
    """One training: test loss and accuracy after each epoch.

    Args:
        name: of the variant.
        width: of its first cell.
        depth: of its first cell.
        lr: the learning rate it began with.
        losses: on the test part.
        accuracies: in percent.
        train_losses: mean over each epoch as it was learned.
        flag: that it diverged, and when.
    """

    name: str
    width: float
    depth: int
    lr: float
    losses: tuple[float, ...]
    accuracies: tuple[float, ...]
    train_losses: tuple[float, ...]
    flag: str = ""

    @property
    def area(self) -> float | None:
        """The mean accuracy over the epochs: the area below the curve; None for one that diverged."""
        if self.flag or not self.accuracies:
            return None
        return float(np.mean(self.accuracies))

    def epochs_to(self, accuracy: float) -> int | None:
        """The first epoch that reaches it, from 1; None for never."""
        return next((epoch for epoch, seen in enumerate(self.accuracies, start=1) if seen >= accuracy), None)


@dataclass(frozen=True)
class ConvergenceResult:
    """All curves, in the order of variants and learning rates."""

    plan: ConvergencePlan
    curves: tuple[ConvergenceCurve, ...]

    kind: ClassVar[str] = "convergence"


class ConvergenceFolder(StudyFolder[ConvergencePlan, ConvergenceResult]):
    """Its tasks are a variant and a learning rate each."""

    plan_type = ConvergencePlan
    result_type = ConvergenceResult


def convergence(
    what: Architecture | str,
    data: str,
    *,
    n: int = 5,
    kind: VariantKind = "connections",
    widest: bool = False,
    only: tuple[str, ...] = (),
    rates: tuple[float, ...] = (0.025,),
    epochs: int = 10,
    samples: int | None = None,
    channels: int | None = None,
    cells: int | None = None,
    seed: int = 0,
    workers: int = 1,
    cluster: str | None = None,
    device: str = "cpu",
    folder: str | Path | None = None,
    on_done: OnTrained = lambda task, done, total: None,
) -> ConvergenceResult:
    """Trains an architecture and its variants alike, with each learning rate, by the recipe `plain`.

    Args:
        what: an architecture, its text or name, a file or a run folder with one.
        data: what they learn; curves are measured on its test part.
        n: how many random variants.
        kind: what is random in them.
        widest: train the adapted cell too, the widest and shallowest with the same operations.
        only: names of those that are trained, as C0, C1 and adapted; by default all.
        rates: learning rates that are begun with.
        epochs: of each training.
        samples: use about so many samples of the training part.
        channels: width of the networks; by default the space's size for training.
        cells: their number of cells.
        seed: of the variants, the weights and the order of samples.
        workers: trainings at a time.
        cluster: in place of workers here, those of a Dask scheduler at tcp://host:port, or local:8, eight processes.
        device: what computes: cpu, cuda, cuda:1, or auto, a GPU where there is one.
        folder: where everything is kept; the same call with the same folder goes on where it was interrupted.
        on_done: hears how many trainings are done.
    """
    arch = find_named(what).architecture
    space = get_space(arch.space)
    if not rates or any(not 0 < rate < np.inf for rate in rates):
        raise InputError(f"learning rates are positive numbers, as 0.0025,0.025,0.25, not {rates}")
    found = variants(space, arch, n, kind=kind, seed=seed)
    if widest:
        wide = adapted(space, arch)
        found = (*found, Variant("adapted", wide, shape(space.cells(wide)[0])))
    found = _chosen(found, only)
    learned, tested, _ = load_parts(data)
    if isinstance(learned, Noise) or tested is None:
        raise InputError("noise has nothing to learn: train on data with labels, as digits, a file or a folder")
    size = space.sizes.training
    recipe = make_recipe("plain", epochs=epochs, samples=samples, augment="auto", validation=0.0)
    plan = ConvergencePlan(
        architecture=arch,
        variants=tuple(one.architecture for one in found),
        names=tuple(one.name for one in found),
        data=located(data),
        rates=tuple(rates),
        settings={name: value for name, value in asdict(recipe).items() if name != "lr"},
        network=space.resolve(
            NetworkSettings(
                size.channels if channels is None else channels,
                size.cells if cells is None else cells,
                learned.classes,
                learned.shape,
            )
        ),
        fingerprint=examples_of(learned, recipe, seed).fingerprint,
        seed=seed,
        drawn=n,
        varied=kind,
        device=device_of_workers(device, cluster),
    )
    study = ConvergenceFolder(folder or new_folder("convergence", arch.space, seed=seed))
    study.begin(plan, resume=True)
    with leased(study.folder):
        tasks = [(number, rate) for rate in plan.rates for number in range(len(plan.variants))]
        work = partial(trained_curve, study.folder)
        curves = study.answers(
            work, tasks, ConvergenceCurve, workers=workers, cluster=cluster, on_done=partial(on_done, "training")
        )
        result = ConvergenceResult(plan, tuple(curves))
        _draw(study.folder, result)
        study.finish(result)
    return result


def load_convergence(folder: str | Path) -> ConvergenceResult:
    """What a finished study came to."""
    return ConvergenceFolder(folder).result()


def _chosen(found: tuple[Variant, ...], only: tuple[str, ...]) -> tuple[Variant, ...]:
    names = [one.name for one in found]
    unknown = [name for name in only if name not in names]
    if unknown:
        raise InputError(f"there is no variant {unknown[0]!r} among {', '.join(names)}")
    return tuple(one for one in found if not only or one.name in only)


@lru_cache(maxsize=1)
def _setting(folder: Path) -> tuple[ConvergencePlan, HeldExamples]:
    """The plan and the data, read once a process: what is learned, and the test part in the place of validation."""
    plan = ConvergenceFolder(folder).plan()
    learned, tested, _ = load_parts(plan.data)
    assert not isinstance(learned, Noise)
    assert tested is not None
    examples = examples_of(learned, make_recipe("plain", **plan.settings), plan.seed)
    if not isinstance(examples, HeldExamples):
        raise InputError(f"{learned.name} does not fit into memory: take fewer samples to compare convergence on")
    if examples.fingerprint != plan.fingerprint:
        raise InputError(f"{plan.data!r} has changed since the study began: bring the data back, or start anew")
    x, y = map(torch.from_numpy, tested.arrays())
    return plan, replace(examples, x_validation=x, y_validation=y)


def trained_curve(folder: Path, task: tuple[int, float]) -> ConvergenceCurve:
    """Trains one variant with one learning rate on one thread; goes on from its checkpoint."""
    number, rate = task
    plan, examples = _setting(folder)
    arch, name = plan.variants[number], plan.names[number]
    space = get_space(arch.space)
    its = shape(space.cells(arch)[0])
    recipe = make_recipe("plain", lr=rate, **plan.settings)
    checkpoint = folder / f"{name}-{rate:g}.pt"
    identity = json.dumps(
        [arch.choices, asdict(recipe), asdict(plan.network), plan.fingerprint, plan.seed, *apart(plan.device).values()]
    )
    seen = _known(checkpoint, identity)

    def keep(epoch: TrainedEpoch, _: torch.nn.Module) -> None:
        del seen[epoch.epoch - 1 :]
        seen.append(epoch)

    with one_thread():
        network = space.build(arch, plan.network, seed=plan.seed)
        ended = fit(
            network, examples, recipe, seed=plan.seed, checkpoint=checkpoint, identity=identity,
            machine=PlainMachine(find_device(plan.device)), on_epoch=keep,
        )  # fmt: skip
    checkpoint.unlink(missing_ok=True)
    flag = ended.flag * (ended.value is None)
    return ConvergenceCurve(
        name,
        its.width,
        its.depth,
        rate,
        tuple(one.validation_loss for one in seen if one.validation_loss is not None),
        tuple(one.validation for one in seen if one.validation is not None),
        tuple(one.loss for one in seen),
        flag,
    )


def _known(checkpoint: Path, identity: str) -> list[TrainedEpoch]:
    """The epochs that an interrupted training has behind it; `fit` tells of new ones alone."""
    if not checkpoint.is_file():
        return []
    try:
        return [decode(TrainedEpoch, one) for one in checkpoints.load(checkpoint, identity).history]
    except (UnusableError, InputError):  # the training starts over
        return []


def _draw(folder: Path, result: ConvergenceResult) -> None:
    from initio.report.surfaces import save_lines

    for what, label in (("accuracies", "test accuracy, %"), ("losses", "test loss")):
        panels: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
        for one in result.curves:
            values = np.array(getattr(one, what))
            name = f"{one.name} ({CellShape(one.width, one.depth)})"
            panels.setdefault(f"learning rate {one.lr:g}", {})[name] = np.arange(1, len(values) + 1), values
        save_lines(panels, folder / f"{what}.png", ("epoch", label))
