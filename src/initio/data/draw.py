"""Where the data's randomness comes from: one generator for each seed and purpose."""

from __future__ import annotations

import operator

import numpy as np

from initio.errors import InputError

INPUTS, LABELS = 0, 1  # separate streams, so that a larger batch begins with the smaller one of the same seed
SUBSET, SPLIT, ORDER, AUGMENT, LAYERS = 2, 3, 4, 5, 6  # of a training
HELD_OUT = 8  # of a shared network, whose architecture learns from what its weights do not
TEST = 7  # of data that have no test part of their own


def generator(seed: int, *stream: int) -> np.random.Generator:
    """A PCG64 generator that depends on (seed, stream) alone."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(whole(seed, "seed", 0), spawn_key=stream)))


def random_labels(size: int, classes: int, seed: int) -> np.ndarray:
    """Uniform labels in 0..classes-1.

    >>> random_labels(5, classes=10, seed=0).tolist() == random_labels(9, classes=10, seed=0)[:5].tolist()
    True
    """
    return generator(seed, LABELS).integers(classes, size=size, dtype=np.int64)


def whole(value: object, name: str, least: int) -> int:
    """`value` as an int of at least `least`.

    >>> whole(-1, "batch size", 1)
    Traceback (most recent call last):
    initio.errors.InputError: the batch size must be a whole number of at least 1, not -1
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise InputError(f"the {name} must be a whole number of at least {least}, not {value!r}")
    return number
