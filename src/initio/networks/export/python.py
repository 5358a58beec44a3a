"""A network as one readable Python file that needs only torch.

The file is written from the graph, like the network that `build` makes, and has the same names: a state dict fits both.
Widths are formulas: the graph is made at several sizes, and what changes with the size becomes an argument.
"""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from initio.networks.export.cells import CellClass, write_cells
from initio.networks.export.expressions import Call, Values, express
from initio.networks.export.forward import INDENT, write_forward
from initio.networks.export.modules import Written, class_source, write_operation
from initio.networks.export.wiring import Line, Wiring, merge, wiring_of
from initio.networks.graphs import Graph, NetworkSettings
from initio.networks.operations import Kit, Truncate

SIZES = 14  # at which the graph is looked at: enough to tell thirds from quarters and their remainders
MIN_LOOP = 3  # cells of the same kind in a row that are written as a loop

Network = Callable[[NetworkSettings], Graph]


def python_source(network: Network, settings: NetworkSettings, title: str, notation: str) -> str:
    """The file's text.

    Args:
        network: makes the graph for given settings.
        settings: the size, with channels and cells resolved; channels and classes become arguments with these defaults.
        title: first line of the file's comment.
        notation: the architecture as text, for the comment.
    """
    top, symbols = _at_all_sizes(network, settings)
    cells = [line.kind for line in top.lines if isinstance(line.kind, Wiring)]
    write = _operations(top, cells, Kit(settings))
    classes, places = write_cells(cells, write)
    used = _used_operations([*cells, top], write)
    body = _network_class(top, symbols, write, _cell_calls(classes, places, symbols), settings)
    definitions = [*used.values(), *(cell.definition for cell in classes), body]
    return "\n".join([_header(title, notation, definitions), *(f"\n\n{text}" for text in definitions), MAIN])


MAIN = """

if __name__ == "__main__":
    network = Network()
    print(f"{sum(p.numel() for p in network.parameters()):,} parameters")
"""


def _header(title: str, notation: str, definitions: Sequence[str]) -> str:
    try:
        written_by = f"Initio {version('initio')}"
    except PackageNotFoundError:  # run from a source tree that was never installed
        written_by = "Initio"
    lines = textwrap.wrap(notation, 98, break_long_words=False, break_on_hyphens=False)
    comment = [f"# {title}", "#", *(f"# {line}" for line in lines), "#"]
    comment.append(f"# Written by {written_by}; needs only torch. Weights are random until you load some:")
    comment.append('#     network = Network(); network.load_state_dict(torch.load("weights.pt", weights_only=True))')
    code = "\n".join(definitions)
    imports = ["import torch"] if re.search(r"(?<![\w.])torch\.", code) else []
    if " | tuple[" in code:
        imports = ["from __future__ import annotations", "", *imports]
    return "\n".join([*comment, "", *imports, "from torch import Tensor, nn"])


# --- sizes -----------------------------------------------------------------------------------------------------------


def _at_all_sizes(network: Network, settings: NetworkSettings) -> tuple[Wiring, dict[str, Values]]:
    """The network's wiring with its widths at several sizes, and what these sizes are."""
    assert settings.channels is not None
    sizes = [
        replace(
            settings,
            channels=settings.channels + k,
            classes=settings.classes + 5 * k,
            shape=(settings.shape[0] + 3 * k, *settings.shape[1:]),
        )
        for k in range(SIZES)
    ]
    symbols = {
        "classes": tuple(size.classes for size in sizes),
        "channels": tuple(size.channels or 0 for size in sizes),
        "in_channels": tuple(size.shape[0] for size in sizes),
        "features": tuple(math.prod(size.shape) for size in sizes),
    }
    if len(settings.shape) == 1:
        del symbols["in_channels"]
    return merge([wiring_of(network(size)) for size in sizes]), symbols


def _expressed(values: Values, symbols: dict[str, Values]) -> str:
    text = express(values, symbols)
    assert text is not None, f"no formula gives the widths {values}"
    return text


# --- operations ------------------------------------------------------------------------------------------------------


def _operations(top: Wiring, cells: Sequence[Wiring], kit: Kit) -> Callable[[Line], Written]:
    """Writes a line's operation; each kind is written once, for all strides that the network has."""
    distinct = list({cell.key(): cell for cell in cells}.values())
    lines = [line for wiring in (top, *distinct) for line in wiring.lines if not isinstance(line.kind, Wiring)]
    strides: dict[object, set[int]] = {}
    for line in lines:
        strides.setdefault(line.kind, set()).add(line.stride)
    count = Counter(line.kind for line in top.lines)
    count.update({line.kind: 2 for cell in distinct for line in cell.lines})  # cells are used many times

    @cache
    def written(kind: str) -> Written:
        return write_operation(kind, strides[kind], kit, once=count[kind] == 1)

    def write(line: Line) -> Written:
        assert isinstance(line.kind, str)
        return written(line.kind)

    return write


def _used_operations(wirings: Sequence[Wiring], write: Callable[[Line], Written]) -> dict[str, str]:
    """The definitions of all operations, in the order of their first use."""
    found: dict[str, str] = {}
    for wiring in wirings:
        for line in wiring.lines:
            if any(line.cuts):
                found["Truncate"] = class_source(Truncate)
            if line.is_module and not isinstance(line.kind, Wiring):
                found |= write(line).classes
    return found


# --- the network -----------------------------------------------------------------------------------------------------


def _cell_calls(
    classes: Sequence[CellClass], places: Sequence[tuple[int, int]], symbols: dict[str, Values]
) -> Iterator[Call]:
    """The constructor call of each cell of the network, in order."""
    for number, place in places:
        cell = classes[number]
        widths = (values[place * SIZES : (place + 1) * SIZES] for values in cell.arguments.values())
        yield Call(cell.name, tuple(_expressed(width, symbols) for width in widths))


def _network_class(
    top: Wiring,
    symbols: dict[str, Values],
    write: Callable[[Line], Written],
    cells: Iterator[Call],
    settings: NetworkSettings,
) -> str:
    calls: dict[str, Call] = {}
    for line in top.lines:
        if isinstance(line.kind, Wiring):
            calls[line.name] = next(cells)
        elif line.is_module:
            c_in, c_out = (express(values, symbols) or "" for values in (line.c_in, line.c_out))
            calls[line.name] = write(line).at(c_in, c_out, line.stride)
    code = " ".join(map(str, calls.values()))
    arguments = [f"{name}: int = {v[0]}" for name, v in symbols.items() if re.search(rf"\b{name}\b(?!=)", code)]
    returned = "Tensor" if top.auxiliary is None else "Tensor | tuple[Tensor, Tensor]"
    also = "" if top.auxiliary is None else "; while training also what the auxiliary head says"
    shape = ", ".join(["m", *map(str, settings.shape)])
    return "\n".join(
        [
            "class Network(nn.Module):",
            f'    """({shape}) -> (m, classes){also}."""',
            "",
            f"    def __init__({', '.join(['self', *arguments])}) -> None:",
            "        super().__init__()",
            *_layers(top, calls),
            "",
            f"    def forward(self, x: Tensor) -> {returned}:",
            *(_chain(top) or _windows(top) or write_forward(top, ["x"])),
        ]
    )


def _layers(top: Wiring, calls: dict[str, Call]) -> list[str]:
    """The layers of `__init__`; equal cells in a row in a loop."""
    lines: list[str] = []
    for run in _runs([line for line in top.lines if line.is_module], lambda line: str(calls[line.name])):
        call = calls[run[0].name]
        if len(run) < MIN_LOOP:
            lines += [text for line in run for text in call.lines(INDENT, f"self.{line.name} = ")]
        else:
            lines.append(_loop(run))
            lines += Call("self.add_module", (_pattern(run), call)).lines(INDENT + "    ")
    return lines


def _chain(top: Wiring) -> list[str]:
    """`forward` of a network in which every step reads the one before; nothing for other networks."""
    n = len(top.lines)
    if top.output != n or any(not line.is_module or line.inputs != (k,) for k, line in enumerate(top.lines)):
        return []
    return [*_steps(top.lines[:-1]), f"{INDENT}return self.{top.lines[-1].name}(x)"]


def _steps(lines: Sequence[Line]) -> Iterator[str]:
    for run in _runs(lines, lambda line: "cell"):
        if len(run) < MIN_LOOP:
            yield from (f"{INDENT}x = self.{line.name}(x)" for line in run)
        else:
            yield from (_loop(run), f"{INDENT}    x = getattr(self, {_pattern(run)})(x)")


def _windows(top: Wiring) -> list[str]:
    """`forward` of a network whose cells read the two values before them; nothing for other networks."""
    split = _split(top)
    if split is None:
        return []
    stems, cells, tail = split
    first = top.line(cells[0]).inputs
    names = {0: "x"}
    lines: list[str] = []
    for number in stems:
        targets = [name for name, value in zip(("before", "last"), first, strict=True) if value == number] or ["x"]
        lines.append(f"{INDENT}{' = '.join(targets)} = {_applied(top, number, names)}")
        names[number] = targets[-1]
    kept = top.line(top.auxiliary).inputs[0] if top.auxiliary is not None else None
    parts = [cells] if kept is None else [[n for n in cells if n <= kept], [n for n in cells if n > kept]]
    for part in parts:
        for run in _runs([top.line(n) for n in part], lambda line: "cell"):
            if len(run) < MIN_LOOP:
                lines += [f"{INDENT}before, last = last, self.{line.name}(before, last)" for line in run]
            else:
                lines += [_loop(run), f"{INDENT}    before, last = last, getattr(self, {_pattern(run)})(before, last)"]
        if part and kept == part[-1]:
            names[kept] = top.line(kept).name
            lines.append(f"{INDENT}{names[kept]} = last")
    names[cells[-1]] = "last"
    for number in tail[:-1]:
        lines.append(f"{INDENT}x = {_applied(top, number, names)}")
        names[number] = "x"
    if top.auxiliary is not None:
        pair = f"{_applied(top, top.output, names)}, {_applied(top, top.auxiliary, names)}"
        lines += [f"{INDENT}if self.training:", f"{INDENT}    return {pair}"]
    return [*lines, f"{INDENT}return {_applied(top, top.output, names)}"]


def _split(top: Wiring) -> tuple[list[int], list[int], list[int]] | None:
    """Stems, cells and tail of a network of two-input cells; None when it has another form."""
    numbers = [n for n in range(1, len(top.lines) + 1) if n != top.auxiliary]
    cells = [n for n in numbers if isinstance(top.line(n).kind, Wiring)]
    if not cells or numbers[-1] != top.output or not all(top.line(n).is_module for n in numbers):
        return None
    stems, tail = [n for n in numbers if n < cells[0]], [n for n in numbers if n > cells[-1]]
    before, last = top.line(cells[0]).inputs if len(top.line(cells[0]).inputs) == 2 else (0, 0)
    window = all(top.line(n).inputs == pair for n, pair in zip(cells, _pairs([before, last, *cells[:-1]]), strict=True))
    chained = all(top.line(n).inputs == (previous,) for previous, n in _pairs([cells[-1], *tail]))
    plain = [n for n in stems if n not in (before, last)] == [] and {before, last} <= set(stems) and bool(tail)
    return (stems, cells, tail) if window and chained and plain else None


def _pairs(values: Sequence[int]) -> list[tuple[int, int]]:
    return list(itertools.pairwise(values))


def _applied(top: Wiring, number: int, names: dict[int, str]) -> str:
    line = top.line(number)
    return f"self.{line.name}({', '.join(names[i] for i in line.inputs)})"


# --- loops -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Numbered:
    prefix: str
    number: int


def _numbered(line: Line) -> _Numbered | None:
    match = re.fullmatch(r"(.*_)(\d+)", line.name)
    return _Numbered(match[1], int(match[2])) if match and isinstance(line.kind, Wiring) else None


def _runs(lines: Sequence[Line], same: Callable[[Line], str]) -> list[list[Line]]:
    """Cells with consecutive numbers that agree in `same`, together; every other line alone."""
    runs: list[list[Line]] = []
    for line in lines:
        now, before = _numbered(line), _numbered(runs[-1][-1]) if runs else None
        follows = now and before and now == _Numbered(before.prefix, before.number + 1)
        if follows and same(line) == same(runs[-1][-1]):
            runs[-1].append(line)
        else:
            runs.append([line])
    return runs


def _loop(run: Sequence[Line]) -> str:
    first, last = _numbered(run[0]), _numbered(run[-1])
    assert first is not None
    assert last is not None
    return f"{INDENT}for number in range({first.number}, {last.number + 1}):"


def _pattern(run: Sequence[Line]) -> str:
    first = _numbered(run[0])
    assert first is not None
    return f'f"{first.prefix}{{number}}"'
