"""Cells as a figure for a paper, made with matplotlib."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from initio.errors import InputError
from initio.report.cells import Cell, drawn, family, live, printable, remark
from initio.report.layout import Arrow, Box, Layout, Point, Size, Spacing, arrange
from initio.system.files import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".pdf", ".png", ".svg")
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
MOST_NODES = 500  # of a picture; it takes seconds for as many, and nobody could read it
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
    content = _render(cells, title, path.suffix.lower()[1:])
    try:
        with whole_file(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise InputError(f"the picture {str(path)!r} cannot be written: {error.strerror}") from None


def is_drawable(cells: Sequence[Cell]) -> bool:
    """Whether the cells are few and small enough for a picture."""
    return sum(len(cell.nodes) for cell in cells) <= MOST_NODES


def svg_text(cells: Sequence[Cell], title: str = "") -> str:
    """The same figure as SVG text, for notebooks and web pages."""
    return _render(cells, title, "svg").decode()


def _render(cells: Sequence[Cell], title: str, kind: str) -> bytes:
    import matplotlib as mpl

    if not is_drawable(cells):
        raise InputError(f"a picture shows at most {MOST_NODES} nodes: draw these cells in the terminal")
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
            "Title": printable(title or ", ".join(cell.name for cell in cells)),
        },
        "pdf": {"CreationDate": None, "Creator": "Initio", "Producer": None},
        "png": {"Software": "Initio"},
    }
    with mpl.rc_context(settings):
        buffer = BytesIO()
        names = [cell.name * (len(cells) > 1) for cell in cells]  # one alone needs no name
        figure = _figure([_Panel(cell, name) for cell, name in zip(cells, names, strict=True)], title)
        dpi = min(300.0, MOST_PIXELS / max(figure.get_size_inches()))
        figure.savefig(buffer, format=kind, dpi=dpi, facecolor="white", metadata=metadata[kind])
        return buffer.getvalue()


def _figure(panels: list[_Panel], title: str) -> Figure:
    from matplotlib.figure import Figure

    y, title_width = MARGIN, 0.0
    if title:
        y += 22.0
        title_width = _text_size(title, HEAD_SIZE + 1.5, "bold")[0]
    corners = []
    for row in _rows(panels):
        x = MARGIN
        for panel in row:
            corners.append((x, y))
            x += panel.width + BETWEEN
        y += max(panel.height for panel in row) + BETWEEN
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


def _rows(panels: list[_Panel]) -> list[list[_Panel]]:
    """As many side by side as fit a page."""
    rows: list[list[_Panel]] = []
    for panel in panels:
        if rows and sum(one.width + BETWEEN for one in rows[-1]) + panel.width <= PAGE:
            rows[-1].append(panel)
        else:
            rows.append([panel])
    return rows


class _Panel:
    """One cell with its name above, if it is given one, and its remarks below."""

    def __init__(self, cell: Cell, name: str) -> None:
        self.cell, self.edges, self.live = cell, drawn(cell), live(cell)
        sizes = [_box_size(name) for name in cell.nodes]
        arrows = [Arrow(e.source, e.target, _label_size(e.label)) for e in self.edges]
        self.layout: Layout = arrange(sizes, arrows, cell.n_inputs, Spacing(row=7.0, column=20.0, port=8.0))
        self.name = name
        self.lines = _lines([part for part in remark(cell).split(", ") if part], max(self.layout.width, 200.0))
        if len(self.live) < len(cell.nodes):
            self.lines.append("dashed: on no path from input to output")
        texts = (_text_size(line, REMARK_SIZE)[0] for line in self.lines)
        self.width = max(self.layout.width, _text_size(name, HEAD_SIZE, "bold")[0], *texts)
        self.head = 20.0 if name else 0.0
        foot = 6.0 + 11.0 * len(self.lines) if self.lines else 0.0
        self.height = self.head + self.layout.height + foot

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
            ink = _mix(colour, "#ffffff", 0.45) if faint else colour
            _draw_arrow(axes, [(x + px, y + py) for px, py in route.points], ink)
            if route.label:
                _draw_box(axes, _moved(route.label, x, y), edge.label, LABEL_SIZE, colour, border=False, faint=faint)
        for node, (name, box) in enumerate(zip(self.cell.nodes, self.layout.nodes, strict=True)):
            colour = COLOURS[family(name)]
            _draw_box(axes, _moved(box, x, y), name, NODE_SIZE, colour, faint=node not in self.live)


def _lines(parts: Sequence[str], width: float) -> list[str]:
    """The parts, set in lines that are no wider than this if they can be."""
    lines = list(parts[:1])
    for part in parts[1:]:
        longer = f"{lines[-1]}, {part}"
        if _text_size(longer, REMARK_SIZE)[0] <= width:
            lines[-1] = longer
        else:
            lines[-1] += ","
            lines.append(part)
    return lines


def _moved(box: Box, x: float, y: float) -> Box:
    return Box(box.x + x, box.y + y, box.width, box.height)


def _text_size(text: str, size: float, weight: str = "normal") -> Size:
    """Width and height in DejaVu Sans, which comes with matplotlib and is the widest font of the stack."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Sans", size=size, weight=weight)
    width, _, _ = text_to_path.get_text_width_height_descent(printable(text) or " ", font, ismath=False)
    return float(width), size


def _box_size(name: str) -> Size:
    base, sub = _split(name)
    width = _text_size(base, NODE_SIZE)[0]
    if sub:
        width += _text_size(sub, 0.72 * NODE_SIZE)[0]
    return max(width + 14.0, 22.0), 22.0


def _label_size(label: str) -> Size | None:
    return (_text_size(label, LABEL_SIZE)[0] + 10.0, 14.0) if label else None


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

    style: dict[str, Any] = {"edgecolor": colour, "linewidth": 0.9, "linestyle": "solid"}
    ink = INK if colour == LINE else _mix(colour, INK, 0.75)
    if not border:
        style |= {"edgecolor": "none", "linewidth": 0.0}
    if faint:
        style["linestyle"], ink = (0, (3, 2)), FAINT
    style["boxstyle"] = f"round,pad=0,rounding_size={min(5.0, box.height / 2)}"
    style["facecolor"] = _mix(colour, "#ffffff", 0.10)
    axes.add_patch(FancyBboxPatch((box.left, box.top), box.width, box.height, zorder=3, **style))
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
    axes: Axes, x: float, y: float, text: str, size: float, anchor: str = "center", colour: str = INK, **style: Any
) -> None:
    """Text whose x-height is centred on y, without asking the font, so that every font sits alike."""
    style |= {"fontsize": size, "color": colour, "ha": anchor, "va": "baseline", "zorder": 4}
    axes.text(x, y + 0.36 * size, printable(text), parse_math=False, **style)


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
