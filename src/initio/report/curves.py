"""Curves of searches: the best so far against what it cost."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from initio.files import whole_file

LETTERS = 11  # of a title in an inch

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Curves:
    """Accuracies on a grid of costs: for each panel and each line in it a row a run, NaN where the run has none yet."""

    grid: np.ndarray
    cost: str  # what the grid counts
    panels: Mapping[str, Mapping[str, np.ndarray]]


def save_curves(curves: Curves, path: Path, title: str) -> None:
    """Draws means over runs with a band of their standard errors (HNAS, Figure 3)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(curves.panels), 4.0), layout="constrained")
    axes = figure.subplots(1, len(curves.panels), squeeze=False)[0]
    for axis, (name, lines) in zip(axes, curves.panels.items(), strict=True):
        for label, rows in lines.items():
            _draw_line(axis, curves.grid, rows, label)
        axis.set(xscale="log", xlabel=curves.cost)
        axis.set_title(name)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("accuracy of the best so far, %")
    axes[-1].legend(loc="lower right", fontsize="small")
    figure.suptitle(textwrap.fill(title, round(LETTERS * figure.get_figwidth())))
    dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # the same curves, the same file
    with whole_file(path) as temporary:
        figure.savefig(temporary, metadata=dated.get(path.suffix))


def _draw_line(axis: Axes, grid: np.ndarray, rows: np.ndarray, label: str) -> None:
    """Drawn from where every run has finished a training."""
    known = ~np.isnan(rows).any(axis=0)
    mean, error = rows[:, known].mean(axis=0), rows[:, known].std(axis=0) / np.sqrt(len(rows))
    axis.plot(grid[known], mean, label=label)
    axis.fill_between(grid[known], mean - error, mean + error, alpha=0.2)
