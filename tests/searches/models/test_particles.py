"""SVGD-RD: its moves are the proposition's, δ steers distances, one particle climbs, sets do not see each other."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from initio import InputError
from initio.searches.models.particles import (
    Blocks,
    GaussianMixture,
    bandwidth_of,
    decoded,
    direction,
    relaxed,
    settled,
    spread_of,
    svgd,
)
from studies.svgd import DELTAS, FIGURE_5_2, by_autograd

POSTERIOR = relaxed([np.array([2.0, 0.0, 1.0]), np.array([0.0, 0.5])])


@pytest.mark.parametrize("target", [FIGURE_5_2, POSTERIOR], ids=["figure", "posterior"])
@pytest.mark.parametrize("delta", [-2.0, 0.0, 0.7])
def test_moves_are_those_of_the_proof(target: Blocks, delta: float) -> None:
    x = target.draw(np.random.default_rng(3), (4,))
    h = bandwidth_of(target, 4)
    np.testing.assert_allclose(direction(x, target, delta, h), by_autograd(x, target, delta, h), atol=1e-10, rtol=0)


def test_densities_are_scipys() -> None:
    x = np.random.default_rng(0).normal(size=(5, 2))
    [mixture] = FIGURE_5_2.parts
    parts = [multivariate_normal(mean, np.diag(mixture.variances)).pdf(x) for mean in mixture.means]
    np.testing.assert_allclose(FIGURE_5_2.log_density(x), np.log(np.mean(parts, axis=0)), atol=1e-12)


def test_particles_spread_with_delta_and_gather_below_minus_one() -> None:
    start = np.random.default_rng(0).standard_normal((6, 2))
    apart = [float(spread_of(settled(FIGURE_5_2, start, delta, 300))) for delta in DELTAS]
    assert apart[0] < 1e-3
    assert all(after > before - 1e-6 for before, after in pairwise(apart))
    assert apart[-1] > 1.1 * apart[DELTAS.index(0.0)]


def test_many_particles_have_the_moments_of_the_density() -> None:
    start = 2 + np.random.default_rng(0).standard_normal((60, 2))
    x = settled(FIGURE_5_2, start, steps=400)
    [mixture] = FIGURE_5_2.parts
    np.testing.assert_allclose(x.mean(0), mixture.mean, atol=0.05)
    assert ((x - x.mean(0)) ** 2).sum(1).mean() == pytest.approx(mixture.spread, rel=0.1)


@pytest.mark.parametrize("delta", [-1.5, 1.0])
def test_one_particle_climbs_to_the_top_whatever_delta(delta: float) -> None:
    x = settled(FIGURE_5_2, np.array([[1.5, -2.0]]), delta, 400)
    np.testing.assert_allclose(FIGURE_5_2.score(x), 0, atol=1e-6)


def test_sets_move_as_if_alone() -> None:
    starts = POSTERIOR.draw(np.random.default_rng(1), (3, 4))
    deltas = np.array([-1.0, 0.0, 1.0])
    together = settled(POSTERIOR, starts, deltas, 20)
    alone = np.stack([settled(POSTERIOR, start, delta, 20) for start, delta in zip(starts, deltas, strict=True)])
    np.testing.assert_allclose(together, alone, atol=1e-12)


def test_particles_are_read_as_the_nearest_option() -> None:
    x = POSTERIOR.draw(np.random.default_rng(2), (50,))
    nearest = [
        [int(np.linalg.norm(own - np.eye(len(own)), axis=1).argmin()) for own in POSTERIOR.split(row)] for row in x
    ]
    assert decoded(POSTERIOR, x).tolist() == nearest


def test_a_step_too_large_is_a_sentence() -> None:
    mixture = Blocks((GaussianMixture(np.ones(1), np.zeros((1, 2)), np.full(2, 1e-4)),))
    with pytest.raises(InputError, match="take a smaller δ"), np.errstate(all="ignore"):
        list(svgd(mixture, np.ones((3, 2)), steps=500))
