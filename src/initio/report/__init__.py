"""Pictures of cells and curves, for the terminal and for paper."""

from initio.report.cells import Cell, Edge
from initio.report.picture import is_drawable, save_picture, svg_text
from initio.report.terminal import draw_text

__all__ = ["Cell", "Edge", "draw_text", "is_drawable", "save_picture", "svg_text"]
