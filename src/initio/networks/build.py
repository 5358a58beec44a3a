"""Builds the module of a graph."""

from __future__ import annotations

from torch import Tensor, nn

from initio.graphs import Graph
from initio.networks.initialise import initialise
from initio.networks.operations import OPERATIONS, Kit
from initio.spaces.base import NetworkSettings


class GraphModule(nn.Module):
    """A graph's steps as submodules, run in order."""

    def __init__(self, graph: Graph, kit: Kit) -> None:
        super().__init__()
        for step in graph.steps:
            module = GraphModule(step.op, kit) if isinstance(step.op, Graph) else OPERATIONS[step.op.kind](step.op, kit)
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


def build(graph: Graph, settings: NetworkSettings, *, seed: int = 0) -> nn.Module:
    """The network of a graph, with weights that depend on (graph, settings.norm, settings.init, seed) alone."""
    model = GraphModule(graph, Kit(settings))
    initialise(model, settings.init, seed)
    return model
