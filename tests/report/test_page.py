"""A page holds what its blocks hold, escapes every text, and is the same file for the same blocks."""

import base64
import gzip
import json
import math
import re

import pytest

from initio.report.cells import Cell, Edge, drawn
from initio.report.page import (
    CellPictures,
    DataTable,
    FactList,
    LineChart,
    Listing,
    Page,
    Part,
    PointChart,
    Prose,
    Section,
)

HOSTILE = "</script><script>alert('x')</script>&\"<!--"
CELL = Cell(HOSTILE, ("in", HOSTILE, "out"), (Edge(0, 1, HOSTILE), Edge(0, 2, "none"), Edge(1, 2, "conv3x3")))
POINTS = PointChart(
    HOSTILE, {"a": [1.0, math.nan, math.inf], HOSTILE: [0.1, None, -math.inf]}, "a", HOSTILE, [HOSTILE, "b", "c"],
    [[CELL], [], [CELL, CELL]], {1: HOSTILE},
)  # fmt: skip
EVERY_BLOCK = [
    Prose(HOSTILE),
    FactList({HOSTILE: HOSTILE}),
    Listing(HOSTILE),
    CellPictures([CELL], HOSTILE),
    DataTable(HOSTILE, {HOSTILE: [HOSTILE, "b"], "n": [1.5, None]}),
    LineChart(HOSTILE, HOSTILE, HOSTILE, {HOSTILE: ([1, 2], [0.5, None])}),
    POINTS,
]


def page(*blocks, title="a title"):
    return Page(title, "One. Two.", [Part(title, [Section(title, blocks)])])


def told(html):
    packed = re.search(r'id="data">([^<]*)</script>', html)[1]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


@pytest.mark.parametrize("block", EVERY_BLOCK, ids=lambda block: block.template)
def test_texts_stay_texts_in_every_block(block):
    html = page(block, title=HOSTILE).html()
    assert "alert('x')" not in html
    assert "&lt;script&gt;alert(&#39;x&#39;)" in html
    assert html.count("<script") == html.count("</script>") == 2  # the data, and the page's own


def test_only_the_page_s_own_script_and_style_may_run():
    html = page(Prose("a")).html()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; img-src data:; ")
    assert "unsafe" not in policy
    assert not re.search(r"(?:src|href)=\"?(?:https?:)?//", html)


def test_the_script_is_told_what_the_blocks_hold():
    html = page(*EVERY_BLOCK).html()
    blocks = told(html)
    assert len(blocks) == len(EVERY_BLOCK)
    assert blocks[:4] == [None] * 4
    assert blocks[4]["columns"] == {HOSTILE: [HOSTILE, "b"], "n": [1.5, None]}
    assert blocks[5]["lines"] == [{"name": HOSTILE, "x": [1, 2], "y": [0.5, None]}]
    assert blocks[6]["columns"] == {"a": [1.0, None, "Infinity"], HOSTILE: [0.1, None, "-Infinity"]}
    assert blocks[6]["marked"] == {"1": HOSTILE}
    numbers = [int(number) for number in re.findall(r'data-block="(\d+)"', html)]
    assert numbers == [4, 5, 6]


def test_shapes_and_labels_give_the_cells_back():
    data = json.loads(json.dumps(POINTS.data()))
    assert len(data["shapes"]) == 1  # shared by all three
    for point, cells in zip(data["cells"], POINTS.cells, strict=True):
        for (shape, *labels), cell in zip(point, cells, strict=True):
            name, nodes, ends = data["shapes"][shape]
            assert (name, tuple(nodes)) == (cell.name, cell.nodes)
            edges = [Edge(*pair, label) for pair, label in zip(ends, labels, strict=True)]
            assert edges == drawn(cell)
    assert data["families"]["conv3x3"] == "convolution"


def test_numbers_keep_all_their_digits():
    values = [0.1 + 0.2, 1e-300, 2.0**60 + 2.0**9, 1 / 3]
    assert told(page(DataTable("t.csv", {"v": values})).html())[0]["columns"]["v"] == values


def test_the_same_page_is_the_same_file(tmp_path):
    for name in ("a.html", "b.html"):
        page(*EVERY_BLOCK).write(tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_long_table_shows_its_first_rows():
    html = page(DataTable("t.csv", {"v": list(range(100, 200))}, shown=3)).html()
    assert '<td class="number">102</td>' in html
    assert '<td class="number">103</td>' not in html
    assert "97 more rows in the file" in html


def test_one_part_needs_no_heading_and_several_have_one():
    parts = [Part(name, [Section("s", [Prose("p")])]) for name in ("first", "second")]
    assert 'class="part"' not in Page("t", "s", parts[:1]).html()
    assert '<h2 class="part">second</h2>' in Page("t", "s", parts).html()
