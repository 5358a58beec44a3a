"""A classifier's numbers are those of their definitions, computed slowly."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from initio.analysis.classification import BINS, judge, wilson


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_every_number_is_that_of_its_definition(classes: int) -> None:
    rng = np.random.default_rng(classes)
    n = 200
    logits, labels = 3 * rng.normal(size=(n, classes)), rng.integers(classes, size=n)
    seen = judge(logits, labels, tuple("abcdefg"[:classes]), worst=5)
    right, loss, brier, top5 = 0, 0.0, 0.0, 0
    confusion = [[0] * classes for _ in range(classes)]
    bins: dict[int, list[tuple[float, bool]]] = {}
    wrong = []
    for i in range(n):
        powers = [math.exp(value) for value in logits[i]]
        p = [power / sum(powers) for power in powers]
        answer = max(range(classes), key=lambda c: p[c])
        right += answer == labels[i]
        loss -= math.log(p[labels[i]]) / n
        brier += sum((p[c] - (c == labels[i])) ** 2 for c in range(classes)) / n
        top5 += labels[i] in sorted(range(classes), key=lambda c: -p[c])[:5]
        confusion[labels[i]][answer] += 1
        bins.setdefault(math.ceil(p[answer] * BINS), []).append((p[answer], answer == labels[i]))
        if answer != labels[i]:
            wrong.append((-p[answer], i))
    off = sum(abs(sum(c for c, _ in own) - sum(ok for _, ok in own)) for own in bins.values()) / n
    assert (seen.right, seen.accuracy) == (right, pytest.approx(100 * right / n))
    assert seen.loss == pytest.approx(loss)
    assert seen.brier == pytest.approx(brier)
    assert seen.calibration_error == pytest.approx(off)
    assert seen.confusion == tuple(map(tuple, confusion))
    assert [mistake.sample for mistake in seen.mistakes] == [i for _, i in sorted(wrong)[:5]]
    if classes > 5:
        assert seen.top5 == pytest.approx(100 * top5 / n)
    else:
        assert seen.top5 is None
    for c, report in enumerate(seen.classes):
        found, answered = confusion[c][c], sum(row[c] for row in confusion)
        assert report.recall == pytest.approx(100 * found / sum(confusion[c]))
        assert report.precision == pytest.approx(100 * found / answered)
        assert report.f1 == pytest.approx(2 / (1 / report.recall + 1 / report.precision))


@pytest.mark.parametrize(("right", "n"), [(0, 1), (1, 1), (3, 7), (1799, 2000)])
def test_wilson_is_scipys(right: int, n: int) -> None:
    oracle = binomtest(right, n).proportion_ci(method="wilson")
    assert wilson(right, n) == pytest.approx((100 * oracle.low, 100 * oracle.high), abs=1e-9)


def test_what_does_not_exist_is_none() -> None:
    seen = judge(np.array([[1.0, 0.0, 0.0]]), np.array([0]), ("a", "b", "c"))
    assert [(r.recall, r.precision, r.f1, r.confused) for r in seen.classes] == [
        (100.0, 100.0, 100.0, None),
        (None, None, None, None),
        (None, None, None, None),
    ]
    assert seen.mistakes == ()


def test_huge_logits_have_finite_numbers() -> None:
    seen = judge(np.array([[1e30, 0.0], [0.0, 1e30]]), np.array([0, 1]), ("a", "b"))
    assert (seen.loss, seen.brier, seen.calibration_error) == (0.0, 0.0, 0.0)
