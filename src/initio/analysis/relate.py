"""Scores of a store beside a benchmark's published numbers: which metrics rank architectures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from initio.analysis.correlation import Agreement, agreement, correlations, kendall, spearman
from initio.analysis.hnas_bounds import BOUNDS, Bound, TradeOff, best_trade_off, bound
from initio.errors import InputError
from initio.metrics import METRICS
from initio.records import Architecture
from initio.scores.kinds import Draw, Kind, Values, choose, read
from initio.scores.store import Store
from initio.tables.compact import CompactTable, Row

GRADIENT_METRICS = ("grad", "grad_norm", "snip", "grasp", "trace")  # M of HNAS's bounds, where the store has them


@dataclass(frozen=True)
class Scores:
    """One metric on the rows of a table; NaN where there is no value, which statistics leave out."""

    metric: str
    kind: Kind
    by_draw: dict[Draw, np.ndarray] = field(repr=False)
    undefined: int = 0  # rows that were scored and have no value

    @cached_property
    def mean(self) -> np.ndarray:
        """Over the draws; an architecture that has no value in one of them has none at all."""
        stacked = np.stack(list(self.by_draw.values()))
        with np.errstate(invalid="ignore"):  # inf - inf
            return np.asarray(stacked.mean(axis=0))


@dataclass(frozen=True)
class BoundRow:
    """How a bound of HNAS agrees with the error, which is what it bounds: a good one is positive."""

    metric: str
    bound: Bound
    spearman: float | None
    kendall: float | None
    trade_off: TradeOff | None  # the parameters, where the bound has any


# --- their values on the rows of a table ------------------------------------------------


@dataclass(frozen=True)
class Relation:
    """A table's rows that were scored: target, and scores in the same order."""

    rows: tuple[int, ...] = field(repr=False)
    networks: int  # different networks among them
    target: np.ndarray = field(repr=False)
    scores: tuple[Scores, ...]

    def agreements(self, k: int = 10) -> dict[str, Agreement]:
        """Each metric's mean over draws against the target."""
        out = {}
        for s in self.scores:
            found = agreement(s.mean, self.target, higher_is_better=METRICS[s.metric].higher_is_better, k=k)
            out[s.metric] = Agreement(**{**vars(found), "undefined": s.undefined})
        return out

    def spread(self, metric: str) -> float | None:
        """The standard deviation over draws of a metric's Spearman correlation with the target."""
        values = [agreement(v, self.target).spearman for v in self._find(metric).by_draw.values()]
        known = [value for value in values if value is not None]
        return float(np.std(known, ddof=1)) if len(known) > 1 else None

    def between(self) -> dict[tuple[str, str], float | None]:
        """Spearman between every two metrics."""
        return correlations({s.metric: s.mean for s in self.scores})

    def bounds(self, fit: np.ndarray | None = None, *, t: float = 1.0) -> list[BoundRow]:
        """HNAS's bounds for each gradient metric there is, with μ and ν fitted to `fit` (the target if not given).

        The bounds without parameters come from the same function, so the four rows of a metric are Table 6.
        """
        kappas = [s.mean for s in self.scores if s.metric == "kappa"]
        rows = []
        for name in GRADIENT_METRICS:
            for M in (s.mean for s in self.scores if s.metric == name):
                for kind in BOUNDS if kappas else BOUNDS[:2]:
                    rows.append(self._bound(name, kind, M, kappas[0] if kappas else None, fit, t))
        return rows

    def _bound(
        self, metric: str, kind: Bound, M: np.ndarray, kappa: np.ndarray | None, fit: np.ndarray | None, t: float
    ) -> BoundRow:
        aim = self.target if fit is None else fit

        def quality(values: np.ndarray) -> float:
            known = ~np.isnan(values) & ~np.isnan(aim)
            found = spearman(values[known], -aim[known])
            return -2.0 if found is None else found

        by = best_trade_off(kind, M, kappa, quality, t=t)
        values = bound(kind, M, kappa, by)
        known = ~np.isnan(values) & ~np.isnan(self.target)
        values, error = values[known], -self.target[known]
        fitted = kind in ("trade_off", "non_realisable") and quality(bound(kind, M, kappa, by)) > -2
        used = by if fitted else None
        return BoundRow(metric, kind, spearman(values, error), kendall(values, error), used)

    def _find(self, metric: str) -> Scores:
        return next(s for s in self.scores if s.metric == metric)


def relate(
    store: Store,
    table: CompactTable,
    column: str,
    *,
    where: dict[str, str] | None = None,
    metrics: Iterable[str] = (),
    only: Iterable[Architecture] | None = None,
) -> Relation:
    """The rows of the table whose networks the store has scored, with their target and scores.

    A score belongs to all architectures with the same network; costs (parameters, FLOPs) to the one as written.
    `only` leaves just these architectures, as written.
    """
    target = table.column(column)
    kinds = choose(store.groups(), table.space, where or {}, metrics)
    found = [read(store, kind) for kind in kinds]
    networks = frozenset().union(*(values.architectures for values in found if not values.kind.is_cost))
    if not networks:
        raise InputError("only costs were asked for: add a metric of networks, which says whose costs are compared")
    wanted = None if only is None else set(only)
    rows = [row for row in table.rows(networks) if wanted is None or row[1] in wanted]
    if not rows:
        raise InputError(f"none of the scored architectures is in {table.path}")
    scores = tuple(_scores(values, rows) for values in found)
    numbers = tuple(row[0] for row in rows)
    return Relation(numbers, len({row[2] for row in rows}), target[list(numbers)], scores)


def _scores(values: Values, rows: Sequence[Row]) -> Scores:
    of = [row[1] if values.kind.is_cost else row[2] for row in rows]
    by_draw = {draw: np.array([_or_nan(values.of.get((arch, draw))) for arch in of]) for draw in values.draws}
    undefined = sum(any(values.of.get((arch, draw), 0.0) is None for draw in values.draws) for arch in of)
    return Scores(values.kind.metric, values.kind, by_draw, undefined)


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value
