"""The page docs/cli.md, made from the commands themselves: `python -m initio.cli.reference > docs/cli.md`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from initio.cli import COMMANDS, all_commands, load_verbs, overview, verbs_overview
from initio.cli.options import introduction, options_of, parser

HEAD = """# The command line

Written by `make docs`.
"""
METHODS = """
# The methods of `initio search`

Each setting of a method is an option beside it: `initio search --method votes --first 50`.
"""
RECIPES = """
# The settings of `initio train`

These are the defaults of the recipe `quick`; `initio train --recipe NAME --help` lists those of another.

"""


def reference() -> str:
    """Every command's help and every method's options, as Markdown; the same on every terminal."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    try:
        pages = {"initio": overview()}
        pages |= {f"initio {name}": verbs_overview(name) for name in COMMANDS if "" not in load_verbs(name)}
        pages |= {prog: parser(command, prog=prog).format_help() for prog, command in all_commands()}
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before
    commands = "".join(f"\n## {title}\n\n```\n{text.rstrip()}\n```\n" for title, text in pages.items())
    return HEAD + commands + METHODS + "\n".join(_methods()) + "\n" + RECIPES + "\n".join(_training()) + "\n"


def _methods() -> Iterator[str]:
    from initio.searches import SEARCHES, find_search

    for name in SEARCHES:
        method = find_search(name)
        about = introduction(method).partition("\n\n")[0].replace("\n", " ")
        yield f"\n## {name}\n\n{about}\n"
        yield from _listed(method)


def _training() -> Iterator[str]:
    from initio.training.settings import MachineSettings, TrainingSettings

    yield from _listed(TrainingSettings)
    yield from _listed(MachineSettings)


def _listed(part: type[Any]) -> Iterator[str]:
    return (f"- `{option.spelling}`: {option.explained}" for option in options_of(part).values())


if __name__ == "__main__":
    print(reference(), end="")
