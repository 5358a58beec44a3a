"""The page docs/cli.md, made from the commands themselves: `python -m initio.cli.reference > docs/cli.md`."""

from __future__ import annotations

import os

from initio.cli import COMMANDS, all_commands, load_verbs, overview, verbs_overview
from initio.cli.options import parser


def reference() -> str:
    """Every command's help, as Markdown; the same on every terminal."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    try:
        pages = {"initio": overview()}
        pages |= {f"initio {name}": verbs_overview(name) for name in COMMANDS if "" not in load_verbs(name)}
        pages |= {prog: parser(command, prog=prog).format_help() for prog, command in all_commands()}
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    head = "# The command line\n\nWritten by `make docs`.\n"
    return head + "".join(f"\n## {title}\n\n```\n{text.rstrip()}\n```\n" for title, text in pages.items())


if __name__ == "__main__":
    print(reference(), end="")
