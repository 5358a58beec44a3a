"""What all figures share: a title that fits, and a file that is the same for the same picture."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from initio.system.files import whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LETTERS = 11  # of a title in an inch
METADATA: dict[str, dict[str, Any]] = {  # without a date
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
    ".png": {"Software": "Initio"},
}


def save_figure(figure: Figure, path: Path, title: str = "", *, dpi: int = 150) -> None:
    """Writes the figure below its title, whole or not at all; the same figure, the same bytes."""
    import matplotlib as mpl

    if title:
        figure.suptitle(textwrap.fill(title, round(LETTERS * figure.get_figwidth())))
    with whole_file(path) as temporary, mpl.rc_context({"svg.hashsalt": "initio"}):
        figure.savefig(temporary, dpi=dpi, metadata=METADATA.get(path.suffix.lower()))
