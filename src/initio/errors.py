"""The one error that bad input raises, and the sentences that many checks share."""

from __future__ import annotations

import math
import re
from difflib import get_close_matches

LONGEST = 600  # characters of a message; what a user's file says may be longer


class InputError(ValueError):
    """Something the user gave is wrong; the message is one sentence that names the place and what would be right.

    Every parser, loader and settings check of the package raises this and nothing else, so that a program can catch
    it and the command line can print it and exit with code 2.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(one_line(sentence))


def one_line(message: str) -> str:
    r"""A message on one line of bounded length, whatever a user's file put into it.

    >>> one_line("a name with\n\x1b[31mcolour")
    'a name with\\n\\x1b[31mcolour'
    >>> one_line("there is no store 'postgresql//ada:s3cret@db/scores'")
    "there is no store 'postgresql//ada:...@db/scores'"
    """
    text = re.sub(r"[^ -~]", lambda found: _visible(found[0]), without_passwords(message))
    if len(text) > LONGEST:  # the end says where to read on
        text = f"{text[: LONGEST - 100]} ... {text[-95:]}"
    return text


def without_passwords(text: str) -> str:
    """The same, with dots where addresses have a password.

    >>> without_passwords("postgresql://ada:s3cret@db/scores?password=s3cret&sslmode=require")
    'postgresql://ada:...@db/scores?password=...&sslmode=require'
    """
    text = re.sub(r"(//[^\s/:@'\"]{0,99}:)(?!PASSWORD@)\S{0,99}@", r"\1...@", text)  # bounded: a file
    return re.sub(r"(?i)(\bpassword=)[^\s'\"&]{1,99}", r"\1...", text)  # may have put anything there


def _visible(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]


def did_you_mean(wrong: str, right: list[str]) -> str:
    """The end of an error sentence: the nearest valid name, or all of them.

    >>> did_you_mean("nb102", ["darts", "nb101", "nb201"])
    "did you mean 'nb101'?"
    >>> did_you_mean("imagenet", ["darts", "nb101"])
    'choose one of darts, nb101'
    """
    near = nearest(wrong, right)
    if near is None:
        return f"choose one of {', '.join(right)}"
    return f"did you mean {near!r}?"


def first_line(error: Exception) -> str:
    """What an error of someone else's says, short enough for the end of a sentence.

    >>> first_line(ValueError("a bad header\\nin 3 places")), first_line(KeyError())
    ('a bad header', 'KeyError')
    """
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def nearest(wrong: str, right: list[str]) -> str | None:
    """The valid name that was probably meant."""
    return next(iter(get_close_matches(wrong, right, n=1, cutoff=0.7)), None)


def at_least(settings: object, **least: float) -> None:
    """Refuses settings whose fields are below these values; a field that is None has no value to check.

    >>> from types import SimpleNamespace
    >>> at_least(SimpleNamespace(steps=0, sample=None), sample=1, steps=2)
    Traceback (most recent call last):
    initio.errors.InputError: steps must be at least 2, not 0
    """
    for name, bound in least.items():
        value = getattr(settings, name)
        if value is not None and not value >= bound:
            raise InputError(f"{name} must be at least {bound}, not {value}")


def positive(settings: object, *names: str) -> None:
    """Refuses settings whose fields of these names are zero, negative, infinite or no number; None is not looked at."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"{name} must be a positive number, not {value}")


def finite(settings: object, **least: float) -> None:
    """Refuses settings whose fields are below these values, infinite or no number; None is not looked at."""
    for name, bound in least.items():
        value = getattr(settings, name)
        if value is not None and not bound <= value < math.inf:
            raise InputError(f"{name} must be a number of at least {bound}, not {value}")
