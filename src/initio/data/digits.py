"""scikit-learn's digits: 1,797 real images of 8x8 that come with it, nothing to download."""

from __future__ import annotations

import gzip
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from initio.data.arrays import dataset, labelled
from initio.data.dataset import Dataset
from initio.data.draw import INPUTS, generator

TRAIN = 1437  # four fifths; the rest is the test part


@lru_cache(maxsize=1)
def _read() -> tuple[np.ndarray, np.ndarray]:
    """Images and labels, parsed once in a process: that takes longer than many a measurement.

    scikit-learn's file is read, not scikit-learn, whose import takes as long as that of torch.
    """
    found = find_spec("sklearn")
    home = Path(str(found.origin)).parent if found else Path()
    path = home / "datasets" / "data" / "digits.csv.gz"
    if path.is_file():
        with gzip.open(path, "rt") as file:
            rows = np.loadtxt(file, delimiter=",")
        images, labels = rows[:, :-1].reshape(-1, 8, 8), rows[:, -1].astype(int)
    else:  # a release that keeps it elsewhere
        from sklearn.datasets import load_digits

        digits = load_digits()
        images, labels = np.asarray(digits.images), np.asarray(digits.target)
    return (images / 16.0).astype(np.float32)[:, None], labels


def read_digits(split: str) -> Dataset:
    """Values are sixteenths; the parts are the first 1,437 and the last 360 of the order of seed 0."""
    images, labels = _read()
    order = generator(0, INPUTS).permutation(len(images))
    indices = {"train": order[:TRAIN], "test": order[TRAIN:]}
    parts = {which: labelled(images[i], labels[i], "digits") for which, i in indices.items()}
    return dataset("digits", split, parts, tuple("0123456789"))
