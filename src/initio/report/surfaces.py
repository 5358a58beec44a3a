"""Surfaces around a point in weight space, side by side, and curves in panels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from initio.report.figures import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Look = Literal["contour", "heat", "3d"]
LEVELS, SIDE = 14, 3.6  # contour lines of a panel, and its side in inches
COLOURS = "viridis"
KEPT = 95  # percentile beyond which a surface is cut off: corners rise by orders of magnitude


@dataclass(frozen=True)
class Surface:
    """Values on the grid at × at, rows along the first direction; NaN where there is none."""

    at: np.ndarray
    values: np.ndarray


def save_surfaces(surfaces: Mapping[str, Surface], path: Path, look: Look, label: str) -> None:
    """One panel a surface with the same colours and heights in all, so that they can be compared."""
    from matplotlib.figure import Figure

    if not any(np.isfinite(surface.values).any() for surface in surfaces.values()):
        return
    figure = Figure(figsize=(SIDE * len(surfaces) + 0.9, SIDE + 0.5), layout="constrained")
    low, high = _range(surfaces)
    draw: Callable[[Any, Surface, float, float], Any] = {"contour": _contour, "heat": _heat, "3d": _surface}[look]
    axes = []
    for number, (name, surface) in enumerate(surfaces.items(), start=1):
        kind = {"projection": "3d"} if look == "3d" else {}
        axis = figure.add_subplot(1, len(surfaces), number, **kind)
        drawn = draw(axis, surface, low, high)
        axis.set_title(name, fontsize="medium")
        axes.append(axis)
    figure.colorbar(drawn, ax=axes, shrink=0.75, label=label)
    save_figure(figure, path)


def _range(surfaces: Mapping[str, Surface]) -> tuple[float, float]:
    every = np.concatenate([surface.values[np.isfinite(surface.values)] for surface in surfaces.values()])
    low, high = float(every.min()), float(np.percentile(every, KEPT))
    return low, max(high, low + 1e-9 * max(1.0, abs(low)))


def _contour(axis: Axes, surface: Surface, low: float, high: float) -> Any:
    """Lines at equal ratios above the least value, dense where the surface is steep."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    levels = low + (high - low) * np.geomspace(0.01, 1, LEVELS)
    axis.contour(surface.at, surface.at, surface.values.T, levels=levels, cmap=COLOURS, vmin=low, vmax=high)
    axis.plot(0, 0, "k+", markersize=7)
    axis.set(aspect="equal", xlabel="a", ylabel="b")
    return ScalarMappable(Normalize(low, high), COLOURS)


def _heat(axis: Axes, surface: Surface, low: float, high: float) -> Any:
    drawn = axis.pcolormesh(
        surface.at, surface.at, surface.values.T, cmap=COLOURS, vmin=low, vmax=high, shading="nearest"
    )
    axis.set(aspect="equal", xlabel="a", ylabel="b")
    return drawn


def _surface(axis: Any, surface: Surface, low: float, high: float) -> Any:
    a, b = np.meshgrid(surface.at, surface.at, indexing="ij")
    cut = np.clip(surface.values, low, high)
    drawn = axis.plot_surface(a, b, cut, cmap=COLOURS, vmin=low, vmax=high, linewidth=0, antialiased=True)
    axis.set(xlabel="a", ylabel="b", zlim=(low, high))
    return drawn


def save_dots(surface: Surface, dots: Mapping[str, np.ndarray], path: Path) -> None:
    """One panel a set of points (n, 2), as dots on the contours of one surface."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(SIDE * len(dots), SIDE + 0.5), layout="constrained")
    axes = figure.subplots(1, len(dots), squeeze=False, sharex=True, sharey=True)[0]
    for axis, (name, points) in zip(axes, dots.items(), strict=True):
        axis.contour(surface.at, surface.at, surface.values.T, levels=LEVELS, cmap=COLOURS)
        axis.plot(points[:, 0], points[:, 1], "o", color="crimson", markersize=5, alpha=0.8)
        axis.set(aspect="equal")
        axis.set_title(name, fontsize="medium")
    save_figure(figure, path)


def save_shares(rows: Mapping[str, np.ndarray], options: Sequence[Sequence[str]], path: Path) -> None:
    """One row a decision, one square an option, darker the likelier, with its name and its share."""
    from matplotlib.figure import Figure

    widest = max(map(len, options))
    figure = Figure(figsize=(1.5 * widest + 1.5, 0.5 * len(rows) + 1), layout="constrained")
    axis = figure.subplots()
    grid = np.full((len(rows), widest), np.nan)
    for place, (row, names) in enumerate(zip(rows.values(), options, strict=True)):
        grid[place, : len(row)] = row
        for option, (share, name) in enumerate(zip(row, names, strict=True)):
            colour = ("black", "white")[int(share > 0.5)]
            axis.text(option, place, f"{name}\n{share:.2f}", ha="center", va="center", fontsize=7, color=colour)
    axis.imshow(grid, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axis.set(yticks=range(len(rows)), yticklabels=list(rows), xticks=[])
    save_figure(figure, path)


def save_lines(panels: Mapping[str, Mapping[str, tuple[np.ndarray, ...]]], path: Path, labels: tuple[str, str]) -> None:
    """Curves (x, y), or (x, y, error of y), by panel and name, with these labels of x and y."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.4 * len(panels) + 0.8, 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for name, (x, y, *error) in lines.items():
            axis.errorbar(x, y, *error, marker=".", capsize=2, label=name)
        axis.set(xlabel=labels[0], ylabel=labels[1])
        axis.set_title(title, fontsize="medium")
        axis.grid(alpha=0.3)
        if title == list(panels)[-1] or list(lines) != list(panels[list(panels)[-1]]):
            axis.legend(fontsize="small")  # once for panels of the same curves
    save_figure(figure, path)
