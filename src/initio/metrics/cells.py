"""AZ-NAS's metrics of a chain of cells: expressivity, progressivity, trainability [Lee and Ham 2024].

`networks.build.cells_of` says what a cell is: those of a space's network with the reductions between them, the blocks
of a ResNet. The features are what enters the first cell and what leaves each, as published.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from initio.autodiff.channels import rows
from initio.autodiff.record import CellUse
from initio.metrics.base import Measurement, Metric, UndefinedValue, Value, needs
from initio.metrics.channels import eigenvalues, entropies

RIDGE = 1e-6  # of the published score


def expressivity(at: Measurement) -> Value:
    """Σ over features of the entropy of their PCA: −Σ_k p_k log p_k, p = λ / Σλ of the channels' covariance."""
    return at.with_doubt(float(_entropies(at).sum()))


def progressivity(at: Measurement) -> Value:
    """The smallest increase of that entropy from one of the features to the next."""
    H = _entropies(at)
    if len(H) < 2:
        raise UndefinedValue("what enters the only cell has no channels to compare")
    return at.with_doubt(float(np.diff(H).min()))


def trainability(at: Measurement) -> Value:
    """Mean over cells of 2 − s − 1/(s + 1e-6), s the spectral norm of ⟨g_in g_outᵀ⟩.

    g_out are random signs at the cell's output, g_in = Jᵀ g_out at its last input, both as vectors of channels, and the
    mean is over batch and positions. Where a cell halves the resolution, the positions that become one are stacked.
    """
    signs: dict[tuple[int, ...], Tensor] = {}
    scores = []
    for cell in _cells(at):
        shape = cell.target.shape
        if shape not in signs:
            signs[shape] = _signs(shape, at.options.seed, at.dtype).to(at.x.device)
        if cell.source is not None and (s := _spectral_norm(at, cell, signs[shape])) is not None:
            scores.append(2 - s - 1 / (s + RIDGE))
    if not scores:
        raise UndefinedValue("no cell's input and output have resolutions that can be compared")
    flag = ""
    if -math.inf in scores:
        flag = "a cell hands on its input as it is"
    return at.with_doubt(sum(scores) / len(scores), flag)


def _spectral_norm(at: Measurement, cell: CellUse, g_out: Tensor) -> float | None:
    """s; infinite where J is the identity, as published, 0 where the output does not depend on the input."""
    assert cell.source is not None
    g_in = at.tape.through(cell, g_out)
    if g_in is None:
        return 0.0
    if g_in.shape == g_out.shape and torch.equal(g_in, g_out):
        return math.inf
    stacked = _stacked(g_in, cell.target.shape[2:])
    if stacked is None:
        return None
    M = (rows(stacked).T @ rows(g_out)).double() / (g_out.numel() // g_out.shape[1])
    if not bool(M.isfinite().all()):
        raise UndefinedValue("the gradient through a cell is not finite")
    return float(torch.linalg.matrix_norm(M, 2))


def _stacked(t: Tensor, sides: tuple[int, ...]) -> Tensor | None:
    """t at this resolution: squares of positions become channels, with zeros where the last one is cut off."""
    if t.shape[2:] == sides:
        return t
    if len(sides) != 2 or t.ndim != 4 or not all(sides):
        return None
    steps = {-(-side // new) for side, new in zip(t.shape[2:], sides, strict=True)}
    if len(steps) != 1 or (step := steps.pop()) < 2:
        return None
    missing = [step * new - side for side, new in zip(t.shape[2:], sides, strict=True)]
    if any(missing):
        t = F.pad(t, (0, missing[1], 0, missing[0]))
    return F.pixel_unshuffle(t, step)


def _signs(shape: tuple[int, ...], seed: int, dtype: torch.dtype) -> Tensor:
    """±1, drawn once for each shape: cells are compared, not added up, so that they may share them."""
    drawn = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int8)
    signs = (2 * drawn - 1).to(dtype)
    if len(shape) == 4:
        return signs.contiguous(memory_format=torch.channels_last)
    return signs


def _entropies(at: Measurement) -> np.ndarray:
    """Of the features, in order."""
    cells = _cells(at)
    found = [cell.entered for cell in cells[:1] if cell.entered is not None]
    found += [cell.features for cell in cells if cell.features is not None]
    if not all(bool(S.isfinite().all()) for S in found):
        raise UndefinedValue("the features of a cell are not finite")
    H = np.array([entropies(eigenvalues(S.cpu().numpy()[None], at.eps))[0] for S in found])
    if np.isinf(H).any():
        raise UndefinedValue("the features of a cell are constant")
    return H


def _cells(at: Measurement) -> list[CellUse]:
    _ = at.f
    if not at.tape.notes.cells:
        raise UndefinedValue("the network has no cells: modules that are made of modules and lead to its output")
    for cell in at.tape.notes.cells:
        if cell.features is None:
            raise UndefinedValue(
                f"a cell's output has the shape {cell.target.shape}: channels are known of (m, C) and (m, C, h, w)"
            )
    return at.tape.notes.cells


CELLS = (
    Metric("expressivity", "Σ_cells −Σ_k p_k log p_k, p = λ / Σλ", "AZ-NAS (Lee and Ham 2024)",
           True, needs("precision", "cells"),
           expressivity, "How many directions the cells' features fill: λ are eigenvalues of their covariance."),
    Metric("progressivity", "min_cells of the entropy's increase", "AZ-NAS (Lee and Ham 2024)",
           True, needs("precision", "cells"),
           progressivity, "Whether every cell opens directions that its input did not have."),
    Metric("trainability", "mean_cells 2 − s − 1/s, s = ‖⟨g_in g_outᵀ⟩‖₂", "AZ-NAS (Lee and Ham 2024)", True,
           needs("cells"), trainability,
           "How near the cells' Jacobians are to keeping a gradient's size; 0 is the best, seen by random signs."),
)  # fmt: skip
