"""Notes the runs of cells, modules inside of a model, while its forward pass is recorded.

What is kept of a run are numbers and places in autograd's graph, never the values: they may wait on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from initio.autodiff.channels import covariance, rows


@dataclass(frozen=True)
class ValuePlace:
    """A value of the forward pass: its shape, and where its gradient is in autograd's graph."""

    edge: GradientEdge
    shape: tuple[int, ...]


@dataclass(frozen=True)
class CellUse:
    """One run of a cell, from its last input that has a gradient, if there is one, to its output."""

    source: ValuePlace | None
    target: ValuePlace
    features: Tensor | None  # covariance of the output's channels (C, C), where it has the shape (m, C) or (m, C, h, w)
    entered: Tensor | None  # the same of the input, for the first cell that ran


@contextmanager
def noted(cells: Collection[nn.Module]) -> Iterator[list[CellUse]]:
    """The runs of these modules, in order, while they last; no value of theirs is held or changed."""
    found: list[CellUse] = []
    entered: list[tuple[ValuePlace | None, Tensor | None]] = []  # of the cells that are running

    def enter(_module: nn.Module, args: tuple[Any, ...]) -> None:
        with torch._C.DisableTorchFunction():
            x = next((a for a in reversed(args) if _has_gradient(a)), None)
            first = None
            if not found:
                first = _features(x)
            entered.append((_place(x), first))

    def leave(_module: nn.Module, _args: tuple[Any, ...], out: Any) -> None:
        with torch._C.DisableTorchFunction():
            source, first = entered.pop()
            if (target := _place(out)) is not None:
                found.append(CellUse(source, target, _features(out), first))

    with ExitStack() as hooks:
        for cell in cells:
            for register, hook in ((cell.register_forward_pre_hook, enter), (cell.register_forward_hook, leave)):
                hooks.callback(_registered(register, hook))
        yield found


def _registered(register: Callable[..., Any], hook: Callable[..., None]) -> Callable[[], None]:
    return register(hook).remove  # type: ignore[no-any-return]


def _has_gradient(t: Any) -> bool:
    return isinstance(t, Tensor) and t.requires_grad


def _place(t: Any) -> ValuePlace | None:
    if not _has_gradient(t):
        return None
    return ValuePlace(get_gradient_edge(t), tuple(t.shape))


@torch.no_grad()
def _features(t: Any) -> Tensor | None:
    if not isinstance(t, Tensor) or t.ndim not in (2, 4):
        return None
    return covariance(rows(t))
