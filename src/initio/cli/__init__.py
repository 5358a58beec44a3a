"""The command line: one command a file, each a frozen dataclass whose fields are its options.

jsonargparse derives from the fields the options, the help, `--config FILE` and `--print_config`. A command's module is
imported when the command is called, so the overview needs neither torch nor anything else that is slow.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, get_type_hints

from initio.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

COMMANDS: dict[str, str] = {  # name -> what it does; the command is the class of that name in the module of that name
    "demo": "choose an architecture from noise, save the run, draw the cell",
    "spaces": "list the search spaces",
    "sample": "draw random architectures",
    "show": "draw an architecture in the terminal or as a picture",
    "export": "write an architecture as notation, JSON, Python code, ONNX or TorchScript",
    "search": "choose an architecture, without training or with a few short ones",
    "bounds": "bound the smallest eigenvalue of an mlp's infinite-width kernel",
    "metrics": "list and explain the metrics",
    "score": "score many architectures into a store",
    "correlate": "compare scores with a benchmark's accuracies and with each other",
    "convert": "write a benchmark's own file as a compact table",
    "bench": "run searches on a benchmark's published trainings and compare them",
    "store": "look into a store of scores, or compare two",
}


class Command(Protocol):
    """What a command's class has: typed fields, and one verb that prints."""

    def run(self) -> None:
        """Does it; bad input raises `InputError`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code: 0, or 2 after one sentence on stderr."""
    try:
        return _main(list(sys.argv[1:] if argv is None else argv))
    except InputError as error:
        print(f"initio: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the reader of our output is gone, as in `initio spaces | head -1`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"initio: {_os_error(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("initio: interrupted", file=sys.stderr)
        return 130


def _main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if argv[0] == "--version":
        from importlib.metadata import version

        print(f"initio {version('initio')}")
        return 0
    name = argv[0]
    if name not in COMMANDS:
        raise InputError(f"there is no command {name!r}: {did_you_mean(name, list(COMMANDS))}")
    command = load_command(name)
    values = _parse(parser(name), command, argv[1:])
    if values is not None:
        command(**values).run()
        sys.stdout.flush()
    return 0


def overview() -> str:
    """The text of `initio --help`."""
    width = max(map(len, COMMANDS))
    return "\n".join(
        [
            "usage: initio COMMAND [options]",
            "",
            "Finds good neural networks before any training, from gradients and the neural tangent kernel.",
            "",
            "commands:",
            *(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()),
            "",
            "initio COMMAND --help explains the options of a command; --config FILE reads them from YAML,",
            "--print_config writes them. initio --version prints the version.",
        ]
    )


def load_command(name: str) -> type[Any]:
    """The dataclass of a command."""
    class_name = name.title().replace("-", "")
    command: type[Any] = getattr(importlib.import_module(f"initio.cli.{name.replace('-', '_')}"), class_name)
    return command


def parser(name: str) -> ArgumentParser:
    """The command's argument parser."""
    from jsonargparse import ArgumentParser

    class Parser(ArgumentParser):
        def format_help(self, *args: Any) -> str:
            return _hyphens(super().format_help(*args))

    summary = COMMANDS[name]
    made = Parser(prog=f"initio {name}", exit_on_error=False, description=summary[0].upper() + summary[1:] + ".")
    made.add_argument("--config", action="config", help="Read options from this YAML file.")
    made.add_class_arguments(load_command(name), as_positional=True)
    return made


def from_settings(name: str, values: dict[str, Any], where: str) -> Any:
    """A command from saved settings, checked like typed ones."""
    from argparse import ArgumentError

    try:
        namespace = parser(name).parse_object(values)
    except (ArgumentError, TypeError, ValueError) as error:
        raise InputError(_one_sentence(f"{where}: {error}", f"initio {name} --help")) from None
    command = load_command(name)
    return command(**{field.name: namespace[field.name] for field in dataclasses.fields(command)})


def _parse(made: ArgumentParser, command: type[Any], argv: list[str]) -> dict[str, Any] | None:
    """The options of the command, None when help or the configuration was printed instead."""
    from argparse import ArgumentError

    tokens = _normalised(command, argv)
    try:
        namespace = made.parse_args(tokens)
    except ArgumentError as error:
        where = _guilty_config(made, tokens, str(error))
        raise InputError(_one_sentence(where + str(error), f"{made.prog} --help")) from None
    except UnicodeDecodeError:
        files = " or ".join(map(repr, _configs(tokens)))
        raise InputError(f"the --config file {files} is not a text file (see {made.prog} --help)") from None
    except SystemExit as stop:
        if stop.code:
            raise
        return None
    return {field.name: namespace[field.name] for field in dataclasses.fields(command)}


def _normalised(command: type[Any], argv: list[str]) -> list[str]:
    """Options as the parser knows them.

    `--batch-size 8`, the `-n 5` or `-n5` of a command's SHORT, a bare `--json`, and a first word that stands for the
    option named by the command's FIRST become what the parser wants to see.
    """
    hints = get_type_hints(command)
    first: str | None = getattr(command, "FIRST", None)
    if first and argv and not argv[0].startswith("-"):
        argv = [f"--{first}={argv[0]}", *argv[1:]]
    short: dict[str, str] = getattr(command, "SHORT", {})
    flags = {f"--{field.name}" for field in dataclasses.fields(command) if hints[field.name] is bool}
    argv = _joined(argv, getattr(command, "SEVERAL", ()))
    tokens: list[str] = []
    for place, token in enumerate(argv):
        if token == "--":
            return tokens + argv[place:]
        if token[:2] in short and len(token) > 2:  # -n5, -n=5
            token = f"{token[:2]}={token[2:].removeprefix('=')}"
        if token.startswith("--") or token.partition("=")[0] in short:
            option, equals, value = token.partition("=")
            option = short.get(option) or "--" + option[2:].replace("-", "_")
            bare = option in flags and not equals and argv[place + 1 : place + 2] not in (["true"], ["false"])
            token = option + equals + value + ("=true" if bare else "")
        tokens.append(token)
    return _config_first(tokens)


def _joined(argv: list[str], several: tuple[str, ...]) -> list[str]:
    """`--search a b` and `--search a --search b` as `--search=a,b`, for the options that take several names.

    >>> _joined(["nb201", "--search", "a", "b", "--seeds", "3", "--search=c"], ("search",))
    ['nb201', '--search=a,b,c', '--seeds', '3']
    """
    out: list[str] = []
    names: dict[str, list[str]] = {}
    taking: list[str] | None = None
    for token in argv:
        option, equals, value = token.partition("=")
        if option.startswith("--") and option[2:] in several:
            out += [option] * (option not in names)  # once, where it was first
            taking = names.setdefault(option, [])
            taking += [value] * bool(equals)
        elif taking is not None and not token.startswith("-"):
            taking.append(token)
        else:
            taking = None
            out.append(token)
    return [f"{token}={','.join(names[token])}" if token in names else token for token in out]


def _config_first(tokens: list[str]) -> list[str]:
    """What is typed beats what a file says, wherever it stands."""
    for place, token in enumerate(tokens):
        if token == "--config" or token.startswith("--config="):
            end = place + (2 if token == "--config" else 1)
            return tokens[place:end] + _config_first(tokens[:place] + tokens[end:])
    return tokens


def _guilty_config(made: ArgumentParser, tokens: list[str], message: str) -> str:
    """The name of the --config file that gives the same error on its own, to begin the sentence with."""
    from argparse import ArgumentError

    for path in _configs(tokens):
        try:
            made.parse_args([f"--config={path}"])
        except ArgumentError as error:
            if str(error) == message and path not in message:
                return f"{path!r}: "
    return ""


def _configs(tokens: list[str]) -> list[str]:
    """The files that --config names."""
    pairs = pairwise([*tokens, ""])
    return [a.partition("=")[2] or b for a, b in pairs if a == "--config" or a.startswith("--config=")]


def _hyphens(text: str) -> str:
    """Options are shown with hyphens; underscores work as well."""
    return re.sub(r"--(?!print_config)\w+", lambda match: match[0].replace("_", "-"), text)


def _one_sentence(message: str, help_command: str) -> str:
    """jsonargparse's message in one line: which option, what was wrong, what would be right."""
    text = " ".join(message.split())
    text = re.sub(
        r"Does not validate against any of the Union.*?Errors: - (.*?) - Expected a <class 'NoneType'>", r"\1", text
    )
    text = re.sub(r" Given value type: .*? Given value: ", ", got ", text)
    text = re.sub(r"[Pp]arser key \"(\w+)\": ?", lambda m: f"--{m[1].replace('_', '-')}: ", text)
    text = re.sub(r"typing\.Literal\[(.*?)\]", r"one of \1", text)
    text = re.sub(r"Expected an? <class '(\w+)'>", r"expected a value of type \1", text)
    text = text.replace("Expected a one of", "expected one of").replace(". Got value: ", ", got ")
    text = re.sub(r"the following arguments are required: (.*)", r"missing \1", text)
    text = text.rstrip(".")
    text = text if len(text) <= 300 else text[:297] + "..."
    return f"{text} (see {help_command})"


def _os_error(error: OSError) -> str:
    where = f" {error.filename!r}" if error.filename else ""
    return f"cannot use the file{where}: {error.strerror or error}"
