"""Curves of searches: the best so far against what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from initio.files import whole_file
from initio.runs.compare import Outcome, mean_curve

POINTS = 400


def save_curves(outcomes: Sequence[Outcome], path: Path, title: str) -> None:
    """One panel a reported column; lines are means over seeds, bands their standard errors (HNAS, Figure 3)."""
    from matplotlib.figure import Figure

    columns = [column for column in outcomes[0].report if all(column in o.report for o in outcomes)]
    by = "seconds" if all(o.published_seconds > 0 for o in outcomes) else "queries"
    costs = [point[1] if by == "seconds" else point[0] for o in outcomes for point in o.curve]
    grid = np.geomspace(max(min(costs), 1e-9), max(costs), POINTS)
    figure = Figure(figsize=(5.2 * len(columns), 4.0), layout="constrained")
    axes = figure.subplots(1, len(columns), squeeze=False)[0]
    for axis, column in zip(axes, columns, strict=True):
        for name in dict.fromkeys(o.search for o in outcomes):
            _line(axis, [o for o in outcomes if o.search == name], column, grid, by, name)
        axis.set(xscale="log", xlabel="seconds of training, as published" if by == "seconds" else "queries")
        axis.set_title(column)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("accuracy of the best so far, %")
    axes[-1].legend(loc="lower right", fontsize="small")
    figure.suptitle(title)
    with whole_file(path) as temporary:
        figure.savefig(temporary, metadata={"Date": None} if path.suffix == ".svg" else None)


def _line(axis: object, runs: Sequence[Outcome], column: str, grid: np.ndarray, by: str, label: str) -> None:
    """Drawn from where every run has finished a training."""
    rows = mean_curve(runs, column, grid, by=by)
    known = ~np.isnan(rows).any(axis=0)
    mean, error = rows[:, known].mean(axis=0), rows[:, known].std(axis=0) / np.sqrt(len(runs))
    axis.plot(grid[known], mean, label=label)  # type: ignore[attr-defined]
    axis.fill_between(grid[known], mean - error, mean + error, alpha=0.2)  # type: ignore[attr-defined]
