"""Supernets that learn: all options of a space side by side, with weights that every architecture shares.

A `Blend` says what is computed: for each categorical of `space.relaxation` the options that take part, each times
its weight. One option a categorical is a single path, all of them with the weights of a softmax are DARTS' mixed
operations, and a categorical without any is an edge that is not there. What a blend does not need is not computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from initio.errors import InputError
from initio.networks.graphs import IDENTITY, SUM, Graph, Mixed, NetworkSettings, Op
from initio.networks.supernet import Apply, Maybe, OneShot, Supernet, Walk, all_inputs, call, is_zero
from initio.records import Architecture

Weights = Mapping[int, Tensor | None]  # by option; None is one
Kept = Sequence[Sequence[int]]  # options of each categorical
SKIPS = (IDENTITY, "skip_connect")
POOLINGS = ("avg_pool_3x3", "max_pool_3x3")
Known = dict[tuple[int, Op], tuple[Tensor, Maybe]]  # by identity of a value and operation: that value, and the result
Statistics = Literal["batch", "running"]  # that batch norms use when nothing is learned


class SharedSpace(OneShot, Protocol):
    """What a shared network needs of a space."""

    def side_by_side(self, settings: NetworkSettings) -> Graph:
        """The graph with all options."""

    def active(self, arch: Architecture) -> tuple[tuple[int, int], ...]:
        """The options that an architecture uses, as (categorical, option)."""


@dataclass(frozen=True)
class Blend:
    """What a shared network computes.

    Args:
        options: for each categorical, its options that take part and their weights.
        edges: a factor of each categorical's whole value, bypassed channels included; None stands for ones.
    """

    options: tuple[Weights, ...]
    edges: tuple[Tensor, ...] | None = None

    @classmethod
    def path(cls, space: SharedSpace, arch: Architecture) -> Blend:
        """An architecture alone."""
        options: list[dict[int, Tensor | None]] = [{} for _ in space.relaxation]
        for categorical, option in space.active(arch):
            options[categorical][option] = None
        return cls(tuple(options))

    @classmethod
    def rows(cls, rows: Sequence[Tensor], edges: tuple[Tensor, ...] | None = None, kept: Kept | None = None) -> Blend:
        """One row of weights a categorical, for all its options or for those that are kept."""
        options = kept or [range(len(row)) for row in rows]
        return cls(tuple(dict(zip(own, row, strict=True)) for own, row in zip(options, rows, strict=True)), edges)


def shared_graph(space: SharedSpace, settings: NetworkSettings, channels: int = 1) -> Graph:
    """The graph of a shared network, or an `InputError` where its channels cannot be cut."""
    return _narrowed(space.side_by_side(space.resolve(settings)), channels)


class SharedNetwork(nn.Module):
    """The network of a space that holds the weights of every option, all made at once.

    `forward` computes `blend`, which whoever trains sets before each update.

    Args:
        space: one with a supernet.
        settings: size of the network; `norm="plain"` is batch norm without affine parameters, as the papers have it.
        seed: of the weights.
        channels: K of partial channels: the options of an edge see one K-th of its channels, the others pass by, and
            the channels are shuffled [PC-DARTS 2]; 1 has all of them see all.
        statistics: what batch norms use in evaluation mode; those of the `batch` suit paths that were never averaged.
    """

    def __init__(
        self,
        space: SharedSpace,
        settings: NetworkSettings,
        seed: int = 0,
        *,
        channels: int = 1,
        statistics: Statistics = "batch",
    ) -> None:
        super().__init__()
        self.space, self.channels = space, channels
        self.supernet = Supernet(space, settings, seed)
        self.graph = shared_graph(space, settings, channels)
        self.blend = Blend(tuple({} for _ in space.relaxation))
        self.skip_dropout = 0.0  # share of the values of skips that is dropped [P-DARTS 3.3]
        self._run(torch.empty(0), None, _first)  # makes every operation, computes nothing
        if statistics == "batch":
            for module in self.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.track_running_stats = False
                    module.running_mean = module.running_var = module.num_batches_tracked = None

    def forward(self, x: Tensor, blend: Blend | None = None) -> Tensor:
        """The logits of a blend, by default of the current one."""
        return self._run(x, blend or self.blend)

    @property
    def nodes(self) -> list[tuple[int, ...]]:
        """The categoricals whose values are summed into a node, for each node."""
        found: dict[tuple[int, ...], None] = {}
        _collect_nodes(self.graph, found)
        return list(found)

    def _run(self, x: Tensor, blend: Blend | None, apply: Apply = call) -> Tensor:
        if blend is None:
            return self.supernet.run(self.graph, x, Walk(all_inputs, partial(self._all, apply=apply), apply))

        def reads(mixed: Mixed, inputs: tuple[int, ...]) -> tuple[int, ...]:
            options = _computed(mixed, blend)
            if not options and not self._bypassed(mixed):
                return ()
            return tuple(dict.fromkeys(i for option in options for i in mixed.choose(option, inputs)[1])) or inputs

        return self.supernet.run(self.graph, x, Walk(reads, partial(self._mix, blend, {}), apply))

    def _all(self, mixed: Mixed, path: str, inputs: list[Maybe], *, apply: Apply) -> Maybe:
        """Every option once; what the last of them gives stands for all."""
        for option in range(len(mixed.options)):
            value = self.supernet.option(mixed, option, path, inputs, apply)
        return next((value for value in (value, *inputs) if value is not None), None)

    def _mix(self, blend: Blend, known: Known, mixed: Mixed, path: str, inputs: list[Maybe]) -> Maybe:
        """Σ_o w_o o(x), times the edge's factor [DARTS 2; PC-DARTS 3]."""
        past: Tensor | None = None
        if self._bypassed(mixed) and isinstance(x := inputs[0], Tensor):
            width = mixed.c_in // self.channels
            inputs, past = [x[:, :width]], x[:, width:]
        total: Tensor | None = None
        for option in _computed(mixed, blend):
            value = self._value(known, mixed, option, path, inputs)
            weight = blend.options[mixed.categorical][option]
            if not isinstance(value, Tensor):
                continue
            if self.skip_dropout and _is_skip(mixed, option):
                value = F.dropout(value, self.skip_dropout, self.training)
            if weight is not None:
                value = value * weight
            total = value if total is None else total + value
        if past is not None:
            total = self._joined(mixed, total, past)
        if total is not None and blend.edges is not None:
            total = total * blend.edges[mixed.categorical]
        return total

    def _value(self, known: Known, mixed: Mixed, option: int, path: str, inputs: list[Maybe]) -> Maybe:
        """Of one option; a pooling is computed once for all edges that read the same value."""
        op, x = mixed.options[option], inputs[0]
        if mixed.places or not isinstance(op, Op) or op.kind not in POOLINGS or not isinstance(x, Tensor):
            return self.supernet.option(mixed, option, path, inputs)
        if (id(x), op) not in known:
            known[id(x), op] = x, self.supernet.option(mixed, option, path, inputs)
        return known[id(x), op][1]

    def _bypassed(self, mixed: Mixed) -> bool:
        return self.channels > 1 and _may_be_partial(mixed)

    def _joined(self, mixed: Mixed, total: Tensor | None, past: Tensor) -> Tensor:
        """The mixed channels before those that passed by, shuffled so that others are mixed next time."""
        if total is not None and not past.shape[1]:
            return total
        if _stride(mixed) > 1:
            past = F.max_pool2d(past, 2, 2, ceil_mode=True)
        if total is None:
            total = past.new_zeros(len(past), mixed.c_in // self.channels, *past.shape[2:])
        both = torch.cat([total, past], dim=1)
        m, c, *sides = both.shape
        return both.view(m, self.channels, c // self.channels, *sides).transpose(1, 2).reshape(m, c, *sides)


def _first(module: nn.Module, *tensors: Tensor) -> Tensor:
    return tensors[0]


def _computed(mixed: Mixed, blend: Blend) -> list[int]:
    """The options that take part and are not zero anyway."""
    return [option for option in blend.options[mixed.categorical] if not is_zero(mixed, option)]


def _may_be_partial(mixed: Mixed) -> bool:
    """Whether the options read one value, which can be cut; sums of parents (`nb1shot1`) do not."""
    return not mixed.places and not any(isinstance(option, Graph) for option in mixed.options)


def _is_skip(mixed: Mixed, option: int) -> bool:
    op = mixed.options[option]
    return not mixed.places and isinstance(op, Op) and op.kind in SKIPS


def _stride(mixed: Mixed) -> int:
    return max(option.stride for option in mixed.options if isinstance(option, Op))


def _narrowed(graph: Graph, channels: int) -> Graph:
    """The same graph, whose mixed steps have options of one K-th of the channels."""
    if channels == 1:
        return graph
    return replace(graph, steps=tuple(replace(step, op=_narrow(step.op, channels)) for step in graph.steps))


def _narrow(op: Op | Graph, channels: int) -> Op | Graph:
    if isinstance(op, Graph):
        return _narrowed(op, channels)
    if not isinstance(op, Mixed) or not _may_be_partial(op):
        return op
    if op.c_in % channels:
        raise InputError(f"a width of {op.c_in} channels cannot be cut into {channels} equal parts: take another width")
    width = op.c_in // channels
    return replace(op, options=tuple(_of_width(option, width) for option in op.options))


def _of_width(option: Op | Graph, width: int) -> Op:
    assert isinstance(option, Op)
    return replace(option, c_in=width, c_out=width)


def _collect_nodes(graph: Graph, found: dict[tuple[int, ...], None]) -> None:
    for step in graph.steps:
        if isinstance(step.op, Graph):
            _collect_nodes(step.op, found)
        elif step.op.kind == SUM:
            read = [graph.steps[i - graph.n_inputs].op for i in step.inputs if i >= graph.n_inputs]
            if group := tuple(op.categorical for op in read if isinstance(op, Mixed)):
                found[group] = None
