"""Cells in the terminal, drawn in box characters, and facts in lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from textwrap import wrap

from initio.errors import InputError
from initio.report.cells import Cell, Edge, drawn, family, printable, remark

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
LINES = dict(zip((3, 12, 10, 6, 9, 5, 11, 7, 14, 13, 15), "│─┌┐└┘├┤┬┴┼", strict=True))
SHORTEST = 4  # characters that a clipped name or label keeps
GAP = 3  # columns between two cells side by side
ANSI = {"convolution": 34, "separable": 35, "dilated": 36, "pooling": 33, "skip": 32, "activation": 31}


def draw_text(cells: Sequence[Cell], width: int = 80, *, colour: bool = False) -> str:
    """The cells in box characters, at most `width` columns wide; `colour` adds ANSI colours to operations.

    The nodes stand below one another. An arrow to the next node runs down between the two boxes; the others
    leave a box on its right side, run down in a lane that all arrows of their source share, and enter where an
    arrowhead points. A branch of a lane is drawn as ┤; lines that meet in ┼ only cross.

    >>> edges = (Edge(0, 1, "conv"), Edge(1, 2), Edge(0, 2, "skip"))
    >>> print(draw_text([Cell("cell", ("in", "mid", "out"), edges)]))
    cell
    ┌─────┐
    │ in  ├─────────┐
    └──┬──┘         │
       │ conv       │
    ┌──▼──┐         │
    │ mid │         │
    └──┬──┘         │
    ┌──▼──┐         │
    │ out │◄─ skip ─┘
    └─────┘
    """
    share = (width - GAP * (len(cells) - 1)) // max(1, len(cells))
    sketches = [_Sketch(cell, share) for cell in cells]
    if any(sketch.is_clipped for sketch in sketches):
        sketches = [_Sketch(cell, width).check() for cell in cells]
    rows: list[list[tuple[int, list[str]]]] = [[]]
    for size, lines in (sketch.lines(colour) for sketch in sketches):
        used = sum(other + GAP for other, _ in rows[-1])
        if rows[-1] and used + size > width:
            rows.append([])
        rows[-1].append((size, lines))
    return "\n\n".join("\n".join(_beside(row)) for row in rows if row)


def brief(value: float | None) -> str:
    """A number in four digits, or a dash where there is none.

    >>> brief(1234.56), brief(None)
    ('1235', '-')
    """
    return "-" if value is None else f"{value:.4g}"


def columns(facts: Mapping[str, object], indent: str = "") -> str:
    """A line for each fact, names and values below each other.

    >>> print(columns({"seed": 0, "space": "nb201"}))
    seed   0
    space  nb201
    """
    width = max(map(len, facts))
    return "\n".join(f"{indent}{name:<{width}}  {value}" for name, value in facts.items())


def _beside(blocks: list[tuple[int, list[str]]]) -> list[str]:
    """Blocks of padded lines next to one another."""
    height = max(len(lines) for _, lines in blocks)
    padded = [lines + [" " * size] * (height - len(lines)) for size, lines in blocks]
    return [(" " * GAP).join(parts).rstrip() for parts in zip(*padded, strict=True)]


@dataclass
class _Lane:
    """The vertical line that carries a node's arrows to all nodes but the next."""

    source: int
    targets: list[Edge]
    first: int = 0  # rows
    last: int = 0
    column: int = 0


class _Sketch:
    """One cell on a grid of characters: first its rows, then its lanes, then its columns."""

    def __init__(self, cell: Cell, width: int) -> None:
        self.cell, self.width, self.is_clipped = cell, width, False
        self.names, edges = [printable(name) for name in cell.nodes], drawn(cell)
        self.spine: dict[int, Edge] = {}  # by source
        self.lanes: dict[int, _Lane] = {}
        for edge in edges:
            if edge.target == edge.source + 1 and edge.source not in self.spine:
                self.spine[edge.source] = edge
            else:
                self.lanes.setdefault(edge.source, _Lane(edge.source, [])).targets.append(edge)
        self._place_rows()
        self._order_lanes()
        self._fit()

    def _place_rows(self) -> None:
        """Each node: a border, a row for every arrow on its right, a border, and a row for a label below."""
        self.top: list[int] = []
        self.rows: list[tuple[Edge, int]] = []
        y = 0
        for node in range(len(self.names)):
            self.top.append(y)
            entering = [e for lane in self.lanes.values() for e in lane.targets if e.target == node]
            for row, edge in enumerate(sorted(entering, key=lambda e: -e.source)):
                self.rows.append((edge, y + 1 + row))
            count = len(entering) + (node in self.lanes)
            if node in self.lanes:
                self.lanes[node].first = y + count
            y += max(1, count) + 2
            y += node in self.spine and bool(self.spine[node].label)
        self.height = y
        for lane in self.lanes.values():
            lane.last = max(row for edge, row in self.rows if edge.source == lane.source)

    def _order_lanes(self) -> None:
        """From left to right with the fewest crossings; lanes that never meet may share a column."""
        lanes = sorted(self.lanes.values(), key=lambda lane: (lane.last, -lane.first))
        if len(lanes) <= 6:
            lanes = min((list(order) for order in permutations(lanes)), key=self._crossings)
        for place, lane in enumerate(lanes):
            met = [m.column for m in lanes[:place] if m.first <= lane.last and lane.first <= m.last]
            lane.column = 1 + max(met, default=-1)

    def _crossings(self, lanes: list[_Lane]) -> int:
        rows = {lane.source: [lane.first] for lane in lanes}
        for edge, row in self.rows:
            rows[edge.source].append(row)
        return sum(
            inner.first < row < inner.last
            for place, outer in enumerate(lanes)
            for inner in lanes[:place]
            for row in rows[outer.source]
        )

    def _fit(self) -> None:
        """Chooses the space between lanes, then the longest names and labels, so that the drawing fits."""
        name, label = max(map(len, self.names)), max((len(e.label) for e in self.cell.edges), default=0)
        for self.step in (3, 2, 1):
            if self._measure(name, label) <= self.width:
                return
        self.is_clipped = True
        while self._measure(name, label) > self.width and max(name, label) > SHORTEST:
            if name > label:
                name -= 1
            else:
                label -= 1

    def check(self) -> _Sketch:
        """The same sketch, if it fits."""
        if self.size > self.width:
            name = self.cell.name
            raise InputError(f"a drawing of cell {name!r} needs a width of {self.size} or more, not {self.width}")
        return self

    def _measure(self, name: int, label: int) -> int:
        """The columns that the drawing takes when names and labels are clipped to these lengths."""
        self.name, self.label = name, label
        self.box = name + 4 + (name % 2 == 0)  # odd, so that it has a middle
        on_lanes = max((len(_clip(e.label, label)) for e, _ in self.rows), default=0)
        on_spine = max((len(_clip(e.label, label)) for e in self.spine.values()), default=0)
        self.lane_x = self.box + 5 + on_lanes if on_lanes else self.box + 2
        columns = [lane.column for lane in self.lanes.values()]
        if on_spine:
            self.lane_x = max(self.lane_x, self.box // 2 + 4 + on_spine)
        self.size = self.lane_x + self.step * max(columns) + 1 if columns else self.box
        if on_spine:
            self.size = max(self.size, self.box // 2 + 2 + on_spine)
        return self.size

    def lines(self, colour: bool) -> tuple[int, list[str]]:
        """The width, and the lines padded to it: name, drawing, remark."""
        grid = _Grid(self.size, self.height)
        for node in range(len(self.names)):
            self._draw_node(grid, node)
        for edge in self.spine.values():
            self._draw_spine(grid, edge)
        for lane in self.lanes.values():
            self._draw_lane(grid, lane)
        for edge, row in self.rows:
            self._draw_entry(grid, edge, row)
        column = max(self.size, min(self.width, 36))
        head, foot = _wrap(self.cell.name, column), _wrap(remark(self.cell), column)
        size = max([self.size, *map(len, head), *map(len, foot)])
        drawing = [line + " " * (size - self.size) for line in grid.lines(colour)]
        return size, [t.ljust(size) for t in head] + drawing + [t.ljust(size) for t in foot]

    def _draw_node(self, grid: _Grid, node: int) -> None:
        top, rows = self.top[node], self._n_rows(node)
        grid.horizontal(top, 0, self.box - 1)
        grid.horizontal(top + rows + 1, 0, self.box - 1)
        grid.vertical(0, top, top + rows + 1)
        grid.vertical(self.box - 1, top, top + rows + 1)
        text = _clip(self.names[node], self.name)
        grid.write((self.box - len(text)) // 2, top + 1, text, family(self.names[node]))

    def _n_rows(self, node: int) -> int:
        return max(1, sum(edge.target == node for edge, _ in self.rows) + (node in self.lanes))

    def _draw_spine(self, grid: _Grid, edge: Edge) -> None:
        x, start, end = self.box // 2, self.top[edge.source] + self._n_rows(edge.source) + 1, self.top[edge.target]
        grid.vertical(x, start, end)
        grid.write(x, end, "▼")
        if edge.label:
            grid.write(x + 2, start + 1, _clip(edge.label, self.label), family(edge.label))

    def _lane_x(self, lane: _Lane) -> int:
        return self.lane_x + self.step * lane.column

    def _draw_lane(self, grid: _Grid, lane: _Lane) -> None:
        grid.horizontal(lane.first, self.box - 1, self._lane_x(lane))
        grid.vertical(self._lane_x(lane), lane.first, lane.last)

    def _draw_entry(self, grid: _Grid, edge: Edge, row: int) -> None:
        grid.horizontal(row, self.box, self._lane_x(self.lanes[edge.source]))
        grid.write(self.box, row, "◄")
        if edge.label:
            grid.write(self.box + 2, row, f" {_clip(edge.label, self.label)} ", family(edge.label))


class _Grid:
    """Characters and lines; where lines meet, the right box character appears."""

    def __init__(self, width: int, height: int) -> None:
        self.lines_at = [[0] * width for _ in range(height)]
        self.text: dict[tuple[int, int], tuple[str, str]] = {}

    def horizontal(self, y: int, x0: int, x1: int) -> None:
        for x in range(x0, x1):
            self.lines_at[y][x] |= RIGHT
            self.lines_at[y][x + 1] |= LEFT

    def vertical(self, x: int, y0: int, y1: int) -> None:
        for y in range(y0, y1):
            self.lines_at[y][x] |= DOWN
            self.lines_at[y + 1][x] |= UP

    def write(self, x: int, y: int, text: str, kind: str = "other") -> None:
        for place, character in enumerate(text):
            self.text[x + place, y] = (character, kind)

    def lines(self, colour: bool) -> list[str]:
        return [
            "".join(self._character(x, y, ends, colour) for x, ends in enumerate(row))
            for y, row in enumerate(self.lines_at)
        ]

    def _character(self, x: int, y: int, ends: int, colour: bool) -> str:
        text, kind = self.text.get((x, y), (LINES.get(ends, " "), "other"))
        if colour and kind in ANSI and text != " ":
            return f"\x1b[{ANSI[kind]}m{text}\x1b[0m"
        return text


def _wrap(text: str, width: int) -> list[str]:
    """Lines of a text in which `a → b` stays together where it can."""
    return [line.replace("\0", " ") for line in wrap(printable(text).replace(" → ", "\0→\0"), width)]


def _clip(text: str, length: int) -> str:
    """
    >>> _clip("sep_conv_3x3", 8)
    'sep_con…'
    """
    text = printable(text)
    return text if len(text) <= length else text[: length - 1] + "…"
