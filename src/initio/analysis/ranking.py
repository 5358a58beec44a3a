"""The training-free ranking: a few metrics with fixed signs, combined by their ranks alone.

    value(a) = mean over members m of log(rank_m(a) / (n_m + 1)),    rank 1 for the worst of the n_m that have a value

No weights, no accuracies, nothing fitted; the form is that of AZ-NAS (Lee and Ham, CVPR 2024). The logarithm makes it a
soft "and": to be among the last by one member costs more than to be among the first by another gains, since a network
fails by its weakest property. Equal values share the mean of their ranks. A member that is missing, or
says the same of all, does not speak. An architecture is judged by the members that have a value for it; one for
which more than half have none, as a network that no path leads through, ranks last. Where scores have several draws of
weights and batch, a vote is the mean over draws.

A rank counts how many of the pool lie between two. Where a search has filled a part of the pool with near-copies of
what it liked, that says how long it looked there, so a search hands in which rows are random (`among`): then goals are
judged by the share of random architectures that are worse, as if those were normally distributed (`log_shares`). What
is a condition keeps its rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from initio.analysis.correlation import ranks
from initio.errors import InputError

if TYPE_CHECKING:
    from initio.scores.table import ScoreTable

RANKING = "ranking"  # the column of a `ScoreTable` beside those of metrics

DIGITS = 12  # of a logarithm: what is equal on paper is equal here
FARTHEST = 30.0  # deviations from a population's mean: a value farther away, or infinite, counts as that far
FEWEST = 10  # random architectures with a value, which are a scale; with fewer, ranks are


@dataclass(frozen=True)
class Member:
    """A metric that has a say, and why."""

    metric: str
    sign: int  # 1 if larger is better, -1 if smaller is
    reason: str
    enough: float = 1.0  # the part of the pool above which more is no better: a condition rather than a goal


MEMBERS = (
    Member("meco", 1, "channels that do not repeat each other converge faster"),
    Member("near", 1, "channels whose variance fills many directions carry more"),
    Member("naswot", 1, "inputs that fall into different linear regions can be told apart"),
    Member("flops", 1, "more computation holds more functions"),
    Member("expressivity", 1, "features that fill many directions lose nothing of the input"),
    Member("progressivity", 1, "every stage should add something to the one before"),
    Member("trainability", 1, "a cell whose Jacobian has norm one lets signals pass both ways"),
)


@dataclass(frozen=True, eq=False)
class Ranking:
    """n architectures in order.

    Args:
        values: (n,) larger is better; only their order means something, and only in this pool.
        members: those that spoke, J of them.
        votes: (n, J) the logarithm of each one's rank or share, NaN where it has no value.
    """

    values: np.ndarray
    members: tuple[Member, ...]
    votes: np.ndarray = field(repr=False)

    @cached_property
    def order(self) -> np.ndarray:
        """The rows, the best first; equals in the order of the pool."""
        return np.argsort(-self.values, kind="stable")

    @cached_property
    def places(self) -> np.ndarray:
        """1 for the best; equals share the better place."""
        _, place, count = np.unique(-self.values, return_inverse=True, return_counts=True)
        places: np.ndarray = (1 + np.cumsum(count) - count)[place]
        return places

    @cached_property
    def decided(self) -> tuple[str, ...]:
        """For each architecture the member that moved it farthest from the middle, towards where it stands.

        For one above the pool's mean value the member with its best rank, below it the one with its worst, both in
        comparison with the member's mean. Empty where nobody spoke.
        """
        if not self.members:
            return ("",) * len(self.values)
        moved = np.nan_to_num(self.votes - np.nanmean(self.votes, axis=0))
        towards = np.where(self.values >= self.values.mean(), 1.0, -1.0)
        return self._names(moved * towards[:, None])

    def between(self, a: int, b: int) -> str:
        """The member that speaks most for the better one of two rows; empty where they are equal."""
        if self.values[a] < self.values[b]:
            a, b = b, a
        apart = np.nan_to_num(self.votes[a] - self.votes[b])
        if self.values[a] == self.values[b] or not apart.any():
            return ""
        return self._names(apart[None])[0]

    def _names(self, strength: np.ndarray) -> tuple[str, ...]:
        return tuple(self.members[j].metric for j in strength.round(DIGITS).argmax(axis=1))


def rank(
    columns: Mapping[str, np.ndarray], members: tuple[Member, ...] = MEMBERS, among: np.ndarray | None = None
) -> Ranking:
    """The ranking of the architectures with these scores, (n,) or draws × n; other metrics than members have no say.

    `among`, the rows of random architectures, makes them the scale of those members that are goals.

    >>> found = rank({"meco": np.array([1.0, 4.0, 2.0]), "flops": np.array([6.0, 5.0, 7.0]), "kappa": np.zeros(3)})
    >>> found.order.tolist(), found.decided
    ([2, 1, 0], ('meco', 'flops', 'flops'))
    """
    lengths = {np.shape(column)[-1] for column in columns.values()}
    if len(lengths) > 1:
        raise InputError(f"scores of one pool have one length, not {', '.join(map(str, sorted(lengths)))}")
    n = max(lengths, default=0)
    said = {m: _votes(columns[m.metric], m, among) for m in members if m.metric in columns}
    heard = {member: votes for member, votes in said.items() if votes is not None}
    if not heard:
        return Ranking(np.zeros(n), (), np.zeros((n, 0)))
    votes = np.column_stack(list(heard.values()))
    known = ~np.isnan(votes)
    values = (np.where(known, votes, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)).round(DIGITS)
    last = 2 * known.sum(axis=1) < len(heard)
    values[last] -= 1 + np.ptp(values)  # below all others, in the order of what is known of them
    return Ranking(values, tuple(heard), votes)


def _votes(column: np.ndarray, member: Member, among: np.ndarray | None) -> np.ndarray | None:
    draws = member.sign * np.atleast_2d(np.asarray(column, dtype=np.float64))
    scale = member.enough == 1 and among is not None and np.isfinite(draws[:, among]).sum(axis=1).min() >= FEWEST
    logs = [log_shares(draw, draw[among]) if scale else log_ranks(draw) for draw in draws]
    votes = np.mean(np.minimum(logs, np.log(member.enough)), axis=0)
    known = votes[~np.isnan(votes)]
    return votes if len(known) and np.ptp(known) > 0 else None


def log_ranks(values: np.ndarray) -> np.ndarray:
    """log(rank / (n + 1)) of the n values that exist, rank 1 for the smallest; equals share their mean rank.

    >>> np.exp(log_ranks(np.array([1.0, 3.0, np.nan, 2.0]))).round(2)
    array([0.25, 0.75,  nan, 0.5 ])
    """
    there = ~np.isnan(values)
    out = np.full(len(values), np.nan)
    out[there] = np.log(ranks(values[there]) / (there.sum() + 1))
    return out


def log_shares(values: np.ndarray, population: np.ndarray) -> np.ndarray:
    """log Φ((v − mean) / deviation): the share that is smaller, were the population normal.

    Unlike a rank it goes on beyond the largest that is known, and two that hardly differ have nearly the same. A
    population without a deviation says nothing.

    >>> np.exp(log_shares(np.array([2.0, 4.0, 4.1]), np.array([1.0, 2.0, 3.0]))).round(3)
    array([0.5  , 0.993, 0.995])
    """
    from scipy.special import log_ndtr

    population = population[np.isfinite(population)]
    if not len(population) or np.ptp(population) == 0:
        return np.where(np.isnan(values), np.nan, np.log(0.5))
    deviations = (values - population.mean()) / population.std()
    shares: np.ndarray = log_ndtr(np.clip(deviations, -FARTHEST, FARTHEST))
    return shares


def rank_table(table: ScoreTable) -> Ranking:
    """The ranking of a table's architectures by the members that it has scores of."""
    return rank({member.metric: table.each(member.metric) for member in MEMBERS if member.metric in table.metrics})


def ranked(table: ScoreTable) -> ScoreTable:
    """The table with one more column, `ranking`, a row a draw; as it is where less than half of the members speak.

    Its values are of this pool: a part of the pool ranks in the same order among themselves only roughly.
    """
    columns = {name: table.each(name) for name in table.metrics if name in {m.metric for m in MEMBERS}}
    measured = [name for name in columns if not table.origin(name).counted]
    if 2 * len(rank(columns).members) < len(MEMBERS):
        return table
    draws = min((len(columns[name]) for name in measured), default=1)
    each = [
        rank({name: values[min(draw, len(values) - 1)] for name, values in columns.items()}) for draw in range(draws)
    ]
    made = replace(table.origin(measured[0]), settings=(), version=1)
    made = replace(made, draws=made.draws[:draws])
    return replace(
        table,
        columns={**table.columns, RANKING: np.stack([found.values for found in each])},
        origins={**table.origins, RANKING: made},
    )
