"""The one error that bad input raises."""


class InputError(ValueError):
    """Something the user gave is wrong; the message is one sentence that names the place and what would be right.

    Every parser, loader and settings check of the package raises this and nothing else, so that a program can catch
    it and the command line can print it and exit with code 2.
    """


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
    from difflib import get_close_matches

    return next(iter(get_close_matches(wrong, right, n=1, cutoff=0.7)), None)
