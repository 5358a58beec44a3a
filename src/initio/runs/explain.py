"""The verb: `initio.explain`, all that is known of one architecture before anybody trains it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from initio.analysis.hnas_bounds import BOUNDS, WITH_KAPPA, bound
from initio.analysis.nearest import NearestCell, nearest
from initio.analysis.ranking import MEMBERS, Ranking, rank
from initio.analysis.topology import CellShape, shape, share
from initio.errors import InputError
from initio.metrics import is_higher_better
from initio.records import Architecture
from initio.runs.folders.named import find_named
from initio.searches.result import SearchResult
from initio.spaces import NetworkSettings, Space

if TYPE_CHECKING:
    from initio.scores.pool import ScoringJob, ScoringProgress
    from initio.scores.table import ScoreTable

MEASURED = ("trace", "kappa", "grad_norm", "snip")  # beside the members of the ranking
LISTED = 20_000  # architectures of a space whose scores may come with Initio, all of them
M = "trace"  # that the bounds are made of


@dataclass(frozen=True)
class ExplainedCell:
    """How wide and deep a cell is; of the space's first cells, which part is narrower and which is deeper."""

    name: str
    width: float
    depth: int
    narrower: float | None = None
    deeper: float | None = None


@dataclass(frozen=True)
class MetricPlace:
    """A value and where it stands: better than `percentile` percent of the others; None with a reason."""

    metric: str
    value: float | None
    percentile: float | None
    higher_is_better: bool
    flag: str = ""


@dataclass(frozen=True)
class RankPlace:
    """Where the training-free ranking puts the architecture: place 1 is the best of `among`."""

    place: int
    among: int
    percentile: float  # of the others, so many are worse
    members: tuple[str, ...]  # who had a say
    decided: str  # the member that moved it farthest from the middle


@dataclass(frozen=True)
class Change:
    """One other option of one decision, and where the ranking would put the architecture then."""

    decision: str
    now: str
    option: str
    percentile: float  # after the change
    gain: float  # in points of the percentile
    because: str  # the member that speaks most for the better one of the two
    shape: str = ""  # width and depth of the changed cell


@dataclass(frozen=True)
class Explanation:
    """All that `initio explain` says, as data.

    Args:
        architecture: what is explained.
        notation: the same as text.
        cells: width and depth.
        parameters: of the published network.
        flops: of its forward pass.
        others: which architectures percentiles compare with, in words.
        metrics: values and percentiles.
        bounds: of HNAS, from trace and κ; smaller is better.
        ranking: its place, where enough is known.
        changes: of every decision the option that the ranking likes best beside the present one, best first.
        worst: of every decision the option that it likes least, worst first.
        nearest: the published cell that it agrees with most.
        method: of the search that chose it, if one did.
        why: that search's sentence.
        notes: what could not be said, and why.
    """

    architecture: Architecture
    notation: str
    cells: tuple[ExplainedCell, ...]
    parameters: int
    flops: int
    others: str
    metrics: tuple[MetricPlace, ...] = ()
    bounds: tuple[MetricPlace, ...] = ()
    ranking: RankPlace | None = None
    changes: tuple[Change, ...] = ()
    worst: tuple[Change, ...] = ()
    nearest: NearestCell | None = None
    method: str | None = None
    why: str | None = None
    notes: tuple[str, ...] = ()

    kind: ClassVar[str] = "explanation"


def explain(
    what: Architecture | SearchResult | str,
    *,
    measure: bool = False,
    pool: int = 24,
    data: str | None = None,
    batch_size: int = 32,
    changes: bool = True,
    seed: int = 0,
    workers: int = 1,
    cluster: str | None = None,
    device: str = "cpu",
    store: str | Path | None = None,
    on_progress: Callable[[ScoringProgress], None] = lambda progress: None,
) -> Explanation:
    """What an architecture is, where it stands, and what each of its decisions does.

    Args:
        what: an architecture, its text or name, a run folder, or what a search returned.
        measure: measure now, also where scores of the architecture come with Initio.
        pool: how many random architectures of the space it is measured with.
        data: to measure on; by default Gaussian noise in the size that the space is scored with.
        batch_size: inputs that are measured on.
        changes: also say what every single change would do, which measures the architecture's neighbours.
        seed: of the pool, the weights and the batch.
        workers: processes that measure.
        cluster: in place of workers here, those of a Dask scheduler at tcp://host:port, or local:8, eight processes.
        device: what computes: cpu, cuda, cuda:1, or auto, a GPU where there is one.
        store: a file that keeps what is measured; a call that finds it there does not measure it again.
        on_progress: hears how far the measuring is.

    >>> found = explain("|nor_conv_3x3~0|+|nor_conv_3x3~0|none~1|+|skip_connect~0|none~1|nor_conv_3x3~2|")
    >>> found.cells[0].width, found.cells[0].depth, found.others
    (1.0, 2, 'all 15,625 architectures of nb201, by scores that come with Initio')
    """
    named = find_named(what)
    arch, space, result = named.space.check(named.architecture), named.space, named.result
    table, others = None, ""
    if not measure:
        table, others = _shipped(space, arch)
    if measured := table is None:
        from initio.autodiff.work import device_of_workers

        on = device_of_workers(device, cluster, measured=True)
        asked = _Asked(space, arch, pool, data, batch_size, changes, seed, workers, cluster, on, store)
        table = asked.measured(on_progress)
        count = min(pool, space.count())
        others = f"{count} random architectures of {space.name}, measured now on {data or 'noise'}"
    near = tuple(space.neighbours(arch)) if changes else ()
    near = tuple(one for one in near if one in table.rows)
    found = _Ranked(table, arch, near, apart=frozenset(near if measured else ()))
    size = NetworkSettings(prune=False, classes=named.classes)
    cost = space.cost(arch, size)
    gains = sorted((found.change(space, one) for one in found.near), key=lambda change: -change.gain)
    return Explanation(
        architecture=arch,
        notation=space.format(arch),
        cells=_cells(space, arch),
        parameters=cost.parameters,
        flops=cost.flops,
        others=others,
        metrics=found.metrics(),
        bounds=found.bounds(),
        ranking=found.place(),
        changes=_one_a_decision(gains),
        worst=_one_a_decision(gains[::-1]),
        nearest=nearest(space, arch),
        method=getattr(result, "method", None),
        why=getattr(result, "why", None),
        notes=found.notes(),
    )


def _cells(space: Space, arch: Architecture) -> tuple[ExplainedCell, ...]:
    """Compared with the space's first cells, which are counted once; the others have the same choices."""
    if not space.wired:
        return ()
    found = []
    for number, cell in enumerate(space.cells(arch)):
        its, parts = shape(cell), tuple[float, ...]()
        if number == 0 or space.alike:
            parts = share(space, its)
        found.append(ExplainedCell(cell.name, its.width, its.depth, *parts))
    return tuple(found)


def _one_a_decision(ordered: Sequence[Change]) -> tuple[Change, ...]:
    """The first change of each decision."""
    first: dict[str, Change] = {}
    for change in ordered:
        first.setdefault(change.decision, change)
    return tuple(first.values())


# --- the scores -----------------------------------------------------------------------------------------------------


def _shipped(space: Space, arch: Architecture) -> tuple[ScoreTable | None, str]:
    """The scores that come with Initio, if this architecture is among them."""
    from initio.scores.read import read_table
    from initio.scores.store import Store, shipped

    path = shipped().get(space.canonical(arch).space)
    if path is None or space.count() > LISTED:  # of a large space a sample is shipped, of which this is hardly one
        return None, ""
    with Store(path, read_only=True) as store:
        table = read_table(store, space, pool=tuple(space.architectures()))
    if arch not in table.rows or len(table) < space.count():
        return None, ""
    return table, f"all {len(table):,} architectures of {space.name}, by scores that come with Initio"


@dataclass(frozen=True)
class _Asked:
    """What is measured, and how."""

    space: Space
    arch: Architecture
    pool: int
    data: str | None
    batch_size: int
    changes: bool
    seed: int
    workers: int
    cluster: str | None
    device: str
    store: str | Path | None

    def measured(self, on_progress: Callable[[ScoringProgress], None]) -> ScoreTable:
        """The pool and the architecture by every metric, its neighbours by the members of the ranking."""
        from initio.scores.pool import pool_table, sample, score_pool
        from initio.scores.store import Store

        if self.pool < 1:
            raise InputError(f"a percentile needs other architectures: take a pool of 1 or more, not {self.pool}")
        members = tuple(member.metric for member in MEMBERS)
        drawn = sample(self.space, min(self.pool, self.space.count()), self.seed)
        compared = list(dict.fromkeys([self.arch, *drawn]))
        near = [one for one in self.space.neighbours(self.arch) if self.changes]
        every, few = self._job((*members, *MEASURED)), self._job(members)
        with tempfile.TemporaryDirectory() as folder, Store(self.store or Path(folder, "scores.db")) as store:
            score_pool(every, compared, store, workers=self.workers, cluster=self.cluster, on_progress=on_progress)
            score_pool(few, near, store, workers=self.workers, cluster=self.cluster, on_progress=on_progress)
            return pool_table(every, [*compared, *near], store)

    def _job(self, metrics: tuple[str, ...]) -> ScoringJob:
        from initio.data import Noise, load
        from initio.metrics import Options
        from initio.scores.pool import ScoringJob

        size = self.space.sizes.scoring
        source = load(self.data) if self.data else Noise((3, size.pixels or 16, size.pixels or 16), 10)
        batch = source.batch(self.batch_size, self.seed)
        network = NetworkSettings(size.channels, size.cells, batch.classes, batch.shape)
        return ScoringJob(self.space, batch, metrics, network, Options(device=self.device), self.seed)


class _Ranked:
    """A table of an architecture, its neighbours, and those it is compared with: all but those `apart`."""

    def __init__(
        self, table: ScoreTable, arch: Architecture, near: Sequence[Architecture], apart: frozenset[Architecture]
    ) -> None:
        self.table, self.arch, self.near, self.row = table, arch, near, table.rows[arch]
        self.compared = np.array([one not in apart for one in table.architectures])
        self.others = self.compared & (np.arange(len(table)) != self.row)
        columns = {name: table[name] for name in table.metrics}
        self.ranking: Ranking = rank(columns)

    def metrics(self) -> tuple[MetricPlace, ...]:
        """Every metric of the table."""
        return tuple(self._placed(name, self.table[name], is_higher_better(name)) for name in self.table.metrics)

    def bounds(self) -> tuple[MetricPlace, ...]:
        """Those of HNAS, with μ and ν in the middle where they have some."""
        if not {M, "kappa"} <= set(self.table.metrics):
            return ()
        values, kappa = self.table[M][self.compared], self.table["kappa"][self.compared]
        found = []
        for kind in BOUNDS:
            column = np.full(len(self.table), np.nan)
            column[self.compared] = bound(kind, values, kappa if kind in WITH_KAPPA else None)
            found.append(self._placed(kind, column, higher=False))
        return tuple(found)

    def _placed(self, name: str, column: np.ndarray, higher: bool) -> MetricPlace:
        value = float(column[self.row])
        if np.isnan(value):
            why = "it does not exist"
            if name in self.table.metrics:
                why = self.table.reason(self.arch, name)
            return MetricPlace(name, None, None, higher, why)
        sign = 1 if higher else -1
        others = sign * column[self.others]
        place = _percentile(sign * value, others[~np.isnan(others)])
        if np.isinf(value):
            return MetricPlace(name, None, place, higher, "infinite: the kernel is singular")
        return MetricPlace(name, value, place, higher)

    def place(self) -> RankPlace | None:
        """None where no member has a value."""
        if not self.ranking.members:
            return None
        values = self.ranking.values
        better = int((values[self.others] > values[self.row]).sum())
        members = tuple(member.metric for member in self.ranking.members)
        return RankPlace(
            better + 1, int(self.compared.sum()), self._at(self.row), members, self.ranking.decided[self.row]
        )

    def _at(self, row: int) -> float:
        values = self.ranking.values
        return _percentile(values[row], values[self.others])

    def change(self, space: Space, one: Architecture) -> Change:
        """What a neighbour has of its own, and where it stands."""
        row = self.table.rows[one]
        at = next(k for k, (a, b) in enumerate(zip(self.arch.choices, one.choices, strict=True)) if a != b)
        decision = space.decisions[at]
        now, after = self._at(self.row), self._at(row)
        changed = ""
        if space.wired:
            names = [d.cell for d in space.decisions]
            cell = list(dict.fromkeys(names)).index(decision.cell)
            changed = str(shape(space.cells(one)[cell]))
        because = self.ranking.between(self.row, row)
        option, old = (decision.options[choices[at]] for choices in (one.choices, self.arch.choices))
        return Change(decision.name, old, option, after, after - now, because, changed)

    def notes(self) -> tuple[str, ...]:
        """What the numbers above rest on."""
        spoke = {member.metric for member in self.ranking.members}
        if silent := [member.metric for member in MEMBERS if member.metric not in spoke]:
            return (f"the ranking was made without {', '.join(silent)}, of which there are no scores",)
        return ()


def _percentile(value: float, others: np.ndarray) -> float:
    """How many percent of the others are below; equals count half."""
    if not len(others):
        return 50.0
    return 100 * float((others < value).mean() + (others == value).mean() / 2)


def shown(cell: ExplainedCell) -> str:
    """A cell's width and depth as the paper writes them, then how it compares."""
    text = str(CellShape(cell.width, cell.depth))
    if cell.narrower is not None and cell.deeper is not None:
        text += f": {cell.narrower:.0%} of the space's cells are narrower, {cell.deeper:.0%} deeper"
    return text
