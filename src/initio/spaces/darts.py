"""The space of DARTS (Liu et al., 2019): a normal and a reduction cell of 4 nodes with 2 incoming edges each."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from initio.errors import InputError
from initio.networks.graphs import CONCAT as CONCATENATE
from initio.networks.graphs import IDENTITY, SUM, Graph, Mixed, NetworkSettings, Op
from initio.records import Architecture
from initio.spaces.base import Decision, GraphSpace, Size
from initio.spaces.genotype import Genotype, GenotypeSpace, Pairs, begin_cell, edge_op, pairs_of, stack

OPS = (
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "dil_conv_3x3",
    "dil_conv_5x5",
)
NODES = 4
CELLS = ("normal", "reduce")
CONCAT = (2, 3, 4, 5)
SOURCES = tuple(tuple(itertools.combinations(range(node + 2), 2)) for node in range(NODES))  # pairs, for each node
PER_CELL = 3 * NODES  # decisions: sources, operation, operation of each node
EDGES = tuple((source, node) for node in range(NODES) for source in range(node + 2))  # 14, for the relaxation


@dataclass(frozen=True)
class DartsSpace(GenotypeSpace):
    """For each node: which two of the earlier outputs it reads, and one of 7 operations on either.

    >>> f"{DARTS.count():.4g}"
    '1.077e+18'
    """

    one_shot = prunable = alike = True
    paths = 2
    sizes = replace(GenotypeSpace.sizes, growing=Size(cells=5))

    @property
    def by_node(self) -> GraphSpace:
        """One input and one operation a node."""
        return DartsByNode(**vars(self))

    def from_genotype(self, genotype: Genotype) -> Architecture:
        """The two edges of a node may come in either order."""
        choices: list[int] = []
        for name, (pairs, concat) in zip(CELLS, genotype.halves, strict=True):
            if len(pairs) != 2 * NODES:
                raise InputError(f"{name}: a darts cell has {NODES} nodes, not {len(pairs) // 2}")
            if tuple(sorted(concat)) != CONCAT:
                raise InputError(f"{name}_concat: a darts cell concatenates nodes {list(CONCAT)}, not {list(concat)}")
            for node in range(NODES):
                (op_a, a), (op_b, b) = sorted(pairs_of(pairs, node + 2), key=lambda pair: pair[1])
                if a == b:
                    raise InputError(f"{name}: both edges of node {node + 2} come from {a}, darts wants two sources")
                for op in (op_a, op_b):
                    if op not in OPS:
                        raise InputError(f"{name}: {op} is not one of the operations of darts: {', '.join(OPS)}")
                choices += [SOURCES[node].index((a, b)), OPS.index(op_a), OPS.index(op_b)]
        return self.architecture(*choices)

    def genotype(self, arch: Architecture) -> Genotype:
        """The architecture in the notation of DARTS; each node's smaller source comes first."""
        normal, reduce = (tuple(itertools.chain(*_nodes(half))) for half in _halves(self.check(arch)))
        return Genotype(normal, CONCAT, reduce, CONCAT)

    def wires(self, decision: Decision, option: int) -> Hashable:
        """Operations connect nothing."""
        return decision.options != OPS and option

    def supernet(self, choices: Sequence[int], settings: NetworkSettings) -> Graph:
        """DARTS' network whose cells have all 14 edges, each one of 7 operations."""
        return stack(_mixed_cell, settings, *self.size(settings), (NODES, NODES))

    def canonical(self, arch: Architecture) -> Architecture:
        """The smallest of all orders in which a cell's nodes can be computed.

        The output concatenates the nodes, so another order permutes its channels; the convolutions that read them are
        i.i.d. over channels at initialisation.
        """
        normal, reduce = map(_smallest, _halves(self.check(arch)))
        return Architecture(self.name, normal + reduce)

    @property
    def relaxation(self) -> tuple[Decision, ...]:
        """One categorical over the operations for each of the 14 possible edges of either cell."""
        return tuple(Decision(f"{cell} {s}-{node + 2}", OPS, cell) for cell in CELLS for s, node in EDGES)

    @property
    def rivals(self) -> tuple[tuple[int, ...], ...]:
        """The edges into a node."""
        return tuple(
            tuple(start + place for place, (_, n) in enumerate(EDGES) if n == node)
            for start in (0, len(EDGES))
            for node in range(NODES)
        )

    def active(self, arch: Architecture) -> tuple[tuple[int, int], ...]:
        """The edges that are there, with their operations; the other categoricals are absent."""
        genotype = self.genotype(arch)
        return tuple(
            (start + EDGES.index((source, place // 2)), OPS.index(op))
            for start, pairs in ((0, genotype.normal), (len(EDGES), genotype.reduce))
            for place, (op, source) in enumerate(pairs)
        )

    def decode(self, weights: Sequence[Sequence[float]]) -> Architecture:
        """For each node the two edges whose best operation weighs most, with that operation; ties go to the first."""
        choices: list[int] = []
        for start in (0, len(EDGES)):
            for node in range(NODES):
                rows = [(s, weights[start + place]) for place, (s, n) in enumerate(EDGES) if n == node]
                best = sorted(sorted(rows, key=lambda row: -max(row[1]))[:2])
                choices.append(SOURCES[node].index((best[0][0], best[1][0])))
                choices += [max(range(len(OPS)), key=row.__getitem__) for _, row in best]
        return self.architecture(*choices)


@dataclass(frozen=True)
class DartsByNode(DartsSpace):
    """The same architectures, relaxed as NASI does [NASI B.2, B.3].

    Each node of the supernet has one input and one operation, drawn from categoricals of their own; a max-pooling of
    the inputs halves the resolution in reduction cells, so that every operation has stride 1. Of the final
    distribution each node keeps its two best inputs and its two best operations, the best with the best.
    """

    paths = 1

    @property
    def by_node(self) -> GraphSpace:
        """Itself."""
        return self

    @property
    def relaxation(self) -> tuple[Decision, ...]:
        """For each node of either cell its input, then its operation."""
        return tuple(
            decision
            for cell in CELLS
            for node in range(NODES)
            for decision in (
                Decision(f"{cell} node {node + 2} input", tuple(map(str, range(node + 2))), cell),
                Decision(f"{cell} node {node + 2} operation", OPS, cell),
            )
        )

    @property
    def rivals(self) -> tuple[tuple[int, ...], ...]:
        """Each categorical is compared with itself alone."""
        return tuple((categorical,) for categorical in range(len(self.relaxation)))

    def active(self, arch: Architecture) -> tuple[tuple[int, int], ...]:
        """The two inputs and the operations of each node."""
        genotype = self.genotype(arch)
        pairs = (*genotype.normal, *genotype.reduce)
        nodes = [(place // 2, pair) for place, pair in enumerate(pairs)]
        used = [(2 * n, s) for n, (_, s) in nodes] + [(2 * n + 1, OPS.index(op)) for n, (op, _) in nodes]
        return tuple(sorted(set(used)))

    def supernet(self, choices: Sequence[int], settings: NetworkSettings) -> Graph:
        """DARTS' network with one input and one operation a node."""
        return stack(_cell_by_node, settings, *self.size(settings), (NODES, NODES))

    def decode(self, weights: Sequence[Sequence[float]]) -> Architecture:
        """The top two inputs and operations of each node; ties go to the option that comes first."""
        choices: list[int] = []
        for node in range(2 * NODES):
            sources, ops = (_top_two(weights[2 * node + k]) for k in (0, 1))
            (a, op_a), (b, op_b) = sorted(zip(sources, ops, strict=True))
            choices += [SOURCES[node % NODES].index((a, b)), op_a, op_b]
        return self.architecture(*choices)


def _top_two(row: Sequence[float]) -> list[int]:
    return sorted(range(len(row)), key=lambda option: (-row[option], option))[:2]


def _mixed_cell(widths: tuple[int, int], c: int, reduction: bool, reduced: bool, settings: NetworkSettings) -> Graph:
    cell, values = begin_cell(widths, c, reduced)
    for node in range(NODES):
        incoming = []
        for k, (source, target) in enumerate(EDGES, start=reduction * len(EDGES)):
            if target == node:
                options = tuple(edge_op(op, c, halves=reduction and source < 2) for op in OPS)
                mixed = Mixed("mixed", c, c, categorical=k, options=options)
                incoming.append(cell(f"node_{node + 2}_from_{source}", mixed, values[source]))
        values.append(cell(f"node_{node + 2}", Op(SUM), *incoming))
    return cell.graph(cell("concat", Op(CONCATENATE), *values[2:]))


def _cell_by_node(widths: tuple[int, int], c: int, reduction: bool, reduced: bool, settings: NetworkSettings) -> Graph:
    cell, values = begin_cell(widths, c, reduced)
    if reduction:
        values = [cell(f"pool_{i}", Op("max_pool_3x3", c, c, 2), value) for i, value in enumerate(values)]
    for node in range(NODES):
        k, sources = 2 * (node + NODES * reduction), range(node + 2)
        options, places = (Op(IDENTITY, c, c),) * len(sources), tuple((source,) for source in sources)
        one = Mixed("mixed", c, c, categorical=k, options=options, places=places)
        read = cell(f"node_{node + 2}_input", one, *(values[source] for source in sources))
        ops = tuple(edge_op(op, c, halves=False) for op in OPS)
        values.append(cell(f"node_{node + 2}", Mixed("mixed", c, c, categorical=k + 1, options=ops), read))
    return cell.graph(cell("concat", Op(CONCATENATE), *values[2:]))


def _halves(arch: Architecture) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The choices of the normal and of the reduction cell."""
    return arch.choices[:PER_CELL], arch.choices[PER_CELL:]


def _nodes(half: tuple[int, ...]) -> list[Pairs]:
    """The two pairs of each node."""
    pairs = (SOURCES[node][choice] for node, choice in enumerate(half[::3]))
    return [((OPS[i], a), (OPS[j], b)) for (a, b), i, j in zip(pairs, half[1::3], half[2::3], strict=True)]


@lru_cache(maxsize=65_536)
def _smallest(half: tuple[int, ...]) -> tuple[int, ...]:
    """The least choices among the orders of nodes in which every source still comes first."""
    return _completed(_nodes(half), ())


def _completed(nodes: list[Pairs], order: tuple[int, ...]) -> tuple[int, ...]:
    """The least choices of what follows `order`: the least node that can come next, each of them where several are."""
    new, place = len(order), {0: 0, 1: 1} | {node + 2: place + 2 for place, node in enumerate(order)}
    if new == NODES:
        return ()
    ready = [node for node in range(NODES) if node not in order and all(s in place for _, s in nodes[node])]
    told: dict[int, tuple[int, ...]] = {}
    for node in ready:
        (a, i), (b, j) = sorted((place[source], OPS.index(op)) for op, source in nodes[node])
        told[node] = SOURCES[new].index((a, b)), i, j
    least = min(told.values())
    return least + min(_completed(nodes, (*order, node)) for node in ready if told[node] == least)


DARTS = DartsSpace(
    name="darts",
    title="DARTS: a normal and a reduction cell of 4 nodes with 2 incoming edges each, 7 operations",
    decisions=tuple(
        decision
        for cell in CELLS
        for node in range(NODES)
        for decision in (
            Decision(f"{cell} node {node + 2} sources", tuple(f"{a},{b}" for a, b in SOURCES[node]), cell),
            Decision(f"{cell} node {node + 2} first operation", OPS, cell),
            Decision(f"{cell} node {node + 2} second operation", OPS, cell),
        )
    ),
)
DARTS_BY_NODE = DartsByNode(**vars(DARTS))
