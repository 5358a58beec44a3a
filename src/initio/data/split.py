"""Parts of a data set in which every class has its share."""

from __future__ import annotations

import math

import numpy as np


def stratified(labels: np.ndarray, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of all samples in two parts, each in ascending order; the second has about `share` of each class.

    A class of n samples gives ⌊share n + 1/2⌋ of them, but never its last one.

    >>> labels = np.array([0, 0, 0, 0, 1, 1, 2])
    >>> rest, part = stratified(labels, 0.5, np.random.default_rng(0))
    >>> labels[rest].tolist(), labels[part].tolist()
    ([0, 0, 1, 2], [0, 0, 1])
    """
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        chosen[members[: min(math.floor(share * len(members) + 0.5), len(members) - 1)]] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)
