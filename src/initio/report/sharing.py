"""The picture of a network that shares weights: skips and entropy by epoch, shared accuracy against the table's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from initio.files import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class SharedPoint(Protocol):
    """A cell with two accuracies."""

    @property
    def shared(self) -> float:
        """With the shared weights."""

    @property
    def alone(self) -> float:
        """With its own."""


class Sharing(Protocol):
    """What is drawn."""

    @property
    def method(self) -> str:
        """The search."""

    @property
    def skips(self) -> Sequence[int]:
        """After each epoch."""

    @property
    def skip_weights(self) -> Sequence[float] | None:
        """After each epoch."""

    @property
    def entropies(self) -> Sequence[float] | None:
        """After each epoch."""

    @property
    def eigenvalue(self) -> float | None:
        """Of the Hessian in α."""

    @property
    def cells(self) -> Sequence[SharedPoint]:
        """With both accuracies."""

    @property
    def spearman(self) -> float | None:
        """Their rank correlation."""


def save_sharing(found: Sharing, path: Path) -> None:
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
    figure.suptitle(found.method)
    with whole_file(path) as temporary:
        figure.savefig(temporary, metadata={".svg": {"Date": None}}.get(path.suffix))


def _by_epoch(axis: Axes, epochs: range, entropies: Sequence[float] | None) -> None:
    axis.set(xlabel="epochs", ylabel="share of a uniform one's", title="entropy of α")
    if entropies is None:
        axis.text(0.5, 0.5, "this method has none", ha="center", transform=axis.transAxes)
    else:
        axis.plot(epochs, entropies)
