"""NAS-Bench-201 (Dong and Yang, 2020), the topology space of NATS-Bench: 6 edges between 4 nodes, 5 operations."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import permutations, product

from initio.errors import InputError, did_you_mean
from initio.networks.graphs import IDENTITY, SUM, ZERO, Builder, Graph, Mixed, NetworkSettings, Op, prune
from initio.records import Architecture
from initio.spaces.base import Cell, Decision, Edge, GraphSpace, Size, Sizes

OPS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))  # the order of the text form
STAGES = 3


@dataclass(frozen=True)
class NB201Space(GraphSpace):
    """Cells written `|op~0|+|op~0|op~1|+|op~0|op~1|op~2|`: for each node, its incoming edges and their sources.

    >>> arch = NB201.parse("|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|nor_conv_1x1~1|avg_pool_3x3~2|")
    >>> arch.choices
    (3, 1, 0, 0, 2, 4)
    >>> NB201.count()
    15625
    """

    sizes = Sizes(
        Size(16, 5), Size(8, 5, 16), Size(8, 1), shared=Size(8, 1, 16), shared_published=Size(16, 5, 32),
        pruning=Size(cells=1),
    )  # fmt: skip
    notations = ("|",)
    one_shot = prunable = drops_paths = True
    chosen = ("edge_",)

    def wires(self, decision: Decision, option: int) -> Hashable:
        """An edge is there, or it carries nothing."""
        return OPS[option] == ZERO

    def parse(self, text: str) -> Architecture:
        """Reads the benchmark's own strings; the sources must be in order."""
        nodes = text.strip().split("+")
        if len(nodes) != 3:
            example = self.format(Architecture(self.name, (0,) * len(EDGES)))
            raise InputError(f"an nb201 cell has 3 nodes joined by '+', as in {example}, not {len(nodes)}")
        choices = []
        for number, node in enumerate(nodes, start=1):
            edges = node.split("|")
            if len(edges) < 3 or edges[0] or edges[-1]:
                raise InputError(f"node {number} of the nb201 cell must look like '|op~0|...|', not {node!r}")
            if len(edges) - 2 != number:
                raise InputError(f"node {number} of the nb201 cell needs {number} incoming edges, not {len(edges) - 2}")
            for source, edge in enumerate(edges[1:-1]):
                op, tilde, read = edge.rpartition("~")
                if not tilde or read != str(source):
                    raise InputError(f"edge {source + 1} of node {number} must look like 'op~{source}', not {edge!r}")
                if op not in OPS:
                    hint = did_you_mean(op, list(OPS))
                    raise InputError(f"edge {source + 1} of node {number} has an unknown operation {op!r}: {hint}")
                choices.append(OPS.index(op))
        return self.architecture(*choices)

    def format(self, arch: Architecture) -> str:
        """The benchmark's own string."""
        ops = iter(self.check(arch).choices)
        return "+".join("|" + "".join(f"{OPS[next(ops)]}~{source}|" for source in range(node)) for node in (1, 2, 3))

    def cells(self, arch: Architecture) -> tuple[Cell, ...]:
        """One cell; `none` edges are kept, for the reader to see."""
        edges = tuple(Edge(s, t, OPS[op]) for (s, t), op in zip(EDGES, self.check(arch).choices, strict=True))
        return (Cell("cell", ("input", "1", "2", "output"), edges),)

    def network(self, arch: Architecture, settings: NetworkSettings) -> Graph:
        """3x3 stem, 3 stages of `cells` cells (5) at C, 2C, 4C channels (16), a residual reduction between stages."""

        def cell(c: int) -> Graph:
            graph = _cell([Op(_kind(op), c, c) for op in arch.choices], dropped=settings.drop_path > 0)
            return prune(graph) if settings.prune else graph

        return self._stacked(cell, settings)

    def supernet(self, choices: Sequence[int], settings: NetworkSettings) -> Graph:
        """The same network with one categorical an edge, shared by all cells."""

        def cell(c: int) -> Graph:
            options = tuple(Op(_kind(op), c, c) for op in range(len(OPS)))
            return _cell([Mixed("mixed", c, c, categorical=k, options=options) for k in range(len(EDGES))])

        return self._stacked(cell, settings)

    def _stacked(self, cell: Callable[[int], Graph], settings: NetworkSettings) -> Graph:
        c, cells = self.size(settings)
        net = Builder()
        x = net("stem", Op("conv3x3-bn", settings.shape[0], c), 0)
        for stage in range(STAGES):
            if stage:
                x = net(f"reduction_{stage}", Op("residual_reduce", c, 2 * c, 2), x)
                c *= 2
            graph = cell(c)
            for number in range(cells):
                x = net(f"stage_{stage + 1}_cell_{number + 1}", graph, x)
        x = net("head", Op("bn_relu", c, c), x)
        x = net("pool", Op("global_pool", c, c), x)
        return net.graph(net("classifier", Op("linear", c, settings.classes), x))

    def connected(self, arch: Architecture) -> bool:
        """Whether some path from input to output has no `none`."""
        return bool(graph_key(arch.choices)[1])

    def canonical(self, arch: Architecture) -> Architecture:
        """The first architecture with the same `graph_key`: 5,260 classes instead of 15,625."""
        return Architecture(self.name, representative_choices()[self.check(arch).choices])


def _cell(edges: Sequence[Op], dropped: bool = False) -> Graph:
    """Six edges, three sums; with `dropped` whatever computes something may be dropped."""
    cell = Builder()

    def edge(s: int, t: int, op: Op) -> int:
        value = cell(f"edge_{s}_{t}", op, values[s])
        if dropped and op.kind not in (IDENTITY, ZERO):
            value = cell(f"edge_{s}_{t}_drop", Op("drop_path", op.c_out, op.c_out), value)
        return value

    values = [0]
    for node in (1, 2, 3):
        incoming = [edge(s, t, op) for (s, t), op in zip(EDGES, edges, strict=True) if t == node]
        values.append(cell(f"node_{node}", Op(SUM), *incoming))
    return cell.graph(values[-1])


def _kind(op: int) -> str:
    return {"skip_connect": IDENTITY}.get(OPS[op], OPS[op])


Sum = tuple[tuple[int, int], ...]  # (term, how often), sorted; term −1 is the cell's input
Key = tuple[tuple[tuple[str, Sum], ...], Sum]


def graph_key(choices: tuple[int, ...]) -> Key:
    """Equal for cells that are the same graph: 5,260 distinct ones.

    A node is a sum of terms, each an operation on such a sum. Zeros and what the output does not use are dropped, skips
    are folded, nested sums flattened. Every convolution keeps its identity, since its weights are its own; two poolings
    of the same sum are one value that is added twice.
    """
    terms: list[tuple[str, Sum]] = []
    nodes: list[dict[int, int]] = [{-1: 1}, {}, {}, {}]
    for (source, target), op in zip(EDGES, choices, strict=True):  # all into a node before any out of it
        total = nodes[target]
        if OPS[op] == "none" or not nodes[source]:
            continue
        if OPS[op] == "skip_connect":
            for term, times in nodes[source].items():
                total[term] = total.get(term, 0) + times
            continue
        made = OPS[op], tuple(sorted(nodes[source].items()))
        if OPS[op] != "avg_pool_3x3" or made not in terms:
            total[len(terms)] = 1
            terms.append(made)
        else:
            place = terms.index(made)
            total[place] = total.get(place, 0) + 1
    return _renamed(tuple(terms), tuple(sorted(nodes[3].items())))


@lru_cache(100_000)
def _renamed(terms: tuple[tuple[str, Sum], ...], output: Sum) -> Key:
    """The smallest way to number the live terms; only terms that unfold to the same expression can change places."""
    live = {term for term, _ in output}
    for term in reversed(range(len(terms))):  # sources come before what is made of them
        if term in live:
            live.update(source for source, _ in terms[term][1])
    unfolded: dict[int, str] = {-1: "x"}
    groups: dict[str, list[int]] = {}
    for term in sorted(live - {-1}):
        op, sources = terms[term]
        unfolded[term] = f"{op}({'+'.join(sorted(f'{n}*{unfolded[s]}' for s, n in sources))})"
        groups.setdefault(unfolded[term], []).append(term)

    def key(order: list[int]) -> Key:
        name = {-1: -1} | {term: number for number, term in enumerate(order)}
        renamed = (tuple(sorted((name[s], n) for s, n in terms[term][1])) for term in order)
        return (
            tuple((terms[term][0], sources) for term, sources in zip(order, renamed, strict=True)),
            tuple(sorted((name[s], n) for s, n in output)),
        )

    if len(groups) == len(unfolded) - 1:  # no two can change places
        return key([term for expression in sorted(groups) for term in groups[expression]])
    orders = product(*(permutations(groups[expression]) for expression in sorted(groups)))
    return min(key([term for group in order for term in group]) for order in orders)


@cache
def representative_choices() -> dict[tuple[int, ...], tuple[int, ...]]:
    """For every cell, the first of its class in the order of choices."""
    first: dict[Key, tuple[int, ...]] = {}
    cells = product(range(len(OPS)), repeat=len(EDGES))
    return {choices: first.setdefault(graph_key(choices), choices) for choices in cells}


NB201 = NB201Space(
    name="nb201",
    title="NAS-Bench-201: 6 edges between 4 nodes, 5 operations",
    decisions=tuple(Decision(f"edge {s}-{t}", OPS) for s, t in EDGES),
)
