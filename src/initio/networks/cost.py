"""What a network costs, counted: parameters, FLOPs, layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from initio.networks.graphs import Graph, NetworkSettings, Norm, Op
from initio.networks.operations import OPERATIONS, Kit

Shape = tuple[int, ...]
_COUNTED = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear, nn.Bilinear,
    nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase,
)  # fmt: skip
_FREE = (nn.Embedding, nn.EmbeddingBag, nn.LayerNorm, nn.RMSNorm)


@dataclass(frozen=True)
class NetworkCost:
    """Counts for one input.

    FLOPs follow the convention of the NAS-Bench-201 table: one multiply-add of a convolution or a linear layer counts
    as one, a bias adds one for each output; batch norm, activations, pooling and sums are free. Transposed
    convolutions, bilinear and recurrent layers and attention count in the same way.
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
    """Runs one operation, whose weights have no memory of their own, on a batch of none: nothing is computed.

    On the meta device, where shapes are propagated as well, torch would import its compiler to learn them.
    """
    with torch.device("meta"):
        module = OPERATIONS[op.kind](op, Kit(replace(NetworkSettings(), norm=norm))).eval()
    module._apply(lambda t: torch.empty((), dtype=t.dtype).expand(t.shape))  # type: ignore[no-untyped-call]
    return count_module(module, *(torch.empty(0, *shape) for shape in inputs))


def count_built(model: nn.Module, shape: Shape) -> NetworkCost:
    """The cost of a network for one input of this shape."""
    return count_module(model.eval(), torch.zeros(1, *shape))[0]


def count_module(model: nn.Module, *inputs: Tensor) -> tuple[NetworkCost, Shape]:
    """The cost of any module, and the shape of its output, on inputs that are batches of one or of none."""
    with counted(model) as total, torch.no_grad():
        output: Tensor = model(*inputs)
    return NetworkCost(sum(p.numel() for p in model.parameters()), total.flops, total.layers), tuple(output.shape[1:])


@dataclass
class Tally:
    """What one forward pass of a single input costs, while it runs."""

    flops: int = 0
    layers: int = 0


@contextmanager
def counted(model: nn.Module) -> Iterator[Tally]:
    """Counts the layers that run inside."""
    total = Tally()

    def add(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        total.flops += _multiply_adds(module, inputs, output)
        total.layers += 1

    hooks = [m.register_forward_hook(add) for m in model.modules() if isinstance(m, _COUNTED)]
    try:
        yield total
    finally:
        for hook in hooks:
            hook.remove()


def _multiply_adds(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> int:
    """Of one layer on one input, or on none, which counts as one; a bias adds one for each output."""
    if isinstance(module, nn.MultiheadAttention):
        return _attention(module, *inputs[:3])
    if isinstance(module, nn.RNNBase | nn.RNNCellBase):  # every weight once a step
        return sum(p.numel() for p in module.parameters()) * int(inputs[0].numel() // module.input_size)
    weight, bias = module.weight, module.bias
    assert isinstance(weight, Tensor)
    per_output = math.prod(weight.shape[1:])  # input channels of the group x kernel positions
    offsets = _size(output) * (bias is not None)
    if isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        return _size(inputs[0]) * per_output + offsets  # the weights' first dimension is the input's
    return _size(output) * per_output + offsets


def _size(t: Tensor) -> int:
    return math.prod(n or 1 for n in t.shape)


def _attention(module: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor) -> int:
    """Three projections, products of queries and keys, sums of values, and the projection of what comes out."""
    E = module.embed_dim
    q, k, v = (len(t.reshape(-1, t.shape[-1])) for t in (query, key, value))
    projections = E * (q * E + k * module.kdim + v * module.vdim + q * E)
    offsets = E * (q + k + v) * (module.in_proj_bias is not None) + E * q * (module.out_proj.bias is not None)
    return int(projections + offsets + 2 * q * k * E)


def uncounted(model: nn.Module) -> list[str]:
    """Weights that are in no layer whose multiply-adds are counted, nor in one that multiplies no matrices."""
    known = {id(p) for m in model.modules() if isinstance(m, _COUNTED + _FREE) for p in m.parameters()}
    return [name for name, p in model.named_parameters() if p.ndim >= 2 and id(p) not in known]
