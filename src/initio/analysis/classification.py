"""How good a classifier's answers are: accuracy with its interval, confusion, calibration, the worst mistakes.

`judge` takes logits and labels as plain arrays. A number that does not exist (the precision of a class that was never
answered) is None.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax
from scipy.stats import norm

LEVEL = 0.95  # of every interval
BINS = 15  # equal intervals of the confidence, as is usual


@dataclass(frozen=True)
class ClassReport:
    """How one class fares; shares and bounds are in percent."""

    name: str
    samples: int
    recall: float | None  # share of its samples that are found
    low: float | None  # Wilson's bounds of the recall
    high: float | None
    precision: float | None  # share of the answers with this class that are right
    f1: float | None  # harmonic mean of the two
    confused: str | None  # the class that its samples are most often taken for


@dataclass(frozen=True)
class ConfidenceBin:
    """The samples whose answers were about equally sure."""

    samples: int
    confidence: float  # mean probability of the answers
    accuracy: float  # share of them that is right


@dataclass(frozen=True)
class Mistake:
    """A wrong answer, and how sure it was."""

    sample: int  # its number in the data
    label: int
    answer: int
    confidence: float  # probability of the answer
    probability: float  # of the label


@dataclass(frozen=True)
class Judgement:
    """What logits and labels come to; accuracies are in percent."""

    samples: int
    right: int
    accuracy: float
    low: float  # Wilson's bounds of the accuracy
    high: float
    top5: float | None  # share of samples whose label is among the five likeliest; None with five classes or fewer
    loss: float  # mean of −log p(label)
    brier: float  # mean squared distance of the probabilities from the label, 0 to 2
    calibration_error: float
    bins: tuple[ConfidenceBin, ...]  # those that are not empty
    classes: tuple[ClassReport, ...]
    confusion: tuple[tuple[int, ...], ...]  # rows are labels, columns answers
    mistakes: tuple[Mistake, ...]  # the surest first


def judge(logits: np.ndarray, labels: np.ndarray, names: tuple[str, ...], worst: int = 25) -> Judgement:
    """Everything at once.

    Args:
        logits: finite outputs (n, classes).
        labels: whole numbers below the number of classes.
        names: of the classes.
        worst: how many mistakes to keep.

    >>> sure, unsure = [4.0, 0.0], [0.0, 0.1]
    >>> seen = judge(np.array([sure, sure, unsure, unsure]), np.array([0, 0, 1, 0]), ("cat", "dog"))
    >>> seen.accuracy, round(seen.low, 1), seen.confusion, seen.mistakes[0].sample
    (75.0, 30.1, ((2, 1), (0, 1)), 3)
    """
    logs = log_softmax(logits.astype(np.float64), axis=1)
    p, rows = np.exp(logs), np.arange(len(labels))
    answers = p.argmax(axis=1)
    confidence, correct = p[rows, answers], answers == labels
    right, n = int(correct.sum()), len(labels)
    confusion = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(confusion, (labels, answers), 1)
    top5 = None
    if len(names) > 5:
        above = (p > p[rows, labels][:, None]).sum(axis=1)
        top5 = 100 * float((above < 5).mean())
    filled = _bins(confidence, correct)
    low, high = wilson(right, n)
    wrong = np.flatnonzero(~correct)
    kept = wrong[np.lexsort((wrong, -confidence[wrong]))][:worst].tolist()
    return Judgement(
        samples=n,
        right=right,
        accuracy=100 * right / n,
        low=low,
        high=high,
        top5=top5,
        loss=-float(logs[rows, labels].mean()),
        brier=float(np.square(p - np.eye(len(names))[labels]).sum(axis=1).mean()),
        calibration_error=sum(b.samples * abs(b.accuracy - b.confidence) for b in filled) / n,
        bins=filled,
        classes=_classes(confusion, names),
        confusion=tuple(map(tuple, confusion.tolist())),
        mistakes=tuple(
            Mistake(i, int(labels[i]), int(answers[i]), float(confidence[i]), float(p[i, labels[i]])) for i in kept
        ),
    )


def wilson(right: int, n: int) -> tuple[float, float]:
    """Bounds, in percent, of a share of which `right` of n were seen: the p̂ ± of Wilson's score interval.

        (p̂ + z²/2n ± z √(p̂(1 − p̂)/n + z²/4n²)) / (1 + z²/n)

    >>> [round(bound, 2) for bound in wilson(90, 100)]
    [82.56, 94.48]
    >>> wilson(0, 10)[0], wilson(10, 10)[1]
    (0.0, 100.0)
    """
    z, share = float(norm.ppf((1 + LEVEL) / 2)), right / n
    middle = share + z * z / (2 * n)
    reach = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = (100 * side / (1 + z * z / n) for side in (middle - reach, middle + reach))
    if right == 0:
        low = 0.0
    if right == n:
        high = 100.0
    return low, high


def _bins(confidence: np.ndarray, correct: np.ndarray) -> tuple[ConfidenceBin, ...]:
    """The samples by confidence in equal intervals (a, b]; the calibration error is Σ n_b/n |accuracy − confidence|."""
    place = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    return tuple(
        ConfidenceBin(int(own.sum()), float(confidence[own].mean()), float(correct[own].mean()))
        for own in (place == number for number in range(BINS))
        if own.any()
    )


def _classes(confusion: np.ndarray, names: tuple[str, ...]) -> tuple[ClassReport, ...]:
    found, samples, answered = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    reports = []
    for number, name in enumerate(names):
        n, right, given = int(samples[number]), int(found[number]), int(answered[number])
        recall = low = high = precision = f1 = confused = None
        if n:
            recall, (low, high) = 100 * right / n, wilson(right, n)
        if given:
            precision = 100 * right / given
        if n + given:
            f1 = 200 * right / (n + given)
        others = confusion[number].copy()
        others[number] = 0
        if others.any():
            confused = names[int(others.argmax())]
        reports.append(ClassReport(name, n, recall, low, high, precision, f1, confused))
    return tuple(reports)
