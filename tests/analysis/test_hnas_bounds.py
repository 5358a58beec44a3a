"""HNAS's bounds: the formulas, and that units do not matter."""

import numpy as np
import pytest

from initio import InputError
from initio.analysis.hnas_bounds import BOUNDS, TradeOff, best_trade_off, bound

RNG = np.random.default_rng(0)
M, KAPPA = RNG.uniform(1, 5, 40), RNG.uniform(2, 90, 40)


def test_formulas() -> None:
    by = TradeOff(nu=0.25, s=-1.0, t=1.0)
    nu = np.quantile(M**2, 0.25)
    F = (M**2 - nu) ** 2
    for kind, first in (("trade_off", 1 / M), ("non_realisable", KAPPA / M)):
        mu = 0.1 * np.median(first) / np.median(F)
        np.testing.assert_allclose(bound(kind, M, KAPPA, by), first + mu * F)  # type: ignore[arg-type]
    np.testing.assert_allclose(bound("realisable", M), 1 / M)
    np.testing.assert_allclose(bound("kappa", M, KAPPA), KAPPA / M)
    half = bound("trade_off", M, None, TradeOff(t=0.5))
    assert np.argmin(half - 1 / M) == np.argmin(np.abs(M**2 - np.median(M**2)))


@pytest.mark.parametrize("kind", BOUNDS)
def test_units_do_not_matter(kind: str) -> None:
    """M in other units gives the same ranking: no scale to be set by hand."""
    plain, scaled = (bound(kind, c * M, KAPPA) for c in (1.0, 1e4))  # type: ignore[arg-type]
    assert np.argsort(plain).tolist() == np.argsort(scaled).tolist()


def test_limits_of_the_trade_off() -> None:
    tiny = bound("non_realisable", M, KAPPA, TradeOff(s=-12))
    np.testing.assert_allclose(tiny, KAPPA / M)
    nearest = bound("non_realisable", M, KAPPA, TradeOff(nu=1.0, s=12))
    assert np.argmin(nearest) == np.argmax(M)


def test_what_does_not_exist() -> None:
    metric = np.array([0.0, 2.0, np.nan, 3.0, -1.0, np.inf, 4.0, 5.0])
    kappa = np.array([5.0, np.inf, 5.0, np.nan, 5.0, 5.0, 5.0, 5.0])
    for kind in ("kappa", "non_realisable"):
        found = bound(kind, metric, kappa)  # type: ignore[arg-type]
        assert np.isnan(found).tolist() == [False, False, True, True, False, False, False, False]
        assert np.isposinf(found).tolist() == [True, True] + [False] * 6
    assert np.isnan(bound("non_realisable", np.full(3, np.nan), np.ones(3))).all()
    assert bound("kappa", np.array([0.0, 1.0]), np.array([np.nan, 2.0])).tolist() == [np.inf, 2.0]
    assert bound("realisable", -M).tolist() == bound("realisable", M).tolist()
    constant = bound("trade_off", np.full(3, 2.0))
    np.testing.assert_allclose(constant, 0.5)


def test_the_grid_finds_the_best() -> None:
    target = bound("non_realisable", M, KAPPA, TradeOff(nu=0.3, s=1.0))

    def quality(values: np.ndarray) -> float:
        return -float(np.abs(values - target).max())

    screen = slice(None, None, 3), lambda values: -float(np.abs(values - target[::3]).max() // 1)
    best = best_trade_off("non_realisable", M, KAPPA, quality)
    assert (best.nu, best.s) == (0.3, 1.0)
    assert best_trade_off("non_realisable", M, KAPPA, quality, screen=screen) == best
    assert best_trade_off("kappa", M, KAPPA, quality) == TradeOff()


def test_wrong_input() -> None:
    with pytest.raises(InputError, match="there is no bound 'kapa'"):
        bound("kapa", M)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs a κ for each M"):
        bound("kappa", M)
    with pytest.raises(InputError, match="nu is a quantile"):
        TradeOff(nu=2)
    with pytest.raises(InputError, match="t must be positive"):
        TradeOff(t=0)
