"""Numbers as formulas: from the widths that a network has at several sizes to the text that gives them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Values = tuple[int, ...]  # one number at several sizes of the network

MAX_FACTOR, MAX_DIVISOR = 64, 16
WIDTH = 110  # longer code is broken into several lines


def express(values: Values, known: Mapping[str, Values]) -> str | None:
    """The simplest formula of the known names that gives `values` at every size, or None.

    >>> sizes = {"channels": (16, 17, 18, 19)}
    >>> express((48, 51, 54, 57), sizes), express((8, 9, 9, 10), sizes), express((5, 5, 5, 5), sizes)
    ('3 * channels', '(channels + 1) // 2', '5')
    >>> express((1, 4, 9, 16), sizes)
    """
    if len(set(values)) == 1:
        return str(values[0])
    for name, base in known.items():
        if values == base:
            return name
    for name, base in known.items():
        for factor in range(2, MAX_FACTOR + 1):
            if all(value == factor * n for value, n in zip(values, base, strict=True)):
                return f"{factor} * {name}"
        for divisor in range(2, MAX_DIVISOR + 1):
            for offset in range(divisor):
                if all(value == (n + offset) // divisor for value, n in zip(values, base, strict=True)):
                    return f"{_sum(name, offset)} // {divisor}"
    return None


def _sum(name: str, offset: int) -> str:
    return f"({name} + {offset})" if offset else name


@dataclass(frozen=True)
class Call:
    """A call in the generated code, to be laid out on one line or on several."""

    function: str
    arguments: tuple[str | Call, ...] = ()

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"

    def lines(self, indent: str, before: str = "", after: str = "") -> list[str]:
        """The statement `before` + call + `after`, as a formatter would have it: what is broken ends in a comma.

        >>> print(*Call("f", ("a", Call("nn.Sequential", ("b", "c")))).lines("", "x = "), sep="\\n")
        x = f(
            a,
            nn.Sequential(
                b,
                c,
            ),
        )
        """
        line = f"{indent}{before}{self}{after}"
        if len(line) <= WIDTH and not self._wants_lines():
            return [line]
        broken = [f"{indent}{before}{self.function}("]
        for argument in self.arguments:
            if isinstance(argument, Call):
                broken += argument.lines(indent + "    ", after=",")
            else:
                broken.append(f"{indent}    {argument},")
        return [*broken, f"{indent}){after}"]

    def _wants_lines(self) -> bool:
        """A sequence reads best as a list."""
        if self.function.endswith(("nn.Sequential", "__init__")) and len(self.arguments) > 1:
            return True
        return any(isinstance(argument, Call) and argument._wants_lines() for argument in self.arguments)
