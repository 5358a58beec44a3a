"""The command line: one command a file, each a frozen dataclass whose fields are its options.

`options.py` derives from the fields what can be typed, the help and `--config FILE`. A command is imported when
it is called, so the overview needs neither torch nor anything else that is slow. The command of `initio score`
is the class `ScoreCommand` in `score.py`; where a command has several verbs, as `initio store info` has, they are in
the module's `VERBS`.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from initio.cli.logs import PROGRAM, json_lines, say
from initio.cli.units import BEGAN
from initio.errors import InputError, did_you_mean, one_line
from initio.plugins import look_here
from initio.report.terminal import columns
from initio.system.clock import process_began

COMMANDS: dict[str, str] = {  # name -> what it does
    "demo": "choose an architecture from noise, save the run, draw the cell",
    "spaces": "list the search spaces",
    "sample": "draw random architectures",
    "show": "draw an architecture in the terminal or as a picture",
    "explain": "say what an architecture is, where it stands, and what each of its decisions does",
    "export": "write an architecture or a trained network as Python code, ONNX, TorchScript, weights, notation or JSON",
    "search": "choose an architecture, without training or with a few short ones",
    "solve": "make a trained, evaluated and exported network of your data, in the time that you have",
    "train": "train a found or given architecture on your data, and keep the network",
    "ensemble": "find, train and average several different cells that are good together",
    "attack": "attack an ensemble or a trained network, and measure what it still answers rightly",
    "evaluate": "measure a trained network on data that nobody has learned from",
    "study": "look closer: variants of a cell, how fast they learn, the landscape around a trained one",
    "report": "write a page about runs, trained networks or scores",
    "compare": "put runs and trained networks side by side",
    "bounds": "bound the smallest eigenvalue of an mlp's infinite-width kernel",
    "metrics": "list and explain the metrics",
    "score": "score many architectures into a store",
    "rank": "rank architectures without training, and say what decided",
    "correlate": "compare scores with a benchmark's accuracies and with each other",
    "convert": "write a benchmark's own file as a compact table",
    "bench": "run searches on a benchmark's published trainings and compare them",
    "store": "look into a store of scores, compare two, add, pack or update",
    "cache": "say where trainings are kept between runs, or forget them",
    "env": "say what Initio runs on: versions, kernels, memory, folders",
    "completion": "print a script that completes commands and options in your shell",
}

EXIT_CODES = {
    0: "done",
    1: "initio store diff: the stores differ",
    2: "one sentence on stderr says what was wrong; what was finished is kept",
    130: "interrupted by Ctrl-C",
    137: "killed, as for want of memory: the same command goes on",
    143: "ended by SIGTERM: the same command goes on",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code, one of `EXIT_CODES`."""
    _open_streams()
    if argv is None:  # a process of our own, which need not look through all that torch has made before it ends
        atexit.register(gc.freeze)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal whose alphabet has no λ shows a question mark
        sys.stdout.reconfigure(errors="replace")
    words = flags_behind(sys.argv[1:] if argv is None else argv)
    began = BEGAN.set(process_began() if argv is None else time.perf_counter())
    with ExitStack() as stack:
        stack.callback(BEGAN.reset, began)
        if is_typed(words, "--log-json"):
            stack.enter_context(json_lines())
        return _ended(words)


def _ended(words: list[str]) -> int:
    try:
        _run(words)
        sys.stdout.flush()
        return _end("", 0)
    except InputError as error:
        return _end(str(error), 2)
    except BrokenPipeError:  # the reader of our output is gone, as in `initio spaces | head -1`
        return _end("", 0)
    except OSError as error:
        what = f"use the file {error.filename!r}" if error.filename else "write the output"
        return _end(f"cannot {what}: {error.strerror or error}", 2)
    except MemoryError:
        return _end("there is not enough memory for what was asked, or for what a file holds", 2)
    except KeyboardInterrupt:
        return _end("interrupted", 130)


def _run(argv: list[str]) -> None:
    first = [*argv, "--help"][0]
    if first in ("-h", "--help", "help"):
        print(overview())
    elif first == "--version":
        from importlib.metadata import version

        print(f"initio {version('initio')}")
    elif first not in COMMANDS:
        raise InputError(f"there is no command {first!r}: {did_you_mean(first, list(COMMANDS))}")
    else:
        look_here(argv)
        _run_command(first, argv[1:])


def _run_command(name: str, argv: list[str]) -> None:
    from initio.cli.options import parse

    verbs = load_verbs(name)
    if "" in verbs:
        command = parse(verbs[""], argv, f"initio {name}")
    else:
        verb = [*argv, "--help"][0]
        if verb in ("-h", "--help"):
            print(verbs_overview(name))
            return
        if verb not in verbs:
            raise InputError(f"initio {name} does one of {', '.join(verbs)}, not {verb!r} (see initio {name} --help)")
        command = parse(verbs[verb], argv[1:], f"initio {name} {verb}")
    if command is None:
        return
    with ExitStack() as stack:
        if is_typed(argv, "--quiet", "-q"):
            nowhere = stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
            stack.enter_context(redirect_stderr(nowhere))
            if not getattr(command, "json", False):
                stack.enter_context(redirect_stdout(nowhere))
        command.run()


def overview() -> str:
    """The text of `initio --help`."""
    return "\n".join(
        [
            "usage: initio COMMAND [options]",
            "",
            "Finds good neural networks before any training, from gradients and the neural tangent kernel.",
            "",
            "commands:",
            columns(COMMANDS, indent="  "),
            "",
            "initio COMMAND --help explains the options of a command; --config FILE reads them from TOML,",
            "--print-config writes them, --quiet leaves out progress and all output but JSON,",
            "--log-json writes progress and errors as lines of JSON.",
            "initio --version prints the version.",
            "",
            "exit codes:",
            columns({str(code): meaning for code, meaning in EXIT_CODES.items()}, indent="  "),
        ]
    )


def verbs_overview(name: str) -> str:
    """The text of `initio store --help`, and of other commands that have verbs."""
    from initio.cli.options import introduction

    summaries = {verb: introduction(command).partition("\n")[0] for verb, command in load_verbs(name).items()}
    usage = f"usage: initio {name} {'|'.join(summaries)} ..."
    return "\n".join(
        [usage, "", columns(summaries, indent="  "), "", f"initio {name} VERB --help explains the options of one."]
    )


def load_verbs(name: str) -> dict[str, type[Any]]:
    """The dataclasses of a command by verb; the verb of a command that has but one is empty."""
    module = importlib.import_module(f"initio.cli.{name}")
    verbs: dict[str, type[Any]] = getattr(module, "VERBS", {})
    return verbs or {"": getattr(module, f"{name.title()}Command")}


def all_commands() -> Iterator[tuple[str, type[Any]]]:
    """Every command as it is typed, without its options: `initio score`, `initio store info`."""
    for name in COMMANDS:
        for verb, command in load_verbs(name).items():
            yield f"initio {name} {verb}".rstrip(), command


# --- options of all commands ------------------------------------------------------------------------------------------


FLAGS = ("--quiet", "-q", "--log-json")  # which may stand before the command, too


def flags_behind(argv: Sequence[str]) -> list[str]:
    """The words with the flags that came first at the end of the options.

    >>> flags_behind(["-q", "show", "--", "nb201"])
    ['show', '-q', '--', 'nb201']
    """
    first = next((place for place, word in enumerate(argv) if word not in FLAGS), 0)
    flags, rest = argv[:first], argv[first:]
    end = [*rest, "--"].index("--")
    return [*rest[:end], *flags, *rest[end:]]


def is_typed(argv: Sequence[str], *names: str) -> bool:
    """Whether one of these options was typed.

    >>> is_typed(["nb201", "-q"], "--quiet", "-q"), is_typed(["--", "--quiet"], "--quiet")
    (True, False)
    """
    end = [*argv, "--"].index("--")
    return not set(names).isdisjoint(argv[:end])


# --- output that never fails ------------------------------------------------------------------------------------------


def _open_streams() -> None:
    """Who closes an output (`2>&-`) wants nothing written there, rather than an error."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


def _end(message: str, code: int) -> int:
    """Says the last sentence if anybody listens, and keeps Python from complaining at exit that nobody does."""
    if message:
        say(f"{PROGRAM}{one_line(message)}", exit_code=code)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code
