"""Cells as people draw them: in the terminal, and as a figure for a paper.

One look for all spaces: data flows from the inputs to the output, an operation has the colour of its family,
whether the space writes it on the arrows (`nb201`, `darts`) or into the nodes (`nb101`, `mlp`). An arrow that
carries `none` is not drawn; a line below the cell names it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise, permutations
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from initio.errors import InputError
from initio.files import whole_file
from initio.graphs import ZERO
from initio.report.layout import Arrow, Box, Layout, Point, Size, Spacing, arrange
from initio.spaces.base import Cell, Edge

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".pdf", ".png", ".svg")

FAMILIES = (  # the first pattern that matches decides
    ("dilated", re.compile(r"dil")),
    ("separable", re.compile(r"sep")),
    ("convolution", re.compile(r"conv")),
    ("pooling", re.compile(r"pool")),
    ("skip", re.compile(r"skip|identity|residual")),
    ("activation", re.compile(r"relu|sigmoid|tanh|swish|silu|gelu|elu")),
)


def family(operation: str) -> str:
    """The family of an operation, which decides its colour; `other` when the name says nothing.

    >>> [family(name) for name in ("nor_conv_3x3", "conv1x1-bn-relu", "dil_conv_5x5", "c_{k-2}")]
    ['convolution', 'convolution', 'dilated', 'other']
    """
    return next((name for name, pattern in FAMILIES if pattern.search(operation.lower())), "other")


def _drawn(cell: Cell) -> list[Edge]:
    for edge in cell.edges:
        if not 0 <= edge.source < edge.target < len(cell.nodes):
            raise InputError(f"edge {edge.source} -> {edge.target} of cell {cell.name!r} must lead to a later node")
    return [edge for edge in cell.edges if edge.label != ZERO]


def _remark(cell: Cell) -> str:
    """The line below a cell that names what is not drawn."""
    hidden = [f"{cell.nodes[e.source]} → {cell.nodes[e.target]}" for e in cell.edges if e.label == ZERO]
    return f"{ZERO} (not drawn): {', '.join(hidden)}" if hidden else ""


def _live(cell: Cell) -> set[int]:
    """The nodes on a path from an input to the output."""
    fed, used = set(range(cell.n_inputs)), {len(cell.nodes) - 1}
    for edge in sorted(_drawn(cell), key=lambda e: e.target):
        fed |= {edge.target} if edge.source in fed else set()
    for edge in sorted(_drawn(cell), key=lambda e: -e.source):
        used |= {edge.source} if edge.target in used else set()
    return fed & used


# --- the terminal -------------------------------------------------------------------------------------------

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
    narrow = [_Sketch(cell, share) for cell in cells]
    fit = not any(sketch.is_clipped for sketch in narrow)
    sketches = narrow if fit else [_Sketch(cell, width).check() for cell in cells]
    blocks = [sketch.lines(colour) for sketch in sketches]
    rows: list[list[tuple[int, list[str]]]] = []
    for size, lines in blocks:
        used = sum(other + GAP for other, _ in rows[-1]) if rows else width
        if used + size > width:
            rows.append([])
        rows[-1].append((size, lines))
    return "\n\n".join("\n".join(_beside(row)) for row in rows)


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
        self.names, edges = [_printable(name) for name in cell.nodes], _drawn(cell)
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
            name, label = (name - 1, label) if name > label else (name, label - 1)

    def check(self) -> _Sketch:
        """The same sketch, if it fits."""
        if self.size > self.width:
            raise InputError(
                f"a drawing of cell {self.cell.name!r} needs a width of {self.size} or more, not {self.width}"
            )
        return self

    def _measure(self, name: int, label: int) -> int:
        """The columns that the drawing takes when names and labels are clipped to these lengths."""
        self.name, self.label = name, label
        self.box = name + 4 + (name % 2 == 0)  # odd, so that it has a middle
        on_lanes = max((len(_clip(e.label, label)) for e, _ in self.rows), default=0)
        on_spine = max((len(_clip(e.label, label)) for e in self.spine.values()), default=0)
        self.lane_x = self.box + 2
        if on_lanes:
            self.lane_x = self.box + 5 + on_lanes
        if on_spine:
            self.lane_x = max(self.lane_x, self.box // 2 + 4 + on_spine)
        n_columns = 1 + max((lane.column for lane in self.lanes.values()), default=-1)
        right = self.lane_x + self.step * (n_columns - 1) + 1 if n_columns else self.box
        if on_spine:
            right = max(right, self.box // 2 + 2 + on_spine)
        self.size = right
        return right

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
        head, foot = _wrap(self.cell.name, column), _wrap(_remark(self.cell), column)
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
        x, start, end = (
            self.box // 2,
            self.top[edge.source] + self._n_rows(edge.source) + 1,
            self.top[edge.target],
        )
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
        self.text: dict[Point, tuple[str, str]] = {}

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
        return f"\x1b[{ANSI[kind]}m{text}\x1b[0m" if colour and kind in ANSI and text != " " else text


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def _wrap(text: str, width: int) -> list[str]:
    """Lines of a text in which `a → b` stays together where it can."""
    return [line.replace("\0", " ") for line in wrap(_printable(text).replace(" → ", "\0→\0"), width)]


def _clip(text: str, length: int) -> str:
    """
    >>> _clip("sep_conv_3x3", 8)
    'sep_con…'
    """
    text = _printable(text)
    return text if len(text) <= length else text[: length - 1] + "…"


# --- the figure ---------------------------------------------------------------------------------------------

FONTS = ["Helvetica", "Arial", "Liberation Sans", "DejaVu Sans"]
INK, FAINT, LINE = "#20262e", "#7a838f", "#5b6573"
COLOURS = {  # colours that the colour-blind can tell apart, after Okabe and Ito (2008)
    "convolution": "#0b62a8",
    "separable": "#7a3fa0",
    "dilated": "#00808a",
    "pooling": "#c25a00",
    "skip": "#2e7d32",
    "activation": "#b3265e",
    "other": LINE,
}
NODE_SIZE, LABEL_SIZE, HEAD_SIZE, REMARK_SIZE = 9.0, 7.5, 9.5, 7.5  # of the type, in points
MARGIN, BETWEEN, PAGE = 8.0, 26.0, 520.0  # points; cells stand side by side while they fit a page
ARROW = 5.5
MOST_PIXELS = 30_000  # of a side of a PNG; a longer picture gets a lower resolution


def save_picture(cells: Sequence[Cell], path: str | Path, title: str = "") -> None:
    """One figure with all cells, as SVG, PDF or PNG by the suffix of `path`; same cells, same bytes.

    Text stays text in SVG and PDF: it can be searched, copied and edited. The size is that of print, with type
    of 7.5 to 11 points.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"a picture ends in one of {', '.join(SUFFIXES)}, not in {path.suffix!r} as {path.name!r} does"
        )
    if not path.parent.is_dir():
        raise InputError(f"the folder {str(path.parent)!r} for the picture {path.name!r} does not exist")
    if not cells:
        raise InputError(f"there is no cell to draw into {path.name!r}")
    _write(path, _render(cells, title, path.suffix.lower()[1:]))


def _write(path: Path, content: bytes) -> None:
    try:
        with whole_file(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise InputError(f"the picture {str(path)!r} cannot be written: {error.strerror}") from None


def _render(cells: Sequence[Cell], title: str, kind: str) -> bytes:
    import matplotlib as mpl

    settings: dict[Any, Any] = {
        "font.family": ["sans-serif"],
        "font.sans-serif": FONTS,
        "text.usetex": False,
        "path.sketch": None,
        "path.effects": [],
        "savefig.bbox": None,
        "svg.fonttype": "none",
        "svg.hashsalt": "initio",
        "pdf.fonttype": 42,  # TrueType: conferences refuse type 3
        "pdf.compression": 6,
    }
    metadata: dict[str, dict[str, Any]] = {
        "svg": {
            "Date": None,
            "Creator": "Initio",
            "Title": _printable(title or ", ".join(cell.name for cell in cells)),
        },
        "pdf": {"CreationDate": None, "Creator": "Initio", "Producer": None},
        "png": {"Software": "Initio"},
    }
    with mpl.rc_context(settings):
        buffer = BytesIO()
        figure = _figure([_Panel(cell, alone=len(cells) == 1) for cell in cells], title)
        dpi = min(300.0, MOST_PIXELS / max(figure.get_size_inches()))
        figure.savefig(buffer, format=kind, dpi=dpi, facecolor="white", metadata=metadata[kind])
        return buffer.getvalue()


def _figure(panels: list[_Panel], title: str) -> Figure:
    from matplotlib.figure import Figure

    aside = sum(panel.width for panel in panels) + BETWEEN * (len(panels) - 1) <= PAGE
    x, y = MARGIN, MARGIN + (22.0 if title else 0.0)
    corners = []
    for panel in panels:
        corners.append((x, y))
        x, y = (x + panel.width + BETWEEN, y) if aside else (x, y + panel.height + BETWEEN)
    title_width = _text_size(title, HEAD_SIZE + 1.5, bold=True)[0] if title else 0.0
    width = MARGIN + max([title_width + MARGIN, *(c[0] + p.width for c, p in zip(corners, panels, strict=True))])
    height = MARGIN + max(c[1] + p.height for c, p in zip(corners, panels, strict=True))

    figure = Figure(figsize=(width / 72, height / 72))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))  # one unit is one point
    axes.set_axis_off()
    if title:
        _write_text(axes, MARGIN, MARGIN + 8, title, HEAD_SIZE + 1.5, anchor="left", weight="bold")
    for panel, corner in zip(panels, corners, strict=True):
        panel.draw(axes, corner)
    return figure


class _Panel:
    """One cell with its name above, unless it is the only one, and its remarks below."""

    def __init__(self, cell: Cell, alone: bool) -> None:
        self.cell, self.edges, self.live = cell, _drawn(cell), _live(cell)
        sizes = [_box_size(name) for name in cell.nodes]
        arrows = [Arrow(e.source, e.target, _label_size(e.label) if e.label else None) for e in self.edges]
        self.layout: Layout = arrange(sizes, arrows, cell.n_inputs, Spacing(row=7.0, column=20.0, port=8.0))
        self.name = "" if alone else cell.name
        self.lines = _lines(_remark(cell).split(", "), max(self.layout.width, 200.0)) if _remark(cell) else []
        if len(self.live) < len(cell.nodes):
            self.lines.append("dashed: on no path from input to output")
        texts = [
            _text_size(self.name, HEAD_SIZE, bold=True)[0],
            *(_text_size(x, REMARK_SIZE)[0] for x in self.lines),
        ]
        self.width = max(self.layout.width, *texts)
        self.head, self.foot = (
            (20.0 if self.name else 0.0),
            (6.0 + 11.0 * len(self.lines) if self.lines else 0.0),
        )
        self.height = self.head + self.layout.height + self.foot

    def draw(self, axes: Axes, corner: Point) -> None:
        """Adds the cell to the figure with its upper left corner at `corner`."""
        x, y = corner
        if self.name:
            _write_text(axes, x, y + 5, self.name, HEAD_SIZE, anchor="left", weight="bold")
        y += self.head
        for number, line in enumerate(self.lines):
            line_y = y + self.layout.height + 12.0 + 11.0 * number
            _write_text(axes, x, line_y, line, REMARK_SIZE, anchor="left", colour=FAINT)
        for edge, route in zip(self.edges, self.layout.routes, strict=True):
            colour, faint = COLOURS[family(edge.label)], not {edge.source, edge.target} <= self.live
            points = [(x + px, y + py) for px, py in route.points]
            _draw_arrow(axes, points, _mix(colour, "#ffffff", 0.45) if faint else colour)
            if route.label:
                _draw_box(axes, _moved(route.label, x, y), edge.label, LABEL_SIZE, colour, border=False, faint=faint)
        for node, (name, box) in enumerate(zip(self.cell.nodes, self.layout.nodes, strict=True)):
            colour = COLOURS[family(name)]
            _draw_box(axes, _moved(box, x, y), name, NODE_SIZE, colour, faint=node not in self.live)


def _lines(parts: Sequence[str], width: float) -> list[str]:
    """The parts, set in lines that are no wider than this if they can be."""
    lines: list[str] = []
    for part in parts:
        longer = f"{lines[-1]}, {part}" if lines else part
        if lines and _text_size(longer, REMARK_SIZE)[0] <= width:
            lines[-1] = longer
        else:
            lines = [*lines[:-1], lines[-1] + ",", part] if lines else [part]
    return lines


def _moved(box: Box, x: float, y: float) -> Box:
    return Box(box.x + x, box.y + y, box.width, box.height)


def _text_size(text: str, size: float, bold: bool = False) -> Size:
    """Width and height in DejaVu Sans, which comes with matplotlib and is the widest font of the stack."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")
    width, _, _ = text_to_path.get_text_width_height_descent(_printable(text) or " ", font, ismath=False)
    return float(width), size


def _box_size(name: str) -> Size:
    base, sub = _split(name)
    width = _text_size(base, NODE_SIZE)[0] + (_text_size(sub, 0.72 * NODE_SIZE)[0] if sub else 0.0)
    return max(width + 14.0, 22.0), 22.0


def _label_size(label: str) -> Size:
    return _text_size(label, LABEL_SIZE)[0] + 10.0, 14.0


def _split(name: str) -> tuple[str, str]:
    """A name and its index.

    >>> _split("c_{k-2}"), _split("conv_3x3")
    (('c', 'k−2'), ('conv_3x3', ''))
    """
    match = re.fullmatch(r"(\w+)_\{([^{}]+)\}", name)
    return (match[1], match[2].replace("-", "−")) if match else (name, "")


def _draw_box(
    axes: Axes, box: Box, text: str, size: float, colour: str, border: bool = True, faint: bool = False
) -> None:
    from matplotlib.patches import FancyBboxPatch

    radius = min(5.0, box.height / 2)
    patch = FancyBboxPatch(
        (box.left, box.top),
        box.width,
        box.height,
        boxstyle=f"round,pad=0,rounding_size={radius}",
        facecolor=_mix(colour, "#ffffff", 0.10),
        edgecolor=colour if border else "none",
        linewidth=0.9 if border else 0.0,
        linestyle=(0, (3, 2)) if faint else "solid",
        zorder=3,
    )
    axes.add_patch(patch)
    ink = FAINT if faint else _mix(colour, INK, 0.75 if colour != LINE else 0.0)
    _write_name(axes, box.x, box.y, text, size, ink)


def _write_name(axes: Axes, x: float, y: float, name: str, size: float, colour: str) -> None:
    """A name in the middle of a box; an index is set lower and smaller, and meets its base in every font."""
    base, sub = _split(name)
    if not sub:
        _write_text(axes, x, y, name, size, colour=colour)
        return
    left, right = _text_size(base, size)[0], _text_size(sub, 0.72 * size)[0]
    join = x + (left - right) / 2
    _write_text(axes, join, y, base, size, anchor="right", colour=colour, style="italic")
    _write_text(axes, join + 0.4, y + 2.2, sub, 0.72 * size, anchor="left", colour=colour)


def _write_text(
    axes: Axes,
    x: float,
    y: float,
    text: str,
    size: float,
    anchor: str = "center",
    colour: str = INK,
    weight: str = "normal",
    style: str = "normal",
) -> None:
    """Text whose x-height is centred on y, without asking the font, so that every font sits alike."""
    axes.text(
        x,
        y + 0.36 * size,
        _printable(text),
        fontsize=size,
        color=colour,
        fontweight=weight,
        fontstyle=style,
        ha=anchor,
        va="baseline",
        parse_math=False,
        zorder=4,
    )


def _draw_arrow(axes: Axes, points: Sequence[Point], colour: str) -> None:
    """Curves between columns, level lines through them, and a head that touches the target."""
    from matplotlib.patches import PathPatch, Polygon
    from matplotlib.path import Path as Curve

    tip_x, tip_y = points[-1]
    points = [*points[:-1], (tip_x - ARROW + 0.5, tip_y)]
    vertices, codes = [points[0]], [Curve.MOVETO]
    for number, (start, end) in enumerate(pairwise(points)):
        if number % 2:
            vertices.append(end)
            codes.append(Curve.LINETO)
        else:
            middle = (start[0] + end[0]) / 2
            vertices += [(middle, start[1]), (middle, end[1]), end]
            codes += [Curve.CURVE4] * 3
    axes.add_patch(PathPatch(Curve(vertices, codes), facecolor="none", edgecolor=colour, linewidth=1.0, zorder=1))
    head = [(tip_x, tip_y), (tip_x - ARROW, tip_y - 0.42 * ARROW), (tip_x - ARROW, tip_y + 0.42 * ARROW)]
    axes.add_patch(Polygon(head, closed=True, facecolor=colour, edgecolor="none", zorder=2))


def _mix(colour: str, other: str, share: float) -> str:
    """`share` of the first colour in the second.

    >>> _mix("#000000", "#ffffff", 0.5)
    '#808080'
    """
    pairs = zip(bytes.fromhex(colour[1:]), bytes.fromhex(other[1:]), strict=True)
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in pairs)
