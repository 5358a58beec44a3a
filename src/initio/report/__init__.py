"""Pictures of cells and curves, for the terminal and for paper."""

from initio.report.picture import save_picture
from initio.report.terminal import draw_text

__all__ = ["draw_text", "save_picture"]
