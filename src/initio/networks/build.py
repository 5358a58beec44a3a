"""Builds the module of a graph."""

from __future__ import annotations

import copy

from torch import Tensor, nn

from initio.networks.graphs import Graph, NetworkSettings, Op
from initio.networks.initialise import initialise
from initio.networks.operations import OPERATIONS, Kit


class GraphModule(nn.Module):
    """A graph's steps as submodules, run in order."""

    def __init__(self, graph: Graph, kit: Kit) -> None:
        super().__init__()
        made: dict[Op | Graph, nn.Module] = {}
        for step in graph.steps:
            module = copied(made[step.op]) if step.op in made else _made(step.op, kit)
            made[step.op] = module
            self.add_module(step.name, module)
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
    parameters, buffers, modules = module._parameters.items(), module._buffers.items(), module._modules.items()
    own["_parameters"] = {
        n: None if p is None else nn.Parameter(p.detach().clone(), p.requires_grad) for n, p in parameters
    }
    own["_buffers"] = {n: None if b is None else b.clone() for n, b in buffers}
    own["_modules"] = {n: None if m is None else copied(m) for n, m in modules}
    return new


def build(graph: Graph, settings: NetworkSettings, *, seed: int = 0) -> nn.Module:
    """The network of a graph, with weights that depend on (graph, settings.norm, settings.init, seed) alone."""
    model = GraphModule(graph, Kit(settings))
    initialise(model, settings.init, seed)
    return model
