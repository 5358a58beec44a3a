"""Curves of searches: the best so far against what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from initio.report.figures import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Curves:
    """Accuracies on a grid of costs: for each panel and each line in it a row a run, NaN outside what it cost.

    `best` is the best that a panel's table has, where that is known.
    """

    grid: np.ndarray
    cost: str  # what the grid counts
    panels: Mapping[str, Mapping[str, np.ndarray]]
    best: Mapping[str, float] = field(default_factory=dict)
    changes: str = "best so far"  # whose accuracy it is; where it is not the best, the grid is drawn as it is


def save_curves(curves: Curves, path: Path, title: str) -> None:
    """Draws means over runs with a band of their standard errors (HNAS, Figure 3), and the best of the table."""
    save_figure(_figure(curves), path, title)


def _figure(curves: Curves) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(curves.panels), 4.0), layout="constrained")
    axes = figure.subplots(1, len(curves.panels), squeeze=False)[0]
    for axis, (name, lines) in zip(axes, curves.panels.items(), strict=True):
        for label, rows in lines.items():
            _draw_line(axis, curves.grid, rows, label)
        if name in curves.best:
            _draw_best(axis, curves.best[name])
        axis.set(xscale={"best so far": "log"}.get(curves.changes, "linear"), xlabel=curves.cost)
        axis.set_title(name)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel(f"accuracy of the {curves.changes}, %")
    axes[-1].legend(loc="lower right", fontsize="small")
    return figure


def _draw_best(axis: Axes, best: float) -> None:
    """A line at the best of the table, and on the right how far below it a value is."""
    axis.axhline(best, color="0.4", linestyle="--", linewidth=1, label="best of the table")
    regret = axis.secondary_yaxis("right", functions=(partial(np.subtract, best), partial(np.subtract, best)))
    regret.set_ylabel("regret, %")


def _draw_line(axis: Axes, grid: np.ndarray, rows: np.ndarray, label: str) -> None:
    """Drawn from where every run has finished a training, to where the last one ends."""
    known = ~np.isnan(rows).any(axis=0)
    mean, error = rows[:, known].mean(axis=0), rows[:, known].std(axis=0) / np.sqrt(len(rows))
    axis.plot(grid[known], mean, label=label)
    axis.fill_between(grid[known], mean - error, mean + error, alpha=0.2)
