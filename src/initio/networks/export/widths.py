"""Widths that remember their formula, so that one pass over a network's code writes it for every size."""

from __future__ import annotations


class Width(int):
    """A number of channels: its value at one size, and the formula that gives it at any.

    The formula is `form` of a multiple of a symbol. Widths compare as they would without rounding: two shares of a
    width that happen to be equal at this size stay different, so a network does what it would do at the others.

    >>> c = Width(12, "channels")
    >>> share = (2 * c + 1) // 4
    >>> int(share), str(share), share.of("c_out")
    (6, '(2 * channels + 1) // 4', '(c_out + 1) // 4')
    >>> share == 2 * c // 4, int(share) == int(2 * c // 4)
    (False, True)
    """

    symbol: str
    factor: int
    form: str
    exact: float

    def __new__(cls, value: int, symbol: str, factor: int = 1, form: str = "{0}", exact: float | None = None) -> Width:
        """The symbol itself, unless more is given."""
        self = super().__new__(cls, value)
        self.symbol, self.factor, self.form = symbol, factor, form
        self.exact = float(value) if exact is None else exact
        return self

    def __str__(self) -> str:
        return self.of(self.base)

    @property
    def base(self) -> str:
        """The multiple of the symbol that the formula is of."""
        return self.symbol if self.factor == 1 else f"{self.factor} * {self.symbol}"

    def of(self, base: str) -> str:
        """The formula with another text in place of its multiple of the symbol."""
        return self.form.format(base)

    def _formed(self, value: int, form: str, exact: float) -> Width:
        return Width(value, self.symbol, self.factor, form, exact)

    @property
    def _atom(self) -> str:
        """The form, in brackets where a product needs them."""
        return f"({self.form})" if " + " in self.form or " - " in self.form else self.form

    def __mul__(self, other: int) -> Width:
        if self.form == "{0}":
            return Width(int(self) * other, self.symbol, self.factor * other)
        return self._formed(int(self) * other, f"{other} * {self._atom}", self.exact * other)

    __rmul__ = __mul__

    def __lshift__(self, other: int) -> Width:
        return self * (1 << other)

    def __add__(self, other: int) -> Width:
        if other == 0:
            return self
        return self._formed(int(self) + other, f"{self.form} + {other}", self.exact + other)

    def __sub__(self, other: int) -> Width:
        if not isinstance(other, Width):
            return self._formed(int(self) - other, f"{self.form} - {other}", self.exact - other)
        if other.base != self.base:
            raise TypeError(f"no formula has both {self.base} and {other.base}")
        return self._formed(int(self) - int(other), f"{self.form} - {other._atom}", self.exact - other.exact)

    def __floordiv__(self, other: int) -> Width:
        return self._formed(int(self) // other, f"{self._atom} // {other}", self.exact / other)

    def __eq__(self, other: object) -> bool:
        return self.exact == getattr(other, "exact", other)

    def __lt__(self, other: int) -> bool:
        return bool(self.exact < getattr(other, "exact", other))

    def __gt__(self, other: int) -> bool:
        return bool(self.exact > getattr(other, "exact", other))

    __hash__ = int.__hash__
