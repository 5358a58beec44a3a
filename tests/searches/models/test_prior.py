"""The prior from metrics: ranks only, noise smoothed away, repetition discounted, wrong signs found out."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from initio.searches.models.prior import Basis, Ridge, combine, quantiles, sharp, smoothed, validity

RNG = np.random.default_rng(0)
FEATURES = np.eye(4)[RNG.integers(0, 4, (600, 6))].reshape(600, 24)
TRUTH = FEATURES @ RNG.normal(size=24)
BASIS = Basis(FEATURES)


def metric(noise: float, seed: int) -> np.ndarray:
    return TRUTH + noise * TRUTH.std() * np.random.default_rng(seed).normal(size=len(TRUTH))


def agreement(values: dict[str, np.ndarray], signs: dict[str, int]) -> float:
    return float(spearmanr(combine(values, signs, BASIS).mean, TRUTH).statistic)


def test_only_ranks_count() -> None:
    a, b = metric(0.5, 1), metric(0.5, 2)
    first = combine({"a": a, "b": b}, {"a": 1, "b": 1}, BASIS)
    second = combine({"a": np.exp(3 * a), "b": 1e9 * b - 5}, {"a": 1, "b": 1}, BASIS)
    assert np.allclose(first.mean, second.mean)
    turned = combine({"a": -a, "b": b}, {"a": -1, "b": 1}, BASIS)
    assert np.allclose(first.mean, turned.mean)


def test_smoothing_removes_noise_and_fills_holes() -> None:
    noisy = metric(1.0, 3)
    holes = np.where(RNG.random(len(noisy)) < 0.3, np.nan, noisy)
    column, left = smoothed(np.column_stack([quantiles(noisy, 1), quantiles(holes, 1)]), BASIS)
    assert spearmanr(column[:, 0], TRUTH).statistic > spearmanr(noisy, TRUTH).statistic + 0.1
    assert spearmanr(column[np.isnan(holes), 1], TRUTH[np.isnan(holes)]).statistic > 0.7
    assert (left < 0.2).all()


def test_what_the_decisions_cannot_explain_is_kept() -> None:
    own = RNG.normal(size=len(TRUTH))
    column, _ = smoothed(quantiles(own, 1)[:, None], BASIS)
    assert spearmanr(column[:, 0], own).statistic > 0.9


def test_a_repeated_opinion_counts_once() -> None:
    shared = RNG.normal(size=24)
    wrong = FEATURES @ shared
    values = {f"copy {k}": wrong + 0.01 * RNG.normal(size=len(wrong)) for k in range(8)}
    signs = dict.fromkeys([*values, "good"], 1)
    mean = combine({**values, "good": TRUTH}, signs, BASIS).mean
    assert spearmanr(mean, TRUTH).statistic > 0.5


@pytest.mark.parametrize(
    "bad",
    [
        {"wrong": -metric(0.3, 5)},
        {"constant": np.ones(600)},
        {"random": np.random.default_rng(6).normal(size=600)},
        {"empty": np.full(600, np.nan)},
        {"infinite": np.where(metric(0.3, 5) > TRUTH.mean(), np.inf, -np.inf)},
    ],
    ids=lambda bad: next(iter(bad)),
)
def test_bad_metrics_hardly_change_it(bad: dict[str, np.ndarray]) -> None:
    good = {"a": metric(0.5, 1), "b": metric(0.5, 2), "c": metric(0.5, 3)}
    signs = dict.fromkeys(good, 1)
    assert agreement({**good, **bad}, signs) > agreement(good, signs) - 0.03


def test_a_known_metric_that_contradicts_the_others_is_ignored() -> None:
    values = {"a": metric(0.5, 1), "b": metric(0.5, 2), "c": metric(0.5, 3), "d": -metric(0.5, 4)}
    assert agreement(values, dict.fromkeys(values, 1)) > 0.9


def test_without_known_metrics_the_majority_decides() -> None:
    assert agreement({"x": metric(0.5, 1), "y": metric(0.5, 2), "z": -metric(0.5, 3)}, {}) > 0.9


def test_validity_of_a_single_judge() -> None:
    C = np.array([[1.0, -0.6, 0.0], [-0.6, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert validity(C, np.array([True, False, False])).tolist() == [1.0, -0.6, 0.0]


def test_nothing_known_is_flat() -> None:
    prior = combine({"empty": np.full(600, np.nan)}, {}, BASIS)
    assert not prior.mean.any()
    assert prior.columns.shape == (600, 0)


def test_both_ends_are_told_apart_alike() -> None:
    good = {"a": metric(0.3, 1), "b": metric(0.3, 2), "c": metric(0.3, 3)}
    signs = dict.fromkeys(good, 1)
    turned = combine({name: -values for name, values in good.items()}, signs, BASIS)
    assert np.allclose(turned.mean, -combine(good, signs, BASIS).mean)


def test_a_ranking_takes_the_place_of_the_combination() -> None:
    prior = combine({"a": -TRUTH}, {"a": 1}, BASIS, ranking=metric(0.2, 8))
    assert spearmanr(prior.mean, TRUTH).statistic > 0.9


def test_others_have_what_the_decisions_predict() -> None:
    half = np.arange(600) < 300
    values = {"a": metric(0.3, 1), "b": metric(0.3, 2)}
    prior = combine({name: v[half] for name, v in values.items()}, {"a": 1, "b": 1}, Basis(FEATURES[half]))
    grown = prior.grown(FEATURES[~half])
    assert np.array_equal(grown.mean[:300], prior.mean)
    assert spearmanr(grown.mean[300:], TRUTH[~half]).statistic > 0.85
    assert grown.columns.shape == (600, 2)


def test_columns_are_fitted_together_as_alone() -> None:
    ridge = Ridge(BASIS.B, np.arange(200))
    columns = np.column_stack([metric(0.1, 1), metric(3.0, 2), RNG.normal(size=600)])[:200]
    together = ridge.fit(columns)
    for j in range(3):
        alone = ridge.fit(columns[:, j : j + 1])
        assert all(np.allclose(one[..., j], other[..., 0]) for one, other in zip(together, alone, strict=True))


def test_the_sharp_form_is_about_the_top() -> None:
    column = sharp(TRUTH, 1)
    assert column is not None
    order = np.argsort(TRUTH)
    assert column[order[-1]] - column[order[-30]] > 10 * (column[order[29]] - column[order[0]])
    assert spearmanr(combine({"a": TRUTH}, {"a": 1}, BASIS, form=sharp).mean, TRUTH).statistic > 0.9
