"""The verb: `initio.landscape`, the loss around a trained network, with pictures and numbers in a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from initio.analysis.landscape import (
    Curvature,
    Hessian,
    SurfaceNumbers,
    SurfacePoint,
    Weights,
    barrier,
    curvature,
    filter_direction,
    measure_point,
    moved,
    surface_numbers,
    weights_of,
)
from initio.autodiff.devices import apart, find_device
from initio.autodiff.threads import one_thread
from initio.data import Noise
from initio.data.sources import load_parts
from initio.errors import InputError
from initio.records import Architecture, Scalar, later
from initio.report.terminal import brief, columns
from initio.runs.folders.base import new_folder
from initio.runs.folders.model import ModelFolder, TrainedModel, load_model
from initio.runs.folders.named import find_named
from initio.runs.folders.run import option_words
from initio.runs.folders.study import StudyFolder
from initio.runs.train import train
from initio.system.leases import leased
from initio.training.settings import MachineSettings

LINE = np.linspace(-0.25, 1.25, 31)  # from one solution, 0, to the other, 1
OnDone = Callable[[str, int, int], None]  # hears a task, how much of it is done, and of how much


@dataclass(frozen=True)
class LandscapePlan:
    """What was asked, with every default as it was then."""

    trained: str  # the folder of the network
    weights: str  # their digest
    data: str
    samples: int
    seed: int
    grid: int
    span: float
    other: str | None  # the folder of a second solution
    steps: int
    probes: int
    device: str = later("cpu")

    kind: ClassVar[str] = "landscape plan"

    @property
    def at(self) -> np.ndarray:
        """The grid's places along either direction."""
        return np.linspace(-self.span, self.span, self.grid)

    def command(self) -> str:
        """The same for the command line, around the network that was trained."""
        names = ("data", "grid", "span", "samples", "steps", "probes", "seed")
        asked: dict[str, Scalar] = {name: getattr(self, name) for name in names} | apart(self.device)
        if self.other is not None:
            asked["to"] = self.other
        return f"initio study landscape {quote(self.trained)} {option_words(asked)}"


@dataclass(frozen=True)
class LandscapeResult:
    """What the surface comes to.

    Args:
        notation: the architecture.
        plan: what was asked.
        accuracy: at the trained point, in percent, on the inputs of the landscape.
        numbers: of the surface.
        curvature: of the Hessian, None with a reason in `notes`.
        line: losses from one solution to another, where that was asked for.
        barrier: how far they rise above the straight line.
        notes: what could not be measured, and why.
    """

    notation: str
    plan: LandscapePlan
    accuracy: float | None
    numbers: SurfaceNumbers
    curvature: Curvature | None
    line: tuple[float | None, ...] = ()
    barrier: float | None = None
    notes: tuple[str, ...] = ()

    kind: ClassVar[str] = "landscape"

    @property
    def places(self) -> list[float]:
        """Where the losses of `line` were measured: from one solution, 0, to the other, 1."""
        return [float(place) for place in LINE]

    def told(self) -> dict[str, str]:
        """What is worth saying, by its name."""
        at, plan = self.numbers, self.plan
        told = {"network": self.notation, "measured on": f"{plan.samples} samples of the test part of {plan.data}"}
        told["accuracy"] = f"{brief(self.accuracy)} %"
        told["loss"] = f"{brief(at.center)} at the centre"
        told["sharpness"] = f"{brief(at.sharpness)} more at half the span, {brief(at.worst)} at worst up to there"
        radius = "the whole grid" if at.convex_radius is None else f"radius {at.convex_radius:.3g}"
        told["near-convex region"] = radius
        told["gradient variance"] = f"{brief(at.variance)} at the centre, {brief(at.variance_around)} at half the span"
        if self.curvature is not None:
            bent = self.curvature
            pairs = zip(bent.eigenvalues, bent.residuals, strict=True)
            told["Hessian's largest"] = ", ".join(f"{value:.4g} (± {error:.1g})" for value, error in pairs)
            told["Hessian's trace"] = f"{bent.trace:.4g} ± {bent.trace_error:.2g}"
        if self.line:
            told["line to the other"] = f"rises {brief(self.barrier)} above the two solutions"
        if at.undefined:
            told["undefined"] = f"{at.undefined} points have no finite loss"
        return told | {f"note {number}": text for number, text in enumerate(self.notes, start=1)}

    def __str__(self) -> str:
        return columns(self.told())


class LandscapeFolder(StudyFolder[LandscapePlan, LandscapeResult]):
    """Its tasks are points of the surface and of the line."""

    plan_type = LandscapePlan
    result_type = LandscapeResult


def landscape(
    what: Architecture | str,
    data: str | None = None,
    *,
    grid: int = 15,
    span: float = 1.0,
    samples: int = 256,
    to: str | None = None,
    epochs: int = 10,
    channels: int | None = None,
    cells: int | None = None,
    steps: int = 20,
    probes: int = 10,
    seed: int = 0,
    workers: int = 1,
    cluster: str | None = None,
    device: str = "cpu",
    folder: str | Path | None = None,
    on_done: OnDone = lambda task, done, total: None,
    on_event: Callable[[Any], None] | None = None,
) -> LandscapeResult:
    """Measures loss and gradient variance on a grid around a trained network, and the curvature at its centre.

    Args:
        what: the folder of a trained network; or an architecture, which is trained first, in this folder.
        data: what it learns, and on whose test part the landscape is measured; by default the trained network's own.
        grid: points on a side; an odd number has the trained network in its middle.
        span: how far the grid reaches either way, in units of the filters' own norms.
        samples: inputs that everything is measured on.
        to: a second solution, whose line with the first is measured too: a folder of the same network trained again, or
            the seed of such a training.
        epochs: of the training, if there is one; its network has these channels and cells, by default few.
        steps: of Lanczos' method for the largest eigenvalues of the Hessian, whose trace has `probes` random vectors.
        seed: of the training, the directions, the inputs and the probes.
        workers: processes that measure.
        cluster: in place of workers here, those of a Dask scheduler at tcp://host:port, or local:8, eight processes.
        device: what computes: cpu, cuda, cuda:1, or auto, a GPU where there is one.
        folder: where everything is kept; the same call with the same folder goes on where it was interrupted.
        on_done: hears how far each task is.
        on_event: hears of the training, as in `initio.train`.
    """
    _check(grid, span, samples)
    arch = find_named(what).architecture
    home = Path(folder or new_folder("landscape", arch.space, seed=seed))
    device = str(find_device(device, measured=True))
    again = partial(train, resume=True, tensorboard=False, machine=MachineSettings(device), on_event=on_event)
    if ModelFolder.is_at(what):
        first = load_model(what)
    else:
        size: dict[str, Any] = {"epochs": epochs, "channels": channels, "cells": cells}
        first = _usable(again(arch, data, "quick", seed=seed, folder=home / "training", **size))
    second = _second(to, first, home, again)
    plan = LandscapePlan(
        trained=str(first.folder.absolute()),
        weights=first.outcome.weights["last"],
        data=data or first.plan.data,
        samples=samples,
        seed=seed,
        grid=grid,
        span=span,
        other=str(second.folder.absolute()) if second else None,
        steps=steps,
        probes=probes,
        device=device,
    )
    if second is not None and second.plan.used != first.plan.used:
        raise InputError("the two solutions are of different networks: train the same architecture in the same size")
    study = LandscapeFolder(home / "study")
    study.begin(plan, resume=True)
    with leased(study.folder, on_event):
        return _measure(study, plan, first, (workers, cluster), on_done)


def _check(grid: int, span: float, samples: int) -> None:
    if grid < 3:
        raise InputError(f"a grid has 3 points on a side or more, not {grid}")
    if not 0 < span < float("inf"):
        raise InputError(f"the span must be a positive number, not {span}")
    if samples < 2:
        raise InputError(f"a variance needs 2 samples or more, not {samples}")


def _second(to: str | None, first: TrainedModel, home: Path, again: Callable[..., TrainedModel]) -> TrainedModel | None:
    """Another solution: in the folder that is named, or trained as the first one was, from another seed."""
    if to is None:
        return None
    if ModelFolder.is_at(to):
        return load_model(to)
    if not to.isdecimal():
        raise InputError(f"the second solution must be the folder of a trained network or a seed, not {to!r}")
    plan, folder = first.plan, home / f"training-{to}"
    size = {"channels": plan.network.channels, "cells": plan.network.cells}
    return _usable(again(plan.architecture, plan.data, plan.how, seed=int(to), folder=folder, **size))


def _usable(made: TrainedModel) -> TrainedModel:
    if "last" not in made.outcome.weights or made.outcome.flag.startswith("the training diverged"):
        raise InputError(f"there is no trained network to look around: {made.outcome.flag}")
    return made


# --- what workers do ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Solution:
    """The trained network, two directions, perhaps a second solution, and the inputs."""

    model: Any
    weights: Weights
    directions: tuple[Weights, Weights]
    other: Weights | None
    x: Tensor
    y: Tensor


@lru_cache(maxsize=2)
def _solution(plan: LandscapePlan) -> _Solution:
    """Read from the folder once a process."""
    on, model = find_device(plan.device, measured=True), load_model(plan.trained).build("last")
    weights = weights_of(model)
    first, second = filter_direction(weights, 2 * plan.seed), filter_direction(weights, 2 * plan.seed + 1)
    other: Weights | None = None
    if plan.other is not None:
        other = weights_of(load_model(plan.other).build("last").to(on))
    learned, tested, _ = load_parts(plan.data)
    if tested is None or isinstance(learned, Noise):
        raise InputError("a landscape is measured on data with labels, as digits, a file or a folder")
    batch = tested.batch(min(plan.samples, len(tested)), plan.seed)
    there = partial(_all_to, on)
    x, y = torch.tensor(batch.x).to(on), torch.tensor(batch.y).to(on)
    return _Solution(model.to(on), there(weights), (there(first), there(second)), other, x, y)


def _all_to(device: torch.device, weights: Weights) -> Weights:
    return {name: weight.to(device) for name, weight in weights.items()}


def surface_point(plan: LandscapePlan, at: tuple[float, float]) -> SurfacePoint:
    """s and g at one point of the grid, on one thread."""
    place = _solution(plan)
    with one_thread():
        there = moved(place.model, place.weights, *zip(at, place.directions, strict=True))
        return measure_point(there, place.x, place.y)


def line_point(plan: LandscapePlan, t: float) -> SurfacePoint:
    """The same at (1 − t) w + t w', between two solutions."""
    place = _solution(plan)
    assert place.other is not None
    with one_thread():
        there = moved(place.model, place.weights, (-t, place.weights), (t, place.other))
        return measure_point(there, place.x, place.y)


def center_curvature(plan: LandscapePlan, _: int) -> Curvature:
    """Of the Hessian at the trained network."""
    place = _solution(plan)
    with one_thread():
        return curvature(Hessian(place.model, place.x, place.y), steps=plan.steps, probes=plan.probes, seed=plan.seed)


# --- putting it together --------------------------------------------------------------------------------------------


def _measure(
    study: LandscapeFolder, plan: LandscapePlan, trained: TrainedModel, where: tuple[int, str | None], on_done: OnDone
) -> LandscapeResult:
    workers, cluster = where
    tasks = [(float(a), float(b)) for a in plan.at for b in plan.at]
    points = study.answers(
        partial(surface_point, plan), tasks, SurfacePoint, name="points", workers=workers,
        cluster=cluster, on_done=partial(on_done, "grid"),
    )  # fmt: skip
    between = study.answers(
        partial(line_point, plan), LINE.tolist() * (plan.other is not None), SurfacePoint, name="line",
        workers=workers, cluster=cluster, on_done=partial(on_done, "line"),
    )  # fmt: skip
    notes, bent = list[str](), None
    on_done("curvature", 0, 1)
    try:
        bent = study.answers(partial(center_curvature, plan), [0], Curvature, name="curvature")[0]
    except InputError as reason:
        notes.append(str(reason))
    on_done("curvature", 1, 1)
    loss, variance = (_grid(plan, [getattr(point, name) for point in points]) for name in ("loss", "variance"))
    line = tuple(point.loss for point in between)
    result = LandscapeResult(
        trained.space.format(trained.plan.architecture),
        plan,
        points[len(points) // 2].accuracy,
        surface_numbers(plan.at, loss, variance),
        bent,
        line,
        barrier(LINE, _values(line)) if line else None,
        tuple(notes),
    )
    _draw(study.folder.parent, plan, loss, variance, line)
    study.finish(result)
    return result


def _values(found: Any) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in found], dtype=np.float64)


def _grid(plan: LandscapePlan, found: list[float | None]) -> np.ndarray:
    return _values(found).reshape(plan.grid, plan.grid)


def load_landscape(folder: str | Path) -> LandscapeResult:
    """What a finished landscape came to."""
    return LandscapeFolder(Path(folder) / "study").result()


def surfaces_of(folder: str | Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The grid's places, losses and gradient variances of a finished landscape."""
    study = LandscapeFolder(Path(folder) / "study")
    plan = load_landscape(folder).plan
    tasks = [(float(a), float(b)) for a in plan.at for b in plan.at]
    points = study.answers(partial(surface_point, plan), tasks, SurfacePoint, name="points")
    loss, variance = (_grid(plan, [getattr(point, name) for point in points]) for name in ("loss", "variance"))
    return plan.at, loss, variance


def _draw(
    folder: Path, plan: LandscapePlan, loss: np.ndarray, variance: np.ndarray, line: tuple[float | None, ...]
) -> None:
    from initio.report.surfaces import Surface, save_lines, save_surfaces

    around, deviation = Surface(plan.at, loss), Surface(plan.at, np.sqrt(variance))
    save_surfaces({"loss": around}, folder / "contour.png", "contour", "loss")
    save_surfaces({"gradient deviation √g": deviation}, folder / "variance.png", "heat", "√g")
    save_surfaces({"loss": around}, folder / "surface.png", "3d", "loss")
    save_surfaces({"gradient deviation √g": deviation}, folder / "variance-3d.png", "3d", "√g")
    if line:
        panel = {"between two solutions": {"loss": (LINE, _values(line))}}
        save_lines(panel, folder / "line.png", ("from one, 0, to the other, 1", "loss"))
