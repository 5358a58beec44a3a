"""The picture of a network that shares weights: skips and entropy by epoch, shared accuracy against the table's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from initio.report.figures import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class SharedCell:
    """An architecture with the shared weights, and with weights of its own."""

    notation: str
    shared: float  # accuracy on held-out samples, in percent
    alone: float  # test accuracy by the table


@dataclass(frozen=True)
class SharingResult:
    """What the shared network of a run came to.

    Args:
        run: its folder.
        method: the search.
        skips: of the current cell, after each epoch.
        skip_weights: the mean weight of the option `skip_connect` after each epoch; None without α.
        entropies: of α after each epoch, as a share of a uniform one's; None where there is none.
        eigenvalue: of the largest size of the Hessian of the held-out loss in α; None without α.
        residual: ‖Hv − λv‖ of its vector.
        cells: random architectures with both accuracies.
        spearman: their rank correlation.
        kendall: the same, by pairs.
    """

    run: str
    method: str
    skips: tuple[int, ...]
    skip_weights: tuple[float, ...] | None
    entropies: tuple[float, ...] | None
    eigenvalue: float | None
    residual: float | None
    cells: tuple[SharedCell, ...]
    spearman: float | None
    kendall: float | None

    kind: ClassVar[str] = "sharing"


def save_sharing(found: SharingResult, path: Path) -> None:
    """Three panels; what a method does not have is said to be missing."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4), layout="constrained")
    skips, entropy, cells = figure.subplots(1, 3)
    epochs = range(1, len(found.skips) + 1)
    skips.step(epochs, found.skips, where="mid", color="C3")
    skips.set(xlabel="epochs", ylabel="skips of the current cell", title="skips", ylim=(-0.2, None))
    if found.skip_weights is not None:
        weight = skips.twinx()
        weight.plot(epochs, found.skip_weights, color="C0")
        weight.set_ylabel("mean weight of skip_connect")
    _by_epoch(entropy, epochs, found.entropies)
    if found.eigenvalue is not None:
        entropy.set_title(f"entropy of α; largest eigenvalue of the Hessian {found.eigenvalue:.3g}")
    cells.scatter([cell.shared for cell in found.cells], [cell.alone for cell in found.cells], s=8)
    cells.set(xlabel="accuracy with shared weights, %", ylabel="test accuracy by the table, %")
    correlation = "no correlation" if found.spearman is None else f"Spearman {found.spearman:.2f}"
    cells.set_title(f"{len(found.cells)} cells, {correlation}")
    save_figure(figure, path, found.method)


def _by_epoch(axis: Axes, epochs: range, entropies: Sequence[float] | None) -> None:
    axis.set(xlabel="epochs", ylabel="share of a uniform one's", title="entropy of α")
    if entropies is None:
        axis.text(0.5, 0.5, "this method has none", ha="center", transform=axis.transAxes)
    else:
        axis.plot(epochs, entropies)
