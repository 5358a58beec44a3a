"""Rank statistics against scipy, scikit-learn and brute force, ties and infinities included."""

import itertools
import math
import warnings

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from initio import InputError
from initio.analysis.correlation import agreement, correlations, kendall, ndcg, ranks, spearman, top_k_regret

values = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6), st.sampled_from([math.inf, -math.inf]))
pairs = st.lists(st.tuples(values, values), min_size=2, max_size=12)
finite_pairs = st.lists(st.tuples(values, st.integers(-3, 3).map(float)), min_size=2, max_size=7)


def split(items: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    a, b = zip(*items, strict=True)
    return np.array(a), np.array(b)


@given(pairs)
def test_ranks_and_spearman_agree_with_scipy(items: list[tuple[float, float]]) -> None:
    a, b = split(items)
    assert ranks(a).tolist() == scipy.stats.rankdata(a).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy warns of constant input
        expected = scipy.stats.spearmanr(scipy.stats.rankdata(a), scipy.stats.rankdata(b)).statistic
    found = spearman(a, b)
    assert (found is None and math.isnan(expected)) or found == pytest.approx(expected, abs=1e-12)


@given(pairs)
def test_kendall_agrees_with_counting_pairs(items: list[tuple[float, float]]) -> None:
    a, b = split(items)
    agree = tied_a = tied_b = 0
    for i, j in itertools.combinations(range(len(a)), 2):
        x, y = (int(v[i] > v[j]) - int(v[i] < v[j]) for v in (a, b))
        agree, tied_a, tied_b = agree + x * y, tied_a + (x == 0), tied_b + (y == 0)
    n = math.comb(len(a), 2)
    found = kendall(a, b)
    if n in (tied_a, tied_b):
        assert found is None
    else:
        assert found == pytest.approx(agree / math.sqrt((n - tied_a) * (n - tied_b)), abs=1e-12)


@given(finite_pairs, st.integers(1, 8))
def test_regret_and_ndcg_are_means_over_the_orders_of_equal_scores(items: list[tuple[float, float]], k: int) -> None:
    score, target = split(items)
    low, high = target.min(), target.max()
    k = min(k, len(score))
    regrets, gains = [], []
    for order in itertools.permutations(range(len(score))):
        if all(score[i] >= score[j] for i, j in itertools.pairwise(order)):
            top = target[list(order[:k])]
            regrets.append(high - top.max())
            gains.append(sum((t - low) / math.log2(r + 2) for r, t in enumerate(top)))
    ideal = sum((t - low) / math.log2(r + 2) for r, t in enumerate(sorted(target, reverse=True)[:k]))
    assert top_k_regret(score, target, k) == pytest.approx(np.mean(regrets), abs=1e-9)
    found = ndcg(score, target, k)
    assert found is None if low == high else found == pytest.approx(np.mean(gains) / ideal, abs=1e-9)


def test_ndcg_agrees_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    score, target = rng.integers(0, 30, 200).astype(float), rng.normal(size=200)
    for k in (1, 10, 200):
        assert ndcg(score, target, k) == pytest.approx(ndcg_score([target - target.min()], [score], k=k))


def test_large_pools_with_ties_agree_with_scipy() -> None:
    rng = np.random.default_rng(1)
    a = rng.integers(0, 500, 5000).astype(float)
    b = a + rng.normal(scale=200, size=5000)
    assert spearman(a, b) == pytest.approx(scipy.stats.spearmanr(a, b).statistic, abs=1e-12)
    assert kendall(a, b) == pytest.approx(scipy.stats.kendalltau(a, b).statistic, abs=1e-12)


def test_order_and_monotone_maps_do_not_matter() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=50).round(1), rng.normal(size=50).round(1)
    shuffled = rng.permutation(50)
    assert spearman(a[shuffled], b[shuffled]) == pytest.approx(spearman(a, b))
    assert spearman(np.exp(a), b) == pytest.approx(spearman(a, b))
    assert spearman(-a, b) == pytest.approx(-spearman(a, b))  # type: ignore[operator]
    assert top_k_regret(np.exp(a)[shuffled], b[shuffled], 5) == pytest.approx(top_k_regret(a, b, 5))


def test_undefined_values_are_left_out_and_counted() -> None:
    score = np.array([1.0, np.nan, 3.0, 2.0, np.nan, 4.0])
    target = np.array([10.0, 99.0, 30.0, 20.0, np.nan, np.nan])
    found = agreement(score, target, k=1)
    assert (found.used, found.undefined) == (3, 1)
    assert found.spearman == found.kendall == 1.0
    assert found.regret == 0.0


def test_direction_turns_the_choice_but_not_the_correlation() -> None:
    kappa, accuracy = np.array([1.0, 5.0, math.inf]), np.array([94.0, 90.0, 10.0])
    found = agreement(kappa, accuracy, higher_is_better=False, k=1)
    assert found.spearman == -1.0
    assert found.regret == 0.0
    assert found.ndcg == 1.0


def test_nothing_is_invented() -> None:
    one, constant = np.array([1.0]), np.array([2.0, 2.0, 2.0])
    target = np.array([1.0, 2.0, 3.0])
    assert spearman(one, one) is None
    assert kendall(constant, target) is None
    assert agreement(constant, target, k=1).regret == pytest.approx(1.0)  # any of the three may be taken
    empty = agreement(np.array([np.nan]), np.array([1.0]))
    assert (empty.spearman, empty.regret, empty.ndcg, empty.used) == (None, None, None, 0)
    for wrong in ((np.array([np.nan, 1.0]), np.array([1.0, 2.0])), (one, target)):
        with pytest.raises(InputError):
            spearman(*wrong)
    with pytest.raises(InputError, match="k of at least 1"):
        top_k_regret(target, target, 0)


def test_metric_to_metric() -> None:
    scores = {"a": np.array([1.0, 2.0, 3.0, np.nan]), "b": np.array([3.0, 2.0, 1.0, 9.0]), "c": np.ones(4)}
    table = correlations(scores)
    assert table["a", "b"] == table["b", "a"] == -1.0
    assert table["a", "a"] == 1.0
    assert table["a", "c"] is None
