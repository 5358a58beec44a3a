"""Builds the module of a graph."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from torch import Tensor, nn

from initio.errors import InputError
from initio.networks.graphs import Graph, NetworkSettings, Op
from initio.networks.initialise import initialise
from initio.networks.operations import OPERATIONS, Kit

T = TypeVar("T")


class GraphModule(nn.Module):
    """A graph's steps as submodules, run in order."""

    def __init__(self, graph: Graph, kit: Kit) -> None:
        super().__init__()
        made: dict[Op | Graph, nn.Module] = {}
        for step in graph.steps:
            made[step.op] = copied(made[step.op]) if step.op in made else _made(step.op, kit)
            self.add_module(step.name, made[step.op])
        self._plan = tuple((step.name, step.inputs) for step in graph.steps)
        self._output, self._auxiliary = graph.output, graph.auxiliary  # step names are free for modules

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """The output; with an auxiliary head and in training mode, the pair (output, auxiliary output)."""
        values = list(inputs)
        for name, numbers in self._plan:
            if len(values) == self._auxiliary and not self.training:
                values.append(inputs[0])  # never read: keeps the numbers of later values
                continue
            module = self._modules[name]
            assert module is not None
            values.append(module(*[values[i] for i in numbers]))
        if self._auxiliary is not None and self.training:
            return values[self._output], values[self._auxiliary]
        return values[self._output]


def _made(op: Op | Graph, kit: Kit) -> nn.Module:
    return GraphModule(op, kit) if isinstance(op, Graph) else OPERATIONS[op.kind](op, kit)


def copied(module: nn.Module) -> nn.Module:
    """A new module like one that was just made and has no hooks: what `copy.deepcopy` gives, in much less time.

    >>> first = nn.Linear(2, 1)
    >>> second = copied(first)
    >>> bool((second.weight == first.weight).all()), second.weight is first.weight
    (True, False)
    """
    new: nn.Module = object.__new__(type(module))
    nn.Module.__init__(new)  # and not that of its class, which would make parameters
    own = vars(new)
    own |= {name: copy.copy(value) for name, value in vars(module).items() if name not in own}
    own["training"] = module.training
    own["_non_persistent_buffers_set"] = set(module._non_persistent_buffers_set)
    own["_parameters"] = _each(module._parameters, lambda p: nn.Parameter(p.detach().clone(), p.requires_grad))
    own["_buffers"] = _each(module._buffers, Tensor.clone)
    own["_modules"] = _each(module._modules, copied)
    return new


def _each(parts: Mapping[str, T | None], change: Callable[[T], T]) -> dict[str, T | None]:
    """All that is there, changed; a part that a module does not have, such as a bias, stays None."""
    out: dict[str, T | None] = dict.fromkeys(parts)
    out |= {name: change(part) for name, part in parts.items() if part is not None}
    return out


def cells_of(model: nn.Module) -> list[nn.Module]:
    """The outermost modules of a network that are made of modules; `nn.Sequential` and its like are looked into.

    The cells of a space's network with the reductions between them, the blocks of a ResNet, the layers of a
    transformer. If there is a single one, as in a wrapper, those inside it.

    >>> blocks = [nn.TransformerEncoderLayer(2, 1, 2) for _ in range(3)]
    >>> cells_of(nn.Sequential(nn.Linear(2, 2), nn.Sequential(*blocks), nn.ReLU())) == blocks
    True
    >>> cells_of(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    []
    """
    found = list(_outermost(model))
    while len(found) == 1 and (inside := list(_outermost(found[0]))):
        found = inside
    return list(dict.fromkeys(found))


def _outermost(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        child = getattr(child, "_orig_mod", child)  # what `torch.compile` has wrapped
        if isinstance(child, nn.Sequential | nn.ModuleList | nn.ModuleDict):
            yield from _outermost(child)
        elif isinstance(child, GraphModule) or next(child.children(), None) is not None:
            yield child


def build(graph: Graph, settings: NetworkSettings, *, seed: int = 0) -> nn.Module:
    """The network of a graph, with weights that depend on (graph, settings.norm, settings.init, seed) alone."""
    try:
        model = GraphModule(graph, Kit(settings))
        initialise(model, settings.init, seed)
    except RuntimeError as error:
        if not re.search("allocate|overflow|memory", str(error)):
            raise
        size = f"{settings.channels} channels and {settings.cells} cells"
        raise InputError(f"a network of {size} does not fit into memory: take fewer") from None
    return model
