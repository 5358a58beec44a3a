"""scikit-learn's digits."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from initio.data import digits, load
from tests.data.formats import stored


def test_digits_are_those_of_scikit_learn_in_two_disjoint_parts() -> None:
    from sklearn.datasets import load_digits

    train, test = load("digits"), load("digits", split="test")
    assert (len(stored(train)), len(stored(test)), train.shape, train.classes) == (1437, 360, (1, 8, 8), 10)
    both = np.concatenate([stored(train), stored(test)])
    assert both.min() == 0
    assert both.max() == 1
    ours = sorted(image.tobytes() for image in both)
    assert ours == sorted((image / 16).astype(np.float32).tobytes() for image in load_digits().images)
    assert set(np.unique(load("digits", split="test").batch(360).y)) == set(range(10))


def test_they_are_read_without_scikit_learn_or_by_it_where_it_keeps_them_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = "import sys, initio; initio.load_data('digits').batch(8, seed=0); assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    for mine, theirs in zip(digits._read(), digits._read.__wrapped__(), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)
