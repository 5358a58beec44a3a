"""The Gaussian process: against a slow and obvious one, and its averages over settings."""

import numpy as np
import pytest

from initio.searches.models.model_average import (
    BROAD,
    FLAT,
    HYPOTHESES,
    NOTHING,
    REVERSED,
    SHARP,
    Model,
    Points,
    expected_improvement,
    fit,
    gaussianised,
    grid,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2))
NEW = RNG.normal(size=(5, 2))
Y = gaussianised(X[:, 0] + 0.1 * RNG.normal(size=12))


def squares(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    d: np.ndarray = ((a[:, None] - b[None]) ** 2).sum(2)[None]
    return d


def points(x: np.ndarray, start: int = 0) -> Points:
    return views(x[:, 0], x[:, 1:] / 2, np.arange(start, start + len(x)))


def views(m: np.ndarray, z: np.ndarray, classes: np.ndarray) -> Points:
    """The sharp view is the other one, doubled."""
    return Points(np.stack([2 * m, m]), np.stack([2 * z, z]), classes)


@pytest.mark.parametrize("hypothesis", range(len(HYPOTHESES)))
def test_one_model_is_the_textbook(hypothesis: int) -> None:
    model = Model(mixture=0, length=1.0, noise=0.3, hypothesis=hypothesis, trust=0.5)
    doubled = 1 + (HYPOTHESES[hypothesis].view == 0)
    slope = doubled * HYPOTHESES[hypothesis].slope
    mean, sd = fit((model,), points(X), squares(X, X), Y).predict(points(NEW, 100), squares(NEW, X))
    everything = np.vstack([X, NEW])
    z = doubled * everything[:, 1:] / 2
    K = np.exp(-squares(everything, everything)[0]) + FLAT + 0.25 * z @ z.T + 0.3 * np.eye(17)
    r = Y - slope * X[:, 0]
    inverse = np.linalg.inv(K[:12, :12])
    scale = (2 + r @ inverse @ r) / (2 + 12)
    assert np.allclose(mean, slope * NEW[:, 0] + K[12:, :12] @ inverse @ r)
    assert np.allclose(sd**2, scale * np.diag(K[12:, 12:] - K[12:, :12] @ inverse @ K[:12, 12:]))


def test_isomorphic_architectures_share_half_of_the_noise() -> None:
    model = Model(0, 1.0, 0.3, NOTHING, 0.0)
    posterior = fit((model,), points(X), squares(X, X), Y)
    twin = views(X[:1, 0], X[:1, 1:] / 2, np.array([0]))
    stranger = views(X[:1, 0], X[:1, 1:] / 2, np.array([99]))
    near, far = (abs(posterior.predict(p, squares(X[:1], X))[0][0] - Y[0]) for p in (twin, stranger))
    assert near < far


def test_evidence_prefers_what_explains() -> None:
    useless = np.random.default_rng(5).normal(size=(12, 2))
    D = np.concatenate([squares(X, X), squares(useless, useless)])
    posterior = fit(grid(2, 0), views(np.zeros(12), np.zeros((12, 0)), np.arange(12)), D, Y)
    weight = sum(w for model, w in zip(posterior.models, posterior.weights, strict=True) if model.mixture == 0)
    assert weight > 0.8
    assert np.isclose(posterior.weights.sum(), 1)


def test_evidence_tells_metrics_that_help_from_those_that_mislead() -> None:
    m = np.linspace(-1, 1, 24)
    even = m**2  # does not correlate with m
    D, nothing = np.ones((1, 24, 24)) - np.eye(24), np.zeros((24, 1))
    for truth, sharp, expected in ((m, even, BROAD), (-m, even, REVERSED), (even, -even, NOTHING), (m, 4 * m, SHARP)):
        seen = Points(np.stack([sharp, 3 * m * (expected != SHARP)]), np.stack([nothing, nothing]), np.arange(24))
        posterior = fit(grid(1, 1), seen, D, gaussianised(truth))
        assert int(np.argmax(posterior.beliefs)) == expected
        assert np.isclose(posterior.beliefs.sum(), 1)


@pytest.mark.parametrize("hypothesis", range(len(HYPOTHESES)))
def test_under_a_hypothesis_only_its_models_predict(hypothesis: int) -> None:
    models = grid(1, 1)
    own = tuple(model for model in models if model.hypothesis == hypothesis)
    alone = fit(models, points(X), squares(X, X), Y).under(hypothesis)
    assert {model.hypothesis for model in alone.models} == {hypothesis}
    assert np.isclose(alone.weights.sum(), 1)
    assert alone.beliefs.tolist() == np.eye(len(HYPOTHESES))[hypothesis].tolist()
    expected = fit(own, points(X), squares(X, X), Y).predict(points(NEW, 100), squares(NEW, X))
    assert np.allclose(alone.predict(points(NEW, 100), squares(NEW, X)), expected)


def test_expected_improvement_by_sampling() -> None:
    draws = RNG.normal(0.3, 0.5, size=200_000)
    slow = np.maximum(draws - 0.6, 0).mean()
    assert np.isclose(expected_improvement(np.array([0.3]), np.array([0.5]), 0.6)[0], slow, rtol=0.02)


def test_one_observation_is_enough_to_start() -> None:
    one = views(np.zeros(1), np.zeros((1, 0)), np.zeros(1, dtype=int))
    mean, sd = fit(grid(1, 0), one, np.zeros((1, 1, 1)), gaussianised(np.array([70.0]))).predict(
        one, np.ones((1, 1, 1))
    )
    assert np.isfinite(mean).all()
    assert (sd > 0).all()
