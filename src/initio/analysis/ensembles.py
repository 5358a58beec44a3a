"""How good an ensemble's answers are, and what its members add to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import log_softmax, logsumexp
from scipy.stats import pearsonr, spearmanr

from initio.analysis.classification import Judgement, judge

TOP = 0.3  # share of the ensembles that count as the best


@dataclass(frozen=True)
class EnsembleJudgement:
    """What members and their mean come to; errors, disagreement and ECE are in percent.

    Args:
        error: of the mean of the probabilities.
        singles: error of each member.
        ate: their mean [NESBS 5.4.4].
        ppd: share of samples that two members answer differently, mean over pairs (pairwise predictive disagreement).
        oracle: share of samples that no member answers rightly.
        whole: all numbers of the ensemble, ECE, loss and Brier score among them.
    """

    error: float
    singles: tuple[float, ...]
    ate: float
    ppd: float
    oracle: float
    whole: Judgement

    def told(self) -> dict[str, str]:
        """What is worth saying, by its name."""
        seen = self.whole
        return {
            "error": f"{self.error:.2f} % of {seen.samples:,} samples, interval {100 - seen.high:.2f} to "
            f"{100 - seen.low:.2f}",
            "members": ", ".join(f"{error:.2f} %" for error in self.singles) + f"; mean {self.ate:.2f} % (ATE)",
            "disagreement": f"{self.ppd:.2f} % of samples, by pairs (PPD)",
            "oracle": f"{self.oracle:.2f} % that no member answers rightly",
            "loss": f"{seen.loss:.4f}, Brier score {seen.brier:.4f}",
            "calibration": f"off by {100 * seen.calibration_error:.2f} points on average (ECE)",
        }


@dataclass(frozen=True)
class CorruptedErrors:
    """Errors on corrupted images, in percent.

    Args:
        corruption: its name.
        severity: from 1, the weakest.
        error: of the mean of the probabilities.
        ate: mean error of the members.
    """

    corruption: str
    severity: int
    error: float
    ate: float


def by_corruption(errors: Sequence[CorruptedErrors]) -> list[tuple[str, float, float]]:
    """Each corruption with its error and ATE, means over severities."""
    names = dict.fromkeys(each.corruption for each in errors)
    groups = {name: [each for each in errors if each.corruption == name] for name in names}
    return [
        (name, float(np.mean([each.error for each in own])), float(np.mean([each.ate for each in own])))
        for name, own in groups.items()
    ]


@dataclass(frozen=True)
class EstimateAgreement:
    """How well estimated performances of ensembles agree with true ones [NESBS Table 5.6].

    Args:
        size: of the ensembles.
        ensembles: that were compared.
        spearman: rank correlation; None where one side has no variance.
        pearson: linear correlation; the same.
        top: share of the best 30 % by estimate that are among the best 30 % in truth, in percent.
    """

    size: int
    ensembles: int
    spearman: float | None
    pearson: float | None
    top: float


def agreement(estimated: Sequence[float], true: Sequence[float], *, size: int = 1) -> EstimateAgreement:
    """Compares losses or errors of the same ensembles, less is better on both sides."""
    a, b = np.asarray(estimated), np.asarray(true)
    best = max(1, round(TOP * len(a)))
    both = set(np.argsort(a, kind="stable")[:best]) & set(np.argsort(b, kind="stable")[:best])
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return EstimateAgreement(size, len(a), None, None, 100 * len(both) / best)
    return EstimateAgreement(
        size, len(a), float(spearmanr(a, b).statistic), float(pearsonr(a, b).statistic), 100 * len(both) / best
    )


def judge_ensemble(logits: np.ndarray, labels: np.ndarray, names: tuple[str, ...]) -> EnsembleJudgement:
    """Everything at once.

    Args:
        logits: of each member, finite; (n, m, classes).
        labels: whole numbers below the number of classes.
        names: of the classes.
    """
    logs = log_softmax(logits, axis=2)
    whole = judge(logsumexp(logs, axis=0) - np.log(len(logs)), labels, names)
    answers = logits.argmax(2)
    wrong = answers != labels
    pairs = [float((a != b).mean()) for a, b in combinations(answers, 2)]
    singles = tuple(float(100 * share) for share in wrong.mean(1))
    return EnsembleJudgement(
        error=100 - whole.accuracy,
        singles=singles,
        ate=sum(singles) / len(singles),
        ppd=100 * sum(pairs) / max(1, len(pairs)),
        oracle=float(100 * wrong.all(0).mean()),
        whole=whole,
    )
