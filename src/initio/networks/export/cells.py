"""Cells as code: a class for each distinct cell of a network, with its widths as arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from initio.networks.export.layers import BODY, OperationCode
from initio.networks.export.widths import Width
from initio.networks.graphs import CONCAT, IDENTITY, SUM, ZERO, Builder, Graph, Op, Step, reached

MAX_CHANGES = 2  # layers in which a cell may differ from another one to be written as its subclass
MAX_INLINE = 40  # characters of a value that is written where it is read
INPUTS = {1: ("x",), 2: ("before", "last")}  # of a cell's `forward`, by their number
INPUT_WIDTHS = {1: ("c_in",), 2: ("c_before", "c_last")}
Operations = Callable[[Op], OperationCode]


# --- the graph as it is written ---------------------------------------------------------------------------------------


def folded(graph: Graph) -> Graph:
    """The same graph without steps that need no code: identities, sums of one value, zeros in sums."""
    built, value, zeros = Builder(graph.n_inputs), {i: i for i in range(graph.n_inputs)}, set[int]()
    for number, step in enumerate(graph.steps, start=graph.n_inputs):
        op, kind, inputs = step.op, kind_of(step), tuple(value[i] for i in step.inputs)
        if isinstance(op, Graph):
            op = folded(op)
        if kind == SUM:
            inputs = tuple(i for i in inputs if i not in zeros) or inputs[:1]
        if kind in (IDENTITY, SUM) and len(inputs) == 1:
            value[number] = inputs[0]
            continue
        value[number] = built(step.name, op, *inputs)
        if kind == ZERO:
            zeros.add(value[number])
    auxiliary = None if graph.auxiliary is None else value[graph.auxiliary]
    return built.graph(value[graph.output], auxiliary)


def kind_of(step: Step) -> str:
    """The kind of a step's operation; nothing for a cell."""
    return getattr(step.op, "kind", "")


def _read(graph: Graph) -> dict[int, Step]:
    """The steps that the output depends on, by the numbers of their values."""
    steps = dict(enumerate(graph.steps, start=graph.n_inputs))
    live = reached([graph.output], lambda number: steps[number].inputs if number in steps else ())
    return {number: step for number, step in steps.items() if number in live}


def write_forward(graph: Graph) -> list[str]:
    """The statements of `forward`: a value is named after its step, unless it is short and read once."""
    steps, texts = _read(graph), dict(enumerate(INPUTS[graph.n_inputs]))
    reads = [(i, kind_of(step)) for step in steps.values() for i in step.inputs]
    readers = Counter(i for i, _ in reads)
    lines = []
    for number, step in steps.items():
        inputs, kind = [texts[i] for i in step.inputs], kind_of(step)
        listed = ", ".join(inputs)
        structure = {SUM: " + ".join(inputs), CONCAT: f"torch.cat([{listed}], dim=1)"}
        texts[number] = structure.get(kind, f"self.{step.name}({listed})")
        # A sum within a sum would be added up in another order, and a list reads best with names.
        named = (number, CONCAT) in reads or (kind == SUM and (number, SUM) in reads)
        if number != graph.output and (named or readers[number] > 1 or len(texts[number]) > MAX_INLINE):
            lines.append(f"{step.name} = {texts[number]}")
            texts[number] = step.name
    return [*lines, f"return {texts[graph.output]}"]


# --- classes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CellCode:
    """A cell's class; a subclass of another one has only the layers that differ."""

    name: str
    about: str
    arguments: tuple[str, ...]
    layers: dict[str, str]
    forward: list[str]  # its head and its statements
    base: str = "nn.Module"

    def definition(self) -> str:
        """The class as code."""
        typed = ["self", *(f"{name}: int" for name in self.arguments)]
        head = [f"class {self.name}({self.base}):", f'    """{self.about}"""']
        init = ["", f"    def __init__({', '.join(typed)}) -> None:", f"{BODY}super().__init__()"]
        layers = [f"{BODY}self.{name} = {code}" for name, code in self.layers.items()]
        if self.base != "nn.Module":
            init[-1] = f"{BODY}super().__init__({', '.join(self.arguments)})"
            return "\n".join([*head, *init, *layers])
        if not layers:
            init = []
        return "\n".join([*head, *init, *layers, "", *self.forward])

    def derived(self, others: Sequence[CellCode]) -> CellCode:
        """A subclass of one of the others instead, if one is nearly the same."""
        for other in others:
            if (self.arguments, self.forward, *self.layers) == (other.arguments, other.forward, *other.layers):
                changed = {name: code for name, code in self.layers.items() if other.layers[name] != code}
                if len(changed) <= MAX_CHANGES:
                    about = "The same cell behind one that halved the resolution."
                    return replace(self, about=about, layers=changed, base=other.name)
        return self


@dataclass(frozen=True)
class _CellLayer:
    """A module of a cell; `source` is the cell's input that it reads, if it reads one."""

    name: str
    op: Op
    code: OperationCode
    source: int | None
    is_read: bool

    def widths(self) -> dict[str, Width]:
        """Those that its code has to be given: c_in, c_out, both or none."""
        sides = {"c_in": self.op.c_in, "c_out": self.op.c_out}
        return {s: width for s, width in sides.items() if f"{{{s}}}" in self.code.call and isinstance(width, Width)}

    def text(self, names: Iterator[str]) -> str:
        """The call that makes it, with the next names for its widths."""
        sides = {"c_in": str(self.op.c_in), "c_out": str(self.op.c_out)}
        sides |= {side: width.of(next(names)) for side, width in self.widths().items()}
        return self.code.at(**sides, stride=self.op.stride) + "  # leads nowhere" * (not self.is_read)


def write_cells(cells: Sequence[Graph], write: Operations) -> tuple[list[CellCode], list[str]]:
    """The classes, and for each cell the call that makes it."""
    groups: dict[object, list[int]] = {}
    for number, cell in enumerate(cells):
        groups.setdefault(_key(cell), []).append(number)
    halving = any(_halves(cell) for cell in cells)
    classes: list[CellCode] = []
    calls = [""] * len(cells)
    for numbers in sorted(groups.values(), key=lambda numbers: _follows_reduction(cells[numbers[0]])):
        cell, layers = cells[numbers[0]], [list(_layers(cells[number], write)) for number in numbers]
        given = [[width.base for layer in own for width in layer.widths().values()] for own in layers]
        names = _argument_names(cell.n_inputs, layers[0], list(zip(*given, strict=True)))
        arguments = tuple(dict.fromkeys(sorted(names, key=lambda name: name.startswith("channels"))))
        name = _name(cell, halving)
        if taken := sum(other.name.startswith(name) for other in classes):
            name += str(taken + 1)
        about = f"A cell that {'halves' if _halves(cell) else 'keeps'} the resolution."
        each = iter(names)
        code = {layer.name: layer.text(each) for layer in layers[0]}
        classes.append(CellCode(name, about, arguments, code, _forward_method(cell)).derived(classes))
        for number, bases in zip(numbers, given, strict=True):
            base = dict(zip(names, bases, strict=True))
            calls[number] = f"{name}({', '.join(base[argument] for argument in arguments)})"
    return classes, calls


def _key(cell: Graph) -> object:
    """Equal for cells of one class: they differ in the widths that they are given."""

    def form(width: int) -> object:
        return getattr(width, "form", width)

    steps = ((s.name, s.inputs, op.kind, op.stride, form(op.c_in), form(op.c_out)) for s, op in _operations(cell))
    return cell.n_inputs, cell.output, tuple(steps)


def _operations(cell: Graph) -> Iterator[tuple[Step, Op]]:
    for step in cell.steps:
        assert isinstance(step.op, Op), "a cell has no cells"
        yield step, step.op


def _layers(cell: Graph, write: Operations) -> Iterator[_CellLayer]:
    """The modules: those that are read, and those whose weights a state dict has."""
    read = _read(cell)
    for number, (step, op) in enumerate(_operations(cell), start=cell.n_inputs):
        if op.kind in (SUM, CONCAT) or (op.kind == ZERO and number not in read):
            continue
        code, first = write(op), step.inputs[0]
        source = first if first < cell.n_inputs else None
        if number in read or "{c_" in code.call:
            yield _CellLayer(step.name, op, code, source, number in read)


def _argument_names(n_inputs: int, layers: Sequence[_CellLayer], columns: Sequence[tuple[str, ...]]) -> list[str]:
    """The name of each width; `columns` has what all cells of the class give for it.

    A single width is `channels`. Else that of each input has a name of its own.
    """
    if len(set(columns)) == 1:
        return ["channels"] * len(columns)
    names, others = [], dict[tuple[str, ...], str]()
    sides = [(layer.source, side) for layer in layers for side in layer.widths()]
    for (source, side), column in zip(sides, columns, strict=True):
        if side == "c_in" and source is not None:
            names.append(INPUT_WIDTHS[n_inputs][source])
        else:
            names.append(others.setdefault(column, f"channels{len(others) or ''}"))
    return names


def _forward_method(cell: Graph) -> list[str]:
    typed = ["self", *(f"{name}: Tensor" for name in INPUTS[cell.n_inputs])]
    return [f"    def forward({', '.join(typed)}) -> Tensor:", *(BODY + line for line in write_forward(cell))]


def _follows_reduction(cell: Graph) -> bool:
    """Whether its first input has to be halved to fit to its second."""
    strides = {step.inputs: op.stride for step, op in _operations(cell)}
    return cell.n_inputs == 2 and strides.get((0,), 1) > strides.get((1,), 1)


def _halves(cell: Graph) -> bool:
    """Whether its nodes have a smaller resolution than its last input."""
    return any(op.stride > 1 for step, op in _operations(cell) if cell.n_inputs == 1 or step.inputs != (0,))


def _name(cell: Graph, halving: bool) -> str:
    kind = "Reduction" if _halves(cell) else "Normal" * halving
    return f"{kind}Cell{'AfterReduction' * _follows_reduction(cell)}"
