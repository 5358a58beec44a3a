"""Pictures of a classifier's answers: the confusion matrix, the calibration, a contact sheet of mistakes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from initio.report.cells import printable
from initio.report.figures import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NAMED = 40  # classes whose names fit beside a matrix
MOST_NUMBERED = 20  # classes whose counts fit into its squares
ACROSS = 5  # pictures in a row of a contact sheet
CAPTION = 22  # letters in a line of it
DPI = 120
BLUE, GREY = "#0b62a8", "#7a838f"


def save_confusion(confusion: np.ndarray, names: Sequence[str], path: Path) -> None:
    """Counts, coloured by the share of their row: rows are labels, columns answers."""
    n = len(names)
    side = min(12.0, 3.0 + 0.45 * n)
    figure, axes = _figure(side, side)
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set(xlabel="answer", ylabel="label")
    if n <= MOST_NAMED:
        shown = [_short(name) for name in names]
        axes.set_xticks(range(n), shown, rotation=90)
        axes.set_yticks(range(n), shown)
    if n <= MOST_NUMBERED:
        for (row, column), count in np.ndenumerate(confusion):
            ink = ("black", "white")[int(shares[row, column] > 0.5)]
            axes.text(column, row, str(count), ha="center", va="center", fontsize="x-small", color=ink)
    save_figure(figure, path, dpi=DPI)


def save_calibration(confidence: np.ndarray, accuracy: np.ndarray, counts: np.ndarray, path: Path) -> None:
    """Accuracy against confidence of bins of samples; the size of a dot is the share of the samples."""
    figure, axes = _figure(4.2, 4.2)
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="dashed", label="calibrated")
    axes.plot(confidence, accuracy, color=BLUE, linewidth=1)
    axes.scatter(confidence, accuracy, s=12 + 400 * counts / counts.sum(), color=BLUE, alpha=0.6, label="seen")
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.02), ylim=(0, 1.02), aspect="equal")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", fontsize="small")
    save_figure(figure, path, dpi=DPI)


def save_sheet(pictures: Sequence[np.ndarray], captions: Sequence[str], path: Path) -> None:
    """Pictures (channels, height, width) in rows, each above its caption; values are shown between their extremes."""
    from matplotlib.figure import Figure

    rows = math.ceil(len(pictures) / ACROSS)
    figure = Figure(figsize=(1.8 * ACROSS, 2.2 * rows), layout="constrained")
    places = figure.subplots(rows, ACROSS, squeeze=False).reshape(-1)
    for axes in places:
        axes.set_axis_off()
    for axes, picture, caption in zip(places, pictures, captions, strict=False):
        axes.imshow(_visible(picture), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title("\n".join(map(_short, caption.split("\n"))), fontsize="x-small", parse_math=False)
    save_figure(figure, path, dpi=DPI)


def _visible(picture: np.ndarray) -> np.ndarray:
    """(height, width) or (height, width, 3), in [0, 1]; other numbers of channels are shown by their mean."""
    values = picture.astype(np.float64)
    if picture.dtype == np.uint8:
        values = values / 255
    elif (reach := np.ptp(values)) > 0:
        values = (values - values.min()) / reach
    else:
        values = np.full_like(values, 0.5)
    if len(values) == 3:
        return np.moveaxis(values, 0, -1)
    means: np.ndarray = values.mean(axis=0)
    return means


def _short(text: str) -> str:
    text = printable(text)
    if len(text) > CAPTION:
        text = text[: CAPTION - 1] + "…"
    return text


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()
