"""What a network costs, counted: parameters, FLOPs, layers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from initio.networks.graphs import Graph, NetworkSettings, Norm, Op
from initio.networks.operations import OPERATIONS, Kit

Shape = tuple[int, ...]
_COUNTED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


@dataclass(frozen=True)
class NetworkCost:
    """Counts for one input.

    FLOPs follow the convention of the NAS-Bench-201 table: one multiply-add of a convolution or a linear layer counts
    as one, a bias adds one for each output; batch norm, activations, pooling and sums are free.
    """

    parameters: int = 0
    flops: int = 0
    layers: int = 0  # convolutions and linear layers

    @property
    def metrics(self) -> dict[str, float]:
        """The counts under the names of their metrics."""
        return {"params": float(self.parameters), "flops": float(self.flops), "layers": float(self.layers)}

    def __add__(self, other: NetworkCost) -> NetworkCost:
        return NetworkCost(self.parameters + other.parameters, self.flops + other.flops, self.layers + other.layers)


def count(graph: Graph, settings: NetworkSettings) -> NetworkCost:
    """The cost of a graph's network: the sum over its operations, each counted once for all networks.

    An auxiliary head is left out, as papers do: it is gone after training.
    """
    return _count_graph(graph, settings.norm, (settings.shape,))[0]


@lru_cache(maxsize=4096)
def _count_graph(graph: Graph, norm: Norm, inputs: tuple[Shape, ...]) -> tuple[NetworkCost, Shape]:
    total, shapes = NetworkCost(), list(inputs)
    for step in graph.steps:
        if len(shapes) == graph.auxiliary:
            shapes.append(())  # never read
            continue
        read = tuple(shapes[i] for i in step.inputs)
        counted = _count_graph if isinstance(step.op, Graph) else _count_op
        cost, shape = counted(step.op, norm, read)
        total += cost
        shapes.append(shape)
    return total, shapes[graph.output]


@lru_cache(maxsize=4096)
def _count_op(op: Op, norm: Norm, inputs: tuple[Shape, ...]) -> tuple[NetworkCost, Shape]:
    """Builds one operation on the meta device, where shapes are propagated and nothing is computed."""
    with torch.device("meta"):
        module = OPERATIONS[op.kind](op, Kit(replace(NetworkSettings(), norm=norm))).eval()
        return count_module(module, *(torch.empty(1, *shape) for shape in inputs))


def count_built(model: nn.Module, shape: Shape) -> NetworkCost:
    """The cost of a network for one input of this shape."""
    return count_module(model.eval(), torch.zeros(1, *shape))[0]


def count_module(model: nn.Module, *inputs: Tensor) -> tuple[NetworkCost, Shape]:
    """The cost of any module, and the shape of its output, on inputs that are batches of one."""
    flops = layers = 0

    def add(module: nn.Module, _: Any, output: Tensor) -> None:
        nonlocal flops, layers
        assert isinstance(module, _COUNTED)
        per_output = math.prod(module.weight.shape[1:])  # input channels of the group x kernel positions
        flops += output.numel() * (per_output + (module.bias is not None))
        layers += 1

    hooks = [m.register_forward_hook(add) for m in model.modules() if isinstance(m, _COUNTED)]
    try:
        with torch.no_grad():
            output: Tensor = model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return NetworkCost(sum(p.numel() for p in model.parameters()), flops, layers), tuple(output.shape[1:])
