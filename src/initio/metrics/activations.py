"""Metrics of which units are active: NASWOT's kernel of binary codes and TE-NAS's count of linear regions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from initio.autodiff.passes import activation_patterns
from initio.metrics.base import Measurement, Metric, UndefinedValue, Value, needs

CROPS = 1000  # points that `regions` counts patterns on
CROP_SIDE = 3


def naswot(at: Measurement) -> Value:
    """log det of K = Σ_ReLU C Cᵀ + (1−C)(1−C)ᵀ, C the binary codes; units that reach the output only."""
    _ = at.f
    K, notes = at.tape.notes.codes, at.tape.notes
    if notes.kinks and K is None:
        raise UndefinedValue("the rows of some ReLU are not those of the batch, so inputs have no binary codes")
    if K is None:
        raise UndefinedValue("the network has no ReLU, so inputs have no binary codes")
    if at.m == 1:
        return Value(math.log(float(K[0, 0])) if K[0, 0] > 0 else None, "a batch of one only counts the units")
    sign, logdet = np.linalg.slogdet(K.cpu().numpy())
    eigenvalues = np.linalg.eigvalsh(K.cpu().numpy())
    if sign <= 0 or eigenvalues[0] <= len(K) * np.finfo(np.float64).eps * eigenvalues[-1]:
        raise UndefinedValue("two inputs have the same activation pattern, so the determinant is zero")
    note = ""
    if notes.hidden:
        note = f"ReLUs inside of what cannot be seen ({', '.join(sorted(notes.hidden))}) would be left outside"
    return at.with_doubt(float(logdet), note, at.elsewhere)


def regions(at: Measurement) -> Value:
    """The number of distinct activation patterns on 1,000 random 3x3 crops (or, if the network needs them, inputs)."""
    points, what = _points(at)
    try:
        patterns = activation_patterns(at.model, points, at.dtype)
    except (RuntimeError, ValueError):  # a network that needs its inputs whole
        points, what = at.x, "inputs"
        patterns = activation_patterns(at.model, points, at.dtype)
    if patterns is None:
        raise UndefinedValue("the network has no ReLU, so it has no linear regions")
    count = len(np.unique(patterns, axis=0))
    flag = (
        f"every one of the {count} {what} has its own pattern: take a thinner network" if count == len(points) else ""
    )
    return Value(float(count), flag)


def _points(at: Measurement) -> tuple[Tensor, str]:
    if at.x.ndim != 4 or min(at.x.shape[2:]) < CROP_SIDE:
        return at.x, "inputs"
    rng = np.random.default_rng(at.options.seed)
    rows, columns = (rng.integers(0, side - CROP_SIDE + 1, CROPS) for side in at.x.shape[2:])
    images = rng.integers(0, at.m, CROPS)
    crops = [at.x[i, :, r : r + CROP_SIDE, c : c + CROP_SIDE] for i, r, c in zip(images, rows, columns, strict=True)]
    return torch.stack(crops), "crops"


def tenas(kappas: Sequence[float], counts: Sequence[float]) -> list[float]:
    """TE-NAS over a pool: rank of κ (small is good) plus rank of the number of linear regions (large is good).

    0 is the best possible; architectures that tie share their mean rank.

    >>> tenas([10.0, 5.0, float("inf")], [700, 900, 900])
    [3.0, 0.5, 2.5]
    """
    from scipy.stats import rankdata

    ranks = (rankdata(np.asarray(kappas)) - 1) + (rankdata(-np.asarray(counts, dtype=float)) - 1)
    return [float(r) for r in ranks]


ACTIVATIONS = (
    Metric("naswot", "log det Σ_ReLU (C Cᵀ + (1−C)(1−C)ᵀ)", "Mellor et al. 2021",
           True, needs("precision", "codes"), naswot, "How well the pattern of active units tells inputs apart."),
    Metric("regions", "|{patterns(x)}|", "TE-NAS; thesis 3.4", True, needs("forward passes"), regions,
           "TE-NAS's number of linear regions, seen from 1,000 random 3x3 crops; meant for thin networks. "
           "`tenas` adds the ranks of κ and of this over a pool."),
)  # fmt: skip
