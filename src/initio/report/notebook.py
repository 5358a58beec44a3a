"""How results look in a notebook: as an HTML table, or as a pandas data frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

from initio.errors import InputError


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A plain table; every text is escaped, since names and flags may come from files.

    >>> html_table("two", ["a"], [["<b>"]])
    '<table><caption>two</caption><tr><th>a</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    lines = [_line("th", head), *(_line("td", row) for row in rows)]
    return f"<table><caption>{escape(caption)}</caption>{''.join(lines)}</table>"


def _line(tag: str, cells: Sequence[object]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"


def data_frame(columns: Mapping[str, Any], index: Sequence[str] = ()) -> Any:
    """A pandas `DataFrame` of these columns, some of which may be its index."""
    try:
        pandas = import_module("pandas")  # optional, so not imported above
    except ImportError:
        raise InputError("a data frame needs pandas: pip install 'initio[frames]'") from None
    frame = pandas.DataFrame(dict(columns))
    if index:
        frame = frame.set_index(list(index))
    return frame
