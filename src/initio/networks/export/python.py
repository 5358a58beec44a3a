"""A network as one readable Python file that needs only torch.

The file is written from the graph, like the network that `build` makes, and has the same names: a state dict fits both.
The graph is made with widths that remember their formulas, so channels and classes become arguments of the network.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from initio.networks.export.cells import folded, kind_of, write_cells, write_forward
from initio.networks.export.layers import BODY, OperationCode, write_operation
from initio.networks.export.widths import Width
from initio.networks.graphs import CONCAT, SUM, Graph, NetworkSettings, Op
from initio.networks.operations import Kit

MIN_LOOP = 3  # modules of the same kind in a row that are written as a loop


def python_source(
    network: Callable[[NetworkSettings], Graph], settings: NetworkSettings, title: str, notation: str, ending: str = ""
) -> str:
    """The file's text.

    Args:
        network: makes the graph for given settings.
        settings: the size, with channels and cells resolved; channels and classes become arguments with these defaults.
        title: first line of the file's comment.
        notation: the architecture as text, for the comment.
        ending: the file's last part, where the network is trained.
    """
    definitions = _definitions(network, settings)
    header = _header(title, notation, "\n".join([*definitions, ending]), trained=bool(ending))
    return "\n".join([header, *(f"\n\n{text}" for text in definitions), "\n\n" + (ending or MAIN)])


def ensemble_source(
    networks: Sequence[Callable[[NetworkSettings], Graph]],
    settings: NetworkSettings,
    title: str,
    notations: Sequence[str],
    ending: str,
) -> str:
    """The text of a file with several networks and their mean; `networks.Averaged` has the same names.

    Each member's classes are inside a function, since those of several would have the same names.
    """
    parts = []
    for number, network in enumerate(networks, start=1):
        code = "\n\n".join(textwrap.indent(text.strip("\n"), "    ") for text in _definitions(network, settings))
        parts.append(
            f"def member_{number}() -> nn.Module:\n"
            f'    """{notations[number - 1]}"""\n\n{code}\n\n    return Network()\n'
        )
    made = ", ".join(f"member_{number}()" for number in range(1, len(networks) + 1))
    shape = ", ".join(map(str, ("m", *settings.shape)))
    parts.append(AVERAGED.replace("MEMBERS", made).replace("SHAPE", shape))
    header = _header(title, " ".join(notations), "\n".join([*parts, ending]), trained=True)
    return "\n".join([header, *(f"\n\n{text}" for text in parts), "\n\n" + ending])


AVERAGED = '''\
class Network(nn.Module):
    """(SHAPE) -> (m, classes): log of the mean of the members' probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.members = nn.ModuleList([MEMBERS])

    def forward(self, x: Tensor) -> Tensor:
        logs = torch.stack([member(x).log_softmax(1) for member in self.members])
        return logs.logsumexp(0) - torch.tensor(float(len(self.members))).log()
'''


def _definitions(network: Callable[[NetworkSettings], Graph], settings: NetworkSettings) -> list[str]:
    """The classes of the operations, of the cells, and of the network."""
    assert settings.channels is not None
    sizes = {"classes": settings.classes, "channels": settings.channels}
    symbols: dict[str, Any] = {name: Width(value, name) for name, value in sizes.items()}
    top = folded(network(replace(settings, **symbols)))
    inner = [step.op for step in top.steps if isinstance(step.op, Graph)]
    write, operations = _operations([*inner, top], Kit(settings))
    cells, calls = write_cells(inner, write)
    cell_calls = iter(calls)
    modules = {}
    for step in top.steps:
        if isinstance(step.op, Graph):
            modules[step.name] = next(cell_calls)
        elif kind_of(step) not in (SUM, CONCAT):
            modules[step.name] = write(step.op).at(str(step.op.c_in), str(step.op.c_out), step.op.stride)
    body = _network(top, modules, sizes, settings.shape)
    return [*operations.values(), *(cell.definition() for cell in cells), body]


MAIN = """\
if __name__ == "__main__":
    network = Network()
    print(f"{sum(p.numel() for p in network.parameters()):,} parameters")
"""


def _header(title: str, notation: str, code: str, *, trained: bool) -> str:
    try:
        written_by = f"Initio {version('initio')}"
    except PackageNotFoundError:  # run from a source tree that was never installed
        written_by = "Initio"
    lines = textwrap.wrap(notation, 98, break_long_words=False, break_on_hyphens=False)
    comment = [f"# {title}", "#", *(f"# {line}" for line in lines), "#"]
    needs = "needs only torch. Weights are random until you load some:"
    use = 'network = Network(); network.load_state_dict(torch.load("weights.pt", weights_only=True))'
    if trained:
        needs = "needs only torch, and its weights in the .pt file of the same name:"
        use = "network = load(); logits = network(preprocess(images)); CLASSES[int(logits[0].argmax())]"
    comment += [f"# Written by {written_by}; {needs}", f"#     {use}"]
    imports = ["import sys"] * ("sys.argv" in code) + ["from pathlib import Path", ""] * trained
    imports += ["import torch"] * bool(re.search(r"(?<![\w.])torch\.", code))
    return "\n".join([*comment, "", *imports, "from torch import Tensor, nn"])


def _operations(graphs: Sequence[Graph], kit: Kit) -> tuple[Callable[[Op], OperationCode], dict[str, str]]:
    """What writes an operation, for all strides that the network has, and the definitions it has used so far."""
    strides: dict[str, set[int]] = {}
    for step in (step for graph in graphs for step in graph.steps):
        if isinstance(step.op, Op):
            strides.setdefault(step.op.kind, set()).add(step.op.stride)
    definitions: dict[str, str] = {}

    @cache
    def written(kind: str) -> OperationCode:
        code = write_operation(kind, strides[kind], kit)
        definitions.update(code.classes)
        return code

    return lambda op: written(op.kind), definitions


# --- the network -----------------------------------------------------------------------------------------------------


def _network(top: Graph, modules: dict[str, str], sizes: dict[str, int], shape: tuple[int, ...]) -> str:
    """The class of the whole network; `modules` maps a name to the call that makes it."""
    code = " ".join(modules.values())
    arguments = [f"{name}: int = {size}" for name, size in sizes.items() if re.search(rf"\b{name}\b", code)]
    about, returned = f"({', '.join(map(str, ('m', *shape)))}) -> (m, classes)", "Tensor"
    if top.auxiliary is not None:
        about, returned = f"{about}; while training also what the auxiliary head says", "Tensor | tuple[Tensor, Tensor]"
    lines = [
        "class Network(nn.Module):",
        f'    """{about}."""',
        "",
        f"    def __init__({', '.join(['self', *arguments])}) -> None:",
        f"{BODY}super().__init__()",
    ]
    lines += _in_loops(
        modules.items(),
        lambda name, call: f"self.{name} = {call}",
        lambda name, call: f"self.add_module({name}, {call})",
    )
    lines += ["", f"    def forward(self, x: Tensor) -> {returned}:"]
    return "\n".join([*lines, *(_stack(top) or [BODY + line for line in write_forward(top)])])


def _in_loops(
    items: Iterable[tuple[str, str]], alone: Callable[[str, str], str], looped: Callable[[str, str], str]
) -> Iterator[str]:
    """A statement for each name with its code; in a loop where the same code follows for the next numbers of a name."""
    for (prefix, code), group in itertools.groupby(items, key=lambda item: (item[0].rstrip("0123456789"), item[1])):
        names = [name for name, _ in group]
        if len(names) < MIN_LOOP:
            yield from (BODY + alone(name, code) for name in names)
        else:
            first = int(names[0].removeprefix(prefix))
            name = f'f"{prefix}{{number}}"'
            yield f"{BODY}for number in range({first}, {first + len(names)}):"
            yield f"{BODY}    {looped(name, code)}"


def _stack(top: Graph) -> list[str]:
    """`forward` of cells in a row that read the one or two values before them; nothing for other networks."""
    first = next((step.inputs for step in top.steps if isinstance(step.op, Graph)), ())
    if not first or top.output != len(top.steps) or isinstance(top.steps[-1].op, Graph):
        return []
    held = {"x": 0}  # variable -> the number of its value
    items = []
    for number, step in enumerate(top.steps, start=1):
        variables = {value: variable for variable, value in held.items()}
        if any(i not in variables for i in step.inputs):
            return []
        call = f"{{}}({', '.join(variables[i] for i in step.inputs)})"
        if number == top.auxiliary:
            items.append((step.name, f"{step.name} = {call} if self.training else None"))
        elif isinstance(step.op, Graph) and len(first) == 2:
            if step.inputs != (held.get("before"), held.get("last")):
                return []
            items.append((step.name, "before, last = last, {}(before, last)"))
            held = {"before": held["last"], "last": number}
        else:
            targets = ["x"]
            if number in first and len(first) == 2:
                targets = [name for name, value in zip(("before", "last"), first, strict=True) if value == number]
            items.append((step.name, " = ".join([*targets, call])))
            held |= dict.fromkeys(targets, number)
    lines = list(
        _in_loops(
            items,
            lambda name, code: code.format(f"self.{name}"),
            lambda name, code: code.format(f"getattr(self, {name})"),
        )
    )
    if top.auxiliary is None:
        return [*lines[:-1], lines[-1].replace("x = ", "return ", 1)]
    auxiliary = top.steps[top.auxiliary - 1].name
    return [*lines, f"{BODY}return x if {auxiliary} is None else (x, {auxiliary})"]
