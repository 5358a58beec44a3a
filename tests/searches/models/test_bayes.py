"""The optimiser: it finds maxima with few evaluations, does not depend on units, and repeats itself."""

from itertools import product

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

from initio import InputError
from initio.searches.models.bayes import (
    LENGTHS,
    NOISES,
    GaussianProcess,
    Optimiser,
    Point,
    best_fit,
    fit,
    standardise,
)
from studies.hnas_optimisers import RandomPoints


def hill(point: Point) -> float:
    return -((point[0] - 0.7) ** 2) - (point[1] - 0.2) ** 2


def values(optimiser: Optimiser, steps: int, scale: float = 1.0, shift: float = 0.0) -> list[float]:
    """What an optimiser sees of the hill."""
    found = []
    for _ in range(steps):
        point = optimiser.suggest()
        assert len(point) == 2
        assert all(0 <= x <= 1 for x in point)
        found.append(hill(point))
        optimiser.observe(point, scale * found[-1] + shift)
    return found


def test_finds_the_top_of_a_hill_where_chance_does_not() -> None:
    for seed in range(5):
        assert max(values(GaussianProcess(2, seed), 20)) > -0.001
    assert np.mean([max(values(RandomPoints(2, seed), 20)) for seed in range(5)]) < -0.003


def test_noise_does_not_stop_it() -> None:
    rng = np.random.default_rng(0)
    best = []
    for seed in range(5):
        optimiser = GaussianProcess(2, seed)
        for _ in range(25):
            point = optimiser.suggest()
            optimiser.observe(point, hill(point) + 0.05 * rng.standard_normal())
        best.append(max(hill(point) for point in optimiser.points))
    assert np.mean(best) > -0.005


def test_units_of_the_values_do_not_matter() -> None:
    assert values(GaussianProcess(2, 3), 10) == pytest.approx(values(GaussianProcess(2, 3), 10, 2.0**20, 0.0))
    assert values(GaussianProcess(2, 3), 8) == pytest.approx(values(GaussianProcess(2, 3), 8, 4.0, 1.0), abs=1e-6)


def test_given_points_come_first() -> None:
    start = ((0.1, 0.1), (0.9, 0.9))
    for optimiser in (GaussianProcess(2, 0, start), RandomPoints(2, 0, start)):
        first = []
        for _ in range(3):
            first.append(optimiser.suggest())
            optimiser.observe(first[-1], 0.0)
        assert tuple(first[:2]) == start
        assert first[2] not in start


def test_same_seed_same_points() -> None:
    assert values(GaussianProcess(2, 1), 8) == values(GaussianProcess(2, 1), 8)
    assert values(GaussianProcess(2, 1), 8) != values(GaussianProcess(2, 2), 8)


def test_equal_values_and_equal_points_are_no_trouble() -> None:
    optimiser = GaussianProcess(2, 0, ((0.5, 0.5),) * 3)
    for _ in range(6):
        optimiser.observe(optimiser.suggest(), 7.0)
    assert len(set(optimiser.points)) == 4


def test_many_dimensions() -> None:
    optimiser = GaussianProcess(6, 0)
    for _ in range(5):
        point = optimiser.suggest()
        optimiser.observe(point, -sum(point))
    assert len(optimiser.suggest()) == 6


def test_agrees_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.random((12, 2)), standardise(rng.standard_normal(12))
    ours = fit(X, y, np.array([0.2, 0.8]), 0.1)
    theirs = GaussianProcessRegressor(
        ours.variance * Matern([0.2, 0.8], nu=2.5), alpha=0.1 * ours.variance, optimizer=None
    )
    theirs.fit(X, y)
    for found, expected in zip(
        ours.predict(new := rng.random((9, 2))), theirs.predict(new, return_std=True), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-8)
    constant = 12 / 2 * (np.log(2 * np.pi) + 1)
    assert ours.log_likelihood - constant == pytest.approx(theirs.log_marginal_likelihood_value_)


def test_the_best_fit_sees_which_dimension_matters() -> None:
    X = np.random.default_rng(1).random((25, 2))
    model = best_fit(X, standardise(np.sin(9 * X[:, 0])))
    assert model.lengths[0] < model.lengths[1]


def test_the_grid_is_searched_as_if_one_by_one() -> None:
    rng = np.random.default_rng(2)
    X, y = rng.random((9, 2)), standardise(rng.standard_normal(9))
    one_by_one = [fit(X, y, np.array(pair), noise) for pair in product(LENGTHS, LENGTHS) for noise in NOISES]
    assert best_fit(X, y).log_likelihood == pytest.approx(max(each.log_likelihood for each in one_by_one))


def test_wrong_observations_are_refused() -> None:
    with pytest.raises(InputError, match="an observation is 2 numbers and a finite value, not .* nan"):
        GaussianProcess(2).observe((0.5, 0.5), float("nan"))
    with pytest.raises(InputError, match="an observation is 2 numbers"):
        GaussianProcess(2).observe((0.5,), 1.0)
