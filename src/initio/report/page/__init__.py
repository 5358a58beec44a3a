"""A page for people: sections of plain data, written as one HTML file that asks the network for nothing.

| file        | what                                                                                    |
|-------------|-----------------------------------------------------------------------------------------|
| `page.html` | the template; jinja2 escapes whatever is put into it                                    |
| `page.css`  | how it looks, in light and in dark, on a desk and on a phone                            |
| `page.js`   | charts on a canvas, the kept cells, files to download                                   |

A block is a record with a template of its name. What the script needs of it (`data`) travels as compressed JSON in
base64, whose letters can end no tag; the page's own policy lets no other script run.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from initio.report.cells import Cell, drawn, family
from initio.report.picture import svg_text
from initio.system.files import write_text

if TYPE_CHECKING:
    from jinja2 import Template

HERE = Path(__file__).parent
SHORT = 30  # letters of a fact that leaves room for another
Value = str | int | float | bool | None
Column = Sequence[Value]


@dataclass(frozen=True)
class PageBlock:
    """A piece of a section; its template is the one that has its class's name in small letters."""

    @property
    def template(self) -> str:
        """The name of its macro in `page.html`."""
        return type(self).__name__.lower()

    def data(self) -> dict[str, Any] | None:
        """What the script is told, as JSON values."""
        return None


@dataclass(frozen=True)
class Prose(PageBlock):
    """A sentence or two."""

    text: str


@dataclass(frozen=True)
class FactList(PageBlock):
    """Names and what is to say about them."""

    facts: Mapping[str, str]

    @property
    def short(self) -> bool:
        """Whether several fit beside each other."""
        return all(len(name) + len(text) <= SHORT for name, text in self.facts.items())


@dataclass(frozen=True)
class Listing(PageBlock):
    """Text as it is typed."""

    text: str


@dataclass(frozen=True)
class CellPictures(PageBlock):
    """Cells, drawn as for paper."""

    cells: Sequence[Cell]
    title: str = ""

    @property
    def source(self) -> str:
        """The picture as an address that holds it."""
        svg = svg_text(self.cells)
        return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


@dataclass(frozen=True)
class DataTable(PageBlock):
    """A table whose first rows are shown, and all of which can be downloaded as `file`."""

    file: str
    columns: Mapping[str, Column]
    shown: int = 12

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Those that are shown."""
        columns = [column[: self.shown] for column in self.columns.values()]
        return [tuple(map(cell_text, row)) for row in zip(*columns, strict=True)]

    @property
    def length(self) -> int:
        """Of all rows."""
        return len(next(iter(self.columns.values()), ()))

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers, to stand on the right."""
        return [all(isinstance(v, int | float | None) for v in column) for column in self.columns.values()]

    def data(self) -> dict[str, Any]:
        """All rows, for the file."""
        return {"kind": "table", "file": self.file, "columns": _columns(self.columns)}


@dataclass(frozen=True)
class LineChart(PageBlock):
    """Lines over one axis: for each its name, x and y."""

    title: str
    x: str
    y: str
    lines: Mapping[str, tuple[Column, Column]]
    steps: bool = False  # a value holds until the next

    def data(self) -> dict[str, Any]:
        """Axes and lines."""
        lines = [{"name": name, "x": _column(x), "y": _column(y)} for name, (x, y) in self.lines.items()]
        return {"kind": "lines", "x": self.x, "y": self.y, "lines": lines, "steps": self.steps}


@dataclass(frozen=True)
class SurfaceChart(PageBlock):
    """A value on the grid at × at, rows along the first direction; NaN where there is none."""

    title: str
    unit: str  # what the value is called
    at: Sequence[float]
    values: Sequence[Sequence[float]]

    def data(self) -> dict[str, Any]:
        """The grid."""
        rows = [_column(row) for row in self.values]
        return {"kind": "surface", "unit": self.unit, "at": list(self.at), "values": rows}


@dataclass(frozen=True)
class PointChart(PageBlock):
    """One point for each architecture, with columns of numbers that can be chosen as axes.

    Args:
        title: of the chart, and of its file.
        columns: numbers by name; None or NaN where there is none.
        x: the column of the first axis to be shown.
        y: that of the second.
        names: of the points, in their space's notation.
        cells: of each point, drawn when it is pointed at; nothing where cells cannot be drawn.
        marked: points that stand out, with a word on why.
    """

    title: str
    columns: Mapping[str, Column]
    x: str
    y: str
    names: Sequence[str]
    cells: Sequence[Sequence[Cell]] = ()
    marked: Mapping[int, str] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """What the table of points is called."""
        return self.title.lower().replace(" ", "-") + ".csv"

    def data(self) -> dict[str, Any]:
        """Columns, names and cells; cells of one shape share it."""
        shapes: dict[Any, int] = {}
        labels: dict[str, str] = {}
        cells = []
        for point in self.cells:
            cells.append([_shaped(cell, shapes, labels) for cell in point])
        return {
            "kind": "points", "file": self.file, "x": self.x, "y": self.y, "columns": _columns(self.columns),
            "names": list(self.names), "cells": cells, "shapes": list(shapes), "families": labels,
            "marked": {str(row): why for row, why in self.marked.items()},
        }  # fmt: skip


def _shaped(cell: Cell, shapes: dict[Any, int], families: dict[str, str]) -> list[int | str]:
    """The number of a cell's shape, then the labels of its arrows."""
    edges = drawn(cell)
    shape = (cell.name, cell.nodes, tuple((edge.source, edge.target) for edge in edges))
    for text in (*cell.nodes, *(edge.label for edge in edges)):
        if text not in families:
            families[text] = family(text)
    return [shapes.setdefault(shape, len(shapes)), *(edge.label for edge in edges)]


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: Sequence[PageBlock]


@dataclass(frozen=True)
class Part:
    """Sections about one thing; its title is left out where it is the only one."""

    title: str
    sections: Sequence[Section]


@dataclass(frozen=True)
class Page:
    """What a page says."""

    title: str
    summary: str
    parts: Sequence[Part]

    def html(self) -> str:
        """The whole file; the same page, the same bytes."""
        script, style = _read("page.js"), _read("page.css")
        blocks = [block for part in self.parts for section in part.sections for block in section.blocks]
        told = [block.data() for block in blocks]
        return _template().render(
            page=self,
            script=script,
            style=style,
            policy=f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'",
            data=_packed(told),
            version=version("initio"),
        )

    def write(self, path: Path) -> None:
        """Writes the file, whole or not at all."""
        write_text(path, self.html())


# --- values ---------------------------------------------------------------------------------------------------------


def cell_text(value: Value) -> str:
    """A value as a table shows it.

    >>> [cell_text(v) for v in (0.123456789, 1234567, None, "a", 93.0)]
    ['0.123457', '1,234,567', '–', 'a', '93']
    """
    if value is None:
        return "–"
    if isinstance(value, str | bool):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}"


def _columns(columns: Mapping[str, Column]) -> dict[str, list[Value]]:
    return {name: _column(column) for name, column in columns.items()}


def _column(values: Column) -> list[Value]:
    """As JSON has it: no value is null, an infinite one a word that JavaScript reads."""
    return [_plain(value) for value in values]


def _plain(value: Value) -> Value:
    if not isinstance(value, float) or math.isfinite(value):
        return value
    if math.isnan(value):
        return None
    return "Infinity" if value > 0 else "-Infinity"


def _packed(told: Any) -> str:
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


# --- the template ---------------------------------------------------------------------------------------------------


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    room = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return room.get_template("page.html")


@cache
def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """How a policy names the one script or style that it allows."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
