"""Surfaces are drawn with one scale for all panels; what has no value leaves a hole, or no picture."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from initio.report.surfaces import Look, Surface, save_lines, save_surfaces

AT = np.linspace(-1, 1, 7)
BOWL = np.add.outer(AT**2, AT**2)


def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved from now on."""
    figures, save = list[Figure](), Figure.savefig

    def keep(figure: Figure, *args: object, **options: object) -> None:
        figures.append(figure)
        save(figure, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


@pytest.mark.parametrize("look", ["contour", "heat", "3d"])
def test_panels_share_their_scale(look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures, holed = drawn(monkeypatch), 4 * BOWL
    holed[0, 0] = np.nan
    save_surfaces({"flat": Surface(AT, BOWL), "steep": Surface(AT, holed)}, tmp_path / "s.png", look, "loss")
    first, second, bar = figures[0].axes
    assert (first.get_title(), second.get_title(), bar.get_ylabel()) == ("flat", "steep", "loss")
    high = float(np.nanpercentile(np.concatenate([BOWL.ravel(), holed.ravel()]), 95))
    assert bar.get_ylim() == pytest.approx((0.0, high), abs=1e-6)


def test_rows_run_along_the_first_direction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = drawn(monkeypatch)
    save_surfaces({"ramp": Surface(AT, np.add.outer(AT, 0 * AT))}, tmp_path / "s.png", "heat", "loss")
    shown = np.asarray(figures[0].axes[0].collections[0].get_array()).reshape(7, 7)
    assert shown[0].tolist() == AT.tolist()  # a is the horizontal axis


def test_nothing_to_draw_is_no_picture(tmp_path: Path) -> None:
    save_surfaces({"none": Surface(AT, np.full((7, 7), np.nan))}, tmp_path / "s.png", "heat", "loss")
    assert not (tmp_path / "s.png").exists()


def test_curves_in_panels_have_one_legend_where_they_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = drawn(monkeypatch)
    line = (AT, AT**2)
    save_lines({"x": {"a": line}, "y": {"b": line}, "z": {"b": line}}, tmp_path / "l.png", ("t", "loss"))
    assert [axis.get_legend() is not None for axis in figures[0].axes] == [True, False, True]
