"""Metrics beside what they should rank: a panel each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from initio.report.figures import save_figure

COLUMNS = 4
PANEL = 2.6  # inches


def save_scatter(panels: Mapping[str, np.ndarray], target: np.ndarray, path: Path, *, axis: str, title: str) -> None:
    """Draws every architecture at its rank by a metric and its target; those without a value are left out.

    Args:
        panels: what stands above a panel, and the metric's values in the order of the target.
        target: the numbers to be ranked.
        path: an .svg, .pdf or .png file.
        axis: the target's name.
        title: above all panels.
    """
    from matplotlib.figure import Figure
    from scipy.stats import rankdata

    wide = min(COLUMNS, len(panels))
    rows = -(-len(panels) // wide)
    figure = Figure(figsize=(PANEL * wide, PANEL * rows + 0.6), layout="constrained")
    axes = figure.subplots(rows, wide, squeeze=False, sharey=True)
    for place in axes.flat[len(panels) :]:
        place.set_axis_off()
    for place, (name, values) in zip(axes.flat, panels.items(), strict=False):
        known = ~np.isnan(values) & ~np.isnan(target)
        place.plot(rankdata(values[known]), target[known], ".", markersize=2, alpha=0.4, rasterized=True)
        place.set_title(name, fontsize="small")
        place.grid(alpha=0.3)
    figure.supxlabel("rank by the metric, the smallest value first")
    figure.supylabel(axis)
    save_figure(figure, path, title)
