"""How wide and how deep a cell is [Understanding 3.2], for one cell and for all cells of a space.

Depth counts the connections of the longest path from an input to the output. Width is Σ c · (share of a node's incoming
connections that come from the cell's inputs) over its intermediate nodes, where every node is c channels wide. Nodes
on no path from input to output, and arrows that carry `none`, are not there. The nodes of an `nb101` or `nb1shot1` cell
are its operations; an `mlp` is one cell, a chain of layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from initio.errors import InputError
from initio.records import Architecture
from initio.report.cells import Cell, drawn, live
from initio.spaces.base import Space


@dataclass(frozen=True, order=True)
class CellShape:
    """Width in units of c, and depth.

    >>> str(CellShape(3.5, 3))
    '3.5c, 3'
    """

    width: float
    depth: int

    def __str__(self) -> str:
        return f"{self.width:.3g}c, {self.depth}"


NOTHING = CellShape(0.0, 0)  # of a cell whose output depends on no input


def shape(cell: Cell) -> CellShape:
    """Width and depth of one cell; 0c, 0 where no path leads to its output.

    >>> from initio.spaces import ZOO_SPACE
    >>> [str(shape(cell)) for cell in ZOO_SPACE.cells(ZOO_SPACE.parse("amoebanet"))]
    ['4c, 4', '4c, 3']
    """
    there = live(cell)
    edges = ((e.source, e.target) for e in drawn(cell) if {e.source, e.target} <= there)
    return _shape(len(cell.nodes), cell.n_inputs, tuple(sorted(edges)))


@cache
def _shape(nodes: int, n_inputs: int, edges: tuple[tuple[int, int], ...]) -> CellShape:
    """The same of a wiring, remembered: a space has far fewer wirings than cells."""
    sources: dict[int, list[int]] = {}
    for source, target in edges:
        sources.setdefault(target, []).append(source)
    depth = dict.fromkeys(range(n_inputs), 0)
    for node in sorted(sources):  # an arrow leads to a later node
        depth[node] = 1 + max(depth[source] for source in sources[node])
    inner = (read for node, read in sources.items() if node != nodes - 1)
    width = sum((Fraction(sum(source < n_inputs for source in read), len(read)) for read in inner), Fraction())
    return CellShape(float(width), depth.get(nodes - 1, 0))


def shapes(space: Space, arch: Architecture) -> dict[str, CellShape]:
    """Width and depth of each cell by its name; nothing for a space that says nothing of its connections."""
    if not space.wired:
        return {}
    return {cell.name: shape(cell) for cell in space.cells(arch)}


def distribution(space: Space) -> Counter[CellShape]:
    """How many architectures of a space have a first cell of each width and depth: exact, for any size.

    >>> from initio.spaces import DARTS
    >>> found = distribution(DARTS)
    >>> found.total() == DARTS.count(), max(found), f"{found[max(found)] / found.total():.5f}"
    (True, CellShape(width=4.0, depth=2), '0.00556')
    """
    return _distribution(_wired(space)).copy()


@cache
def _distribution(space: Space) -> Counter[CellShape]:
    found = Counter[CellShape]()
    for arch, count in space.wirings():
        found[shape(space.cells(arch)[0])] += count
    return found


def extremes(space: Space) -> tuple[Architecture, Architecture]:
    """Those with the widest first cell, and among them the shallowest; with the deepest, and the narrowest of these.

    >>> from initio.spaces import DARTS
    >>> [str(shape(DARTS.cells(arch)[0])) for arch in extremes(DARTS)]
    ['4c, 2', '1.5c, 5']
    """
    found = {arch: shape(space.cells(arch)[0]) for arch, _ in _wired(space).wirings()}
    widest = max(found, key=lambda arch: (found[arch].width, -found[arch].depth))
    deepest = max(found, key=lambda arch: (found[arch].depth, -found[arch].width))
    return widest, deepest


def _wired(space: Space) -> Space:
    if not space.wired:
        raise InputError(f"{space.name} says nothing of how its networks are connected: they have no width and depth")
    return space


def share(space: Space, than: CellShape) -> tuple[float, float]:
    """Which part of a space's cells is narrower, and which is deeper, from 0 to 1."""
    found = distribution(space)
    narrower = _count(found, (seen for seen in found if seen.width < than.width))
    deeper = _count(found, (seen for seen in found if seen.depth > than.depth))
    return narrower / found.total(), deeper / found.total()


def _count(found: Mapping[CellShape, int], among: Iterable[CellShape]) -> int:
    return sum(found[seen] for seen in among)
