"""A cell as people draw it, and what every drawing of it shares.

One look for all spaces: data flows from the inputs to the output, an operation has the colour of its family,
whether the space writes it on the arrows (`nb201`, `darts`) or into the nodes (`nb101`, `mlp`). An arrow that
carries `none` is not drawn; a line below the cell names it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from initio.errors import InputError
from initio.networks.graphs import ZERO, reached

FAMILIES = (  # the first pattern that matches decides
    ("dilated", re.compile(r"dil")),
    ("separable", re.compile(r"sep")),
    ("convolution", re.compile(r"conv")),
    ("pooling", re.compile(r"pool")),
    ("skip", re.compile(r"skip|identity|residual")),
    ("activation", re.compile(r"relu|sigmoid|tanh|swish|silu|gelu|elu")),
)


@dataclass(frozen=True)
class Edge:
    """An arrow of a drawn cell; `label` is the operation on it, empty for a plain connection."""

    source: int
    target: int
    label: str = ""


@dataclass(frozen=True)
class Cell:
    """A cell as people draw it: named nodes in order of computation and labelled arrows between them.

    The first `n_inputs` nodes are the cell's inputs, the last one is its output.
    """

    name: str
    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    n_inputs: int = 1

    def _repr_svg_(self) -> str:
        """The picture that a notebook shows."""
        from initio.report.picture import svg_text

        return svg_text([self])


def family(operation: str) -> str:
    """The family of an operation, which decides its colour; `other` when the name says nothing.

    >>> [family(name) for name in ("nor_conv_3x3", "conv1x1-bn-relu", "dil_conv_5x5", "c_{k-2}")]
    ['convolution', 'convolution', 'dilated', 'other']
    """
    return next((name for name, pattern in FAMILIES if pattern.search(operation.lower())), "other")


def drawn(cell: Cell) -> list[Edge]:
    """The edges that carry something."""
    for edge in cell.edges:
        if not 0 <= edge.source < edge.target < len(cell.nodes):
            raise InputError(f"edge {edge.source} -> {edge.target} of cell {cell.name!r} must lead to a later node")
    return [edge for edge in cell.edges if edge.label != ZERO]


def remark(cell: Cell) -> str:
    """The line below a cell that names what is not drawn."""
    hidden = [f"{cell.nodes[e.source]} → {cell.nodes[e.target]}" for e in cell.edges if e.label == ZERO]
    return f"{ZERO} (not drawn): {', '.join(hidden)}" if hidden else ""


def live(cell: Cell) -> set[int]:
    """The nodes on a path from an input to the output."""
    edges = drawn(cell)
    fed = reached(range(cell.n_inputs), lambda node: (edge.target for edge in edges if edge.source == node))
    used = reached([len(cell.nodes) - 1], lambda node: (edge.source for edge in edges if edge.target == node))
    return fed & used


def printable(text: str) -> str:
    """The same text, with ? for what cannot be shown."""
    return "".join(character if character.isprintable() else "?" for character in text)
