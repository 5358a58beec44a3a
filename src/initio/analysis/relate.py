"""Scores of a store beside a benchmark's published numbers: which metrics rank architectures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from initio.analysis.correlation import Agreement, agreement, correlations, kendall, spearman
from initio.analysis.hnas_bounds import BOUNDS, Bound, TradeOff, best_trade_off, bound
from initio.benchmarks.tables import Row, Table
from initio.errors import InputError, did_you_mean
from initio.metrics import METRICS
from initio.records import Architecture
from initio.store import Group, Store

GRADIENT_METRICS = ("grad", "grad_norm", "snip", "grasp", "trace")  # M of HNAS's bounds, where the store has them


@dataclass(frozen=True)
class Scores:
    """One metric on the rows of a table; NaN where there is no value, which statistics leave out."""

    metric: str
    group: Group
    by_seed: dict[int, np.ndarray] = field(repr=False)
    undefined: int = 0  # rows that were scored and have no value

    @cached_property
    def mean(self) -> np.ndarray:
        """Over the seeds; an architecture that has no value for one of them has none at all."""
        stacked = np.stack(list(self.by_seed.values()))
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


# --- which scores ------------------------------------------------------------------


def choose_groups(
    groups: Sequence[Group], space: str, where: dict[str, str], metrics: Iterable[str] = ()
) -> list[Group]:
    """For each metric the one group of scores that `where` leaves; several are an error that names the difference."""
    mine = [group for group in groups if group.space == space]
    if not mine:
        held = ", ".join(sorted({group.space for group in groups})) or "no scores"
        raise InputError(f"the store has no scores of {space}: it has {held}")
    _check_where(mine, where)
    fitting = [group for group in mine if _fits(group, where)]
    if not fitting:
        shown = ",".join(f"{name}={value}" for name, value in where.items())
        raise InputError(f"the store has no scores of {space} with {shown}")
    by_metric: dict[str, list[Group]] = {}
    for group in fitting:
        by_metric.setdefault(group.metric, []).append(group)
    wanted = list(metrics) or [name for name in METRICS if name in by_metric]
    if unknown := [name for name in wanted if name not in by_metric]:
        raise InputError(f"the store has no scores of {unknown[0]!r}: {did_you_mean(unknown[0], list(by_metric))}")
    return [_only(by_metric[name]) for name in wanted]


def _only(groups: list[Group]) -> Group:
    newest = max(group.version for group in groups)
    groups = [group for group in groups if group.version == newest]
    if len(groups) == 1:
        return groups[0]
    facts = [_facts(group) for group in groups]
    for name in facts[0]:
        values = sorted({fact.get(name, "") for fact in facts})
        if len(values) > 1:
            raise InputError(
                f"the store has several scores of {groups[0].metric}, with {name} = {', '.join(values)}: "
                f"choose with --where {name}={values[-1]}"
            )
    raise AssertionError("two groups with the same key")


def _facts(group: Group) -> dict[str, str]:
    """What tells groups apart, as text; the data last, since its fingerprint says least."""
    return {name: str(value) for name, value in group.settings} | {"source": group.source, "data": group.data}


def _check_where(groups: Sequence[Group], where: dict[str, str]) -> None:
    names = sorted(set().union(*(_facts(group) for group in groups)))
    for name in where:
        if name not in names:
            raise InputError(f"scores have no setting {name!r}: {did_you_mean(name, names)}")


def _fits(group: Group, where: dict[str, str]) -> bool:
    """Costs have neither data nor most settings: what a group lacks does not exclude it."""
    facts = {name: value for name, value in _facts(group).items() if value or name not in ("source", "data")}
    return all(facts.get(name, value) == value for name, value in where.items())


# --- their values on the rows of a table ------------------------------------------------


@dataclass(frozen=True)
class Relation:
    """A table's rows that were scored: target, and scores in the same order."""

    rows: tuple[int, ...] = field(repr=False)
    networks: int  # different networks among them
    target: np.ndarray = field(repr=False)
    scores: tuple[Scores, ...]

    def agreements(self, k: int = 10) -> dict[str, Agreement]:
        """Each metric's mean over seeds against the target."""
        out = {}
        for s in self.scores:
            found = agreement(s.mean, self.target, higher_is_better=METRICS[s.metric].higher_is_better, k=k)
            out[s.metric] = Agreement(**{**vars(found), "undefined": s.undefined})
        return out

    def spread(self, metric: str) -> float | None:
        """The standard deviation over seeds of a metric's Spearman correlation with the target."""
        values = [agreement(v, self.target).spearman for v in self._find(metric).by_seed.values()]
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
        used = by if kind in ("trade_off", "non_realisable") else None
        return BoundRow(metric, kind, spearman(values, error), kendall(values, error), used)

    def _find(self, metric: str) -> Scores:
        return next(s for s in self.scores if s.metric == metric)


def relate(
    store: Store,
    table: Table,
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
    groups = choose_groups(store.groups(), table.space, where or {}, metrics)
    found = {group.metric: _values(store, group) for group in groups}
    networks = {arch for group in groups if not _is_cost(group) for arch, _ in found[group.metric]}
    if not networks:
        raise InputError("the store has only costs: there is no score to compare with them")
    wanted = None if only is None else set(only)
    rows = [row for row in table.rows(networks) if wanted is None or row[1] in wanted]
    if not rows:
        raise InputError(f"none of the scored architectures is in {table.path}")
    scores = tuple(_scores(group, found[group.metric], rows) for group in groups)
    numbers = tuple(row[0] for row in rows)
    return Relation(numbers, len({row[2] for row in rows}), target[list(numbers)], scores)


def _values(store: Store, group: Group) -> dict[tuple[Architecture, int], float | None]:
    return {(e.architecture, e.seed): e.value for e in store.of_group(group)}


def _scores(
    group: Group,
    found: dict[tuple[Architecture, int], float | None],
    rows: Sequence[Row],
) -> Scores:
    of = [row[1] if _is_cost(group) else row[2] for row in rows]
    seeds = sorted({seed for _, seed in found})
    by_seed = {seed: np.array([_or_nan(found.get((arch, seed))) for arch in of]) for seed in seeds}
    undefined = sum(any(found.get((arch, seed), 0.0) is None for seed in seeds) for arch in of)
    return Scores(group.metric, group, by_seed, undefined)


def _is_cost(group: Group) -> bool:
    return group.data == ""


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value
