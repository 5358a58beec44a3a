"""Cell classes: one for each distinct cell of a network, with its widths as arguments."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from initio.networks.export.expressions import Call, Values, express
from initio.networks.export.forward import write_forward
from initio.networks.export.modules import Written
from initio.networks.export.wiring import Line, Wiring, merge

MAX_CHANGES = 2  # layers in which a cell may differ from another one to be written as its subclass

Operations = Callable[[Line], Written]


@dataclass(frozen=True)
class CellClass:
    """A cell as code: its name, its definition, and for each of its arguments what every instance passes."""

    name: str
    definition: str
    arguments: Mapping[str, Values]


def write_cells(instances: Sequence[Wiring], write: Operations) -> tuple[list[CellClass], list[tuple[int, int]]]:
    """The classes, and for each instance its class and its place among that class' instances."""
    groups: dict[Hashable, dict[Hashable, list[int]]] = {}
    for number, instance in enumerate(instances):
        groups.setdefault(instance.key(kinds=False), {}).setdefault(instance.key(), []).append(number)
    halving = any(_halves(instance) for instance in instances)
    classes: list[CellClass] = []
    places: dict[int, tuple[int, int]] = {}
    for group in groups.values():
        kinds = sorted(group.values(), key=lambda numbers: _follows_reduction(instances[numbers[0]]))
        members = [instances[number] for numbers in kinds for number in numbers]
        known = _arguments(members, write)
        cells = iter(range(len(members)))
        base: _Body | None = None
        for numbers in kinds:
            body = _Body.of(merge(members), instances[numbers[0]], known, write)
            name = _unique(_name(instances[numbers[0]], halving), [cell.name for cell in classes])
            width = len(members[0].c_out)
            own = [next(cells) for _ in numbers]
            arguments = {
                key: tuple(v for cell in own for v in values[cell * width : (cell + 1) * width])
                for key, values in known.items()
            }
            changed = body.changes(base) if base else None
            definition = body.define(name) if changed is None or base is None else base.derive(name, changed)
            base = base or replace(body, name=name)
            places |= {number: (len(classes), place) for place, number in enumerate(numbers)}
            classes.append(CellClass(name, definition, arguments))
    return classes, [places[number] for number in range(len(instances))]


def input_names(wiring: Wiring) -> tuple[str, ...]:
    """The arguments of a cell's `forward`."""
    return ("x0",) if wiring.n_inputs == 1 else ("before", "last")[: wiring.n_inputs]


@dataclass(frozen=True)
class _Body:
    """What stands in a cell's class."""

    arguments: tuple[str, ...]
    layers: Mapping[str, Call]
    forward: tuple[str, ...]
    inputs: tuple[str, ...]
    about: str
    unread: frozenset[str]
    name: str = ""

    @classmethod
    def of(cls, widths: Wiring, kinds: Wiring, known: Mapping[str, Values], write: Operations) -> _Body:
        """The cell with the widths of its whole group and the operations of its own kind."""
        layers: dict[str, Call] = {}
        live = {kinds.line(n).name for n in kinds.live() if n >= kinds.n_inputs}
        for line, own in zip(widths.lines, kinds.lines, strict=True):
            for cut, read in zip(line.cuts, line.read, strict=True):
                if cut:
                    layers[cut] = Call("Truncate", (_expressed(read, known),))
            if own.is_module and (line.name in live or write(own).symbols):  # unread poolings have nothing to keep
                ordered = _ordered(line, widths, known)
                c_in, c_out = (_expressed_or_nothing(values, ordered) for values in (line.c_in, line.c_out))
                layers[line.name] = write(own).at(c_in, c_out, own.stride)
        inputs = input_names(widths)
        return cls(
            tuple(known),
            layers,
            tuple(write_forward(replace(widths, lines=_with_kinds(widths, kinds)), inputs)),
            inputs,
            _about(kinds),
            frozenset(name for name in layers if name not in live and any(name == line.name for line in kinds.lines)),
        )

    def changes(self, base: _Body) -> dict[str, Call] | None:
        """The layers that differ from the base's, None when that are too many for a subclass."""
        changed = {name: call for name, call in self.layers.items() if base.layers[name] != call}
        return changed if len(changed) <= MAX_CHANGES else None

    def define(self, name: str) -> str:
        """The class."""
        text = [f"class {name}(nn.Module):", f'    """{self.about}"""', ""]
        if self.layers:
            text += [self._signature(), "        super().__init__()", *self._layers(self.layers), ""]
        typed = ", ".join(f"{name}: Tensor" for name in self.inputs)
        return "\n".join([*text, f"    def forward(self, {typed}) -> Tensor:", *self.forward])

    def derive(self, name: str, changed: Mapping[str, Call]) -> str:
        """A subclass in which some layers are others."""
        return "\n".join(
            [
                f"class {name}({self.name}):",
                '    """The same cell behind one that halved the resolution."""',
                "",
                self._signature(),
                f"        super().__init__({', '.join(self.arguments)})",
                *self._layers(changed),
            ]
        )

    def _signature(self) -> str:
        return f"    def __init__({', '.join(['self', *(f'{name}: int' for name in self.arguments)])}) -> None:"

    def _layers(self, layers: Mapping[str, Call]) -> list[str]:
        lines: list[str] = []
        for name, call in layers.items():
            written = call.lines(" " * 8, f"self.{name} = ")
            if name in self.unread:
                written[-1] += "  # leads nowhere"
            lines += written
        return lines


def _with_kinds(widths: Wiring, kinds: Wiring) -> tuple[Line, ...]:
    """Operations of one wiring, truncations of the other."""
    return tuple(
        replace(own, cuts=line.cuts, c_in=line.c_in, c_out=line.c_out)
        for line, own in zip(widths.lines, kinds.lines, strict=True)
    )


def _arguments(members: Sequence[Wiring], write: Operations) -> dict[str, Values]:
    """The widths that a cell is built from.

    A single width is `channels`. Else each input's own width has a name; what is left is `channels` again when it is
    one number, or shares of `c_out`.
    """
    whole = merge(members)
    columns: dict[Values, None] = {}
    read: dict[int, Values] = {}
    for place, line in enumerate(whole.lines):
        for cut, width in zip(line.cuts, line.read, strict=True):
            if cut:
                columns[width] = None
        symbols = {s for member in members if member.lines[place].is_module for s in write(member.lines[place]).symbols}
        if "c_in" in symbols:
            columns[line.c_in] = None
            if line.inputs[0] < whole.n_inputs and not line.cuts[0]:
                read.setdefault(line.inputs[0], line.c_in)
        if "c_out" in symbols:
            columns[line.c_out] = None
    if len(columns) <= 1:
        return dict(zip(("channels",), columns, strict=False))
    names = _width_names(whole)
    known = {names[number]: read[number] for number in sorted(read)}
    rest = [column for column in columns if column not in known.values()]
    if len(rest) == 1:
        known["channels"] = rest[0]
    elif rest:
        known["c_out"] = whole.c_out
    for column in rest:
        if express(column, known) is None:
            known[f"c_{len(known)}"] = column
    return known


def _ordered(line: Line, whole: Wiring, known: Mapping[str, Values]) -> Mapping[str, Values]:
    """The known widths, first of all that of the input which the line reads: two inputs can be of one width."""
    name = _width_names(whole)[line.inputs[0]] if line.inputs[0] < whole.n_inputs else ""
    return {name: known[name], **known} if name in known else known


def _width_names(cell: Wiring) -> tuple[str, ...]:
    return ("c_in",) if cell.n_inputs == 1 else ("c_before", "c_last")


def _expressed(values: Values, known: Mapping[str, Values]) -> str:
    text = express(values, known)
    assert text is not None
    return text


def _expressed_or_nothing(values: Values, known: Mapping[str, Values]) -> str:
    """Operations that have no use for a width are not asked for it."""
    return express(values, known) or ""


def _follows_reduction(cell: Wiring) -> bool:
    """Whether its first input has to be halved to fit to its second."""
    strides = {line.inputs[0]: line.stride for line in cell.lines if line.inputs[0] < cell.n_inputs}
    return cell.n_inputs == 2 and strides.get(0, 1) > strides.get(1, 1)


def _halves(cell: Wiring) -> bool:
    """Whether the output has a smaller resolution than the last input."""
    scale: dict[int, int] = {cell.n_inputs - 1: 1}
    for number, line in enumerate(cell.lines, start=cell.n_inputs):
        if sources := [scale[i] for i in line.inputs if i in scale]:
            scale[number] = line.stride * max(sources)
    return scale.get(cell.output, 1) > 1


def _name(cell: Wiring, halving: bool) -> str:
    name = "ReductionCell" if _halves(cell) else "NormalCell" if halving else "Cell"
    return name + ("AfterReduction" if _follows_reduction(cell) else "")


def _about(cell: Wiring) -> str:
    return "A cell that halves the resolution." if _halves(cell) else "A cell that keeps the resolution."


def _unique(name: str, taken: Sequence[str]) -> str:
    number = 2
    unique = name
    while unique in taken:
        unique, number = f"{name}{number}", number + 1
    return unique
