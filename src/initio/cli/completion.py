"""`initio completion SHELL`; `python -m initio.cli.completion > src/initio/cli/parts.json` keeps options of parts.

The script is asked for whenever a shell begins, so it must not take the seconds that importing torch takes. The options
of methods and recipes, which need it, are read from a file that is made before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

Parts = dict[str, dict[str, list[str]]]  # of a command: by what was typed, as in `--method hnas`, the options of that
PARTS = Path(__file__).with_name("parts.json")
HEAD = """_initio() {
  local words="${COMP_WORDS[*]:0:COMP_CWORD} " now="${COMP_WORDS[COMP_CWORD]}" found=""
  words="${words// = / }"
  case "$words" in
"""
MORE = """  esac
  case "$words" in
"""
TAIL = """  esac
  COMPREPLY=($(compgen -W "$found" -- "$now"))
}
complete -o default -F _initio initio
"""


@dataclass(frozen=True)
class CompletionCommand:
    """Prints a script that completes commands and options on the tab key; files are completed as ever.

    Options of a method or a recipe that was named before are among them. bash: add `source <(initio completion bash)`
    to ~/.bashrc. zsh: the same line in ~/.zshrc.

    Args:
        shell: which one.
    """

    shell: Literal["bash", "zsh"] = "bash"

    FIRST: ClassVar[str] = "shell"

    def run(self) -> None:
        """Prints the script."""
        if self.shell == "zsh":
            print("autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit")
        print(script(), end="")


def script() -> str:
    """For bash, and for zsh in bash's way: what may follow each command, and what its parts add."""
    parts: Parts = json.loads(PARTS.read_text(encoding="utf-8"))
    cases, more = list[str](), list[str]()
    follows = _commands()
    for name in sorted(follows, key=len, reverse=True):  # the first pattern that fits is taken
        cases.append(_case(f'"{name} "*', follows[name]))
    for name, known in parts.items():
        named = {typed: options for typed, options in known.items() if typed}
        for option in {typed.partition(" ")[0]: None for typed in named}:
            more.append(_case(f'"{name}"*" {option} "', (typed.partition(" ")[2] for typed in named), ""))
            for typed, options in named.items():  # the last word, or before another option: it is the only one named
                more.append(_case(f'"{name}"*" {typed} "|"{name}"*" {typed} -"*', options))
            more.append(_case(f'"{name}"*" {option} "*', ()))  # one of your own, or several
        more.append(_case(f'"{name} "*', known[""]))
    return HEAD + "".join(cases) + MORE + "".join(more) + TAIL


def _case(pattern: str, words: Iterable[str], before: str = "$found ") -> str:
    return f'    {pattern}) found="{before}{" ".join(words)}" ;;\n'


def _commands() -> dict[str, list[str]]:
    """The verbs of commands, and the options of commands without parts."""
    from initio.cli import COMMANDS, all_commands
    from initio.cli.options import RESERVED, options_of

    follows = {"initio": sorted(COMMANDS)}
    for name, command in all_commands():
        first, _, verb = name.removeprefix("initio ").partition(" ")
        if verb:
            follows.setdefault(f"initio {first}", []).append(verb)
        reserved = [f"--{option.replace('_', '-')}" for option in RESERVED]
        follows[name] = [*_flags(options_of(command)), *reserved]
    return follows


def _flags(options: dict[str, Any]) -> list[str]:
    return [option.spelling.partition(" ")[0] for option in options.values()]


# --- the file ---------------------------------------------------------------------------------------------------------


def all_parts() -> Parts:
    """What the file has: for each command with parts, those of its defaults and those of each that can be named."""
    from initio.cli import all_commands
    from initio.cli.options import defaults

    found: Parts = {}
    for name, command in all_commands():
        if hasattr(command, "parts"):
            usual = defaults(command)
            found[name] = {"": _options_of_parts(command, usual)}
            named = dict(_named(command, usual))
            if any(options != found[name][""] for options in named.values()):  # otherwise the part is always the same
                found[name] |= named
    return found


def _named(command: type[Any], usual: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """The option that may name a part with each name, and the options of that."""
    from initio.cli.options import options_of
    from initio.searches import SEARCHES, find_search
    from initio.training import RECIPES

    benched = [name for name in SEARCHES if find_search(name).trains or find_search(name).learns]
    known = {"method": list(SEARCHES), "search": benched, "recipe": list(RECIPES)}
    option = next(name for name in options_of(command) if name in known)
    for name in known[option]:
        given: Any = name
        if isinstance(usual[option], tuple):
            given = (name,)
        yield f"--{option} {name}", _options_of_parts(command, usual | {option: given})


def _options_of_parts(command: type[Any], given: dict[str, Any]) -> list[str]:
    from initio.cli.options import merged, options_of

    own = options_of(command)
    both = merged(command, *command.parts(given))
    return _flags({name: option for name, option in both.items() if name not in own})


if __name__ == "__main__":
    print(json.dumps(all_parts(), indent=1))
