"""Scores and test errors that the tables and figures of HNAS are made of, and how they are printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from initio.analysis.correlation import kendall, spearman
from initio.analysis.hnas_bounds import Bound, TradeOff, best_trade_off, bound
from initio.analysis.relate import relate
from initio.scores.pool import sample
from initio.scores.store import Store, find_store
from initio.searches.methods.hnas import metric_values
from initio.spaces import get_space
from initio.tables import open_compact
from studies.score_study import BASE

DATASETS = ("c10", "c100", "in16")
METRICS = ("grad_norm", "snip", "grasp", "trace")  # the paper's scores of the gradient's norm are summed over layers
ALL = (*METRICS, "kappa", "knas", "fisher", "synflow", "naswot")
TEST = {dataset: f"test_{dataset}_nb201" for dataset in DATASETS}
SAMPLE = 300
BATCH_SIZES = (4, 8, 16, 32)
SOURCES = (
    "cifar10_sub10k train at 16x16",
    "cifar100_sub10k train at 16x16",
    "imagenet16_120_partial train at 16x16",
)
IMAGES = "cifar10_sub10k.npz@16"

Pair = tuple[float, float]  # Spearman, Kendall


# --- scores and test errors ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores of some architectures and their test errors."""

    values: dict[str, np.ndarray]
    errors: dict[str, np.ndarray]

    def M(self, metric: str) -> np.ndarray:  # noqa: N802, the paper's letter
        """A metric as HNAS takes it: of GraSP the size counts, of synflow the exponential."""
        return np.abs(metric_values(metric, self.values[metric]))

    @property
    def kappa(self) -> np.ndarray:
        """The condition number."""
        return self.values["kappa"]

    def fit(self, kind: Bound, metric: str) -> TradeOff:
        """μ and ν for which a bound agrees best with the first data set's errors, as in the paper (section 6.2)."""
        error = next(iter(self.errors.values()))
        return best_trade_off(kind, self.M(metric), self.kappa, lambda v: spearman_of(v, error))


def agree(values: np.ndarray, error: np.ndarray) -> Pair:
    """Rank correlations where both exist."""
    known = ~np.isnan(values) & ~np.isnan(error)
    rho, tau = spearman(values[known], error[known]), kendall(values[known], error[known])
    return np.nan if rho is None else rho, np.nan if tau is None else tau


def spearman_of(values: np.ndarray, error: np.ndarray) -> float:
    """ρ alone: τ takes longer."""
    known = ~np.isnan(values) & ~np.isnan(error)
    rho = spearman(values[known], error[known])
    return np.nan if rho is None else rho


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the tables are made from."""

    data: Path
    store: str | None
    out: Path
    _fits: dict[tuple[Bound, str], TradeOff] = field(default_factory=dict)

    def read(
        self, store: str, table: str, columns: dict[str, str], metrics: Sequence[str], seeded: bool, **where: str
    ) -> Scored:
        """Scores of a store, on all rows that it has or on the seeded sample."""
        opened = open_compact(table, self.data)
        only = sample(get_space(opened.space), SAMPLE, 0) if seeded else None
        with Store(find_store(store), read_only=True) as found:
            relation = relate(found, opened, next(iter(columns.values())), where=where, metrics=metrics, only=only)
        rows = list(relation.rows)
        errors = {name: -opened.column(column)[rows] for name, column in columns.items()}
        return Scored({name: relation.scores[name] for name in relation.scores.metrics}, errors)

    @cached_property
    def nb201(self) -> Scored:
        """All architectures, two draws."""
        return self.read("nb201", "nb201_tss.npz", TEST, ALL, seeded=False)

    def study(self, **where: str) -> Scored:
        """The seeded sample, scored in another way."""
        return self.read("nb201-study", "nb201_tss.npz", TEST, ALL, seeded=True, **{**BASE, **where})

    @cached_property
    def nb101(self) -> Scored | None:
        """A seeded sample of nb101, if it was scored."""
        return self.read(self.store, "nb101.npz", {"c10": "test_acc_108"}, ALL, seeded=False) if self.store else None

    def of_batch(self, size: int) -> Scored:
        """The seeded sample with batches of another size."""
        if size == 64:
            return self.study()
        assert self.store is not None
        return self.read(self.store, "nb201_tss.npz", TEST, (*METRICS, "kappa"), seeded=True, batch_size=str(size))

    def fit(self, kind: Bound, metric: str) -> TradeOff:
        """μ and ν fitted once, to all of nb201 on C10; every other table takes them, as in the paper."""
        if (kind, metric) not in self._fits:
            self._fits[kind, metric] = self.nb201.fit(kind, metric)
        return self._fits[kind, metric]

    def both(
        self, scored: Scored, metric: str, dataset: str = "c10", kind: Bound = "non_realisable", kappa: Any = None
    ) -> Pair:
        """A bound's agreement with the error of a data set."""
        k = scored.kappa if kappa is None else kappa
        return agree(bound(kind, scored.M(metric), k, self.fit(kind, metric)), scored.errors[dataset])


# --- printing --------------------------------------------------------------------------------------------------------


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table in Markdown."""
    print(f"\n**{title}**\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def cell(ours: float, theirs: float | None, digits: int = 2) -> str:
    """Ours (theirs)."""
    number = f"{ours:.{digits}f}"
    return number if theirs is None else f"{number} ({theirs:.{digits}f})"


def mean_std(values: Sequence[float]) -> str:
    """Mean and sample standard deviation."""
    return f"{np.mean(values):.2f}±{np.std(values, ddof=1):.2f}"
