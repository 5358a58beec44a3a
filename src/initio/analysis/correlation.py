"""How well scores rank architectures: Spearman, Kendall, top-k regret, nDCG.

All take plain arrays without NaN; infinities are ordinary, largest or smallest, values. Ties are never broken by the
order of the input: ranks are averaged, and what depends on a choice among equals is its expectation over all choices.
A number that does not exist (a constant score has no rank correlation) is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from initio.errors import InputError


@dataclass(frozen=True)
class Agreement:
    """How a score and a target agree on the architectures that have both."""

    spearman: float | None
    kendall: float | None
    regret: float | None  # of the best target among the score's top k, in the target's units
    ndcg: float | None  # of the score's top k
    used: int  # architectures with a score and a target
    undefined: int = 0  # architectures with a target but no score


def agreement(score: np.ndarray, target: np.ndarray, *, higher_is_better: bool = True, k: int = 10) -> Agreement:
    """Everything at once; `score` and `target` may hold NaN where there is no value, which is left out and counted.

    >>> agreement(np.array([3.0, 1.0, 2.0, np.nan]), np.array([94.0, 90.0, 91.0, 89.0]), k=1)
    Agreement(spearman=1.0, kendall=1.0, regret=0.0, ndcg=1.0, used=3, undefined=1)
    """
    score, target = _pair(score, target, allow_nan=True)
    known = ~np.isnan(target)
    both = known & ~np.isnan(score)
    s, t = score[both], target[both]
    sign = 1 if higher_is_better else -1
    return Agreement(
        spearman=spearman(s, t),
        kendall=kendall(s, t),
        regret=top_k_regret(sign * s, t, k),
        ndcg=ndcg(sign * s, t, k),
        used=int(both.sum()),
        undefined=int((known & ~both).sum()),
    )


def spearman(a: np.ndarray, b: np.ndarray) -> float | None:
    """ρ = the Pearson correlation of the ranks; None if fewer than two values, or one side constant.

    >>> spearman(np.array([1.0, 2.0, np.inf]), np.array([10.0, 30.0, 20.0]))
    0.5
    """
    a, b = _pair(a, b)
    if len(a) < 2:
        return None
    return _pearson(ranks(a), ranks(b))


class SpearmanWith:
    """Spearman with one target, whose ranks are found once; NaN on either side is left out.

    >>> SpearmanWith(np.array([10.0, 30.0, 20.0]))(np.array([1.0, np.nan, 2.0]))
    1.0
    """

    def __init__(self, target: np.ndarray) -> None:
        self.target = target
        self._known = np.zeros(0, dtype=bool)

    def __call__(self, values: np.ndarray) -> float | None:
        """ρ, or None where it does not exist."""
        known = ~np.isnan(values) & ~np.isnan(self.target)
        if not np.array_equal(known, self._known):
            self._known, self._ranks = known, ranks(self.target[known])
        if len(self._ranks) < 2:
            return None
        return _pearson(ranks(values[known]), self._ranks)


def ranks(values: np.ndarray) -> np.ndarray:
    """1 for the smallest; equal values share the mean of their ranks.

    >>> ranks(np.array([5.0, 1.0, 5.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    order = np.argsort(values)
    ordered = values[order]
    is_first = np.ones(len(values), dtype=bool)  # of equals
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    out = np.empty(len(values))
    if is_first.all():
        out[order] = np.arange(1.0, len(values) + 1)
        return out
    starts = np.flatnonzero(is_first)
    count = np.diff(starts, append=len(values))
    out[order] = np.repeat(starts + (count + 1) / 2, count)
    return out


def _pearson(a: np.ndarray, b: np.ndarray) -> float | None:
    a, b = a - a.mean(), b - b.mean()
    norm = math.sqrt(float(a @ a) * float(b @ b))
    if norm == 0:
        return None
    return min(1.0, max(-1.0, float(a @ b) / norm))


def kendall(a: np.ndarray, b: np.ndarray) -> float | None:
    """τ_b = (C − D) / √((P − P_a)(P − P_b)): concordant minus discordant pairs, P_a and P_b the tied ones.

    >>> kendall(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]))
    0.333...
    """
    a, b = _pair(a, b)
    if len(a) < 2 or (a == a[0]).all() or (b == b[0]).all():
        return None
    a, b = (np.unique(values, return_inverse=True)[1] for values in (a, b))  # whole numbers in the same order
    both = a * len(b) + b
    order = np.argsort(both)  # among equal a no pair is in disorder by b
    place = np.empty_like(order)
    place[np.argsort(b[order], kind="stable")] = np.arange(len(a))  # nor among equal b
    pairs = len(a) * (len(a) - 1) // 2
    tied_a, tied_b, tied_both = _tied(a), _tied(b), _tied(both)
    difference = pairs - tied_a - tied_b + tied_both - 2 * _inversions(place)
    return difference / math.sqrt((pairs - tied_a) * (pairs - tied_b))


def _tied(values: np.ndarray) -> int:
    """Pairs of equal values."""
    count = np.unique(values, return_counts=True)[1]
    return int((count * (count - 1) // 2).sum())


def _inversions(x: np.ndarray) -> int:
    """Pairs i < j with x_i > x_j of a permutation of 0 .. n−1, from its highest bit to its lowest.

    Numbers that agree in all higher bits stand together, in their first order, from the place that those bits say. Of
    two such numbers the one with this bit is larger: each without it counts those with it that stand before.
    """
    total, n = 0, len(x)
    for bit in reversed(range(max(1, n - 1).bit_length())):
        start = x >> (bit + 1) << (bit + 1)
        has = x >> bit & 1
        before = np.concatenate([[0], np.cumsum(has)])
        larger = before[:-1] - before[start]
        total += int(larger[has == 0].sum())
        moved = np.empty_like(x)
        moved[np.where(has, start + (1 << bit) + larger, np.arange(n) - larger)] = x
        x = moved
    return total


def top_k_regret(score: np.ndarray, target: np.ndarray, k: int) -> float | None:
    """max target − E[max target among the k of largest score], over all choices among equal scores at the border.

    >>> top_k_regret(np.array([1.0, 1.0, 0.0]), np.array([90.0, 94.0, 95.0]), k=1)
    3.0
    """
    score, target = _pair(score, target)
    k = _checked(k, len(score))
    if k == 0:
        return None
    border = -np.partition(-score, k - 1)[k - 1]
    certain = target[score > border]
    tied = np.sort(target[score == border])[::-1]
    return float(target.max()) - _expected_best(certain, tied, k - len(certain))


def _expected_best(certain: np.ndarray, tied: np.ndarray, drawn: int) -> float:
    """E max of `certain` and of `drawn` ones among `tied` (descending), drawn without replacement."""
    floor = float(certain.max(initial=-math.inf))
    n = len(tied)
    total, none_so_far = 0.0, 1.0  # the probability that none of the first j is drawn
    for j, value in enumerate(tied.tolist()):
        if value <= floor or none_so_far == 0:
            break
        next_none = none_so_far * max(0, n - j - drawn) / (n - j)
        total += (none_so_far - next_none) * value
        none_so_far = next_none
    if none_so_far > 0:  # else 0 · −∞ would be no number
        total += none_so_far * floor
    return total


def ndcg(score: np.ndarray, target: np.ndarray, k: int) -> float | None:
    """DCG of the score's order over DCG of the best order, DCG = Σ_{r=1..k} gain_r / log2(r + 1).

    The gain is the target scaled to [0, 1] over the pool, so the worst architecture gains nothing. Equal scores share
    the mean of their gains, which is the expectation over their orders. None for a constant target.

    >>> ndcg(np.array([2.0, 1.0]), np.array([90.0, 94.0]), k=2)
    0.630...
    """
    score, target = _pair(score, target)
    k = _checked(k, len(score))
    if k == 0 or (target == target[0]).all():
        return None
    low, high = float(target.min()), float(target.max())
    gain = (target - low) / (high - low)
    discount = np.zeros(len(gain))
    discount[:k] = 1 / np.log2(np.arange(k) + 2)
    _, place, count = np.unique(-score, return_inverse=True, return_counts=True)
    mean_gain = np.bincount(place, gain) / count
    end = np.cumsum(count)
    group_discount = np.add.reduceat(discount, end - count)
    return float(mean_gain @ group_discount) / float(np.sort(gain)[::-1] @ discount)


def correlations(scores: Mapping[str, np.ndarray]) -> dict[tuple[str, str], float | None]:
    """Spearman between every two scores, on the architectures where both exist (NaN: it does not)."""
    names = list(scores)
    defined = {name: ~np.isnan(values) for name, values in scores.items()}
    ranked: dict[tuple[str, bytes], np.ndarray] = {}  # many pairs are defined for the same architectures
    out: dict[tuple[str, str], float | None] = {}
    for i, a in enumerate(names):
        for b in names[: i + 1]:
            both = defined[a] & defined[b]
            key = both.tobytes()
            for name in (a, b):
                if (name, key) not in ranked:
                    ranked[name, key] = ranks(scores[name][both])
            out[a, b] = out[b, a] = None
            if both.sum() > 1:
                out[a, b] = out[b, a] = _pearson(ranked[a, key], ranked[b, key])
    return out


def _checked(k: int, n: int) -> int:
    if k < 1:
        raise InputError(f"top-k needs k of at least 1, not {k}")
    return min(k, n)


def _pair(a: np.ndarray, b: np.ndarray, allow_nan: bool = False) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1:
        raise InputError(f"two lists of the same length are needed, not shapes {a.shape} and {b.shape}")
    if not allow_nan and (np.isnan(a).any() or np.isnan(b).any()):
        raise InputError("a rank correlation of NaN does not exist: leave undefined values out")
    return a, b
