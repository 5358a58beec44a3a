"""What an ensemble's answers come to, counted by hand."""

import numpy as np
import pytest

from initio.analysis.ensembles import CorruptedErrors, agreement, by_corruption, judge_ensemble


def test_errors_disagreement_and_oracle() -> None:
    labels = np.array([0, 1, 0, 1])
    answers = np.array([[0, 1, 1, 0], [0, 0, 1, 1]])  # each member errs twice, together once
    logits = 2.0 * np.eye(2)[answers]
    logits[0, 1] *= 3  # the first is surer of sample 1, the second of sample 3
    logits[1, 3] *= 3
    seen = judge_ensemble(logits, labels, ("a", "b"))
    assert seen.singles == (50.0, 50.0)
    assert (seen.ate, seen.ppd, seen.oracle, seen.error) == (50.0, 50.0, 25.0, 25.0)
    p = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
    mean = p.mean(0)
    assert seen.whole.loss == pytest.approx(-np.log(mean[np.arange(4), labels]).mean())
    assert seen.whole.brier == pytest.approx(((mean - np.eye(2)[labels]) ** 2).sum(1).mean())


def test_members_that_are_one_do_not_disagree() -> None:
    logits = np.random.default_rng(0).normal(size=(1, 30, 3)).repeat(3, axis=0)
    seen = judge_ensemble(logits, np.arange(30) % 3, ("a", "b", "c"))
    assert seen.ppd == 0
    assert seen.error == pytest.approx(seen.ate) == pytest.approx(seen.oracle)


def test_estimates_and_truth_by_hand() -> None:
    estimated, true = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0], [3, 1, 2, 9, 5, 6, 7, 8, 4, 10]
    seen = agreement(estimated, true)
    assert seen.spearman == pytest.approx(1 - 6 * (4 + 1 + 1 + 25 + 25) / 990)
    assert seen.pearson == pytest.approx(np.corrcoef(estimated, true)[0, 1])
    assert seen.top == 100.0
    assert agreement(estimated[::-1], true).top == pytest.approx(0.0)
    flat = agreement([0.5, 0.5, 0.5], [1, 2, 3])
    assert (flat.spearman, flat.pearson, flat.ensembles) == (None, None, 3)


def test_corruptions_are_averaged_over_severities() -> None:
    errors = [CorruptedErrors("blur", 1, 10.0, 20.0), CorruptedErrors("blur", 2, 30.0, 40.0)]
    assert by_corruption([*errors, CorruptedErrors("noise", 1, 5.0, 6.0)]) == [
        ("blur", 20.0, 30.0),
        ("noise", 5.0, 6.0),
    ]
