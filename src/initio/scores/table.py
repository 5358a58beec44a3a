"""Scores of a pool: architectures × metrics, whoever made them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random

import numpy as np

from initio.errors import InputError, did_you_mean
from initio.records import Architecture
from initio.scores.kinds import Values, choose, read
from initio.scores.store import Store
from initio.spaces import Space


@dataclass(frozen=True)
class Scores:
    """One row an architecture, one column a metric; NaN where a metric has no value, ±infinity where it says so.

    >>> archs = [Architecture("nb201", (0, 0, 0, 0, 0, k)) for k in range(3)]
    >>> scores = Scores.of(archs, {"trace": [1.0, 5.0, float("nan")]})
    >>> scores["trace"].tolist()
    [1.0, 5.0, nan]
    >>> scores.ranks("trace").tolist()
    [2.0, 3.0, 1.0]
    """

    architectures: tuple[Architecture, ...] = field(repr=False)
    columns: Mapping[str, np.ndarray] = field(repr=False)

    @classmethod
    def of(cls, architectures: Iterable[Architecture], columns: Mapping[str, Sequence[float] | np.ndarray]) -> Scores:
        """Scores from plain sequences, checked."""
        archs = tuple(architectures)
        if len(set(archs)) < len(archs):
            raise InputError("an architecture stands twice in the table of scores: give each one row")
        arrays = {name: np.array(values, dtype=np.float64) for name, values in columns.items()}
        for name, values in arrays.items():
            if values.shape != (len(archs),):
                raise InputError(
                    f"there are {len(archs)} architectures, but the scores {name!r} have shape {values.shape}"
                )
            values.flags.writeable = False
        return cls(archs, arrays)

    def __len__(self) -> int:
        return len(self.architectures)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.columns)

    def __getitem__(self, metric: str) -> np.ndarray:
        if metric not in self.columns:
            raise InputError(f"the pool has no scores {metric!r}: {did_you_mean(metric, list(self.columns))}")
        return self.columns[metric]

    @cached_property
    def rows(self) -> dict[Architecture, int]:
        """The row of each architecture."""
        return {arch: row for row, arch in enumerate(self.architectures)}

    def ranks(self, metric: str, *, higher_is_better: bool = True) -> np.ndarray:
        """Ranks from 1, the best last, ties averaged; what has no value comes before everything else."""
        from scipy.stats import rankdata

        values = self[metric] if higher_is_better else -self[metric]
        ranks: np.ndarray = rankdata(np.where(np.isnan(values), -np.inf, values))
        return ranks

    def subset(self, rows: Sequence[int] | np.ndarray) -> Scores:
        """Only these rows, in this order."""
        index = np.asarray(rows) if len(rows) else np.empty(0, dtype=int)
        archs = tuple(self.architectures[row] for row in index)
        return Scores.of(archs, {name: values[index] for name, values in self.columns.items()})


def read_values(store: Store, space: Space, where: dict[str, str] | None = None) -> tuple[Values, ...]:
    """All draws of all metrics that a store has of a space; `where` chooses if it has several kinds."""
    home = space.canonical(space.sample(Random(0))).space  # nb101 for nb1shot1: a network is scored once for both
    return tuple(read(store, kind) for kind in choose(store.groups(), space.name, where or {}, home=home))


def count_draws(values: Iterable[Values]) -> int:
    """How many times every metric was drawn, each with its own weights and batch."""
    return min((len(v.draws) for v in values if not v.kind.is_cost), default=0)


def pool_scores(values: Sequence[Values], space: Space, pool: Sequence[Architecture] = (), *, draw: int = 0) -> Scores:
    """One draw of all metrics, for the architectures of the pool that were scored, or for all that were.

    Draw s is the s-th of every metric; beyond the last one, each metric takes one of its draws at random, so that more
    tables can be made from few draws, though not independent ones. A score belongs to all architectures with the same
    network; a cost (parameters, FLOPs) to the one as written.
    """
    scored = frozenset().union(*(v.architectures for v in values if not v.kind.is_cost))
    pairs = [(arch, space.canonical(arch)) for arch in pool] if pool else [(arch, arch) for arch in sorted(scored)]
    pairs = [(arch, representative) for arch, representative in pairs if representative in scored]
    return Scores.of([arch for arch, _ in pairs], {v.kind.metric: _column(v, pairs, draw) for v in values})


def _column(values: Values, pairs: Sequence[tuple[Architecture, Architecture]], draw: int) -> np.ndarray:
    n = len(values.draws)
    chosen = values.draws[draw if draw < n else Random(f"draw {draw} of {values.kind.metric}").randrange(n)]
    found = (values.of.get((arch if values.kind.is_cost else same, chosen)) for arch, same in pairs)
    return np.array([np.nan if value is None else value for value in found])
