"""`initio study variants ARCH`, `convergence ARCH`, `landscape ARCH`, `sharing RUN` and `estimates ENSEMBLE ...`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from initio.cli.progress import TrainReporter, on_interrupt
from initio.cli.units import number, print_json, tell_record
from initio.errors import InputError
from initio.report.terminal import brief, columns

if TYPE_CHECKING:
    from initio.report.sharing import SharingResult
    from initio.runs.convergence import ConvergenceResult


@dataclass(frozen=True)
class StudyVariants:
    """Draws variants of a cell: other connections, other operations, or the widest wiring of the same operations.

    Args:
        architecture: a run folder, a notation, a published cell by name (darts_v2), or a file with one of these.
        kind: what is drawn anew: connections, operations, or adapted, which is the one widest and shallowest cell.
        n: how many, sorted by width and depth.
        seed: of the draws.
        out: also write them side by side: a file that ends in .svg, .pdf or .png.
        operations: write operations on the arrows of that picture, too.
        json: print JSON.
    """

    architecture: str
    kind: Literal["connections", "operations", "adapted"] = "connections"
    n: int = 5
    seed: int = 0
    out: str | None = None
    operations: bool = False
    json: bool = False

    def run(self) -> None:
        """Prints name, width, depth and notation of each."""
        from initio.analysis.topology import shape
        from initio.analysis.variants import Variant, adapted, pictured, variants
        from initio.report import save_picture
        from initio.runs.folders.named import find_named

        named = find_named(self.architecture)
        arch, space = named.architecture, named.space
        if not space.wired:
            raise InputError(f"{space.name} says nothing of how its networks are connected, so nothing can be rewired")
        if self.kind == "adapted":
            pairs = {"C0": arch, "adapted": adapted(space, arch)}
            found = tuple(Variant(name, one, shape(space.cells(one)[0])) for name, one in pairs.items())
        else:
            found = variants(space, arch, self.n, kind=self.kind, seed=self.seed)
        if self.out:
            save_picture([pictured(space, one, operations=self.operations) for one in found], Path(self.out))
        if self.json:
            rows = [
                {"name": one.name, "width": one.shape.width, "depth": one.shape.depth,
                 "notation": space.format(one.architecture)}
                for one in found
            ]  # fmt: skip
            print_json(rows)
            return
        print(columns({str(one): space.format(one.architecture) for one in found}))


@dataclass(frozen=True)
class StudyConvergence:
    """Trains a cell and its random variants alike, and compares how fast they learn.

    By the recipe `plain`, without regularisation. The same call with the same --out goes on where it was interrupted.

    Args:
        architecture: a run folder, a notation, a published cell by name (darts_v2), or a file with one of these.
        data: digits, a file or a folder: what they learn, and on whose test part curves are measured.
        variants: how many random ones.
        kind: what is random in them: connections or operations.
        only: train these alone, with commas between them, as C0,C1,adapted; by default all.
        lr: learning rates, separated by commas; everybody is trained with each.
        accuracy: percent for which the epochs are counted.
        out: folder of curves and pictures; by default a new one below `runs`.
        json: print the curves as JSON.
    """

    architecture: str
    data: str
    variants: int = 5
    kind: Literal["connections", "operations"] = "connections"
    widest: bool = False
    only: str = ""
    lr: str = "0.025"
    epochs: int = 10
    samples: int | None = None
    channels: int | None = None
    cells: int | None = None
    accuracy: float = 50.0
    seed: int = 0
    workers: int = 1
    cluster: str | None = None
    device: str = "cpu"
    out: str | None = None
    json: bool = False

    VERB: ClassVar[tuple[str, ...]] = ("initio.runs.convergence:convergence",)

    def run(self) -> None:
        """Trains with progress on stderr, then prints a line a training."""
        from initio.runs.convergence import convergence

        try:
            rates = tuple(float(text) for text in self.lr.split(","))
        except ValueError:
            raise InputError(f"--lr takes numbers with commas between them, as 0.0025,0.025, not {self.lr!r}") from None
        folder = _folder(self.out, "convergence", self.architecture, self.seed)
        same = ("kind", "widest", "epochs", "samples", "channels", "cells", "seed", "workers", "cluster", "device")
        asked: dict[str, Any] = {name: getattr(self, name) for name in same}
        asked["only"] = tuple(filter(None, self.only.split(",")))
        with _resumable(folder), TrainReporter() as told:
            found = convergence(
                self.architecture, self.data, n=self.variants, rates=rates, **asked, folder=folder, on_done=told.show
            )
        page = convergence_page(found, self.accuracy)
        tell_record(f"{page}\n\ncurves and pictures in {folder}", found, json=self.json)


def convergence_page(found: ConvergenceResult, accuracy: float) -> str:
    """A line a training: width and depth, the area below the curve, epochs to an accuracy, the end."""
    reached = f"epochs to {accuracy:g} %"
    lines = [f"{'lr':>7}  {'cell':<8} {'width, depth':>12}  {'area':>6}  {reached:>14}  {'loss':>7}  accuracy"]
    for one in found.curves:
        its = f"{one.width:.3g}c, {one.depth}"
        area = number(one.area, 2)
        last = one.flag or f"{one.losses[-1]:7.4f}  {one.accuracies[-1]:6.2f} %"
        epochs = one.epochs_to(accuracy) or "never"
        lines.append(f"{one.lr:>7g}  {one.name:<8} {its:>12}  {area:>6}  {epochs:>14}  {last}")
    return "\n".join(lines)


@dataclass(frozen=True)
class StudyLandscape:
    """Measures loss and gradient variance around a trained network, and the curvature at its centre.

    The same call with the same --out goes on where it was interrupted, to the same numbers.

    Args:
        architecture: the folder of a trained network; or an architecture as elsewhere, which is trained first.
        data: digits, a file or a folder: what it learns, and on whose test part the landscape is measured.
        channels: width of a network that is trained; by default thin.
        cells: its number of cells.
        probes: random vectors for its trace.
        out: folder of pictures and numbers; by default a new one below `runs`.
        json: print the numbers as JSON.
    """

    architecture: str
    data: str | None = None
    grid: int = 15
    span: float = 1.0
    samples: int = 256
    to: str | None = None
    epochs: int = 10
    channels: int | None = None
    cells: int | None = None
    steps: int = 20
    probes: int = 10
    seed: int = 0
    workers: int = 1
    cluster: str | None = None
    device: str = "cpu"
    out: str | None = None
    json: bool = False

    VERB: ClassVar[tuple[str, ...]] = ("initio.runs.landscape:landscape",)

    def run(self) -> None:
        """Measures with progress on stderr, then prints the numbers and where the pictures are."""
        from initio.runs.landscape import landscape

        folder = _folder(self.out, "landscape", self.architecture, self.seed)
        own = ("architecture", "data", "out", "json")
        asked: dict[str, Any] = {name: value for name, value in vars(self).items() if name not in own}
        with _resumable(folder), TrainReporter() as told:
            found = landscape(
                self.architecture, self.data, **asked, folder=folder, on_done=told.show, on_event=told.hear
            )
        tell_record(f"{found}\n\npictures and numbers in {folder}", found, json=self.json)


def _folder(out: str | None, study: str, architecture: str, seed: int) -> Path:
    """What is asked for, or a new one below `runs`."""
    from initio.runs.folders.base import new_folder
    from initio.runs.folders.model import ModelFolder
    from initio.runs.folders.named import find_named

    if out:
        return Path(out)
    if ModelFolder.is_at(architecture):
        return new_folder(study, Path(architecture).name, seed=seed)
    return new_folder(study, find_named(architecture).architecture.space, seed=seed)


def _resumable(folder: Path) -> AbstractContextManager[None]:
    return on_interrupt(f"the same call with --out {quote(str(folder))} goes on from here")


@dataclass(frozen=True)
class StudySharing:
    """Diagnoses a network that shares weights: do skips take over, is the loss sharp in α, does sharing rank cells?

    Args:
        run_folder: the folder of a finished run of rsps, enas, darts, gdas or their like.
        data: folder with the benchmark of its space; by default that of INITIO_DATA.
        cells: random architectures whose accuracy with shared weights is compared with the table; 0 for none.
        out: folder for sharing.json and pictures; by default the run's own.
        json: print the numbers as JSON.
    """

    run_folder: str
    data: str | None = None
    cells: int = 200
    samples: int = 500
    seed: int = 0
    device: str = "cpu"
    out: str | None = None
    json: bool = False

    VERB: ClassVar[tuple[str, ...]] = ("initio.runs.sharing:sharing",)

    def run(self) -> None:
        """Measures with progress on stderr, then prints the numbers and where the picture is."""
        import torch

        from initio.runs.sharing import sharing

        torch.set_num_threads(1)
        same: dict[str, Any] = {name: getattr(self, name) for name in ("cells", "samples", "seed", "device")}
        with TrainReporter() as told:
            found = sharing(self.run_folder, self.data, **same, folder=self.out, on_done=told.show)
        where = f"pictures and numbers in {self.out or self.run_folder}"
        tell_record(f"{sharing_page(found)}\n\n{where}", found, json=self.json)


def sharing_page(found: SharingResult) -> str:
    """The numbers for a terminal."""
    facts = {"method": found.method, "skips": f"{found.skips[-1]} in the last cell, at most {max(found.skips)}"}
    if found.skip_weights is not None:
        facts["weight of skips"] = f"{found.skip_weights[0]:.3f} after epoch 1, {found.skip_weights[-1]:.3f} in the end"
    if found.entropies is not None:
        facts["entropy"] = f"{found.entropies[0]:.4f} after epoch 1, {found.entropies[-1]:.4f} in the end"
    facts["eigenvalue in α"] = "none: this method has no α, or held nothing out"
    if found.eigenvalue is not None:
        facts["eigenvalue in α"] = f"{found.eigenvalue:.4g} (± {found.residual:.1g})"
    if found.cells:
        facts["sharing ranks"] = f"Spearman {brief(found.spearman)}, Kendall {brief(found.kendall)}"
        facts["sharing ranks"] += f" with the table over {len(found.cells)} cells"
    return columns(facts)


@dataclass(frozen=True)
class StudyEstimates:
    """Compares what shared weights foresee of ensembles with what trained ones come to (Table 5.6 of the thesis).

    All different networks that these ensembles have trained are put together anew, up to 200 ensembles of a size.

    Args:
        ensembles: folders of finished ensembles with one shared network, made with --shared.
        json: print JSON.
    """

    ensembles: tuple[str, ...]
    sizes: tuple[int, ...] = (1, 3, 5)
    seed: int = 0
    device: str = "cpu"
    json: bool = False

    VERB: ClassVar[tuple[str, ...]] = ("initio.runs.estimates:estimates",)

    def run(self) -> None:
        """Prints a line a size."""
        from initio.runs.estimates import estimates

        found = estimates(self.ensembles, self.sizes, seed=self.seed, device=self.device)
        if self.json:
            print_json(found)
            return
        print("size  ensembles  Spearman  Pearson  best 30 % agree")
        for one in found:
            ranks, line = (number(value, 2) for value in (one.spearman, one.pearson))
            print(f"{one.size:>4}  {one.ensembles:>9}  {ranks:>8}  {line:>7}  {one.top:>13.0f} %")


VERBS = {
    "variants": StudyVariants,
    "convergence": StudyConvergence,
    "landscape": StudyLandscape,
    "sharing": StudySharing,
    "estimates": StudyEstimates,
}
