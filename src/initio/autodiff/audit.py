"""Compares what was recorded with autograd's graph behind the output, which no operation can hide from.

A function mode does not see into `torch.autograd.Function`, scripted functions or `torch.func`. The graph has their
nodes all the same, and the edges by which parameters enter it:

- a parameter that enters elsewhere than as the weight or bias of a recorded layer is `unknown`: its share is left to
  autograd, one sample at a time;
- a node that no function was seen to make is `hidden`: tangents have not passed it;
- a node that is not known to treat every row of the batch on its own is `mixing`: gradients of single samples are
  checked before they are believed (`Tape.samples`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from initio.autodiff.recorder import Recorder
from initio.errors import InputError

_RECORDED = frozenset({"WeightedBackward", "BatchNormalisedBackward", "AffineBackward"})
# Elementwise, or a function of each image of its own, whatever the arguments.
_ELEMENTWISE = """
    Relu Add Sub Mul Div Neg Abs Exp Log Sqrt Rsqrt Pow Sin Cos Sigmoid Tanh Silu Gelu Mish Elu LeakyRelu Hardtanh
    Hardswish Hardsigmoid Softplus Clamp ClampMin Clone Alias ToCopy Threshold AvgPool2D MaxPool2DWithIndices
    AdaptiveAvgPool2D AdaptiveMaxPool2D UpsampleNearest2D UpsampleBilinear2D ConstantPadNd PixelShuffle NativeLayerNorm
    NativeGroupNorm
    """
_BY_ROW = {f"{name}Backward{version}" for name in _ELEMENTWISE.split() for version in (0, 1)}
_BY_ROW |= {"CopyBackwards", "PooledBackward", "MaxPooledBackward"}
# The first dimension may be among those that they work along.
_ALONG = {
    "AmaxBackward0", "CatBackward0", "LogSoftmaxBackward0", "MeanBackward1", "SelectBackward0", "SliceBackward0",
    "SoftmaxBackward0", "SplitBackward0", "SumBackward1", "UnsqueezeBackward0",
}  # fmt: skip
_VIEWS = frozenset({"ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0"})


def audit(f: Tensor, recorder: Recorder, m: int, own: Mapping[int, str]) -> set[Any]:
    """Completes the recorder's notes; returns all nodes that f depends on.

    Args:
        f: the output.
        recorder: of the pass that made it.
        m: rows of the batch.
        own: the model's own parameters by identity, which other tensors stood in for.
    """
    notes, names, tangents = recorder.notes, recorder.names, recorder.tangents.edges
    reached: set[Any] = set()
    todo: list[Any] = [node for node in (f.grad_fn,) if node is not None]
    reached.update(todo)
    while todo:
        node = todo.pop()
        kind = type(node).__name__
        recorded = kind in _RECORDED
        if kind == "BatchNormalisedBackward":
            notes.scales.append(node.scale)
        if node not in recorder.nodes:
            notes.hidden.add(kind.removesuffix("0").removesuffix("Backward"))
        elif not (recorded or kind in _BY_ROW or _keeps_rows(kind, node, m)):
            notes.mixing.add(kind)
        for position, edge in enumerate(node.next_functions):
            child = edge[0]
            if child is None or child in reached or edge in tangents:
                continue
            if type(child).__name__ != "AccumulateGrad":
                reached.add(child)
                todo.append(child)
                continue
            variable = child.variable
            if id(variable) in own:
                raise InputError(
                    f"the model keeps its parameter {own[id(variable)]} in a second place, where no other tensor can "
                    "stand in for it: take a ParameterList or ParameterDict for parameters in lists and dictionaries"
                )
            name = names.get(id(variable))
            if name is not None and (not recorded or position == 0):
                notes.unknown.add(name)
                notes.operations.add(kind.removesuffix("0").removesuffix("Backward"))
    return reached


def _keeps_rows(kind: str, node: Any, m: int) -> bool:
    """Whether the first dimension is the batch before and after."""
    if kind in _VIEWS:
        return bool(node._saved_self_sym_sizes[0] == m)
    if kind == "TransposeBackward0":
        return bool(0 < node._saved_dim0 < 1 << 32 and 0 < node._saved_dim1 < 1 << 32)
    if kind == "PermuteBackward0":
        return bool(node._saved_dims[0] == 0)
    if kind not in _ALONG:
        return False
    dims = node._saved_dim
    if isinstance(dims, int):
        dims = (dims,)
    # Counted from the end, dimensions are kept as numbers below 2^64; the last one is not the first.
    last = (1 << 64) - 1
    return bool(dims) and all(0 < d < 1 << 32 or d == last or _inner(d, node) for d in dims)


def _inner(d: int, node: Any) -> bool:
    sizes = getattr(node, "_saved_self_sym_sizes", ())
    return d > 1 << 32 and (1 << 64) - d < len(sizes)
