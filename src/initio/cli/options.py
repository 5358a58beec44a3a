"""Options from dataclasses: the fields of a command are what can be typed, kept in a file, and explained.

| field                      | typed                                                          |
|----------------------------|----------------------------------------------------------------|
| `batch_size: int = 64`     | `--batch-size 8`; underscores do as well                       |
| `space: str`, no default   | the next word: `initio sample nb201`                           |
| the one named by `FIRST`   | a word too, which may be left out: `initio search nb201`       |
| `json: bool = False`       | `--json`; `--no-json` where a file says otherwise              |
| `norm: Literal["a", "b"]`  | one of the two                                                 |
| `search: tuple[str, ...]`  | `--search a b`, and `--search a --search b` is the same        |
| `nu: float | None = 1.0`   | a number, or `none`                                            |

`SHORT = {"count": "-n"}` gives a field a second name. The help of a field is its line in the docstring's `Args`, where
`{methods}` stands for what `WORDS = {"methods": "..."}` says. A field without a line has that of the command's verb,
`VERB = ("module:function",)`, which is read from the file: the verb may need torch, and its help does not.

A command whose options depend on others (`--method`) has a class method `parts`: it is told the values of the others,
and names the dataclasses whose fields are options too. What is given of those reaches the command as its field
`settings`. For the help, `parts` is told only what was given. A field of a part that is named in `SHARED` is no option:
the command has one of that name; nor is one in `OWN`, whose name means something else to the command.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from itertools import chain
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, cast, get_args, get_origin, get_type_hints

from initio.errors import InputError, nearest
from initio.system.files import read_text

EXPECTED = {int: "a whole number", float: "a number", str: "text", bool: "true or false", NoneType: "none"}
METAVARS = {int: "N", float: "X"}
Files = list[tuple[str, dict[str, Any]]]  # path and values
RESERVED = ("config", "print_config", "quiet", "log_json", "help")  # options of every command


@dataclass(frozen=True)
class Option:
    """One field as the command line sees it.

    Args:
        name: of the field.
        kinds: the types its values may have; a `Literal` is one of them.
        default: `MISSING` if it must be given.
        several: whether it takes many values.
        help: what the docstring says.
        word: whether it may be typed without its name.
        short: its second name, such as -n.
        shown: the default in words, where that depends on other options.
    """

    name: str
    kinds: tuple[Any, ...]
    default: Any
    several: bool = False
    help: str = ""
    word: bool = False
    short: str | None = None
    shown: object = None

    @property
    def flag(self) -> str:
        """As it is typed and shown."""
        return "--" + self.name.replace("_", "-")

    @property
    def is_switch(self) -> bool:
        """Whether it is typed alone, without a value."""
        return bool in self.kinds

    @property
    def expected(self) -> str:
        """What would be right, in words."""
        words = []
        for kind in self.kinds:
            if get_origin(kind) is Literal:
                words.append("one of " + ", ".join(map(repr, get_args(kind))))
            elif kind is not NoneType or self.default is not None:
                words.append(EXPECTED[kind])
        return " or ".join(words)

    @property
    def metavar(self) -> str:
        """What stands for a value in the help."""
        for kind in self.kinds:
            if get_origin(kind) is Literal:
                return "{" + ",".join(map(str, get_args(kind))) + "}"
        return METAVARS.get(self.kinds[0], self.name.upper())

    @property
    def spelling(self) -> str:
        """What can be typed: its name, and what stands for a value."""
        if not self.is_switch:
            return f"{self.flag} {self.metavar}" + " ..." * self.several
        return f"--no-{self.flag[2:]}" if self.default is True else self.flag

    @property
    def explained(self) -> str:
        """The help, with the default where that says something."""
        text = self.help.rstrip(".")
        if self.shown is not None:
            return f"{text} (default: {self.shown})"
        if self.is_switch and self.default is True:
            return f"do not {text}"
        if self.is_switch or self.default in (MISSING, None, "", ()):
            return text
        shown = " ".join(map(str, self.default)) if self.several else self.default
        return f"{text} (default: {shown})"

    def typed(self, text: Any) -> Any:
        """The value of what was typed: a word, a list of words, or the True or False of a switch."""
        if self.several:
            return tuple(map(self._from_word, text))
        if self.is_switch:
            return text
        return self._from_word(text)

    def kept(self, value: Any) -> Any:
        """The value of what a file says, which has its type already."""
        if self.several and isinstance(value, list | tuple):
            return tuple(map(self._from_file, value))
        return self._from_file(value)

    def _from_word(self, word: str) -> Any:
        for kind in sorted(self.kinds, key=lambda kind: kind is str):  # text comes last: it takes everything
            if get_origin(kind) is Literal:
                readings = {str(value): value for value in get_args(kind)}
                if word in readings:
                    return readings[word]
            elif kind is NoneType:
                if word == "none" and self.default is not None:
                    return None
            else:
                try:
                    return kind(word)
                except ValueError:
                    continue
        return self._refuse(word)

    def _from_file(self, value: Any) -> Any:
        for kind in self.kinds:
            if kind is type(value) or (get_origin(kind) is Literal and value in get_args(kind)):
                return value
            if kind is float and type(value) is int:
                return float(value)
            if kind is NoneType and value == "none":
                return None
        return self._refuse(value)

    def _refuse(self, value: Any) -> NoReturn:
        raise InputError(f"{self.flag}: expected {self.expected}, got {value!r}")


# --- from a dataclass -------------------------------------------------------------------------------------------------


def options_of(cls: type[Any]) -> dict[str, Option]:
    """The options of a dataclass by the names of their fields; one whose type cannot be typed has none."""
    helps, first, short = _arguments(cls), getattr(cls, "FIRST", None), getattr(cls, "SHORT", {})
    try:
        types = get_type_hints(cls)
    except NameError as error:
        raise InputError(f"the annotations of {cls.__name__} name {error.name}: import it for running, too") from None
    made = {}
    for field in (field for field in fields(cls) if field.init):
        name, (kinds, several) = field.name, _kinds(types[field.name])
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if kinds:
            word, shown = default is MISSING or name == first, field.metadata.get("by space")
            made[name] = Option(name, kinds, default, several, helps.get(name, ""), word, short.get(name), shown)
        elif default is MISSING:
            raise InputError(f"{cls.__name__} needs a default for {field.name!r}: values of its type cannot be typed")
    return made


def defaults(cls: type[Any]) -> dict[str, Any]:
    """Of the options that have one."""
    return {o.name: o.default for o in options_of(cls).values() if o.default is not MISSING}


def _kinds(annotation: Any) -> tuple[tuple[Any, ...], bool]:
    """The types that values may have, and whether there are several values; no types if one of them is of no use."""
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    for member in members:
        if get_origin(member) is tuple and get_args(member)[1:] == (...,):
            return _kinds(get_args(member)[0])[0], True
    if all(get_origin(member) is Literal or member in EXPECTED for member in members):
        return members, False
    return (), False


def _arguments(cls: type[Any]) -> dict[str, str]:
    """What the docstrings of a class and its bases say about each field.

    >>> _arguments(Option)["short"]
    'its second name, such as -n.'
    """
    found = {}
    for page in chain(map(_unimported, getattr(cls, "VERB", ())), (base.__doc__ for base in reversed(cls.__mro__))):
        section = inspect.cleandoc(page or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
        for name, text in re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", section, flags=re.MULTILINE):
            found[name] = " ".join(text.split())
            for word, meaning in getattr(cls, "WORDS", {}).items():
                found[name] = found[name].replace(f"{{{word}}}", meaning)
    return found


def _unimported(name: str) -> str | None:
    """The docstring of `module:function` of the package, whose module is not imported."""
    module, _, function = name.partition(":")
    source = read_text(Path(__file__).parents[1].joinpath(*module.split(".")[1:]).with_suffix(".py"))
    start = re.search(rf"^(def|class) {function}\b", source, re.M)
    assert start is not None, f"{module} has no {function}"
    [found] = ast.parse(source[start.start() :].partition("\n\n\n")[0]).body
    return ast.get_docstring(cast("ast.FunctionDef | ast.ClassDef", found))


def introduction(cls: type[Any]) -> str:
    """A class's docstring above its `Args`."""
    return inspect.cleandoc(cls.__doc__ or "").partition("\n\nArgs:\n")[0]


# --- the parser -------------------------------------------------------------------------------------------------------


def parser(command: type[Any], *more: type[Any], prog: str = "initio", words: bool = True) -> argparse.ArgumentParser:
    """The argument parser of a command, the fields of further dataclasses among its options.

    It tells options from words and writes the help; what values mean is `Option`'s affair, for files as well. Words are
    in the help alone: argparse would give one that may be left out to the first place where it could have stood.
    """
    leading = [option for option in merged(command, *more, prog=prog).values() if option.word]
    spelled = [o.name.upper() + " ..." * o.several for o in leading]
    places = [text if o.default is MISSING else f"[{text}]" for text, o in zip(spelled, leading, strict=True)]
    made = argparse.ArgumentParser(
        prog=prog,
        usage=" ".join([prog, *places, "[options]"]),
        description=introduction(command),
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
        argument_default=argparse.SUPPRESS,
    )
    if words:
        group = made.add_argument_group("arguments")
        for option in leading:
            group.add_argument(option.name, metavar=option.name.upper(), help=_escaped(option.explained))
    group = made.add_argument_group("options")
    for option in options_of(command).values():
        _add(group, option)
    group.add_argument("--config", action="append", metavar="FILE", help="read options from this TOML file")
    _add(group, Option("print_config", (bool,), False, help="print the options as TOML, and end"))
    group.add_argument("--quiet", "-q", action="store_true", help="no progress, and no output but JSON and errors")
    group.add_argument("--log-json", action="store_true", help="progress and errors as lines of JSON, with their time")
    group.add_argument("--help", "-h", action="store_true", help="print this text, and end")
    for part in more:
        group = made.add_argument_group(f"options of {_title(part)}")
        for option in _options_of_part(part, command).values():
            _add(group, option)
    return made


def merged(command: type[Any], *more: type[Any], prog: str = "initio") -> dict[str, Option]:
    """The options of all; a name that is taken is the mistake of the one who comes later."""
    known = options_of(command)
    for part in more:
        own = _options_of_part(part, command)
        for name in own:
            if name in known or name in RESERVED:
                raise InputError(f"{_title(part)} has a setting {name!r}, which is an option of {prog} too: rename it")
        known |= own
    return known


def _options_of_part(part: type[Any], command: type[Any]) -> dict[str, Option]:
    """Those whose names the command does not have."""
    taken = {*getattr(command, "SHARED", ()), *getattr(command, "OWN", ())}
    return {name: option for name, option in options_of(part).items() if name not in taken}


def _add(group: argparse._ArgumentGroup, option: Option) -> None:
    """Adds the option under all its names; the help shows one, of a switch that which changes something."""
    names = [option.flag, "--" + option.name, *filter(None, [option.short])]
    ways: dict[Any, list[str]] = {"store": names}
    how: dict[str, Any] = {"metavar": option.metavar}
    if option.several:
        ways, how = {"extend": names}, {"metavar": option.metavar, "nargs": "+"}
    if option.is_switch:
        ways, how = {"store_true": names, "store_false": ["--no-" + option.flag[2:], "--no_" + option.name]}, {}
        if option.default is True:
            ways = dict(reversed(ways.items()))
    text = argparse.SUPPRESS if option.word else _escaped(option.explained)  # a word is explained among the arguments
    for action, spellings in ways.items():
        for name in dict.fromkeys(spellings):
            group.add_argument(name, dest=option.name, action=action, help=text, **how)
            text = argparse.SUPPRESS


def _title(part: type[Any]) -> str:
    return str(getattr(part, "name", part.__name__))


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


# --- a command from words and files -----------------------------------------------------------------------------------


def parse(command: type[Any], argv: Sequence[str], prog: str = "initio") -> Any:
    """The command with what was typed and what its files say; None after `--help` and `--print-config`, which print."""
    try:
        typed = Typed(argv, prog, command)
        if hasattr(command, "parts"):
            given = typed.known()
            if not typed.asks("help"):
                given = defaults(command) | given
            typed = Typed(argv, prog, command, *command.parts(given), files=typed.files)
        if typed.asks("help"):
            print(parser(command, *typed.more, prog=prog).format_help(), end="")
            return None
        given = typed.checked()
    except InputError as error:
        raise InputError(f"{error} (see {prog} --help)") from None
    if typed.asks("print_config"):
        off = {name: "none" for name, value in given.items() if value is None}
        print(shown_settings(defaults(command) | given | off), end="")
        return None
    return _made(command, given)


def _made(command: type[Any], given: Mapping[str, Any]) -> Any:
    """What is no field of the command is a setting of one of its parts."""
    values, own = dict(given), {field.name for field in fields(command)}
    settings = {name: values.pop(name) for name in given if name not in own}
    return command(**values, settings=settings) if settings else command(**values)


def refuse_beside_resume(command: Any, whose: str) -> None:
    """Refuses what was given beside `--resume`, but for `--json`: what is resumed has settings of its own."""
    own = [option for option in options_of(type(command)).values() if option.name not in ("resume", "json")]
    given = [option.spelling.partition(" ")[0] for option in own if getattr(command, option.name) != option.default]
    given += [f"--{name.replace('_', '-')}" for name in getattr(command, "settings", {})]
    if given:
        raise InputError(f"--resume goes on with the {whose}'s own settings: leave out {given[0]}")


class Typed:
    """What was typed for a command, the fields of further dataclasses among its options."""

    def __init__(
        self, argv: Sequence[str], prog: str, command: type[Any], *more: type[Any], files: Files | None = None
    ) -> None:
        self.prog, self.more, self.options = prog, more, merged(command, *more, prog=prog)
        end = [*argv, "--"].index("--")  # behind it are words alone
        try:
            found, self.rest = parser(command, *more, prog=prog, words=False).parse_known_args(argv[:end])
        except argparse.ArgumentError as error:
            raise InputError(self._wrong_number(str(error.argument_name).partition("/")[0])) from None
        self.found: dict[str, Any] = vars(found)  # words and lists of words, by the name of their field
        self.words = list(argv[end + 1 :])
        if files is None:  # a pipe can be read once only
            files = [(path, read_toml(path)) for path in self.found.get("config", [])]
        self.files = files

    def asks(self, switch: str) -> bool:
        """Whether this switch was typed."""
        return bool(self.found.get(switch, False))

    def known(self) -> dict[str, Any]:
        """What these options were given; what is typed beats what files say."""
        given: dict[str, Any] = {}
        for path, values in self.files:
            given |= _kept(self.options, {name: v for name, v in values.items() if name in self.options}, path)
        return given | {name: self.options[name].typed(v) for name, v in self.found.items() if name in self.options}

    def checked(self) -> dict[str, Any]:
        """The same with the words; what has no place and what is missing are errors."""
        for word in self.rest:
            if re.match(r"--?[^\W\d]", word):
                raise InputError(self._no_option(word.partition("=")[0]))
        for path, values in self.files:
            _kept(self.options, values, path)
        given = self.known() | self._placed()
        for option in self.options.values():
            if option.default is MISSING and option.name not in given:
                raise InputError(f"missing {option.name}: {option.explained}")
        return given

    def _placed(self) -> dict[str, Any]:
        """The words, each at its place."""
        words, given = self.rest + self.words, {}
        places = [option for option in self.options.values() if option.word and option.name not in self.found]
        for option in places:
            if words and option.several:
                given[option.name], words = option.typed(words), []
            elif words:
                given[option.name], words = option.typed(words[0]), words[1:]
        if words:
            takes = ", ".join(option.name for option in self.options.values() if option.word) or "options only"
            raise InputError(f"{words[0]!r} is a word too many: {self.prog} takes {takes}")
        return given

    def _no_option(self, wrong: str) -> str:
        of = " with ".join([self.prog, *map(_title, self.more)])
        return f"{wrong} is not an option of {of}" + _hint(wrong, [option.flag for option in self.options.values()])

    def _wrong_number(self, flag: str) -> str:
        """What to say where a value is missing, or too many."""
        for option in self.options.values():
            if flag in (option.flag, "--" + option.name, option.short) and not option.is_switch:
                return f"{option.flag} needs a value: {option.expected}"
        if flag == "--config":
            return f"{flag} needs the name of a file"
        return f"{flag} takes no value"


def _kept(options: Mapping[str, Option], values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of a file, each of the type of its option."""
    given = {}
    for name, value in values.items():
        if name in RESERVED:
            raise InputError(f"{where!r}: --{name.replace('_', '-')} is typed, and not kept in a file")
        if name not in options:
            raise InputError(f"{where!r}: {name!r} is not an option" + _hint(name, list(options)))
        try:
            given[name] = options[name].kept(value)
        except InputError as error:
            raise InputError(f"{where!r}: {error}") from None
    return given


def _hint(wrong: str, right: list[str]) -> str:
    """The nearest option; the help has all of them."""
    near = nearest(wrong, right)
    return f": did you mean {near}?" if near else ""


# --- files of options -------------------------------------------------------------------------------------------------


def read_toml(path: str) -> dict[str, Any]:
    """The options of a file, by the names of their fields."""
    try:
        document = tomllib.loads(read_text(Path(path)))
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path!r} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path!r} is not TOML: {error}") from None
    for name, value in document.items():
        if isinstance(value, dict):
            raise InputError(f"{path!r} has a section {name!r}: write the options of one command, without sections")
    return {name.replace("-", "_"): value for name, value in document.items()}


def shown_settings(values: Mapping[str, Any]) -> str:
    """The same as `to_toml`, but for passwords, which are nobody's to see.

    >>> print(shown_settings({"store": "postgresql://ada:s3cret@db/scores"}), end="")
    # without the password of the store, which PGPASSWORD or ~/.pgpass may hold
    store = "postgresql://ada@db/scores"
    """
    public = {name: _public(value) for name, value in values.items()}
    note = "# without the password of the store, which PGPASSWORD or ~/.pgpass may hold\n"
    return note * (public != values) + to_toml(public)


def _public(value: Any) -> Any:
    """The address of a server without its password; anything else as it is."""
    if isinstance(value, tuple):
        return tuple(map(_public, value))
    if not isinstance(value, str) or "//" not in value:
        return value
    kind, slashes, rest = value.partition("//")
    login, at, host = rest.rpartition("@")  # a password may have anything in it
    host, mark, more = host.partition("?")
    kept = [setting for setting in more.split("&") if not setting.lower().startswith("password=")]
    return f"{kind}{slashes}{login.partition(':')[0]}{at}{host}" + f"{mark}{'&'.join(kept)}" * any(kept)


def to_toml(values: Mapping[str, Any]) -> str:
    """Values as TOML, a line each; those that are None are left to their defaults.

    >>> print(to_toml({"space": "nb201", "seed": 3, "out": None, "search": ("a", "b")}), end="")
    space = "nb201"
    seed = 3
    search = ["a", "b"]
    """
    return "".join(f"{name} = {_toml(value)}\n" for name, value in values.items() if value is not None)


def _toml(value: Any) -> str:
    if isinstance(value, str | bool):  # JSON's escapes are TOML's, but for the one character that JSON leaves bare
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return repr(value)
