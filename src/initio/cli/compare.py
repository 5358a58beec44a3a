"""`initio compare A B`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from initio.cli.units import page_file, print_json
from initio.report.cells import printable

if TYPE_CHECKING:
    from initio.runs.pages.compare import Rows


@dataclass(frozen=True)
class CompareCommand:
    """Puts runs and trained networks side by side: choices, cost, and the settings that differ.

    Args:
        runs: two or more folders.
        out: also write the comparison as a page, with cells and curves: an .html file.
        json: print the table, the differing settings and the distances as JSON.
    """

    runs: tuple[str, ...]
    out: str | None = None
    json: bool = False

    def run(self) -> None:
        """Prints a table, then what differs."""
        from initio.runs.pages.compare import compared, comparison, differing, distance, named
        from initio.runs.pages.subjects import read_folder

        out = None if self.out is None else page_file(self.out)
        subjects = [read_folder(folder) for folder in self.runs]
        names, facts, rows = list(named(subjects)), compared(subjects), differing(subjects)
        if out is not None:
            comparison(subjects).write(out)
        if self.json:
            print_json({"runs": names, "facts": facts, "settings": rows, "distance": distance(subjects)})
            return
        print_beside("", names, facts)
        print(f"\n{distance(subjects)}\n")
        if rows:
            print_beside("settings that differ", names, rows)
        if out is not None:
            print(f"\nwritten {out}")


def print_beside(title: str, names: Sequence[str], rows: Rows) -> None:
    """A table that fits the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in (title, *names):
        table.add_column(Text(printable(name)), overflow="fold")
    for name, row in rows.items():
        table.add_row(*(Text(printable(text)) for text in (name, *row)))
    Console(highlight=False).print(table)
