"""The commands that reports print, read by the command line itself."""

import shlex
from pathlib import Path
from typing import Any

from initio.cli import load_verbs
from initio.cli.options import parse
from initio.report.page import Listing
from initio.runs.pages.sections import sections
from initio.runs.pages.subjects import read_folder


def parsed(line: str) -> Any:
    """The command that a line is, its arguments read as far as its verb would take them."""
    program, name, *words = shlex.split(line)
    assert program == "initio"
    verbs = load_verbs(name)
    kind = verbs[""] if "" in verbs else verbs[words.pop(0)]
    command = parse(kind, words)
    if hasattr(command, "_asked"):
        command._asked()
    return command


def printed(folder: Path) -> list[Any]:
    """All commands that the report of a folder prints."""
    blocks = [block for section in sections(read_folder(folder)) for block in section.blocks]
    lines = [block.text for block in blocks if isinstance(block, Listing) and block.text.startswith("initio ")]
    return [parsed(line) for line in lines]
