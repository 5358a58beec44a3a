"""Cells as code: a class for each distinct cell of a network, with its widths as arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from initio.networks.export.layers import BODY, OperationCode
from initio.networks.export.widths import Width
from initio.networks.graphs import CONCAT, IDENTITY, SUM, ZERO, Builder, Graph, Op, Step

MAX_CHANGES = 2  # layers in which a cell may differ from another one to be written as its subclass
MAX_INLINE = 40  # characters of a value that is written where it is read
INPUTS = {1: ("x",), 2: ("before", "last")}  # of a cell's `forward`, by their number
INPUT_WIDTHS = {1: ("c_in",), 2: ("c_before", "c_last")}
Slot = tuple[int, str]  # the number of a step, and c_in or c_out
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
    auxiliary = None
    if graph.auxiliary is not None:
        auxiliary = value[graph.auxiliary]
    return built.graph(value[graph.output], auxiliary)


def kind_of(step: Step) -> str:
    """The kind of a step's operation; nothing for a cell."""
    if isinstance(step.op, Graph):
        return ""
    return step.op.kind


def _live(graph: Graph) -> set[int]:
    """The values that the output depends on."""
    live, todo = set[int](), [graph.output]
    while todo:
        number = todo.pop()
        if number not in live:
            live.add(number)
            todo += graph.steps[number - graph.n_inputs].inputs * (number >= graph.n_inputs)
    return live


def write_forward(graph: Graph) -> list[str]:
    """The statements of `forward`: a value is named after its step, unless it is short and read once."""
    live, texts = _live(graph), dict(enumerate(INPUTS[graph.n_inputs]))
    steps = {n: step for n, step in enumerate(graph.steps, start=graph.n_inputs) if n in live}
    reads = [(i, kind_of(step)) for step in steps.values() for i in step.inputs]
    readers = Counter(i for i, _ in reads)
    lines = []
    for number, step in steps.items():
        inputs, kind = ", ".join(texts[i] for i in step.inputs), kind_of(step)
        text = f"self.{step.name}({inputs})"
        if kind == SUM:
            text = inputs.replace(", ", " + ")
        elif kind == CONCAT:
            text = f"torch.cat([{inputs}], dim=1)"
        # A sum within a sum would be added up in another order, and a list reads best with names.
        named = (number, CONCAT) in reads or (kind == SUM and (number, SUM) in reads)
        if number == graph.output:
            texts[number] = text
        elif readers[number] == 1 and len(text) <= MAX_INLINE and not named:
            texts[number] = text
        else:
            lines.append(f"{step.name} = {text}")
            texts[number] = step.name
    return [*lines, f"return {texts[graph.output]}"]


# --- classes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CellCode:
    """A cell's class; a subclass of `base` has only the layers that differ."""

    name: str
    about: str
    arguments: tuple[str, ...]
    layers: dict[str, str]
    inputs: tuple[str, ...]
    forward: list[str]
    base: str = "nn.Module"

    def definition(self) -> str:
        """The class as code."""
        is_derived = self.base != "nn.Module"
        lines = [f"class {self.name}({self.base}):", f'    """{self.about}"""', ""]
        if self.layers:
            typed = ["self", *(f"{name}: int" for name in self.arguments)]
            passed = ", ".join(self.arguments) * is_derived
            lines += [f"    def __init__({', '.join(typed)}) -> None:", f"{BODY}super().__init__({passed})"]
            lines += [f"{BODY}self.{name} = {code}" for name, code in self.layers.items()]
            lines += [""] * (not is_derived)
        if not is_derived:
            typed = ["self", *(f"{name}: Tensor" for name in self.inputs)]
            lines += [f"    def forward({', '.join(typed)}) -> Tensor:", *(BODY + line for line in self.forward)]
        return "\n".join(lines)

    def derived(self, others: Sequence[CellCode]) -> CellCode:
        """A subclass of one of the others instead, if one is nearly the same."""
        for other in others:
            if (self.arguments, self.forward, *self.layers) == (other.arguments, other.forward, *other.layers):
                changed = {name: code for name, code in self.layers.items() if other.layers[name] != code}
                if len(changed) <= MAX_CHANGES:
                    about = "The same cell behind one that halved the resolution."
                    return replace(self, about=about, layers=changed, base=other.name)
        return self


def write_cells(cells: Sequence[Graph], write: Operations) -> tuple[list[CellCode], list[str]]:
    """The classes, and for each cell the call that makes it."""
    groups: dict[object, list[int]] = {}
    for number, cell in enumerate(cells):
        groups.setdefault(_key(cell), []).append(number)
    halving = any(_halves(cell) for cell in cells)
    classes: list[CellCode] = []
    calls = [""] * len(cells)
    for numbers in sorted(groups.values(), key=lambda numbers: _follows_reduction(cells[numbers[0]])):
        cell = cells[numbers[0]]
        widths = [_widths(cells[number], write) for number in numbers]
        names = _arguments(cell, widths)
        name = _name(cell, halving)
        name += str(1 + sum(other.name.startswith(name) for other in classes)) * any(o.name == name for o in classes)
        about = {True: "A cell that halves the resolution.", False: "A cell that keeps the resolution."}[_halves(cell)]
        arguments = {names[slot]: slot for slot in reversed(names)}  # each with the first slot that has it
        ordered = tuple(dict.fromkeys(names.values()))
        code = CellCode(
            name, about, ordered, _layers(cell, names, write), INPUTS[cell.n_inputs], write_forward(cell)
        )
        classes.append(code.derived(classes))
        for number, own in zip(numbers, widths, strict=True):
            calls[number] = f"{name}({', '.join(own[arguments[argument]].base for argument in ordered)})"
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


def _written(cell: Graph, write: Operations) -> Iterator[tuple[int, Step, Op, OperationCode]]:
    """The steps that are modules of the class: those that are read, and those whose weights a state dict has."""
    live = _live(cell)
    for number, (step, op) in enumerate(_operations(cell), start=cell.n_inputs):
        if op.kind in (SUM, CONCAT) or (op.kind == ZERO and number not in live):
            continue
        code = write(op)
        if number in live or "{c_" in code.call:
            yield number, step, op, code


def _widths(cell: Graph, write: Operations) -> dict[Slot, Width]:
    """The widths that the cell's code has to be given."""
    found = {}
    for number, _, op, code in _written(cell, write):
        for side, width in (("c_in", op.c_in), ("c_out", op.c_out)):
            if f"{{{side}}}" in code.call and isinstance(width, Width):
                found[number, side] = width
    return found


def _arguments(cell: Graph, widths: Sequence[dict[Slot, Width]]) -> dict[Slot, str]:
    """The name of each slot's argument: a single width is `channels`, else each input's own width has a name too."""
    columns = {slot: tuple(own[slot].base for own in widths) for slot in widths[0]}
    if len(set(columns.values())) == 1:
        return dict.fromkeys(columns, "channels")
    names: dict[Slot, str] = {}
    others: dict[tuple[str, ...], str] = {}
    for (number, side), column in columns.items():
        source = cell.steps[number - cell.n_inputs].inputs[0]
        if side == "c_in" and source < cell.n_inputs:
            names[number, side] = INPUT_WIDTHS[cell.n_inputs][source]
        else:
            number_of_it = str(len(others) + 1)
            names[number, side] = others.setdefault(column, "channels" + number_of_it * bool(others))
    return dict(sorted(names.items(), key=lambda item: item[1].startswith("channels")))


def _layers(cell: Graph, names: dict[Slot, str], write: Operations) -> dict[str, str]:
    live, layers = _live(cell), {}
    for number, step, op, code in _written(cell, write):
        texts = {}
        for side, width in (("c_in", op.c_in), ("c_out", op.c_out)):
            texts[side] = str(width)
            if isinstance(width, Width) and (number, side) in names:
                texts[side] = width.of(names[number, side])
        layers[step.name] = code.at(**texts, stride=op.stride)
        if number not in live:
            layers[step.name] += "  # leads nowhere"
    return layers


def _follows_reduction(cell: Graph) -> bool:
    """Whether its first input has to be halved to fit to its second."""
    strides = {step.inputs: op.stride for step, op in _operations(cell)}
    return cell.n_inputs == 2 and strides.get((0,), 1) > strides.get((1,), 1)


def _halves(cell: Graph) -> bool:
    """Whether its nodes have a smaller resolution than its last input."""
    return any(op.stride > 1 for step, op in _operations(cell) if cell.n_inputs == 1 or step.inputs != (0,))


def _name(cell: Graph, halving: bool) -> str:
    name = "Cell"
    if halving:
        name = {True: "ReductionCell", False: "NormalCell"}[_halves(cell)]
    return name + "AfterReduction" * _follows_reduction(cell)
