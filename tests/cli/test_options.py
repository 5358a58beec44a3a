"""Options are the fields of a dataclass: what can be typed, what a file may say, and what a mistake gets."""

import io
from collections import OrderedDict
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from initio.cli import all_commands, main
from initio.cli.options import merged, options_of, parse, parser, read_toml, to_toml
from initio.cli.search import SearchCommand
from initio.errors import InputError
from initio.searches import SEARCHES, find_search


@dataclass(frozen=True)
class Cook:
    """Cooks something; 100 % of it.

    More on that.

    Args:
        dish: what to cook,
            of all there is.
        guests: how many come.
        heat: of the oven, 90 % by default.
        style: how.
        spice: a number, or by name.
        salt: how much; none for none.
        sides: what goes with it.
        serve: bring it to the table.
        loud: sing.
    """

    dish: str
    guests: int = 2
    heat: float = 0.9
    style: Literal["plain", "rich", 3] = "plain"
    spice: float | Literal["mild", "hot"] = "mild"
    salt: float | None = 1.0
    max_minutes: int | None = None
    sides: tuple[str, ...] = ()
    serve: bool = True
    loud: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    unknown: "OrderedDict[str, int] | None" = None  # an annotation may be text

    FIRST: ClassVar[str] = "dish"
    SHORT: ClassVar[dict[str, str]] = {"guests": "-g"}


@dataclass(frozen=True)
class Base:
    """An oven.

    Args:
        fuel: what it burns.
    """

    fuel: str = "wood"


@dataclass(frozen=True)
class Oven(Base):
    """A round oven.

    Args:
        bricks: how many.
    """

    bricks: int = 100

    name: ClassVar[str] = "oven"


@dataclass(frozen=True)
class Kitchen:
    """Cooks with an oven.

    Args:
        method: oven.
        seed: of all.
    """

    method: str = "oven"
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parts(cls, given: dict[str, Any]) -> tuple[type[Any], ...]:
        if "method" not in given:
            return ()
        if given["method"] != "oven":
            raise InputError(f"there is no method {given['method']!r}")
        return (Oven,)


def cook(*argv: str) -> Any:
    return parse(Cook, argv, "initio cook")


@pytest.mark.parametrize(
    ("argv", "values"),
    [
        ("soup", {}),
        ("--dish soup", {}),
        ("--guests 3 soup", {"guests": 3}),
        ("soup --guests=3 --guests 4", {"guests": 4}),
        ("soup -g5", {"guests": 5}),
        ("-g=5 soup", {"guests": 5}),
        ("soup --max-minutes 9", {"max_minutes": 9}),
        ("soup --max_minutes=9", {"max_minutes": 9}),
        ("soup --guests -3 --heat -.5", {"guests": -3, "heat": -0.5}),
        ("soup --heat 2 --heat=-1e-3", {"heat": -1e-3}),
        ("soup --style rich", {"style": "rich"}),
        ("soup --style 3", {"style": 3}),
        ("soup --spice 3", {"spice": 3.0}),
        ("soup --spice hot", {"spice": "hot"}),
        ("soup --salt none", {"salt": None}),
        ("soup --sides bread wine --loud --sides rice", {"sides": ("bread", "wine", "rice"), "loud": True}),
        ("--sides=bread soup --no-serve", {"sides": ("bread",), "serve": False}),
        ("--loud soup --no-loud --serve", {}),
        ("--loud -- soup", {"loud": True}),
    ],
)
def test_what_can_be_typed(argv: str, values: dict[str, object]) -> None:
    assert cook(*argv.split()) == Cook("soup", **values)  # type: ignore[arg-type]


def test_behind_two_hyphens_are_words() -> None:
    assert cook("--loud", "--", "--soup").dish == "--soup"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ("", "missing dish: what to cook, of all there is"),
        ("soup --guests many", "--guests: expected a whole number, got 'many'"),
        ("soup --guests 2.5", "--guests: expected a whole number, got '2.5'"),
        ("soup --guests none", "--guests: expected a whole number, got 'none'"),
        ("soup --max-minutes none", "--max-minutes: expected a whole number, got 'none'"),
        ("soup --heat hot", "--heat: expected a number, got 'hot'"),
        ("soup --style fine", "--style: expected one of 'plain', 'rich', 3, got 'fine'"),
        ("soup --spice fine", "--spice: expected a number or one of 'mild', 'hot', got 'fine'"),
        ("soup --salt lots", "--salt: expected a number or none, got 'lots'"),
        ("soup --guests", "--guests needs a value: a whole number"),
        ("soup -g", "--guests needs a value: a whole number"),
        ("soup --sides", "--sides needs a value: text"),
        ("soup --loud=yes", "--loud takes no value"),
        ("soup --no-loud=yes", "--no-loud takes no value"),
        ("soup --config", "--config needs the name of a file"),
        ("soup --print-config=no", "--print-config takes no value"),
        ("soup --help=me", "--help takes no value"),
        ("soup --geusts 3", "--geusts is not an option of initio cook: did you mean --guests?"),
        ("soup --guest=3", "--guest is not an option of initio cook: did you mean --guests?"),
        ("soup -x", "-x is not an option of initio cook"),
        ("soup salad", "'salad' is a word too many: initio cook takes dish"),
        ("soup --settings 1", "--settings is not an option of initio cook"),
    ],
)
def test_a_mistake_gets_one_sentence(argv: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        cook(*argv.split())
    assert str(error.value) == f"{sentence} (see initio cook --help)"


def test_the_help_has_every_option_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert cook("--help", "--nonsense") is None
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith(
        "usage: initio cook DISH [options] Cooks something; 100 % of it. More on that. arguments: DISH"
    )
    for part in (
        "DISH what to cook, of all there is options:",
        "--guests N how many come (default: 2)",
        "--heat X of the oven, 90 % by default (default: 0.9)",
        "--style {plain,rich,3} how (default: plain)",
        "--sides SIDES [SIDES ...] what goes with it --no-serve do not bring it to the table --loud sing --config FILE",
    ):
        assert part in text
    assert "max_minutes" not in text
    assert "unknown" not in text


def test_fields_of_another_dataclass_are_options_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def kitchen(*argv: str) -> Any:
        return parse(Kitchen, argv, "initio kitchen")

    assert kitchen("--bricks", "3", "--seed", "4") == Kitchen(seed=4, settings={"bricks": 3})
    assert kitchen() == Kitchen()
    (tmp_path / "kitchen.toml").write_text("bricks = 5\nfuel = 'gas'\n")
    file = ("--config", str(tmp_path / "kitchen.toml"))
    assert kitchen("--bricks", "6", *file).settings == {"bricks": 6, "fuel": "gas"}
    with pytest.raises(InputError, match=r"there is no method 'fire' \(see initio kitchen --help\)"):
        kitchen("--method", "fire", *file)
    with pytest.raises(
        InputError, match="--brick is not an option of initio kitchen with oven: did you mean --bricks?"
    ):
        kitchen("--brick", "3")
    assert kitchen("--help") is None
    assert "bricks" not in capsys.readouterr().out
    assert kitchen("--method", "oven", "--help") is None
    shown = capsys.readouterr().out
    assert "options of oven:\n" in shown
    assert "what it burns (default: wood)" in shown
    assert kitchen("--bricks", "3", "--print-config") is None
    assert capsys.readouterr().out == 'method = "oven"\nseed = 0\nbricks = 3\n'


@pytest.mark.parametrize("name", ["seed", "config"])
def test_a_setting_with_the_name_of_an_option_is_refused(name: str) -> None:
    part = dataclass(frozen=True)(type("Part", (), {"__annotations__": {name: int}, name: 1, "__module__": __name__}))
    with pytest.raises(InputError, match=f"Part has a setting '{name}', which is an option of initio kitchen too"):
        parser(Kitchen, part, prog="initio kitchen")


@pytest.mark.parametrize("name", SEARCHES)
def test_every_setting_of_every_search_is_an_explained_option(name: str) -> None:
    search = find_search(name)
    options = merged(SearchCommand, search)
    for setting in fields(search):
        assert options[setting.name].help, f"{name} does not say what {setting.name} is"


def test_a_field_that_cannot_be_typed_needs_a_default() -> None:
    part = dataclass(type("Part", (), {"__annotations__": {"f": list[int]}, "__module__": __name__}))
    with pytest.raises(InputError, match="Part needs a default for 'f'"):
        options_of(part)


@dataclass(frozen=True)
class Served:
    """A command.

    Args:
        data: what is eaten.
    """

    data: str = "noise"
    seed: int = 0

    VERB: ClassVar[tuple[str, ...]] = ("initio.runs.rank:rank",)


def test_a_field_without_a_line_has_that_of_the_verb() -> None:
    helps = {name: option.help for name, option in options_of(Served).items()}
    assert helps["data"] == "what is eaten."
    assert helps["seed"].startswith("of the random architectures, the batch and")


def test_every_option_of_every_command_is_explained() -> None:
    for prog, command in all_commands():
        assert [option.name for option in options_of(command).values() if not option.help] == [], prog


def test_a_type_that_only_the_checker_knows_is_named() -> None:
    part = dataclass(type("Part", (), {"__annotations__": {"f": "Fraction"}, "f": 1, "__module__": __name__}))
    with pytest.raises(InputError, match="the annotations of Part name Fraction: import it for running, too"):
        options_of(part)


@dataclass(frozen=True)
class SharedKitchen(Kitchen):
    """Burns whatever it says itself."""

    fuel: tuple[str, ...] = ()

    SHARED: ClassVar[tuple[str, ...]] = ("fuel",)


def test_a_shared_name_is_the_option_of_the_command() -> None:
    made = parse(SharedKitchen, ["--fuel", "gas", "coal", "--bricks", "3"], "initio kitchen")
    assert made == SharedKitchen(fuel=("gas", "coal"), settings={"bricks": 3})


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("guests = 'three'", "--guests: expected a whole number, got 'three'"),
        ("guests = true", "--guests: expected a whole number, got True"),
        ("loud = 1", "--loud: expected true or false, got 1"),
        ("sides = 'bread'\n[cook]\nguests = 1", "has a section 'cook': write the options of one command"),
        ("guest = 3", "'guest' is not an option: did you mean guests?"),
        ("sides = [1]", "--sides: expected text, got 1"),
        ("sides = [[]]", "--sides: expected text, got []"),
        ("guests 3", "is not TOML: Expected '=' after a key"),
        ("a = " + "[" * 5000, "is not TOML"),
        ("guests = 1979-05-27", "--guests: expected a whole number, got datetime.date(1979, 5, 27)"),
    ],
)
def test_a_mistake_in_a_file_names_the_file(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "cook.toml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        cook("soup", "--config", str(path))
    assert sentence in str(error.value)
    assert str(error.value).startswith(repr(str(path)))
    assert str(error.value).endswith("(see initio cook --help)")


def test_files_hold_what_can_be_typed_and_later_ones_win(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("dish = 'soup'\nmax-minutes = 9\nheat = 1\nsalt = 'none'\n")
    (tmp_path / "b.toml").write_text("heat = 2\nsides = ['bread']\nstyle = 3\n")
    made = cook("--config", str(tmp_path / "a.toml"), "--config", str(tmp_path / "b.toml"), "--guests", "7")
    assert made == Cook("soup", guests=7, heat=2.0, style=3, salt=None, max_minutes=9, sides=("bread",))


VALUES = st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"))


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), VALUES | st.lists(VALUES)))
def test_what_is_written_reads_back(tmp_path_factory: pytest.TempPathFactory, values: dict[str, object]) -> None:
    path = tmp_path_factory.getbasetemp() / "values.toml"
    path.write_bytes(to_toml(values).encode())
    assert read_toml(str(path)) == values


def test_a_printed_config_reads_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    argv = ["soup", "--sides", "bread", "--salt", "none", "--no-serve", "--style", "3", "--spice", "2"]
    assert cook(*argv, "--print-config") is None
    (tmp_path / "cook.toml").write_text(capsys.readouterr().out)
    assert cook("--config", str(tmp_path / "cook.toml")) == cook(*argv)


# --- whatever is typed ------------------------------------------------------------------------------------------------


SPELLINGS = [text for action in parser(Cook)._actions for text in action.option_strings if "config" not in text]
WORDS = st.sampled_from([*SPELLINGS, "=", "--", "-", "3", "-3", "none", "nb201", "true", ""]) | st.text(max_size=5)


@given(st.lists(WORDS | st.tuples(WORDS, WORDS).map("=".join), max_size=6))
def test_whatever_is_typed_is_a_command_or_one_sentence(argv: list[str]) -> None:
    with suppress(InputError), redirect_stdout(io.StringIO()):
        assert isinstance(cook(*argv), Cook | None)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("solve --resume r --seed 1", "--resume goes on with the run's own settings: leave out --seed"),
        ("solve --resume r --no-baseline", "leave out --no-baseline"),
        ("train --resume r --skip-bad", "--resume goes on with the training's own settings: leave out --skip-bad"),
        ("train --resume r --batch-size 8", "leave out --batch-size"),
        ("search --resume r --no-cache", "--resume goes on with the run's own settings: leave out --no-cache"),
    ],
)
def test_nothing_goes_beside_resume(words: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    assert sentence in capsys.readouterr().err
