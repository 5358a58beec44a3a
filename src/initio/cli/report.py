"""`initio report RUN ...`, `initio report --store NAME`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from initio.cli.units import page_file, pairs, size, tell

if TYPE_CHECKING:
    from initio.runs.pages.subjects import Subject


@dataclass(frozen=True)
class ReportCommand:
    """Writes a page about runs, trained networks, studies or a store of scores: one HTML file that needs no network.

    Args:
        runs: folders of searches, trained networks, solved tasks, ensembles, landscapes and studies of convergence.
        store: scores: a file, or the name of scores that come with Initio (nb201).
        space: whose scores, if the store has those of several spaces.
        where: which scores, if the store has several kinds, as in cells=5.
        data: folder with a benchmark's files, whose accuracies become axes beside the scores.
        table: the benchmark, if it is not called as the space is (nb301 for darts).
        out: the file to write.
        json: print what was written as JSON.
    """

    runs: tuple[str, ...] = ()
    store: str | None = None
    space: str | None = None
    where: str | None = None
    data: str | None = None
    table: str | None = None
    out: str = "report.html"
    json: bool = False

    FIRST: ClassVar[str] = "runs"

    def run(self) -> None:
        """Reads everything, then writes the page and says how large it is."""
        from initio.runs.pages.report import report
        from initio.runs.pages.subjects import read_folder

        out = page_file(self.out)
        subjects = [read_folder(folder) for folder in self.runs]
        if self.store is not None:
            subjects.append(self._scores(self.store))
        report(subjects).write(out)
        length = out.stat().st_size
        tell(f"written {out}, {size(length)}", {"written": str(out), "bytes": length}, json=self.json)

    def _scores(self, store: str) -> Subject:
        from initio.runs.pages.subjects import read_store

        where = pairs("--where", self.where)
        return read_store(store, space=self.space, where=where, data=self.data, table=self.table)
