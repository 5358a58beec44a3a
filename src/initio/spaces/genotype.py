"""Cells in the notation of DARTS: `Genotype(normal=[('sep_conv_3x3', 0), ...], normal_concat=[2, 3, 4, 5], ...)`.

A genotype is wider than the `darts` space: any number of nodes, any operation that can be built, both edges of a node
from the same source. The `zoo` space has them all.
"""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from initio.errors import InputError, did_you_mean
from initio.networks.graphs import CONCAT, IDENTITY, SUM, Builder, Graph, NetworkSettings, Op, reached
from initio.records import Architecture
from initio.spaces.base import Cell, Edge, GraphSpace, Size, Sizes

GENOTYPE_OPS = (
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "sep_conv_7x7",
    "dil_conv_3x3",
    "dil_conv_5x5",
    "conv_7x1_1x7",
)
MAX_TEXT = 10_000
MAX_NODES = 16
LARGE = 96  # from this side on, images get ImageNet's stem
CellGraph = Callable[[tuple[int, int], int, bool, bool, NetworkSettings], Graph]  # widths, c, reduction, reduced
FIELDS = ("normal", "normal_concat", "reduce", "reduce_concat")
Pairs = tuple[tuple[str, int], ...]  # (operation, source), two a node


@dataclass(frozen=True)
class Genotype:
    """A normal and a reduction cell: two (operation, source) pairs for each node, and the nodes that are concatenated.

    Sources 0 and 1 are the outputs of the two cells before; node i of the cell is source i + 2.
    """

    normal: Pairs
    normal_concat: tuple[int, ...]
    reduce: Pairs
    reduce_concat: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, (pairs, concat) in zip(("normal", "reduce"), self.halves, strict=True):
            _check_cell(name, pairs, concat)

    def __str__(self) -> str:
        return "Genotype(" + ", ".join(f"{name}={_listed(getattr(self, name))}" for name in FIELDS) + ")"

    @classmethod
    def parse(cls, text: str) -> Genotype:
        """Reads the text that DARTS and its followers print; nothing in it is executed.

        >>> Genotype.parse("Genotype(normal=[('sep_conv_3x3', 0)])")
        Traceback (most recent call last):
        initio.errors.InputError: the genotype lacks normal_concat, reduce, reduce_concat
        """
        given = _keywords(text)
        if missing := [name for name in FIELDS if name not in given]:
            raise InputError(f"the genotype lacks {', '.join(missing)}")
        if extra := [name for name in given if name not in FIELDS]:
            raise InputError(f"the genotype has an unknown part {extra[0]!r}: {did_you_mean(extra[0], list(FIELDS))}")
        return cls(
            _pairs("normal", given["normal"]),
            _numbers("normal_concat", given["normal_concat"]),
            _pairs("reduce", given["reduce"]),
            _numbers("reduce_concat", given["reduce_concat"]),
        )

    @property
    def halves(self) -> tuple[tuple[Pairs, tuple[int, ...]], ...]:
        """The pairs and the concatenation of the normal cell, then of the reduction cell."""
        return (self.normal, self.normal_concat), (self.reduce, self.reduce_concat)

    def cell_graph(
        self, widths: tuple[int, int], c: int, reduction: bool, reduced: bool, settings: NetworkSettings
    ) -> Graph:
        """One cell; `reduced` says that the cell before it halved the resolution."""
        pairs, concat = self.halves[reduction]
        cell, inputs = begin_cell(widths, c, reduced)
        values = dict(enumerate(inputs))
        nodes = set(range(2, len(pairs) // 2 + 2))
        if settings.prune:
            nodes &= live(pairs, concat)
        for node in sorted(nodes):
            incoming = []
            for letter, (kind, source) in zip("ab", pairs_of(pairs, node), strict=True):
                name = f"node_{node}_from_{source}_{letter}"
                op = edge_op(kind, c, halves=reduction and source < 2)
                edge = cell(name, op, values[source])
                if settings.drop_path and op.kind != IDENTITY:
                    edge = cell(f"{name}_drop", Op("drop_path", c, c), edge)
                incoming.append(edge)
            values[node] = cell(f"node_{node}", Op(SUM), *incoming)
        return cell.graph(cell("concat", Op(CONCAT), *(values[i] for i in concat)))


@dataclass(frozen=True)
class GenotypeSpace(GraphSpace):
    """A space whose architectures are genotypes."""

    sizes = Sizes(
        Size(36, 20), Size(8, 8, 16), Size(4, 5), shared=Size(8, 5, 16), shared_published=Size(16, 8, 32),
        pruning=Size(cells=2),
    )  # fmt: skip
    notations = ("Genotype",)
    chosen = ("node_",)
    drops_paths = auxiliary_head = True
    repeats: ClassVar[bool] = False  # whether a node may read the same value twice

    @abstractmethod
    def genotype(self, arch: Architecture) -> Genotype:
        """The architecture in the notation of DARTS."""

    @abstractmethod
    def from_genotype(self, genotype: Genotype) -> Architecture:
        """The architecture of a genotype, or an `InputError` that says why it is not of this space."""

    def parse(self, text: str) -> Architecture:
        """Reads `Genotype(...)` text."""
        return self.from_genotype(Genotype.parse(text))

    def format(self, arch: Architecture) -> str:
        """`Genotype(...)` text."""
        return str(self.genotype(arch))

    def cells(self, arch: Architecture) -> tuple[Cell, ...]:
        """The normal and the reduction cell."""
        halves = zip(("normal", "reduction"), self.genotype(arch).halves, strict=True)
        return tuple(_drawn(name, *half) for name, half in halves)

    def resolve(self, settings: NetworkSettings) -> NetworkSettings:
        """20 cells at 36 channels; for images of 96 pixels and more 14 at 46, the ImageNet size of the NASI paper."""
        if len(settings.shape) == 3 and min(settings.shape[1:]) >= LARGE:
            settings = replace(settings, channels=settings.channels or 46, cells=settings.cells or 14)
        return super().resolve(settings)

    def network(self, arch: Architecture, settings: NetworkSettings) -> Graph:
        """See `stack`."""
        genotype = self.genotype(arch)
        nodes = (len(genotype.normal_concat), len(genotype.reduce_concat))
        return stack(genotype.cell_graph, settings, *self.size(settings), nodes)


def pairs_of(pairs: Pairs, node: int) -> Pairs:
    """The two pairs of a node; nodes count from 2, the inputs 0 and 1 have none."""
    return pairs[max(0, 2 * node - 4) : max(0, 2 * node - 2)]


def live(pairs: Pairs, concat: Sequence[int]) -> set[int]:
    """What the output depends on: nodes and the inputs 0 and 1."""
    return reached(concat, lambda node: [source for _, source in pairs_of(pairs, node)])


def edge_op(kind: str, c: int, *, halves: bool) -> Op:
    """The operation on an edge; a skip that does not halve the resolution is the identity."""
    if halves:
        return Op(kind, c, c, 2)
    return Op({"skip_connect": IDENTITY}.get(kind, kind), c, c)


def begin_cell(widths: tuple[int, int], c: int, reduced: bool) -> tuple[Builder, list[int]]:
    """A cell with its two inputs brought to c channels and one resolution."""
    cell = Builder(2)
    first = Op("factorized_reduce", widths[0], c, 2) if reduced else Op("relu_conv_1x1", widths[0], c)
    return cell, [cell("input_0", first, 0), cell("input_1", Op("relu_conv_1x1", widths[1], c), 1)]


def stack(cell: CellGraph, settings: NetworkSettings, channels: int, cells: int, nodes: tuple[int, int]) -> Graph:
    """DARTS' network: stem, `cells` cells with reductions at 1/3 and 2/3 of the depth, pool, classifier.

    Images of 96 pixels and more get ImageNet's stem of stride 8, smaller ones a 3x3 convolution to 3C channels. The
    auxiliary head sits behind the second reduction. `nodes` counts what a normal and a reduction cell concatenate.
    """
    net = Builder()
    c_in, c, side = settings.shape[0], channels, min(settings.shape[1:])
    if side >= LARGE:
        if c < 2:
            raise InputError(f"on images of {LARGE} pixels and more channels must be at least 2, not {c}")
        before = net("stem_1", Op("stem_large_1", c_in, c), 0)
        last = net("stem_2", Op("relu_conv_3x3", c, c, 2), before)
        widths, reduced, side = (c, c), True, -(-side // 8)
    else:
        before = last = net("stem", Op("conv3x3-bn", c_in, 3 * c), 0)
        widths, reduced = (3 * c, 3 * c), False
    auxiliary = None
    for number in range(cells):
        reduction = number in (cells // 3, 2 * cells // 3)
        if reduction:
            c, side = 2 * c, -(-side // 2)
        graph = cell(widths, c, reduction, reduced, settings)
        before, last = last, net(f"cell_{number + 1}", graph, before, last)
        widths, reduced = (widths[1], nodes[reduction] * c), reduction
        if settings.auxiliary and number == 2 * cells // 3:
            if side < 6:
                raise InputError(f"the auxiliary head needs at least 6x6 positions, not {side}x{side}")
            head = Op("auxiliary_head", widths[1], settings.classes, side - 5)  # leaves 2x2 positions
            auxiliary = net("auxiliary", head, last)
    x = net("pool", Op("global_pool", widths[1], widths[1]), last)
    return net.graph(net("classifier", Op("linear", widths[1], settings.classes), x), auxiliary)


def _listed(values: Sequence[object]) -> str:
    return "[" + ", ".join(map(repr, values)) + "]"


def _check_cell(name: str, pairs: Pairs, concat: tuple[int, ...]) -> None:
    if not pairs or len(pairs) % 2 or len(pairs) > 2 * MAX_NODES:
        raise InputError(f"{name} needs two pairs for each of 1 to {MAX_NODES} nodes, not {len(pairs)} pairs")
    for place, (op, source) in enumerate(pairs):
        if op not in GENOTYPE_OPS:
            raise InputError(
                f"pair {place} of {name}: unknown operation {op!r}: {did_you_mean(op, list(GENOTYPE_OPS))}"
            )
        if not 0 <= source < place // 2 + 2:
            raise InputError(f"pair {place} of {name}: source {source} is not one of 0 to {place // 2 + 1}")
    if not concat or len(set(concat)) != len(concat) or not set(concat) <= set(range(2, len(pairs) // 2 + 2)):
        raise InputError(f"{name}_concat must hold different nodes from 2 to {len(pairs) // 2 + 1}, not {list(concat)}")


def _keywords(text: str) -> dict[str, object]:
    if len(text) > MAX_TEXT:
        raise InputError(f"a genotype has at most {MAX_TEXT} characters, not {len(text)}")
    example = "Genotype(normal=[('sep_conv_3x3', 0), ...], normal_concat=[2, ...], reduce=[...], reduce_concat=[...])"
    try:
        call: ast.expr | None = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        call = None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id != "Genotype" or call.args:
        raise InputError(f"a genotype is written {example}")
    return {keyword.arg or "**": _literal(keyword.arg or "**", keyword.value) for keyword in call.keywords}


def _literal(name: str, node: ast.expr) -> object:
    """Lists, tuples, strings and numbers; also the `range(2, 6)` that DARTS prints for its concatenation."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        bounds = [_literal(name, bound) for bound in node.args]
        if len(bounds) == 2 and all(type(b) is int and abs(b) <= 2 * MAX_NODES for b in bounds) and not node.keywords:
            return list(range(*bounds))  # type: ignore[call-overload]
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise InputError(f"{name} of the genotype must be a plain list") from None


def _pairs(name: str, value: object) -> Pairs:
    if not isinstance(value, list | tuple):
        raise InputError(f"{name} of the genotype must be a list of ('operation', source) pairs")
    for place, pair in enumerate(value):
        good = isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) and type(pair[1]) is int
        if not good:
            raise InputError(f"pair {place} of {name} must look like ('sep_conv_3x3', 0)")
    return tuple((op, source) for op, source in value)


def _numbers(name: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(type(item) is int for item in value):
        raise InputError(f"{name} of the genotype must be a list of node numbers")
    return tuple(value)


def _drawn(name: str, pairs: Pairs, concat: tuple[int, ...]) -> Cell:
    count = len(pairs) // 2
    nodes = ("c_{k-2}", "c_{k-1}", *map(str, range(count)), "c_{k}")
    edges = [Edge(source, place // 2 + 2, op) for place, (op, source) in enumerate(pairs)]
    return Cell(name, nodes, (*edges, *(Edge(node, count + 2) for node in concat)), n_inputs=2)
