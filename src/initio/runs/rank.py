"""The verb: `initio.rank`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from initio.analysis.ranking import MEMBERS, Ranking, rank_table
from initio.data import Data
from initio.errors import InputError
from initio.records import Architecture
from initio.report.notebook import data_frame
from initio.runs.search import make_problem
from initio.scores.database import StorePlace
from initio.scores.pool import ScoringJob, ScoringProgress, pool_table, sample, score_pool
from initio.scores.read import read_all, read_table
from initio.scores.store import Store, find_store
from initio.scores.table import ScoreTable
from initio.spaces import Space, get_space

POOL = 100  # random architectures that are measured if nothing else is said
SHOWN = 10


@dataclass(frozen=True)
class RankedRow:
    """An architecture, its place, and what put it there."""

    place: int  # 1 for the best; equals share the better place
    value: float  # the mean of its log-ranks, of this pool alone
    decided: str  # the member that moved it farthest
    places: Mapping[str, int | None]  # by each member alone; None where it has no value
    architecture: str


@dataclass(frozen=True, eq=False, repr=False)
class RankedArchitectures:
    """Architectures in the order of the training-free ranking: those of a table of scores.

    Args:
        space: theirs.
        table: scores, the members' among them.
        ranking: of its rows.
    """

    space: Space
    table: ScoreTable = field(repr=False)
    ranking: Ranking

    @property
    def best(self) -> Architecture:
        """The first."""
        return self.table.architectures[int(self.ranking.order[0])]

    def rows(self, top: int | None = None) -> list[RankedRow]:
        """The first ones, or all, best first."""
        found = self.ranking
        alone = {member.metric: _places(votes) for member, votes in zip(found.members, found.votes.T, strict=True)}
        return [
            RankedRow(
                int(found.places[row]),
                float(found.values[row]),
                found.decided[row],
                {name: None if np.isnan(places[row]) else int(places[row]) for name, places in alone.items()},
                self.space.format(self.table.architectures[row]),
            )
            for row in found.order[:top]
        ]

    def to_frame(self) -> Any:
        """A pandas `DataFrame`, best first."""
        rows = [{**vars(row), **row.places} for row in self.rows()]
        names = ["architecture", "place", "value", "decided", *(member.metric for member in self.ranking.members)]
        return data_frame({name: [row[name] for row in rows] for name in names}, ["architecture"])

    def __repr__(self) -> str:
        names = ", ".join(member.metric for member in self.ranking.members)
        lines = [f"{len(self.table):,} architectures of {self.space.name} by {names}; the best:"]
        return "\n".join([*lines, *(f"{row.place:>5}  {row.architecture}" for row in self.rows(SHOWN))])


def _places(votes: np.ndarray) -> np.ndarray:
    """1 for the largest vote, equals share the better place; NaN where there is none."""
    known = ~np.isnan(votes)
    places = np.full(len(votes), np.nan)
    places[known] = 1 + len(votes[known]) - np.searchsorted(np.sort(votes[known]), votes[known], side="right")
    return places


def rank(
    what: ScoreTable | Space | str,
    architectures: Iterable[Architecture] | int | None = None,
    data: Data | str = "noise",
    *,
    space: str | None = None,
    where: Mapping[str, str] | None = None,
    labels: Literal["true", "random"] = "true",
    seed: int = 0,
    repeats: int = 1,
    batch_size: int = 64,
    channels: int | None = None,
    cells: int | None = None,
    workers: int = 1,
    cluster: str | None = None,
    device: str = "cpu",
    store: str | Path | None = None,
    on_progress: Callable[[ScoringProgress], None] = lambda progress: None,
) -> RankedArchitectures:
    """Ranks architectures without training: `analysis/ranking.py` says by what.

    Args:
        what: a table of scores, a store (a file, or the name of scores that come with Initio), or a space, whose
            architectures are measured first.
        architectures: of a space, which: these, or so many random ones; 100. Scores by the name of a space are ranked
            as they are unless this is given.
        data: what networks see that are measured: noise, digits, a file or a folder, or a `Dataset`.
        space: whose scores, of a store that has several.
        where: which scores of a store to take if it has several kinds, as in {"cells": "5"}.
        labels: the data's own labels, or random ones.
        seed: of the random architectures, the batch and, with the repeat added, the weights.
        repeats: how many initialisations are measured; a member's vote is the mean over them.
        batch_size: inputs in the one batch that all networks see.
        channels: width of the network that scores; by default the space's own for this purpose.
        cells: its number of cells.
        workers: processes that measure.
        cluster: in place of workers here, those of a Dask scheduler at tcp://host:port, or local:8, eight processes.
        device: what computes: cpu, cuda, cuda:1, or auto, a GPU where there is one.
        store: file that keeps what is measured, so that the same call again goes on where it stopped.
        on_progress: hears what is measured.

    >>> found = rank("nb201", 8, channels=2, cells=1, batch_size=8)
    >>> [row.place for row in found.rows(3)], len(found.ranking.members)
    ([1, 2, 3], 7)
    """
    if isinstance(what, ScoreTable):
        if not len(what):
            raise InputError("nothing to rank: the table of scores is empty")
        return _ranked(get_space(what.architectures[0].space), what)
    if isinstance(what, str):
        try:
            path = None if architectures is not None else find_store(what)
        except InputError:
            path = None
        if path is not None:
            return _of_store(path, space, where)
        what = get_space(what)
    problem = make_problem(what, data, labels=labels, batch_size=batch_size, channels=channels, cells=cells)
    if architectures is None:
        architectures = min(POOL, what.count())
    if isinstance(architectures, int):
        architectures = sample(what, architectures, seed)
    from initio.autodiff.work import device_of_workers
    from initio.metrics import Options

    pool = [what.check(arch) for arch in architectures]
    names = tuple(member.metric for member in MEMBERS)
    options = Options(device=device_of_workers(device, cluster, measured=True))
    job = ScoringJob(what, problem.batch(seed), names, problem.network, options, seed, repeats)
    with TemporaryDirectory() as temporary, Store(store or Path(temporary) / "scores.db") as kept:
        score_pool(job, pool, kept, workers=workers, cluster=cluster, on_progress=on_progress)
        return _ranked(what, pool_table(job, pool, kept))


def _of_store(place: StorePlace, space: str | None, where: Mapping[str, str] | None) -> RankedArchitectures:
    with Store(place, read_only=True) as store:
        held = sorted({group.space for group in store.groups() if not group.counted})
        if space is None and len(held) != 1:
            raise InputError(f"the store has scores of {', '.join(held) or 'nothing'}: say by --space which to rank")
        home = get_space(space or held[0])
        return _ranked(home, scores_of_store(store, home, [member.metric for member in MEMBERS], where))


def scores_of_store(
    store: Store, space: Space, metrics: Iterable[str], where: Mapping[str, str] | None = None
) -> ScoreTable:
    """Those of these metrics that a store has: of all architectures whose costs it knows, and of all other networks."""
    kept = {group.metric for group in store.groups()}
    names = [name for name in metrics if name in kept]
    if not names:
        return ScoreTable.of((), {})
    networks = read_table(store, space, where=where, metrics=names)
    pool = _written(store, space, where) if "flops" in names else []
    described = {space.canonical(arch) for arch in pool}
    pool += [arch for arch in networks.architectures if arch not in described]
    return read_table(store, space, pool=pool, where=where, metrics=names)


def _written(store: Store, space: Space, where: Mapping[str, str] | None) -> list[Architecture]:
    """The architectures whose costs were counted, as they are written."""
    counted = read_all(store, space.name, where=where, metrics=["flops"])
    return [arch for arch in counted.architectures if arch.space == space.name]


def _ranked(space: Space, table: ScoreTable) -> RankedArchitectures:
    ranking = rank_table(table)
    if not ranking.members:
        names = ", ".join(member.metric for member in MEMBERS)
        raise InputError(f"nothing to rank by: of {names} none has scores that differ")
    return RankedArchitectures(space, table, ranking)
