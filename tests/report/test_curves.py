"""Curves show what the arrays hold, from where every run has a value."""

import xml.etree.ElementTree as ET

import numpy as np
from matplotlib.figure import Figure

from initio.report.curves import Curves, save_curves

GRID = np.geomspace(1.0, 100.0, 5)
FIRST = np.array([[np.nan, 90.0, 91.0, 92.0, 92.0], [np.nan, np.nan, 93.0, 94.0, 94.0]])
SECOND = np.array([[80.0, 80.0, 80.0, 80.0, 85.0]])


def drawn(monkeypatch, tmp_path, curves, title="a title"):
    """The figure that is saved."""
    figures, save = [], Figure.savefig

    def keep(figure, *args, **options):
        figures.append(figure)
        save(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    save_curves(curves, tmp_path / "curves.svg", title)
    return figures[0]


def test_means_and_standard_errors_from_where_all_runs_have_a_value(monkeypatch, tmp_path):
    figure = drawn(monkeypatch, tmp_path, Curves(GRID, "queries", {"c10": {"a": FIRST, "b": SECOND}}))
    (axis,) = figure.axes
    a, b = axis.get_lines()
    np.testing.assert_array_equal(a.get_xydata(), np.column_stack([GRID[2:], [92.0, 93.0, 93.0]]))
    np.testing.assert_array_equal(b.get_xydata(), np.column_stack([GRID, SECOND[0]]))
    band = axis.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (92 - 1 / np.sqrt(2), 93 + 1 / np.sqrt(2))
    assert axis.get_xlabel() == "queries"


def test_a_panel_a_column(monkeypatch, tmp_path):
    figure = drawn(monkeypatch, tmp_path, Curves(GRID, "queries", {"c10": {"a": FIRST}, "c100": {"a": SECOND}}))
    assert [axis.get_title() for axis in figure.axes] == ["c10", "c100"]
    assert ET.parse(tmp_path / "curves.svg").getroot().tag.endswith("svg")


def test_a_long_title_is_not_cut(monkeypatch, tmp_path):
    title = "NAS-Bench-201, CIFAR-10: " + ", ".join(f"search number {n} with k = {n}" for n in range(12))
    figure = drawn(monkeypatch, tmp_path, Curves(GRID, "queries", {"c10": {"a": FIRST}}), title)
    box = figure._suptitle.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert box.y1 <= figure.bbox.y1


def test_a_line_ends_where_its_runs_end_and_the_best_stands_above(monkeypatch, tmp_path):
    ended = np.where(GRID > 20, np.nan, SECOND)
    figure = drawn(monkeypatch, tmp_path, Curves(GRID, "queries", {"c10": {"a": ended}}, {"c10": 94.37}))
    (axis,) = figure.axes
    line, best = axis.get_lines()
    assert line.get_xdata().max() == GRID[GRID <= 20].max()
    assert set(best.get_ydata()) == {94.37}
    (regret,) = axis.child_axes
    assert regret.get_ylabel() == "regret, %"
    low, high = axis.get_ylim()
    np.testing.assert_allclose(sorted(regret.get_ylim()), (94.37 - high, 94.37 - low))


def test_a_pdf_is_the_same_each_time(tmp_path):
    for name in ("a.pdf", "b.pdf"):
        save_curves(Curves(GRID, "queries", {"c10": {"a": FIRST}}), tmp_path / name, "a title")
    assert (tmp_path / "a.pdf").read_bytes()[:5] == b"%PDF-"
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()
