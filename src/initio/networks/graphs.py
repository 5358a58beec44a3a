"""A network as plain data: what a space describes, what `initio.networks` builds, what pictures and exports read.

A `Graph` is a list of steps, each applying one operation (or a whole inner graph: a cell) to values made before it.
Values are numbered: first the graph's inputs, then one for each step. A network is a graph whose steps are its stem,
its cells and its head; a cell is a graph whose steps are its edges and nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Literal, get_args

from initio.errors import InputError

ZERO, IDENTITY, SUM, CONCAT = "none", "identity", "sum", "concat"


@dataclass(frozen=True)
class Op:
    """One operation: a name from `initio.networks.OPERATIONS`, with its channels and stride."""

    kind: str
    c_in: int = 0
    c_out: int = 0
    stride: int = 1


@dataclass(frozen=True)
class Mixed(Op):
    """One of several operations, which a categorical of the space's relaxation decides; only supernets have it.

    `places` says for each option which of the step's inputs it reads; empty means all of them. An option whose value
    cannot stand in this place of the network is `none`.
    """

    categorical: int = 0
    options: tuple[Op | Graph, ...] = ()
    places: tuple[tuple[int, ...], ...] = ()

    def choose(self, option: int, inputs: tuple[int, ...]) -> tuple[Op | Graph, tuple[int, ...]]:
        """One option and what it reads of the step's inputs."""
        if self.places:
            inputs = tuple(inputs[i] for i in self.places[option])
        return self.options[option], inputs


@dataclass(frozen=True)
class Step:
    """Applies `op` to the values numbered `inputs`; `name` is the module's name in the built network."""

    name: str
    op: Op | Graph
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class Graph:
    """Steps in order of computation. `auxiliary` numbers the value of a second head, used in training only."""

    n_inputs: int
    steps: tuple[Step, ...]
    output: int
    auxiliary: int | None = None


class Builder:
    """Collects steps: each call returns the number of the new value.

    >>> cell = Builder(1)
    >>> left, right = cell("left", Op("nor_conv_3x3", 16, 16), 0), cell("right", Op("none", 16, 16), 0)
    >>> graph = cell.graph(cell("node", Op("sum"), left, right))
    >>> [step.name for step in prune(graph).steps]
    ['left']
    """

    def __init__(self, n_inputs: int = 1) -> None:
        self.n_inputs = n_inputs
        self.steps: list[Step] = []

    def __call__(self, name: str, op: Op | Graph, *inputs: int) -> int:
        """Adds a step."""
        self.steps.append(Step(name, op, inputs))
        return self.n_inputs + len(self.steps) - 1

    def graph(self, output: int, auxiliary: int | None = None) -> Graph:
        """The finished graph."""
        return Graph(self.n_inputs, tuple(self.steps), output, auxiliary)


def reached(start: Iterable[int], reads: Callable[[int], Iterable[int]]) -> set[int]:
    """All that `start` reads, directly or through what it reads, and `start` itself.

    >>> sorted(reached([3], {3: [1], 2: [0], 1: [0], 0: []}.__getitem__))
    [0, 1, 3]
    """
    found, todo = set[int](), list(start)
    while todo:
        if (number := todo.pop()) not in found:
            found.add(number)
            todo += reads(number)
    return found


def choose_options(graph: Graph, choices: Sequence[int]) -> Graph:
    """A supernet's graph with every `Mixed` replaced by the chosen option, and without what nothing reads."""
    steps = {}
    for number, step in enumerate(graph.steps, start=graph.n_inputs):
        op, inputs = step.op, step.inputs
        if isinstance(op, Graph):
            op = choose_options(op, choices)
        elif isinstance(op, Mixed):
            op, inputs = op.choose(choices[op.categorical], inputs)
        steps[number] = Step(step.name, op, inputs)
    return _kept(graph.n_inputs, steps, graph.output)


def prune(cell: Graph) -> Graph:
    """The same cell without what cannot influence its output.

    - a `none` is zero, any operation on zeros alone is zero, and zeros are dropped from sums;
    - a sum of one value and an identity are that value;
    - steps that nothing reads are removed.

    No operation with parameters changes, merges or splits, so the gradient of every parameter that stays is what it
    was. What disappears has a gradient of zero, with one exception: the offset of an affine batch norm behind a
    convolution of zeros. A cell whose output is zero keeps one `none` step.
    """
    alias = {i: i for i in range(cell.n_inputs)}  # value -> the value that stands for it
    steps: dict[int, Step] = {}
    zero: set[int] = set()
    for number, step in enumerate(cell.steps, start=cell.n_inputs):
        op, inputs = step.op, tuple(alias[i] for i in step.inputs)
        alias[number] = number
        if isinstance(op, Op) and op.kind == SUM:
            inputs = tuple(i for i in inputs if i not in zero) or inputs[:1]
        if isinstance(op, Op) and op.kind in (SUM, IDENTITY) and len(inputs) == 1:
            alias[number] = inputs[0]
        elif isinstance(op, Op) and (op.kind == ZERO or (op.kind != CONCAT and zero.issuperset(inputs))):
            zero.add(number)
            steps[number] = Step(step.name, replace(op, kind=ZERO), inputs)
        else:
            steps[number] = Step(step.name, op, inputs)

    return _kept(cell.n_inputs, steps, alias[cell.output])


def _kept(n_inputs: int, steps: dict[int, Step], output: int) -> Graph:
    """The graph of the steps that the output depends on, renumbered."""
    reads = dict[int, tuple[int, ...]].fromkeys(range(n_inputs), ()) | {n: step.inputs for n, step in steps.items()}
    kept = sorted(reached([output], reads.__getitem__) & steps.keys())
    renumber = {i: i for i in range(n_inputs)} | {old: n_inputs + new for new, old in enumerate(kept)}
    return Graph(
        n_inputs,
        tuple(replace(steps[n], inputs=tuple(renumber[i] for i in steps[n].inputs)) for n in kept),
        renumber[output],
    )


# --- how large, and how initialised ---

MOST = {"channels": 1_000_000, "cells": 10_000, "classes": 1_000_000}  # beyond, a slip is likelier than a wish
Norm = Literal["affine", "plain", "none"]
Init = Literal["lecun", "xavier", "he", "torch"]


@dataclass(frozen=True)
class NetworkSettings:
    """How a network is built around an architecture.

    Args:
        channels: width of the first stage (of every layer for `mlp`); None takes the space's published value.
        cells: cells in a stage (`nb201`, `nb101`) or in all (`darts`); None takes the space's published value.
        classes: number of outputs.
        shape: shape of one input, channels first.
        norm: batch norm with scale and offset (`affine`), without (`plain`), or no batch norm at all (`none`).
        init: N(0, 1/fan_in) `lecun`, N(0, 2/(fan_in + fan_out)) `xavier`, N(0, 2/fan_in) `he`, with zero biases; or
            the layers' own default, `torch`.
        prune: leave out operations that cannot influence the output. Published parameter counts include them.
        auxiliary: add the auxiliary head (`darts` only).
        drop_path: probability of dropping a path while training (`darts` and `nb201`).
    """

    channels: int | None = None
    cells: int | None = None
    classes: int = 10
    shape: tuple[int, ...] = (3, 32, 32)
    norm: Norm = "affine"
    init: Init = "lecun"
    prune: bool = True
    auxiliary: bool = False
    drop_path: float = 0.0

    def __post_init__(self) -> None:
        for name in ("channels", "cells", "classes"):
            value = getattr(self, name)
            if value is None and name != "classes":
                continue
            if not (_is_whole(value) and value >= 1):
                raise InputError(f"{name} must be a whole number of at least 1, not {value!r}")
            if value > MOST[name]:
                raise InputError(f"{name} must be at most {MOST[name]:,}, not {value:,}")
        try:
            shape = tuple(self.shape)
        except TypeError:
            shape = ()
        if not shape or not all(_is_whole(side) and side >= 1 for side in shape):
            raise InputError(f"shape must hold positive whole numbers, as in (3, 32, 32), not {self.shape!r}")
        object.__setattr__(self, "shape", tuple(map(int, shape)))
        if not (isinstance(self.drop_path, int | float) and 0 <= self.drop_path < 1):
            raise InputError(f"drop_path must be in [0, 1), not {self.drop_path!r}")
        for name, allowed in (("norm", Norm), ("init", Init)):
            if getattr(self, name) not in get_args(allowed):
                raise InputError(f"{name} must be one of {', '.join(get_args(allowed))}, not {getattr(self, name)!r}")


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
