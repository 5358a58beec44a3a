"""Scores of a store beside a benchmark's published numbers: which metrics rank architectures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from initio.analysis.correlation import Agreement, SpearmanWith, agreement, correlations, kendall, spearman
from initio.analysis.hnas_bounds import BOUNDS, FITTED, Bound, TradeOff, best_trade_off, bound
from initio.analysis.ranking import RANKING, ranked
from initio.errors import InputError
from initio.metrics import is_higher_better
from initio.records import Architecture
from initio.scores.read import read_all
from initio.scores.store import Store
from initio.scores.table import ScoreTable
from initio.tables.compact import CompactTable

GRADIENT_METRICS = ("grad", "grad_norm", "snip", "grasp", "trace")  # M of HNAS's bounds, where the store has them
SCREENED = 1000  # architectures of a pool at most, on which the grid of HNAS's parameters is first looked at
NEVER = -2.0  # below any correlation


@dataclass(frozen=True)
class BoundRow:
    """How a bound of HNAS agrees with the error, which is what it bounds: a good one is positive."""

    metric: str
    bound: Bound
    spearman: float | None
    kendall: float | None
    trade_off: TradeOff | None  # the parameters, where the bound has any
    used: int  # architectures that it rests on


@dataclass(frozen=True)
class Relation:
    """A table's rows that were scored: target, and scores in the same order."""

    rows: tuple[int, ...] = field(repr=False)
    networks: int  # different networks among them
    target: np.ndarray = field(repr=False)
    scores: ScoreTable

    def agreements(self, k: int = 10) -> dict[str, Agreement]:
        """Each metric's mean over draws against the target."""
        out = {}
        for name in self.scores.metrics:
            higher = name == RANKING or is_higher_better(name)
            found = agreement(self.scores[name], self.target, higher_is_better=higher, k=k)
            out[name] = replace(found, undefined=self.scores.undefined(name))
        return out

    def spread(self, metric: str) -> float | None:
        """The standard deviation over draws of a metric's Spearman correlation with the target."""
        rho = SpearmanWith(self.target)
        known = [value for draw in self.scores.each(metric) if (value := rho(draw)) is not None]
        return float(np.std(known, ddof=1)) if len(known) > 1 else None

    def between(self) -> dict[tuple[str, str], float | None]:
        """Spearman between every two metrics."""
        return correlations({name: self.scores[name] for name in self.scores.metrics})

    def bounds(self, fit: np.ndarray | None = None, *, t: float = 1.0) -> list[BoundRow]:
        """HNAS's bounds for each gradient metric there is, with μ and ν fitted to `fit` (the target if not given).

        The bounds without parameters come from the same function, so the four rows of a metric are Table 6.
        """
        kappa, kinds = None, BOUNDS[:2]
        if "kappa" in self.scores.metrics:
            kappa, kinds = self.scores["kappa"], BOUNDS
        if fit is None:
            fit = self.target
        present = [name for name in GRADIENT_METRICS if name in self.scores.metrics]
        return [self._bound(name, kind, kappa, -fit, t) for name in present for kind in kinds]

    def _bound(self, metric: str, kind: Bound, kappa: np.ndarray | None, fit: np.ndarray, t: float) -> BoundRow:
        M, closeness = self.scores[metric], SpearmanWith(fit)
        some = slice(None, None, len(fit) // SCREENED + 1)
        by = best_trade_off(kind, M, kappa, _never(closeness), t=t, screen=(some, _never(SpearmanWith(fit[some]))))
        values = bound(kind, M, kappa, by)
        used = by if kind in FITTED and closeness(values) is not None else None
        known = ~np.isnan(values) & ~np.isnan(self.target)
        rho, tau = (f(values[known], -self.target[known]) for f in (spearman, kendall))
        return BoundRow(metric, kind, rho, tau, used, int(known.sum()))


def _never(closeness: SpearmanWith) -> Callable[[np.ndarray], float]:
    """A number also where there is no correlation."""

    def quality(values: np.ndarray) -> float:
        rho = closeness(values)
        return NEVER if rho is None else rho

    return quality


def relate(
    store: Store,
    table: CompactTable,
    column: str,
    *,
    where: Mapping[str, str] | None = None,
    metrics: Iterable[str] = (),
    only: Iterable[Architecture] | None = None,
) -> Relation:
    """The rows of the table whose networks the store has scored, with their target and scores.

    A score belongs to all architectures with the same network; costs (parameters, FLOPs) to the one as written.
    `only` leaves just these architectures, as written. Where enough of its members were scored, the training-free
    ranking of these rows is one more column.
    """
    target = table.column(column)
    scores = read_all(store, table.space, where=where, metrics=metrics)
    if not scores.networks:
        raise InputError("only costs were asked for: add a metric of networks, which says whose costs are compared")
    rows = list(table.rows(scores.networks))
    if only is not None:
        wanted = set(only)
        rows = [row for row in rows if row[1] in wanted]
    if not rows:
        raise InputError(f"none of the scored architectures is in {table.path}")
    numbers = [number for number, _, _ in rows]
    pairs = [(written, same) for _, written, same in rows]
    networks = len({same for _, same in pairs})
    return Relation(tuple(numbers), networks, target[numbers], ranked(scores.spread(pairs)))
