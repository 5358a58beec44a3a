"""NAS-Bench-101 (Ying et al., 2019): 423,624 acyclic graphs of at most 7 vertices and 9 edges.

Vertex 0 is the cell's input, the last vertex its output, every other one carries an operation. A matrix is a cell when
what is left after removing the vertices on no path from input to output is not empty and has at most 9 edges.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

from initio.errors import InputError
from initio.networks.graphs import CONCAT, SUM, Builder, Graph, NetworkSettings, Op
from initio.records import Architecture
from initio.spaces import dags
from initio.spaces.base import Cell, Decision, Edge, GraphSpace, Size, Sizes
from initio.spaces.dags import MAX_EDGES, NO_PATH, PAIRS, Parents
from initio.spaces.modelspec import INPUT, MAX_VERTICES, OPS, OUTPUT, Matrix, Ops, read_spec, write_spec

PROJECTION, STACKS = "conv1x1-bn-relu", 3
N_CELLS = 423_624  # what `architectures` lists: tests/spaces/test_nb101.py counts them


@dataclass(frozen=True)
class NB101Space(GraphSpace):
    """21 edge bits, column by column of the 7-vertex matrix, then the operations of vertices 1 to 5.

    A cell of fewer vertices has its output at vertex 6 all the same; the vertices that it lacks come before
    it, without edges and with operation 0.
    """

    sizes = Sizes(Size(128, 3), Size(16, 3, 16), Size(16, 1), shared=Size(12, 1, 16), shared_published=Size(48, 3, 32))
    notations = ("ModelSpec", "api.ModelSpec", "{", "[", "(")
    chosen = ("vertex_",)

    def why_invalid(self, choices: tuple[int, ...]) -> str:
        """A cell needs a path, and at most 9 edges on its paths."""
        parents = _choice_parents(choices)
        live = dags.on_paths(parents)
        if not live:
            return NO_PATH
        edges = sum((mask & live).bit_count() for v, mask in enumerate(parents) if live >> v & 1)
        if edges > MAX_EDGES:
            return f"has {edges} edges on its paths from input to output, nb101 allows at most {MAX_EDGES}"
        return ""

    def parse(self, text: str) -> Architecture:
        """Reads `ModelSpec(...)`, JSON or two lists; see `read_spec`.

        >>> NB101.parse("ModelSpec(matrix=[[0, 1], [0, 0]], ops=['input', 'maxpool3x3', 'output'])")
        Traceback (most recent call last):
        initio.errors.InputError: ops has 3 entries, the matrix has 2 rows
        """
        return self.from_matrix(*read_spec(text))

    def format(self, arch: Architecture) -> str:
        """The benchmark's constructor call, without trailing vertices that have no edge and operation 0.

        >>> NB101.format(NB101.from_matrix([[0, 1, 0], [0, 0, 1], [0, 0, 0]], [2]))
        "ModelSpec(matrix=[[0, 1, 0], [0, 0, 1], [0, 0, 0]], ops=['input', 'maxpool3x3', 'output'])"
        """
        return write_spec(*self.to_matrix(arch))

    def from_matrix(self, matrix: Sequence[Sequence[int]], ops: Sequence[int]) -> Architecture:
        """The architecture of a matrix of 2 to 7 vertices and the operations of the inner ones."""
        return self.architecture(*_choices(dags.parents_of(matrix), tuple(ops)))

    def to_matrix(self, arch: Architecture) -> tuple[Matrix, Ops]:
        """The matrix and operations as written, without the vertices that `format` leaves out."""
        self.check(arch)
        parents, ops = _choice_parents(arch.choices), arch.choices[len(PAIRS) :]
        used = len(ops)
        while used and not (ops[used - 1] or parents[used] or any(mask >> used & 1 for mask in parents)):
            used -= 1
        return dags.matrix_of((*parents[: used + 1], parents[-1])), ops[:used]

    def pruned(self, arch: Architecture) -> tuple[Matrix, Ops]:
        """The matrix and operations without the vertices on no path from input to output."""
        parents, ops = self._pruned(arch)
        return dags.matrix_of(parents), ops

    def graph_hash(self, arch: Architecture) -> str:
        """The benchmark's hash of the architecture."""
        return dags.graph_hash(*self._pruned(arch))

    def canonical(self, arch: Architecture) -> Architecture:
        """Pruned, with the vertices renamed to the smallest matrix and then the smallest operations.

        One subtlety: where the output's channels do not divide evenly, which vertex is one channel wider
        depends on the order, so isomorphic cells can differ by that channel. The benchmark trains one of
        them for all.
        """
        return Architecture(self.name, _choices(*dags.smallest_form(*self._pruned(arch))))

    def _pruned(self, arch: Architecture) -> tuple[Parents, Ops]:
        choices = self.check(arch).choices
        return dags.cut(_choice_parents(choices), choices[len(PAIRS) :])

    def count(self) -> int:
        """The distinct cells, as the benchmark counts them."""
        return N_CELLS

    def architectures(self, max_vertices: int = MAX_VERTICES) -> Iterator[Architecture]:
        """One canonical cell of each class of isomorphic ones, those of fewer vertices first.

        >>> sum(1 for _ in NB101.architectures(max_vertices=4))
        91
        """
        for n in range(2, max_vertices + 1):
            for parents, automorphisms in dags.graphs(n):
                for ops in product(range(len(OPS)), repeat=n - 2):
                    if dags.is_smallest(ops, automorphisms):
                        yield Architecture(self.name, _choices(parents, ops))

    def wires(self, decision: Decision, option: int) -> Hashable:
        """Operations connect nothing."""
        return decision.options != OPS and option

    def wirings(self) -> Iterator[tuple[Architecture, int]]:
        """The graphs, with how many of their operations differ."""
        for n in range(2, MAX_VERTICES + 1):
            every = tuple(product(range(len(OPS)), repeat=n - 2))
            for parents, automorphisms in dags.graphs(n):
                count = sum(dags.is_smallest(ops, automorphisms) for ops in every)
                yield Architecture(self.name, _choices(parents, (0,) * (n - 2))), count

    def sample(self, rng: Random) -> Architecture:
        """Uniform over all valid choices: matrix and operations uniform, drawn again while that is no cell.

        This is how the benchmark's authors draw; 73 % of all matrices are cells. It favours small cells,
        which many matrices describe: 0.4 % of the draws have 7 vertices after pruning, where 85 % of the
        distinct cells do.
        """
        while True:
            bits = rng.getrandbits(len(PAIRS))
            edges = tuple(bits >> k & 1 for k in range(len(PAIRS)))
            if not self.why_invalid(edges):  # the operations have no say in it
                ops = (rng.randrange(len(OPS)) for _ in range(MAX_VERTICES - 2))
                return Architecture(self.name, (*edges, *ops))

    def decode(self, weights: Sequence[Sequence[float]]) -> Architecture:
        """The architecture with the largest sum of weights, one row for each decision.

        All two million matrices are weighed at once: trying the best first could take long.
        """
        import numpy as np

        gain = np.zeros(1)  # for every word of edge bits, what choosing 1 rather than 0 adds
        for zero, one in weights[: len(PAIRS)]:
            gain = np.concatenate([gain, gain + (one - zero)])
        words = dags.valid_words()
        best = int(words[np.argmax(gain[words])])
        ops = (max(range(len(row)), key=row.__getitem__) for row in weights[len(PAIRS) :])
        return self.architecture(*(best >> k & 1 for k in range(len(PAIRS))), *ops)

    def cells(self, arch: Architecture) -> tuple[Cell, ...]:
        """The pruned cell; operations are its nodes, edges carry none."""
        matrix, ops = self.pruned(arch)
        edges = (Edge(i, j) for i, row in enumerate(matrix) for j, entry in enumerate(row) if entry)
        return (Cell("cell", (INPUT, *(OPS[op] for op in ops), OUTPUT), tuple(edges)),)

    def network(self, arch: Architecture, settings: NetworkSettings) -> Graph:
        """3x3 stem, 3 stacks of `cells` cells (3) at C, 2C, 4C channels (128), 2x2 max-pools between stacks.

        The cell is always built pruned: the benchmark's parameter counts are of the pruned cell too.
        """
        matrix, ops = self.pruned(arch)
        return self.stacked(lambda c_in, c_out: cell_graph(matrix, ops, c_in, c_out), settings)

    def stacked(self, cell: Callable[[int, int], Graph], settings: NetworkSettings) -> Graph:
        """The network around cells of given widths."""
        channels, cells = self.size(settings)
        net = Builder()
        x = net("stem", Op("conv3x3-bn-relu", settings.shape[0], channels), 0)
        c_in = channels
        for stack in range(STACKS):
            c_out = channels << stack
            if stack:
                x = net(f"reduction_{stack}", Op("max_pool_2x2", c_in, c_in, 2), x)
            for number in range(cells):
                x = net(f"stack_{stack + 1}_cell_{number + 1}", cell(c_in, c_out), x)
                c_in = c_out
        x = net("pool", Op("global_pool", c_in, c_in), x)
        return net.graph(net("classifier", Op("linear", c_in, settings.classes), x))


def cell_graph(matrix: Matrix, ops: Ops, c_in: int, c_out: int) -> Graph:
    """A pruned cell: 1x1 projections of the input, truncation between vertices, concatenation at the end."""
    out = len(matrix) - 1
    width = vertex_channels(matrix, c_in, c_out)
    cell = Builder()
    value = [0] * out  # of each vertex

    def projection(v: int) -> int:
        return cell(f"project_{v}", Op(PROJECTION, c_in, width[v]), 0)

    def truncated(w: int, v: int) -> int:
        if width[w] == width[v]:
            return value[w]
        return cell(f"edge_{w}_{v}", Op("truncate", width[w], width[v]), value[w])

    def merged(name: str, kind: str, c: int, values: list[int]) -> int:
        return values[0] if len(values) == 1 else cell(name, Op(kind, c, c), *values)

    for v in range(1, out):
        entering = [truncated(w, v) for w in range(1, v) if matrix[w][v]]
        if matrix[0][v]:
            entering.append(projection(v))
        total = merged(f"sum_{v}", SUM, width[v], entering)
        value[v] = cell(f"vertex_{v}", Op(OPS[ops[v - 1]], width[v], width[v]), total)

    leaving = [value[v] for v in range(1, out) if matrix[v][out]]
    last = [merged("concat", CONCAT, c_out, leaving)] if leaving else []
    if matrix[0][out]:
        last.append(projection(out))
    return cell.graph(merged("output", SUM, c_out, last))


def vertex_channels(matrix: Sequence[Sequence[int]], c_in: int, c_out: int) -> tuple[int, ...]:
    """Width of every vertex of a pruned cell, as the benchmark builds it.

    The vertices that feed the output share its `c_out` channels evenly, the first ones taking one more each
    where there is a remainder. Every other vertex is as wide as the widest that it feeds.

    >>> vertex_channels([[0, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]], 128, 255)
    (128, 128, 127, 255)
    """
    out = len(matrix) - 1
    feeding = [v for v in range(1, out) if matrix[v][out]]
    if len(feeding) > c_out:
        raise InputError(f"channels must be at least {len(feeding)} for this cell's concatenation, not {c_out}")
    # ⌈(c_out − k)/n⌉ of n shares, k = 0 .. n − 1: one formula at every width, with or without a remainder.
    width = {v: (c_out + (len(feeding) - 1 - k)) // len(feeding) for k, v in enumerate(feeding)}
    for v in reversed(range(1, out)):
        if v not in width:
            width[v] = max(width[w] for w in range(v + 1, out) if matrix[v][w])
    return (c_in, *(width[v] for v in range(1, out)), c_out)


# --- choices ------------------------------------------------------------------------------------------------


def _choice_parents(choices: tuple[int, ...]) -> Parents:
    word = sum(choices[k] << k for k in range(len(PAIRS)))
    return dags.unpacked(word, MAX_VERTICES)


def _choices(parents: Parents, ops: Ops) -> tuple[int, ...]:
    """The choices of a cell of 2 to 7 vertices: missing vertices come before the output."""
    missing = (0,) * (MAX_VERTICES - len(parents))
    padded = (*parents[:-1], *missing, parents[-1])
    return (*(padded[j] >> i & 1 for i, j in PAIRS), *ops, *missing)


NB101 = NB101Space(
    name="nb101",
    title="NAS-Bench-101: graphs of at most 7 vertices and 9 edges",
    decisions=(
        *(Decision(f"edge {i}-{j}", ("0", "1")) for i, j in PAIRS),
        *(Decision(f"vertex {v}", OPS) for v in range(1, MAX_VERTICES - 1)),
    ),
)
