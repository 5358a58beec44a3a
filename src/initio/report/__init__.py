"""Pictures of cells and curves, for the terminal and for paper."""

from initio.report.cells import draw_text, save_picture

__all__ = ["draw_text", "save_picture"]
