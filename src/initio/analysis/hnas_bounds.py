"""The generalisation bounds of HNAS (Shu et al. 2022), Corollaries 1 and 2, as scores: smaller is better.

M is any gradient metric and κ the condition number of the kernel, one value for each architecture of a pool:

| bound            | score                     | paper                              |
|------------------|---------------------------|------------------------------------|
| `realisable`     | 1/M                       | Corollary 1                        |
| `trade_off`      | 1/M + μ F(M² − ν)         | Table 6, "realizable + trade-off"  |
| `kappa`          | κ/M                       | Table 6, "realizable + κ"          |
| `non_realisable` | κ/M + μ F(M² − ν)         | Corollary 2, the objective (7)     |

with F(x) = x^{2t}; t = 1 by default, t = 1/2 gives |x| as in the authors' code.

The paper's μ and ν have the units of M, so the authors set a scale by hand for every space and metric. Here ν is a
quantile of the pool's M², and μ = 10^s · median(first term) / median F(M² − ν): for s = 0 both terms weigh the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import nlargest
from typing import Literal

import numpy as np

from initio.errors import InputError

Bound = Literal["realisable", "trade_off", "kappa", "non_realisable"]
BOUNDS: tuple[Bound, ...] = ("realisable", "trade_off", "kappa", "non_realisable")
FITTED: tuple[Bound, ...] = ("trade_off", "non_realisable")  # those with the parameters μ and ν
WITH_KAPPA: tuple[Bound, ...] = ("kappa", "non_realisable")

NU_GRID = tuple(i / 20 for i in range(21))
FINALISTS = 12
SecondTerm = Callable[[float, slice], np.ndarray]  # (s, rows) ↦ μ F(M² − ν)
S_GRID = tuple(i / 2 - 4 for i in range(17))  # -4 to 4


@dataclass(frozen=True)
class TradeOff:
    """The free parameters of Corollary 2, without units.

    Args:
        nu: which quantile of the pool's M² is ν, in [0, 1].
        s: log10 of the weight of the second term beside the first; the paper's BO searches it too.
        t: F(x) = x^{2t}.
    """

    nu: float = 0.5
    s: float = 0.0
    t: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.nu <= 1:
            raise InputError(f"nu is a quantile between 0 and 1, not {self.nu}")
        if self.t <= 0:
            raise InputError(f"t must be positive, not {self.t}")


def bound(kind: Bound, M: np.ndarray, kappa: np.ndarray | None = None, trade_off: TradeOff | None = None) -> np.ndarray:
    """The bound of every architecture, NaN where it does not exist.

    It does not exist where M or κ is NaN. M = 0 (no gradient at all, so no κ) and κ = ∞ (a singular kernel) give ∞, the
    worst value. The corollaries are about norms, so of a metric with a sign, as GraSP has, the size counts.

    >>> bound("kappa", np.array([2.0, 4.0, 0.0]), np.array([10.0, 10.0, 3.0])).tolist()
    [5.0, 2.5, inf]
    """
    if kind not in BOUNDS:
        raise InputError(f"there is no bound {kind!r}: choose one of {', '.join(BOUNDS)}")
    M = np.abs(np.asarray(M, dtype=np.float64))
    first = _first_term(kind, M, kappa)
    if kind not in FITTED:
        return first
    by = trade_off or TradeOff()
    second = _second_term(M, first, by.t)(by.nu)(by.s, slice(None))
    return np.asarray(first + second)


def _first_term(kind: Bound, M: np.ndarray, kappa: np.ndarray | None) -> np.ndarray:
    """1/M or κ/M."""
    numerator = np.ones_like(M)
    if kind in WITH_KAPPA:
        if kappa is None or np.shape(kappa) != M.shape:
            raise InputError(f"the bound {kind!r} needs a κ for each M")
        numerator = np.asarray(kappa, dtype=np.float64)
    defined = ~np.isnan(M) & (~np.isnan(numerator) | (M == 0))  # without any gradient there is no κ either
    worst = (M == 0) | np.isinf(numerator)
    out = np.full_like(M, np.nan)
    out[defined & worst] = np.inf
    usable = defined & ~worst
    with np.errstate(over="ignore"):
        out[usable] = numerator[usable] / M[usable]
    return out


def _second_term(M: np.ndarray, first: np.ndarray, t: float) -> Callable[[float], SecondTerm]:
    """ν ↦ (s, rows) ↦ μ F(M² − ν) with μ and ν from the pool's own values; what is slow is the same for all."""
    usable = np.isfinite(first) & np.isfinite(M)
    if not usable.any():
        return lambda nu: lambda s, rows: np.zeros_like(M)[rows]
    typical = float(np.median(first[usable]))
    scale = 2.0 ** round(np.log2(np.median(M[usable])))  # μ takes up any factor; a power of two rounds nothing
    limit = 1e75 ** min(1.0, 1 / t)  # beyond it F would exceed float64
    with np.errstate(over="ignore"):
        square = np.minimum(M[usable] / scale, limit) ** 2

    def at(nu: float) -> SecondTerm:
        F = np.zeros_like(M)
        F[usable] = np.abs(square - np.quantile(square, nu)) ** (2 * t)
        size = float(np.median(F[usable]))

        def weighed(s: float, rows: slice) -> np.ndarray:
            mu = 10**s * typical / size if size > 0 else 0.0
            with np.errstate(over="ignore"):  # infinity is the worst value
                weighted: np.ndarray = mu * F[rows]
            return weighted

        return weighed

    return at


def best_trade_off(
    kind: Bound,
    M: np.ndarray,
    kappa: np.ndarray | None,
    quality: Callable[[np.ndarray], float],
    *,
    t: float = 1.0,
    screen: tuple[slice, Callable[[np.ndarray], float]] | None = None,
) -> TradeOff:
    """The (ν, s) of a grid whose bound has the largest `quality`; the first one among equals.

    The paper lets Bayesian optimisation choose them by the very target it then reports (section 6.2); a grid does the
    same without luck. Give a validation accuracy as the quality if the number is to be honest. With `screen`, some
    rows and their quality, only the `FINALISTS` that are best on those are looked at closely.
    """
    if kind not in FITTED:
        return TradeOff(t=t)
    M = np.abs(np.asarray(M, dtype=np.float64))
    first = _first_term(kind, M, kappa)

    every = [TradeOff(nu, s, t) for nu in NU_GRID for s in S_GRID]
    second = _second_term(M, first, t)
    seconds = {nu: second(nu) for nu in NU_GRID}

    def on(rows: slice, judge: Callable[[np.ndarray], float]) -> Callable[[TradeOff], float]:
        return lambda by: judge(first[rows] + seconds[by.nu](by.s, rows))

    if screen is not None:
        few = nlargest(FINALISTS, every, key=on(*screen))
        every = sorted(few, key=every.index)
    return max(every, key=on(slice(None), quality))
