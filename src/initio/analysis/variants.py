"""Variants of a cell [Understanding A.2, B.5]: other connections, other operations, or the widest wiring.

    connections  every edge's source is drawn anew among the earlier nodes; the order of nodes and their operations stay
    operations   every operation is drawn anew; the connections stay
    adapted      the widest and shallowest cell with the same operations: every node reads the cell's inputs alone

Random variants change the first cell, which a network repeats most; adapted ones change every cell, as the paper's do.
A darts cell stays in darts, so a node's two sources differ; another genotype may read the same node twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, get_args

from initio.analysis.topology import CellShape, extremes, shape
from initio.errors import InputError
from initio.records import Architecture
from initio.report.cells import Cell, Edge
from initio.spaces.base import Space
from initio.spaces.darts import OPS
from initio.spaces.genotype import Genotype, GenotypeSpace, Pairs

VariantKind = Literal["connections", "operations"]
KINDS = get_args(VariantKind)
MOST_DRAWS = 200  # for each variant that is wanted


@dataclass(frozen=True)
class Variant:
    """An architecture with the width and depth of its first cell; C0 is the original."""

    name: str
    architecture: Architecture
    shape: CellShape

    def __str__(self) -> str:
        return f"{self.name}: {self.shape}"


def variants(
    space: Space, arch: Architecture, n: int, *, kind: VariantKind = "connections", seed: int = 0
) -> tuple[Variant, ...]:
    """The original as C0, then n different variants from the narrowest and deepest to the widest and shallowest.

    >>> from initio.spaces import DARTS
    >>> [str(one) for one in variants(DARTS, extremes(DARTS)[0], 3)]
    ['C0: 4c, 2', 'C1: 2c, 4', 'C2: 2.5c, 4', 'C3: 2.5c, 4']
    """
    if kind not in KINDS:
        raise InputError(f"variants are of {' or '.join(KINDS)}, not of {kind!r}")
    if n < 0:
        raise InputError(f"there can be 0 variants or more, not {n}")
    draw = {"connections": random_connections, "operations": random_operations}[kind]
    rng, found = Random(f"{kind} {seed}"), dict[Architecture, None]()
    for _ in range(MOST_DRAWS * n):
        if len(found) < n:
            found.setdefault(draw(space, arch, rng))
            found.pop(arch, None)
    if len(found) < n:
        raise InputError(f"the cell has only {len(found)} different variants of {kind}: ask for as many, not {n}")
    seen = sorted((_shape(space, one) for one in found), key=lambda one: (one[1].width, -one[1].depth))
    return (
        Variant("C0", *_shape(space, arch)),
        *(Variant(f"C{number}", *one) for number, one in enumerate(seen, start=1)),
    )


def _shape(space: Space, arch: Architecture) -> tuple[Architecture, CellShape]:
    return arch, shape(space.cells(arch)[0])


def random_connections(space: Space, arch: Architecture, rng: Random) -> Architecture:
    """The first cell's operations in their order, connected at random."""
    if isinstance(space, GenotypeSpace):
        two = rng.choices if space.repeats else rng.sample
        return _with_normal(space, arch, lambda pairs: _joined([two(range(n + 2), k=2) for n in _nodes(pairs)], pairs))
    return _drawn(space, arch, rng, lambda said: rng.choice(list(dict.fromkeys(said))))


def random_operations(space: Space, arch: Architecture, rng: Random) -> Architecture:
    """The first cell's connections, with other operations: of a genotype, those of darts."""
    if isinstance(space, GenotypeSpace):
        return _with_normal(space, arch, lambda pairs: tuple((rng.choice(OPS), source) for _, source in pairs))
    choices = []
    for decision, choice in zip(space.decisions, arch.choices, strict=True):
        said = [space.wires(decision, option) for option in range(len(decision))]
        choices.append(rng.choice([option for option, word in enumerate(said) if word == said[choice]]))
    return space.architecture(*choices)


def adapted(space: Space, arch: Architecture) -> Architecture:
    """The widest and shallowest cells with the same operations.

    An operation that reads an input of the cell keeps it if it can; the other one of its node reads the other input.

    >>> from initio.spaces.zoo import ZOO_SPACE
    >>> changed = adapted(ZOO_SPACE, ZOO_SPACE.parse("amoebanet"))
    >>> [str(shape(cell)) for cell in ZOO_SPACE.cells(changed)]
    ['3c, 2', '3c, 2']
    """
    if isinstance(space, GenotypeSpace):
        old = space.genotype(arch)
        normal, reduce = (_joined([_inputs(pairs, node) for node in _nodes(pairs)], pairs) for pairs, _ in old.halves)
        return space.from_genotype(Genotype(normal, old.normal_concat, reduce, old.reduce_concat))
    target, choices = extremes(space)[0], []
    for decision, choice, wide in zip(space.decisions, arch.choices, target.choices, strict=True):
        same = space.wires(decision, choice) == space.wires(decision, wide)
        choices.append(choice if same else wide)
    return space.architecture(*choices)


def _nodes(pairs: Pairs) -> range:
    return range(len(pairs) // 2)


def _inputs(pairs: Pairs, node: int) -> list[int]:
    """The two inputs of the cell in the order that keeps what a node's operations read already."""
    (_, first), (_, second) = pairs[2 * node : 2 * node + 2]
    if first == 1 or (second == 0 and first != 0):
        return [1, 0]
    return [0, 1]


def _joined(sources: list[list[int]], pairs: Pairs) -> Pairs:
    """The operations with new sources, two a node."""
    flat = [source for two in sources for source in two]
    return tuple((op, source) for (op, _), source in zip(pairs, flat, strict=True))


def _with_normal(space: GenotypeSpace, arch: Architecture, change: Callable[[Pairs], Pairs]) -> Architecture:
    old = space.genotype(arch)
    return space.from_genotype(replace(old, normal=change(old.normal)))


def _drawn(space: Space, arch: Architecture, rng: Random, pick: Callable[[list[object]], object]) -> Architecture:
    """Every decision says what was picked about connections; an option that says it already stays."""
    for _ in range(MOST_DRAWS):
        choices = []
        for decision, choice in zip(space.decisions, arch.choices, strict=True):
            said: list[object] = [space.wires(decision, option) for option in range(len(decision))]
            word = pick(said)
            alike = [option for option, other in enumerate(said) if other == word]
            choices.append(choice if choice in alike else rng.choice(alike))
        drawn = Architecture(space.name, tuple(choices))
        if not space.why_invalid(drawn.choices) and space.connected(drawn):
            return drawn
    raise InputError(f"no connected variant of the {space.name} cell in {MOST_DRAWS} draws")


def pictured(space: Space, one: Variant, *, operations: bool = False) -> Cell:
    """The first cell of a variant, named by its width and depth; without operations only its connections show."""
    cell = space.cells(one.architecture)[0]
    edges = cell.edges
    if not operations:
        edges = tuple(Edge(edge.source, edge.target) for edge in edges)
    return replace(cell, name=str(one), edges=edges)
