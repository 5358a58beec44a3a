"""A graph as it is written out: which steps are modules, what each reads, and how wide everything is.

A `Wiring` is a graph without what needs no line of its own: identities are folded, sums of one value too, zeros are
dropped from sums, and a truncation belongs to the line that reads the truncated value. Whether a truncation is there
depends on the width alone, so the same cell at another width has the same wiring.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from initio.networks.export.expressions import Values
from initio.networks.graphs import CONCAT, IDENTITY, SUM, ZERO, Graph, Op

STRUCTURE = (SUM, CONCAT, ZERO)  # written as expressions, not as modules


@dataclass(frozen=True)
class Line:
    """One step: an operation, or a whole inner wiring, applied to the values `inputs`."""

    name: str
    kind: str | Wiring
    stride: int
    inputs: tuple[int, ...]
    cuts: tuple[str, ...]  # for each input the name of the truncation on the way, or nothing
    c_in: Values
    c_out: Values
    read: tuple[Values, ...]  # the width of each input behind its truncation

    @property
    def is_module(self) -> bool:
        """Whether it is written as a module: zeros are one when they are not in the shape of what they read."""
        reshaped = self.kind == ZERO and (self.stride != 1 or self.c_in != self.c_out)
        return isinstance(self.kind, Wiring) or self.kind not in STRUCTURE or reshaped


@dataclass(frozen=True)
class Wiring:
    """Lines in order of computation; values are numbered as in a `Graph`."""

    n_inputs: int
    lines: tuple[Line, ...]
    output: int
    c_out: Values
    auxiliary: int | None = None

    def live(self) -> frozenset[int]:
        """The values that output and auxiliary output depend on."""
        live: set[int] = set()
        todo = [self.output, *([] if self.auxiliary is None else [self.auxiliary])]
        while todo:
            if (number := todo.pop()) not in live:
                live.add(number)
                if number >= self.n_inputs:
                    todo += self.line(number).inputs
        return frozenset(live)

    def line(self, number: int) -> Line:
        """The line that makes a value."""
        return self.lines[number - self.n_inputs]

    def key(self, kinds: bool = True) -> Hashable:
        """Equal for wirings that differ in widths only; without `kinds`, for those with the same forward pass."""

        def kind(line: Line) -> Hashable:
            if isinstance(line.kind, Wiring):
                return line.kind.key() if kinds else "cell"
            return (line.kind, line.stride) if kinds or not line.is_module else "module"

        lines = tuple((line.name, kind(line), line.inputs) for line in self.lines)
        return self.n_inputs, lines, self.output, self.auxiliary


def wiring_of(graph: Graph) -> Wiring:
    """The wiring of a graph, with the widths of one size."""
    lines: list[Line] = []
    values: dict[int, tuple[int, str, Values]] = {i: (i, "", (0,)) for i in range(graph.n_inputs)}
    for number, step in enumerate(graph.steps, start=graph.n_inputs):
        sources, op = [values[i] for i in step.inputs], step.op
        if isinstance(op, Graph):
            inner = wiring_of(op)
            line = Line(step.name, inner, 1, (), (), (0,), inner.c_out, ())
        else:
            if op.kind == SUM:
                sources = [s for s in sources if not _is_zero(s, lines, graph.n_inputs)] or sources[:1]
            if op.kind == "truncate":
                values[number] = (sources[0][0], step.name, (op.c_out,))
                continue
            if op.kind == IDENTITY or (op.kind == SUM and len(sources) == 1):
                values[number] = sources[0]
                continue
            line = Line(step.name, op.kind, op.stride, (), (), (op.c_in,), _width(op, sources), ())
        inputs, cuts, read = zip(*sources, strict=True)
        lines.append(replace(line, inputs=inputs, cuts=cuts, read=read))
        values[number] = (graph.n_inputs + len(lines) - 1, "", line.c_out)
    output, cut, width = values[graph.output]
    assert not cut, "no graph ends in a truncation"
    auxiliary = None if graph.auxiliary is None else values[graph.auxiliary][0]
    return Wiring(graph.n_inputs, tuple(lines), output, width, auxiliary)


def _is_zero(source: tuple[int, str, Values], lines: list[Line], n_inputs: int) -> bool:
    return source[0] >= n_inputs and lines[source[0] - n_inputs].kind == ZERO


def _width(op: Op, sources: Sequence[tuple[int, str, Values]]) -> Values:
    if op.kind == SUM:
        return sources[0][2]
    if op.kind == CONCAT:
        return (sum(width[0] for _, _, width in sources),)
    return (op.c_out,)


def merge(wirings: Sequence[Wiring]) -> Wiring:
    """One wiring with the widths of all, which must have the same key (kinds aside: the first one's are kept)."""
    lines = tuple(_merge_lines(column) for column in zip(*(w.lines for w in wirings), strict=True))
    return replace(wirings[0], lines=lines, c_out=_joined([w.c_out for w in wirings]))


def _merge_lines(lines: Sequence[Line]) -> Line:
    kinds = [line.kind for line in lines if isinstance(line.kind, Wiring)]
    return replace(
        lines[0],
        kind=merge(kinds) if kinds else lines[0].kind,
        cuts=tuple(next(filter(None, column), "") for column in zip(*(line.cuts for line in lines), strict=True)),
        c_in=_joined([line.c_in for line in lines]),
        c_out=_joined([line.c_out for line in lines]),
        read=tuple(_joined(column) for column in zip(*(line.read for line in lines), strict=True)),
    )


def _joined(values: Sequence[Values]) -> Values:
    return tuple(number for part in values for number in part)
