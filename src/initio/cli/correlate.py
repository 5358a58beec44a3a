"""`initio correlate TABLE:COLUMN`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from initio.cli.units import names, number, pairs, picture_file, print_json, settings_line
from initio.report.cells import printable

if TYPE_CHECKING:
    from initio.analysis.relate import Relation
    from initio.scores.store import Store
    from initio.tables import CompactTable
    from initio.tables.catalogue import Benchmark


@dataclass(frozen=True)
class CorrelateCommand:
    """Compares scores with a benchmark's published numbers, and with each other.

    Args:
        target: the published number to be ranked, TABLE:COLUMN as in nb201_tss.npz:test_c10_nb201. TABLE is a file, or
            the name of one in the folder of --data or INITIO_DATA; nb301:surrogate is what that surrogate predicts for
            the scored darts cells.
        store: file with scores, or the name of scores that come with Initio.
        metrics: names with commas between them; by default all that the store has.
        where: which scores to take if the store has several kinds, as in cells=5,batch_norm=frozen.
        sample: compare on this many random architectures, those of `initio score SPACE --sample`, instead of all.
        seed: of that sample.
        top: the k of top-k regret and nDCG.
        fit: column by which the two parameters of HNAS's bounds are fitted; by default, as in the paper, the target.
        t: F(x) = x^2t in HNAS's bounds; 0.5 gives |x|.
        data: folder with the table; by default that of INITIO_DATA.
        out: also draw every metric beside the target: an .svg, .pdf or .png file.
        json: print JSON instead of tables.
    """

    target: str = ""
    store: str = "scores.db"
    metrics: str | None = None
    where: str | None = None
    sample: int | None = None
    seed: int = 0
    top: int = 10
    fit: str | None = None
    t: float = 1.0
    data: str | None = None
    out: str | None = None
    json: bool = False

    FIRST: ClassVar[str] = "target"

    def run(self) -> None:
        """Prints how metrics agree with the target, how HNAS's bounds do, and how metrics agree with each other."""
        from initio.analysis.relate import relate
        from initio.scores.store import Store, find_store
        from initio.tables import split_target

        name, column = split_target(self.target)
        out = None if self.out is None else picture_file(self.out)
        where, metrics = pairs("--where", self.where), names(self.metrics)
        with Store(find_store(self.store), read_only=True) as store:
            table = self._table(name, store, where)
            relation = relate(store, table, column, where=where, metrics=metrics, only=self._only(table))
        fit = None if self.fit is None else table.column(self.fit)[list(relation.rows)]
        metric_rows = _metric_rows(relation, self.top)
        bound_rows = [asdict(row) for row in relation.bounds(fit, t=self.t)]
        if out is not None:
            _draw(relation, metric_rows, self.target, out)
        if self.json:
            facts = {
                "target": self.target,
                "architectures": len(relation.rows),
                "networks": relation.networks,
                "metrics": metric_rows,
                "bounds": bound_rows,
                "between": {f"{a},{b}": value for (a, b), value in relation.between().items()},
            }
            print_json(facts)
            return
        _print_head(relation, table, column)
        if self.sample is None and len(relation.rows) < table.length and not _surrogate(name):
            print("a part of the table: all architectures of the scored networks; --sample N takes those of a sample")
        _print_metrics(metric_rows, self.top)
        _print_bounds(bound_rows, self.fit or column)
        _print_between(relation)
        if out is not None:
            print(f"\nwritten {out}")

    def _table(self, name: str, store: Store, where: Mapping[str, str]) -> CompactTable:
        """A file's table; or the surrogate's, with a row for each cell of the store."""
        from initio.scores.read import read_all
        from initio.tables import open_compact

        if surrogate := _surrogate(name):
            return open_compact(name, self.data, among=read_all(store, surrogate.space, where=where).written)
        return open_compact(name, self.data)

    def _only(self, table: CompactTable) -> list[Any] | None:
        if self.sample is None:
            return None
        from initio.scores.pool import sample
        from initio.spaces import get_space

        return list(sample(get_space(table.space), self.sample, self.seed))


def _surrogate(name: str) -> Benchmark | None:
    """The benchmark of this name, if it predicts."""
    from initio.tables import TABLES

    found = TABLES.get(name)
    return found if found and found.predicts else None


def _draw(relation: Relation, rows: list[dict[str, Any]], target: str, out: Path) -> None:
    from initio.report.scatter import save_scatter

    panels = {
        f"{row['metric']}: ρ {number(row['spearman'], 2)} of {row['used']:,}": relation.scores[row["metric"]]
        for row in sorted(rows, key=_strongest)
    }
    title = f"{len(relation.rows):,} architectures, Spearman's ρ"
    save_scatter(panels, relation.target, out, axis=target, title=title)


def _strongest(row: dict[str, Any]) -> float:
    return -abs(float(row["spearman"] or 0.0))


def _metric_rows(relation: Relation, top: int) -> list[dict[str, Any]]:
    return [
        {"metric": name, **asdict(found), "spread": relation.spread(name)}
        for name, found in relation.agreements(top).items()
    ]


# --- tables for people ------------------------------------------------------------


def _print_head(relation: Relation, table: CompactTable, column: str) -> None:
    origins = relation.scores.origins.values()
    scored = next(origin for origin in origins if not origin.counted)
    draws, batches = len(scored.draws), len({batch for _, batch in scored.draws})
    print(f"{column} of {table.path.name}: {len(relation.rows):,} architectures, {relation.networks:,} networks")
    drawn = f"{draws} draw{'s' * (draws > 1)} of the weights, {batches} of the batch"
    print(f"scores on {printable(scored.source or scored.draws[0][1])}, {drawn}: {settings_line(scored.settings)}")


def _print_metrics(rows: list[dict[str, Any]], top: int) -> None:
    width = max(len("metric"), *(len(row["metric"]) for row in rows))
    print(f"\n{'metric':<{width}}  spearman   ±draws  kendall  top-{top} regret  nDCG@{top}       used  undefined")
    for row in sorted(rows, key=_strongest):
        print(
            f"{row['metric']:<{width}}  {number(row['spearman']):>8}  {number(row['spread']):>7}  "
            f"{number(row['kendall']):>7}  {number(row['regret'], 2):>{11 + len(str(top))}}  "
            f"{number(row['ndcg']):>{5 + len(str(top))}}  {row['used']:>9,}  {row['undefined']:>9,}"
        )


def _print_bounds(rows: list[dict[str, Any]], fitted: str) -> None:
    if not rows:
        return
    print(
        f"\nHNAS's bounds against the error; ν (a quantile of M²) and s (the trade-off weighs 10^s) fitted to {fitted}"
    )
    width = max(len(row["metric"]) for row in rows)
    print(f"{'M':<{width}}  {'bound':<14}  spearman  kendall       used      ν     s")
    for row in rows:
        by = row["trade_off"]
        free = f"{by['nu']:>5.2f}  {by['s']:>4.1f}" if by else ""
        print(
            f"{row['metric']:<{width}}  {row['bound']:<14}  {number(row['spearman']):>8}  "
            f"{number(row['kendall']):>7}  {row['used']:>9,}  {free}".rstrip()
        )


def _print_between(relation: Relation) -> None:
    metrics = relation.scores.metrics
    table = relation.between()
    width = max(map(len, metrics))
    print("\nSpearman between metrics")
    print(" " * (width + 4) + "".join(f"{place:>6}" for place in range(1, len(metrics) + 1)))
    for place, a in enumerate(metrics, start=1):
        cells = "".join(f"{number(table[a, b], 2):>6}" for b in metrics[:place])
        print(f"{place:>2}  {a:<{width}}{cells}")
