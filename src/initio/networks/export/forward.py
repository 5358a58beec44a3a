"""A wiring's `forward` as code: one statement for each value that has a name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from initio.networks.export.expressions import WIDTH, Call
from initio.networks.export.wiring import Line, Wiring
from initio.networks.graphs import CONCAT, SUM, ZERO

INDENT = " " * 8
MAX_INLINE = 3  # summands that are written within the brackets of a call


def write_forward(wiring: Wiring, inputs: Sequence[str]) -> list[str]:
    """The statements of `forward`, given the names of its arguments.

    A value that a single sum or layer reads is written where it is read, unless it is a node of a cell. The others are
    named x1, x2, ...: after the number in their own name (`node_3` is x3), or in order where these are not different.
    """
    live = wiring.live()
    numbers = [n for n in range(wiring.n_inputs, wiring.n_inputs + len(wiring.lines)) if n in live]
    readers: dict[int, list[Line]] = {n: [] for n in live}
    for number in numbers:
        for source in wiring.line(number).inputs:
            readers[source].append(wiring.line(number))
    last = (wiring.output, wiring.auxiliary)
    inline = {n for n in numbers if n not in last and _is_inline(wiring, n, readers[n])}
    named = [n for n in numbers if n not in last and n not in inline]
    texts = dict(enumerate(inputs)) | _names(wiring, named, set(inputs))
    statements = []
    for number in numbers:
        terms = _terms(wiring.line(number), texts)
        if number in last or number in inline:
            texts[number] = " + ".join(terms)
        else:
            statements += _assign(texts[number], terms)
    if wiring.auxiliary is None:
        return statements + _return(wiring, texts)
    pair = f"return {texts[wiring.output]}, {texts[wiring.auxiliary]}"
    return [*statements, f"{INDENT}if self.training:", f"{INDENT}    {pair}", *_return(wiring, texts)]


def _is_inline(wiring: Wiring, number: int, readers: Sequence[Line]) -> bool:
    line = wiring.line(number)
    if len(readers) != 1 or readers[0].kind in (CONCAT, ZERO) or re.fullmatch(r"(node|vertex)_\d+", line.name):
        return False
    (reader,) = readers
    cut = reader.cuts[reader.inputs.index(number)]
    if line.kind == SUM:
        return reader.is_module and not cut and len(line.inputs) <= MAX_INLINE
    projection = line.is_module and all(source < wiring.n_inputs for source in line.inputs)
    return line.kind != CONCAT and (reader.kind == SUM or projection)


def _names(wiring: Wiring, named: Sequence[int], taken: set[str]) -> dict[int, str]:
    own = {n: re.sub(r"^.*_(\d+)$", r"x\1", wiring.line(n).name) for n in named}
    if len(set(own.values()) - taken) == len(named):
        return own
    return {n: f"x{place}" for place, n in enumerate(named, start=1)}


def _terms(line: Line, texts: dict[int, str]) -> list[str]:
    """The summands of a line's value; a single one for anything but a sum."""
    inputs = [
        f"self.{cut}({texts[source]})" if cut else texts[source]
        for source, cut in zip(line.inputs, line.cuts, strict=True)
    ]
    if line.is_module:
        return [f"self.{line.name}({', '.join(inputs)})"]
    if line.kind == CONCAT:
        return [f"torch.cat([{', '.join(inputs)}], dim=1)"]
    return [f"torch.zeros_like({inputs[0]})"] if line.kind == ZERO else inputs


def _assign(name: str, terms: Sequence[str]) -> list[str]:
    """`name = a + b + c`, in several statements where that is long; sums are taken from the left either way."""
    statements = [f"{INDENT}{name} = {terms[0]}"]
    for term in terms[1:]:
        if len(statements[-1]) + len(term) + 3 <= WIDTH:
            statements[-1] += f" + {term}"
        else:
            statements.append(f"{INDENT}{name} = {name} + {term}")
    return statements


def _return(wiring: Wiring, texts: dict[int, str]) -> list[str]:
    if len(line := f"{INDENT}return {texts[wiring.output]}") <= WIDTH:
        return [line]
    terms = _terms(wiring.line(wiring.output), texts)
    if len(terms) > 1:
        return [*_assign("out", terms), f"{INDENT}return out"]
    concatenated = re.fullmatch(r"torch\.cat\(\[(.*)\], dim=1\)", terms[0])
    if not concatenated:
        return [line]
    return Call("torch.cat", (f"[{concatenated[1]}]", "dim=1")).lines(INDENT, "return ")
