"""`initio completion SHELL`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

HEAD = """_initio() {
  local words="${COMP_WORDS[*]:0:COMP_CWORD}" now="${COMP_WORDS[COMP_CWORD]}" found=""
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

    bash: add `source <(initio completion bash)` to ~/.bashrc. zsh: the same line in ~/.zshrc.

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
    """For bash, and for zsh in bash's way: what may follow each command."""
    from initio.cli import COMMANDS, all_commands
    from initio.cli.options import RESERVED, options_of

    follows = {"initio": sorted(COMMANDS)}
    for name, command in all_commands():
        first, _, verb = name.removeprefix("initio ").partition(" ")
        if verb:
            follows.setdefault(f"initio {first}", []).append(verb)
        options = [*options_of(command), *RESERVED]
        follows[name] = [f"--{option.replace('_', '-')}" for option in options]
    longest = sorted(follows, key=len, reverse=True)  # the first pattern that fits is taken
    cases = [f'    "{name}"*) found="{" ".join(follows[name])}" ;;\n' for name in longest]
    return HEAD + "".join(cases) + TAIL
