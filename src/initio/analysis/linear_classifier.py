"""The first thing that a network must beat: a linear classifier."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression

ITERATIONS = 200  # at most
OPERATIONS = 1e9  # multiply-adds a second that are counted on


def linear_logits(
    x: np.ndarray, y: np.ndarray, x_test: np.ndarray, classes: int, *, seconds: float, seed: int = 0
) -> tuple[np.ndarray, int]:
    """Logits of scikit-learn's logistic regression on raw inputs, and the number of samples that it learned from.

    Of more samples than can be expected to be learned in the time, a random part is taken.
    """
    x, x_test = x.reshape(len(x), -1), x_test.reshape(len(x_test), -1)
    most = max(50 * classes, int(seconds * OPERATIONS / (2 * ITERATIONS * x.shape[1] * classes)))
    if most < len(x):
        part = np.random.default_rng(seed).permutation(len(x))[:most]
        x, y = x[part], y[part]
    model = LogisticRegression(max_iter=ITERATIONS)
    with warnings.catch_warnings(action="ignore"):  # a few more iterations would change little
        model.fit(x, y)
        known = model.predict_log_proba(x_test)
    logits = np.full((len(x_test), classes), -1e3)
    logits[:, model.classes_] = np.maximum(known, -1e3)
    return logits, len(x)
