"""Pictures of cells: complete, readable, the same every time, and nothing left behind when they fail."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from initio.errors import InputError
from initio.report import Cell, Edge, draw_text, save_picture, svg_text
from initio.report.cells import FAMILIES, family
from tests.report.examples import (
    DARTS_NORMAL,
    EXAMPLES,
    MLP,
    NASNET_NORMAL,
    NB101,
    NB201,
    NB201_SPARSE,
    NB201_ZERO,
)

names = pytest.mark.parametrize("name", EXAMPLES)
SVG = "{http://www.w3.org/2000/svg}"


def drawn(cell: Cell) -> list[Edge]:
    return [edge for edge in cell.edges if edge.label != "none"]


# --- the terminal -------------------------------------------------------------------------------------------


def test_the_terminal_drawing_of_a_cell():
    assert draw_text([NB201_SPARSE]).splitlines() == [
        "cell",
        "┌─────────┐",
        "│  input  ├─────────────────┐",
        "└────┬────┘                 │",
        "     │ nor_conv_3x3         │",
        "┌────▼────┐                 │",
        "│    1    ├─────────────────┼──┐",
        "└─────────┘                 │  │",
        "┌─────────┐                 │  │",
        "│    2    │◄─ skip_connect ─┘  │",
        "└────┬────┘                    │",
        "     │ avg_pool_3x3            │",
        "┌────▼────┐                    │",
        "│ output  │◄─ nor_conv_1x1 ────┘",
        "└─────────┘",
        "none (not drawn): 1 → 2,",
        "input → output",
    ]


@names
@pytest.mark.parametrize("width", [44, 80, 120])
def test_terminal_drawings_are_complete_and_fit(name, width):
    text = draw_text(EXAMPLES[name], width)
    assert max(len(line) for line in text.splitlines()) <= width
    labels = Counter(edge.label for cell in EXAMPLES[name] for edge in drawn(cell) if edge.label)
    for label, count in labels.items():
        assert len(re.findall(rf"(?<!\w){re.escape(label)}(?!\w)", text)) >= count
    assert text.count("◄") + text.count("▼") == sum(len(drawn(cell)) for cell in EXAMPLES[name])
    for cell in EXAMPLES[name]:
        assert all(node in text for node in (*cell.nodes, cell.name))


def follow(lines: list[str], box: int, row: int) -> int:
    """From the arrowhead right of a box in this row, back along the lines to the row of the source."""
    x, y = box + 1, row
    while lines[y][x] not in "┤┘":  # along the arrow to its lane; a crossing is passed
        x += 1
    while lines[y][x] != "┐":  # up the lane, past crossings and branches
        y -= 1
        assert lines[y][x] in "│┼┤┐"
    return y


@names
def test_lines_in_the_terminal_lead_from_sources_to_targets(name):
    """Reads the drawing as a person does, and finds exactly the cell's edges."""
    for cell in EXAMPLES[name]:
        lines = draw_text([cell]).splitlines()
        lines = [line.ljust(80) for line in lines[1:]]
        box = lines[0].index("┐")
        node_of, node = {}, -1
        for y, line in enumerate(lines):
            node += line.startswith("┌")
            if line[0] in "│├┤":
                node_of[y] = node
        found = Counter()
        for y, line in enumerate(lines):
            if line[box + 1] == "◄":
                match = re.match(r"◄─ (\S+) ─", line[box + 1 :])
                found[node_of[follow(lines, box, y)], node_of[y], match[1] if match else ""] += 1
            if "▼" in line:
                label = lines[y - 1][box // 2 :].split()
                is_label = lines[y - 1][0] == " "
                found[node_of[y + 1] - 1, node_of[y + 1], label[1] if is_label else ""] += 1
        assert found == Counter((e.source, e.target, e.label) for e in drawn(cell))


def test_two_cells_stand_side_by_side_when_they_fit():
    assert draw_text(EXAMPLES["darts"], 80).splitlines()[0].split() == ["normal", "reduction"]
    assert draw_text(EXAMPLES["darts"], 60).splitlines()[0].split() == ["normal"]


def test_long_names_are_clipped_before_the_width_is_exceeded():
    text = draw_text([NB101], 20)
    assert "…" in text
    assert max(map(len, text.splitlines())) <= 20
    with pytest.raises(InputError, match=r"a drawing of cell 'cell' needs a width of \d+ or more, not 8"):
        draw_text([NB101], 8)


@settings(deadline=None)
@given(st.lists(st.text(max_size=30), min_size=2, max_size=6), st.text(max_size=30), st.integers(30, 90))
def test_any_text_fits(nodes, label, width):
    edges = tuple(Edge(s, t, label) for t in range(len(nodes)) for s in range(t))
    for line in draw_text([Cell(label, tuple(nodes), edges)], width).split("\n"):
        assert len(line) <= width
        assert line == "" or line.isprintable()


def test_colour_changes_only_the_colour():
    coloured = draw_text([DARTS_NORMAL], colour=True)
    assert coloured != draw_text([DARTS_NORMAL])
    assert re.sub(r"\x1b\[\d+m", "", coloured) == draw_text([DARTS_NORMAL])


def test_families():
    assert family("dil_sep_conv_3x3") == "dilated"
    assert family("conv_7x1_1x7") == "convolution"
    assert family("LeakyReLU(0.01)") == "activation"
    assert {family(name) for name in ("0", "input", "c_{k}", "")} == {"other"}
    assert all(family(name) == name for name, _ in FAMILIES[3:5] if name != "pooling")


# --- the figure ---------------------------------------------------------------------------------------------


def texts(path: Path) -> list[str]:
    return ["".join(element.itertext()).strip() for element in ET.parse(path).getroot().iter(f"{SVG}text")]


@names
def test_svg_is_well_formed_and_holds_every_label_as_text(name, tmp_path):
    save_picture(EXAMPLES[name], tmp_path / "cell.svg", title="A title & more")
    found = Counter(texts(tmp_path / "cell.svg"))
    assert found["A title & more"] == 1
    for label, count in Counter(e.label for cell in EXAMPLES[name] for e in drawn(cell) if e.label).items():
        assert found[label] == count
    for node, count in Counter(node for cell in EXAMPLES[name] for node in cell.nodes).items():
        base, _, index = node.partition("_{")
        assert found[base] >= count
        assert not index or found[index.rstrip("}").replace("-", "−")] == count


@names
def test_every_arrow_has_a_line_and_a_head(name, tmp_path):
    save_picture(EXAMPLES[name], tmp_path / "cell.svg")
    paths = [element.get("d", "") for element in ET.parse(tmp_path / "cell.svg").getroot().iter(f"{SVG}path")]
    lines = [d for d in paths if "C" in d and "z" not in d]
    heads = [d for d in paths if d.count("L") == 2 and "C" not in d and "z" in d]
    assert len(lines) == len(heads) == sum(len(drawn(cell)) for cell in EXAMPLES[name])


def test_a_notebook_shows_the_picture_that_is_saved(tmp_path):
    save_picture([NB201], tmp_path / "cell.svg")
    assert svg_text([NB201]) == NB201._repr_svg_() == (tmp_path / "cell.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png", ".PNG"])
def test_the_same_cells_give_the_same_bytes(suffix, tmp_path):
    for name in ("a", "b"):
        save_picture([NB201], tmp_path / f"{name}{suffix}", "title")
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_png_opens_and_has_a_white_margin(tmp_path):
    save_picture(EXAMPLES["darts"], tmp_path / "cell.png")
    with Image.open(tmp_path / "cell.png") as image:
        pixels = image.convert("RGB")
    assert pixels.width > 1000
    edge = [pixels.getpixel((x, y)) for x in range(pixels.width) for y in (0, pixels.height - 1)]
    edge += [pixels.getpixel((x, y)) for y in range(pixels.height) for x in (0, pixels.width - 1)]
    assert set(edge) == {(255, 255, 255)}, "nothing is cut off"


def test_pdf_embeds_true_type_fonts(tmp_path):
    save_picture([MLP], tmp_path / "cell.pdf")
    content = (tmp_path / "cell.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert b"/Type3" not in content
    assert b"CreationDate" not in content


def test_hidden_edges_and_dead_nodes_are_remarked(tmp_path):
    save_picture([NB201_ZERO], tmp_path / "cell.svg")
    remark = " ".join(texts(tmp_path / "cell.svg"))
    assert "none (not drawn): input → 1" in remark
    assert "2 → output dashed: on no path from input to output" in remark
    save_picture([NB201], tmp_path / "cell.svg")
    assert "not drawn" not in " ".join(texts(tmp_path / "cell.svg"))


def test_names_stand_above_cells_when_there_are_several(tmp_path):
    save_picture(EXAMPLES["nasnet"], tmp_path / "cell.svg")
    assert {"normal", "reduction"} <= set(texts(tmp_path / "cell.svg"))
    save_picture([NASNET_NORMAL], tmp_path / "cell.svg")
    assert "normal" not in texts(tmp_path / "cell.svg")


def test_odd_names_are_text_not_markup(tmp_path):
    save_picture([Cell("c\0", ("$x^2$", "<b>&", "a\0b\n"), (Edge(0, 1, "$"), Edge(1, 2, "_")))], tmp_path / "cell.svg")
    assert {"$x^2$", "<b>&", "a?b?", "$", "_"} <= set(texts(tmp_path / "cell.svg"))


def test_a_picture_that_nobody_could_read_is_refused(tmp_path):
    chain = Cell("deep", tuple(map(str, range(3001))), tuple(Edge(i, i + 1) for i in range(3000)))
    with pytest.raises(InputError, match="at most 500 nodes: draw these cells in the terminal"):
        save_picture([chain], tmp_path / "cell.svg")
    assert "3000" in draw_text([chain], 40)
    assert not list(tmp_path.iterdir())


def test_global_settings_of_matplotlib_are_left_alone(tmp_path):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    save_picture([NB201], tmp_path / "cell.svg")
    assert dict(mpl.rcParams) == before


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "cells", "message"),
    [
        ("cell.jpg", [NB201], "a picture ends in one of .pdf, .png, .svg, not in '.jpg' as 'cell.jpg' does"),
        ("cell", [NB201], "a picture ends in one of .pdf, .png, .svg, not in '' as 'cell' does"),
        ("no/cell.svg", [NB201], "for the picture 'cell.svg' does not exist"),
        ("cell.svg", [], "there is no cell to draw into 'cell.svg'"),
        ("folder.svg", [NB201], "folder.svg': it is a folder"),
        (
            "cell.svg",
            [Cell("c", ("a", "b"), (Edge(1, 0),))],
            "edge 1 -> 0 of cell 'c' must lead to a later node",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(path, cells, message, tmp_path):
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(InputError, match=re.escape(message)):
        save_picture(cells, tmp_path / path)
    assert [file.name for file in tmp_path.iterdir()] == ["folder.svg"]


def test_a_failed_picture_leaves_the_old_one(tmp_path, monkeypatch):
    (tmp_path / "cell.svg").write_text("old")

    def fail(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        save_picture([NB201], tmp_path / "cell.svg")
    assert [file.name for file in tmp_path.iterdir()] == ["cell.svg"]
    assert (tmp_path / "cell.svg").read_text() == "old"


def test_importing_is_cheap():
    code = "import sys, initio.report; sys.exit(bool({'torch', 'matplotlib', 'numpy'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)
