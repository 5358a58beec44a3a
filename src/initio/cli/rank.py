"""`initio rank SPACE|STORE`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from initio.cli.progress import Reporter
from initio.cli.units import pairs, print_json
from initio.errors import InputError

if TYPE_CHECKING:
    from initio.records import Architecture
    from initio.runs.rank import RankedArchitectures


@dataclass(frozen=True)
class RankCommand:
    """Ranks architectures without training: those of a store, or of a space, which it measures first.

    A few metrics with fixed signs vote by their log-ranks; docs/scoring.md says which and why. Nothing is fitted, no
    accuracy is looked at. A value means something in its own pool alone.

    Args:
        what: a store, the name of scores that come with Initio, or a space. A name that is both means the scores,
            unless --sample or --archs asks for a measurement.
        sample: of a space, measure this many different random architectures; 100.
        archs: of a space, measure the architectures in this text file, one a line.
        where: which scores to take if the store has several kinds, as in cells=5,batch_norm=frozen.
        data: what measured networks see: noise, digits, a file or a folder; docs/data.md lists all kinds.
        top: how many of the best are shown.
        export: also write the scores, the ranking among them, to this .csv or .parquet file.
        json: print JSON instead of a table.
    """

    what: str
    sample: int | None = None
    archs: str | None = None
    space: str | None = None
    where: str | None = None
    data: str = "noise"
    labels: Literal["true", "random"] = "true"
    batch_size: int = 64
    channels: int | None = None
    cells: int | None = None
    seed: int = 0
    repeats: int = 1
    workers: int = 1
    cluster: str | None = None
    device: str = "cpu"
    store: str | None = None
    top: int = 10
    export: str | None = None
    json: bool = False

    VERB: ClassVar[tuple[str, ...]] = ("initio.runs.rank:rank",)
    FIRST: ClassVar[str] = "what"

    def run(self) -> None:
        """Ranks, with progress on stderr if something is measured, and prints the best."""
        from initio.analysis.ranking import ranked
        from initio.runs.rank import rank
        from initio.scores.files import check_export, export

        if self.top < 1:
            raise InputError(f"--top must be at least 1, not {self.top}")
        if self.export:
            check_export(Path(self.export))
        with Reporter() as reporter:
            found = rank(
                self.what, self._architectures(), self.data, space=self.space, where=pairs("--where", self.where),
                labels=self.labels, seed=self.seed, repeats=self.repeats, batch_size=self.batch_size,
                channels=self.channels, cells=self.cells, workers=self.workers, cluster=self.cluster,
                device=self.device, store=self.store, on_progress=reporter.scoring,
            )  # fmt: skip
        if self.export:
            export(Path(self.export), found.space, ranked(found.table))
        if self.json:
            print_json(_facts(found, self.top))
            return
        _print(found, self.top)
        if self.export:
            print(f"exported to {self.export}")

    def _architectures(self) -> list[Architecture] | int | None:
        if self.archs is None:
            return self.sample
        if self.sample is not None:
            raise InputError("say which architectures to rank: --sample N or --archs FILE, not both")
        from initio.scores.pool import read_architectures
        from initio.spaces import get_space

        return read_architectures(Path(self.archs), get_space(self.what))


def _facts(found: RankedArchitectures, top: int) -> dict[str, object]:
    members = {m.metric: {"sign": m.sign, "reason": m.reason} for m in found.ranking.members}
    best = [asdict(row) for row in found.rows(top)]
    return {"space": found.space.name, "architectures": len(found.table), "members": members, "best": best}


def _print(found: RankedArchitectures, top: int) -> None:
    """One line an architecture; under a member's name its own place."""
    from initio.analysis.ranking import MEMBERS

    members = [member.metric for member in found.ranking.members]
    print(f"{len(found.table):,} architectures of {found.space.name}, ranked by {', '.join(members)}")
    if silent := [member.metric for member in MEMBERS if member.metric not in members]:
        print(f"without a say, since they have no scores or all the same: {', '.join(silent)}")
    widths = [max(len(name), 6) for name in members]
    rows = found.rows(top)
    decided = max(len("decided by"), *(len(row.decided) for row in rows))
    head = "  ".join(f"{name:>{width}}" for name, width in zip(members, widths, strict=True))
    print(f"\nplace   value  {'decided by':<{decided}}  {head}  architecture")
    for row in rows:
        alone = (row.places[name] for name in members)
        cells = "  ".join(
            f"{'-' if place is None else place:>{width}}" for place, width in zip(alone, widths, strict=True)
        )
        print(f"{row.place:>5}  {row.value:>6.3f}  {row.decided:<{decided}}  {cells}  {row.architecture}")
