"""NAS-Bench-101 (Ying et al., 2019): 423,624 acyclic graphs of at most 7 vertices and 9 edges.

Vertex 0 is the cell's input, the last vertex its output, every other one carries an operation. A matrix is
a cell when what is left after removing the vertices on no path from input to output is not empty and has at
most 9 edges.

Inside this file a graph is its `Parents`: for each vertex, the bit mask of the vertices that feed it.
Outside it is the benchmark's own pair: an upper-triangular matrix, and the operations of the vertices
between input and output.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import md5
from itertools import accumulate, product
from random import Random
from typing import TYPE_CHECKING, Any

from initio.errors import InputError, did_you_mean
from initio.networks.graphs import CONCAT, SUM, Builder, Graph, NetworkSettings, Op
from initio.records import Architecture
from initio.spaces.base import Cell, Decision, Edge, GraphSpace, Size, Sizes

if TYPE_CHECKING:
    import numpy as np

Matrix = tuple[tuple[int, ...], ...]
Ops = tuple[int, ...]  # numbers in OPS, for the vertices between input and output
Parents = tuple[int, ...]
Order = tuple[int, ...]

OPS = ("conv3x3-bn-relu", "conv1x1-bn-relu", "maxpool3x3")
INPUT, OUTPUT, PROJECTION = "input", "output", "conv1x1-bn-relu"
MAX_VERTICES, MAX_EDGES, STACKS = 7, 9, 3
PAIRS = tuple((i, j) for j in range(MAX_VERTICES) for i in range(j))  # the order of the edge decisions
N_CELLS = 423_624  # what `architectures` lists: tests/spaces/test_nb101.py counts them

# As the benchmark's own example has them: ModelSpec(matrix=[...], ops=[INPUT, CONV3X3, ..., OUTPUT]).
CONSTANTS = {"INPUT": INPUT, "OUTPUT": OUTPUT, "CONV3X3": OPS[0], "CONV1X1": OPS[1], "MAXPOOL3X3": OPS[2]}
HOW_TO_WRITE = "write ModelSpec(matrix=[[...], ...], ops=['input', ..., 'output'])"
NO_PATH = "has no path from its input to its output"
MAX_TEXT = 4000  # characters: ten times what a cell needs, and few enough for Python's parser to be safe


@dataclass(frozen=True)
class NB101Space(GraphSpace):
    """21 edge bits, column by column of the 7-vertex matrix, then the operations of vertices 1 to 5.

    A cell of fewer vertices has its output at vertex 6 all the same; the vertices that it lacks come before
    it, without edges and with operation 0.
    """

    sizes = Sizes(Size(128, 3), scoring=Size(16, 3, 16), training=Size(16, 1))
    notations = ("ModelSpec", "api.ModelSpec", "{", "[", "(")
    chosen = ("vertex_",)

    def why_invalid(self, choices: tuple[int, ...]) -> str:
        """A cell needs a path, and at most 9 edges on its paths."""
        parents = _choice_parents(choices)
        live = _live(parents)
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
        matrix, ops = self.to_matrix(arch)
        names = [INPUT, *(OPS[op] for op in ops), OUTPUT]
        return f"ModelSpec(matrix={[list(row) for row in matrix]}, ops={names})"

    def from_matrix(self, matrix: Sequence[Sequence[int]], ops: Sequence[int]) -> Architecture:
        """The architecture of a matrix of 2 to 7 vertices and the operations of the inner ones."""
        return self.architecture(*_choices(_parents(matrix), tuple(ops)))

    def to_matrix(self, arch: Architecture) -> tuple[Matrix, Ops]:
        """The matrix and operations as written, without the vertices that `format` leaves out."""
        self.check(arch)
        parents, ops = _choice_parents(arch.choices), arch.choices[len(PAIRS) :]
        used = len(ops)
        while used and not (ops[used - 1] or parents[used] or any(mask >> used & 1 for mask in parents)):
            used -= 1
        return _matrix((*parents[: used + 1], parents[-1])), ops[:used]

    def pruned(self, arch: Architecture) -> tuple[Matrix, Ops]:
        """The matrix and operations without the vertices on no path from input to output."""
        parents, ops = self._pruned(arch)
        return _matrix(parents), ops

    def graph_hash(self, arch: Architecture) -> str:
        """The benchmark's hash of the architecture."""
        return _hash(*self._pruned(arch))

    def canonical(self, arch: Architecture) -> Architecture:
        """Pruned, with the vertices renamed to the smallest matrix and then the smallest operations.

        One subtlety: where the output's channels do not divide evenly, which vertex is one channel wider
        depends on the order, so isomorphic cells can differ by that channel. The benchmark trains one of
        them for all.
        """
        return Architecture(self.name, _choices(*_canonical(*self._pruned(arch))))

    def _pruned(self, arch: Architecture) -> tuple[Parents, Ops]:
        choices = self.check(arch).choices
        return _pruned(_choice_parents(choices), choices[len(PAIRS) :])

    def count(self) -> int:
        """The distinct cells, as the benchmark counts them."""
        return N_CELLS

    def architectures(self, max_vertices: int = MAX_VERTICES) -> Iterator[Architecture]:
        """One canonical cell of each class of isomorphic ones, those of fewer vertices first.

        >>> sum(1 for _ in NB101.architectures(max_vertices=4))
        91
        """
        for n in range(2, max_vertices + 1):
            for parents, automorphisms in _graphs(n):
                for ops in product(range(len(OPS)), repeat=n - 2):
                    if _is_smallest(ops, automorphisms):
                        yield Architecture(self.name, _choices(parents, ops))

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

    def sample_distinct(self, rng: Random) -> Architecture:
        """Uniform over the 423,624 distinct cells, in their canonical form; the first call takes seconds."""
        graphs, totals = _all_graphs()
        while True:
            ((parents, automorphisms),) = rng.choices(graphs, cum_weights=totals)
            ops = tuple(rng.randrange(len(OPS)) for _ in range(len(parents) - 2))
            if _is_smallest(ops, automorphisms):
                return Architecture(self.name, _choices(parents, ops))

    def decode(self, weights: Sequence[Sequence[float]]) -> Architecture:
        """The architecture with the largest sum of weights, one row for each decision.

        All two million matrices are weighed at once: trying the best first could take long.
        """
        import numpy as np

        gain = np.zeros(1)  # for every word of edge bits, what choosing 1 rather than 0 adds
        for zero, one in weights[: len(PAIRS)]:
            gain = np.concatenate([gain, gain + (one - zero)])
        words = valid_words()
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


# --- graphs -------------------------------------------------------------------------------------------------


def from_bits(n_vertices: int, adj_bits: int, ops: Sequence[int]) -> tuple[Matrix, Ops]:
    """The cell packed in a row of a table: bit k is the k-th pair (i, j) for j in 0..n-1 for i in 0..j-1.

    Operations beyond the vertices (the table pads with -1) are ignored.

    >>> from_bits(3, 0b101, [2, -1, -1, -1, -1])
    (((0, 1, 0), (0, 0, 1), (0, 0, 0)), (2,))
    """
    parents = _unpack(int(adj_bits), int(n_vertices))
    return _matrix(parents), tuple(int(op) for op in ops[: n_vertices - 2])


def graph_hash(matrix: Sequence[Sequence[int]], ops: Sequence[int]) -> str:
    """The benchmark's MD5 hash of the pruned cell: equal for isomorphic cells, different for all others.

    Vertex v starts with h_v = md5(str((out-degree, in-degree, label))), labels being -1 for the input, -2
    for the output and the operation's number in `OPS`. Then, as often as there are vertices, all at once,
    h_v <- md5(sorted h of its parents | sorted h of its children | h_v); the result is md5(str(sorted h)).

    >>> graph_hash([[0, 1], [0, 0]], [])
    '043721b9c7fe8c5fad811d47d83132ec'
    """
    return _hash(*_pruned(_parents(matrix), tuple(int(op) for op in ops)))


@cache
def valid_words() -> np.ndarray:
    """All words of 21 edge bits that are cells, ascending: bit k of a word is the k-th of `PAIRS`."""
    import numpy as np

    words = np.arange(1 << len(PAIRS), dtype=np.uint32)
    edge = {pair: (words >> k & 1).astype(bool) for k, pair in enumerate(PAIRS)}
    out = MAX_VERTICES - 1
    ahead = [np.full(len(words), v == 0) for v in range(MAX_VERTICES)]  # reached from the input
    behind = [np.full(len(words), v == out) for v in range(MAX_VERTICES)]  # reaches the output
    for i, j in PAIRS:
        ahead[j] |= ahead[i] & edge[i, j]
    for i, j in reversed(PAIRS):
        behind[i] |= behind[j] & edge[i, j]
    edges = np.zeros(len(words), np.int8)
    for i, j in PAIRS:
        edges += ahead[i] & edge[i, j] & behind[j]
    return np.flatnonzero(ahead[out] & (edges <= MAX_EDGES))


def _unpack(bits: int, n: int) -> Parents:
    """Column j of the matrix is the j bits from place j (j - 1) / 2 on."""
    return tuple(bits >> (j * (j - 1) // 2) & ((1 << j) - 1) for j in range(n))


def _parents(matrix: Sequence[Sequence[int]]) -> Parents:
    return tuple(sum(1 << i for i in range(j) if matrix[i][j]) for j in range(len(matrix)))


def _matrix(parents: Parents) -> Matrix:
    n = len(parents)
    return tuple(tuple(parents[j] >> i & 1 for j in range(n)) for i in range(n))


def _choice_parents(choices: tuple[int, ...]) -> Parents:
    word = 0
    for k in range(len(PAIRS)):
        word |= choices[k] << k
    return _unpack(word, MAX_VERTICES)


def _choices(parents: Parents, ops: Ops) -> tuple[int, ...]:
    """The choices of a cell of 2 to 7 vertices: missing vertices come before the output."""
    missing = (0,) * (MAX_VERTICES - len(parents))
    padded = (*parents[:-1], *missing, parents[-1])
    return (*(padded[j] >> i & 1 for i, j in PAIRS), *ops, *missing)


def _live(parents: Parents) -> int:
    """The mask of the vertices on a path from the first to the last vertex; 0 when there is no path."""
    ahead = 1
    for v in range(1, len(parents)):
        if parents[v] & ahead:
            ahead |= 1 << v
    live = 1 << len(parents) - 1
    for v in reversed(range(1, len(parents))):
        if live >> v & 1:
            live |= parents[v] & ahead
    return live if live & 1 else 0


def _pruned(parents: Parents, ops: Ops) -> tuple[Parents, Ops]:
    """The cell without the vertices that are on no path from input to output."""
    live = _live(parents)
    if not live:
        raise InputError(f"the cell {NO_PATH}")
    kept = [v for v in range(len(parents)) if live >> v & 1]
    columns = (sum(1 << new for new, old in enumerate(kept) if parents[v] >> old & 1) for v in kept)
    return tuple(columns), tuple(ops[v - 1] for v in kept[1:-1])


def _hash(parents: Parents, ops: Ops) -> str:
    n = len(parents)
    above = [[w for w in range(n) if parents[v] >> w & 1] for v in range(n)]
    below = [[w for w in range(n) if parents[w] >> v & 1] for v in range(n)]
    labels = (-1, *ops, -2)
    hashes = [_md5(str((len(below[v]), len(above[v]), labels[v]))) for v in range(n)]
    for _ in range(n):
        hashes = [_md5(f"{_joined(hashes, above[v])}|{_joined(hashes, below[v])}|{hashes[v]}") for v in range(n)]
    return _md5(str(sorted(hashes)))


def _joined(hashes: list[str], vertices: list[int]) -> str:
    return "".join(sorted([hashes[v] for v in vertices]))


def _md5(text: str) -> str:
    return md5(text.encode(), usedforsecurity=False).hexdigest()


def _smallest(parents: Parents) -> tuple[Parents, tuple[Order, ...]]:
    """The smallest `Parents` over all ways to rename the inner vertices, and the orders that give it.

    Vertices are placed one by one, always those with the smallest column next. Every partial topological
    order can be completed, so this finds the lexicographically smallest sequence of columns; what is still
    tied at the end differs by an automorphism of the graph.
    """
    out = len(parents) - 1
    columns = [0]
    orders: list[Order] = [(0,)]
    for _ in range(1, out):
        ties: list[Order] = []
        smallest = 1 << out
        for order in orders:
            for v in range(1, out):
                if v in order or (column := _renamed(parents[v], order)) > smallest:
                    continue
                if column < smallest:
                    smallest, ties = column, []
                ties.append((*order, v))
        columns.append(smallest)
        orders = ties
    last = {order: _renamed(parents[out], order) for order in orders}
    columns.append(min(last.values()))
    return tuple(columns), tuple(order for order in orders if last[order] == columns[-1])


def _renamed(mask: int, order: Order) -> int:
    """The mask with every vertex replaced by its place in `order`; too large when one has no place."""
    column = 0
    for place, v in enumerate(order):
        if mask >> v & 1:
            column |= 1 << place
            mask ^= 1 << v
    return column if not mask else 1 << MAX_VERTICES


_smallest_cached = lru_cache(maxsize=1 << 14)(_smallest)


def _canonical(parents: Parents, ops: Ops) -> tuple[Parents, Ops]:
    """The smallest matrix, then the smallest operations, over all ways to rename a pruned cell's vertices."""
    columns, orders = _smallest_cached(parents)
    return columns, min(tuple(ops[v - 1] for v in order[1:]) for order in orders)


def _graphs(n: int) -> Iterator[tuple[Parents, tuple[Order, ...]]]:
    """Every pruned graph of n vertices once up to isomorphism, with its automorphisms."""

    def extend(parents: Parents, edges: int) -> Iterator[Parents]:
        missing = n - len(parents)
        if not missing:
            yield parents
            return
        for column in range(1, 1 << len(parents)):
            total = edges + column.bit_count()
            if total + missing - 1 <= MAX_EDGES:  # each vertex still missing brings at least one edge
                yield from extend((*parents, column), total)

    everything = (1 << n) - 1
    for parents in extend((0,), 0):
        if _live(parents) == everything:
            columns, orders = _smallest(parents)
            if columns == parents:
                yield parents, orders


def _is_smallest(ops: Ops, automorphisms: tuple[Order, ...]) -> bool:
    return all(ops <= tuple(ops[v - 1] for v in order[1:]) for order in automorphisms)


@cache
def _all_graphs() -> tuple[list[tuple[Parents, tuple[Order, ...]]], list[int]]:
    """Every graph of at most 7 vertices, and the running total of the ways to label it with operations."""
    graphs = [graph for n in range(2, MAX_VERTICES + 1) for graph in _graphs(n)]
    return graphs, list(accumulate(len(OPS) ** (len(parents) - 2) for parents, _ in graphs))


# --- text ---------------------------------------------------------------------------------------------------


def read_spec(text: str) -> tuple[Matrix, Ops]:
    """The matrix and the operations in any notation in use, checked but for paths and the number of edges.

    `ModelSpec(matrix=[[...]], ops=[...])`, JSON with the keys `matrix` and `ops` or the published records'
    `module_adjacency` and `module_operations`, or the two lists one after the other. Nothing is executed.

    >>> read_spec("[[0, 1, 0], [0, 0, 1], [0, 0, 0]] ['input', 'maxpool3x3', 'output']")
    (((0, 1, 0), (0, 0, 1), (0, 0, 0)), (2,))
    """
    if len(text) > MAX_TEXT:
        raise InputError(f"a cell is written in at most {MAX_TEXT} characters, not {len(text)}")
    matrix_node, ops_node = _two_parts(_syntax(text.strip()))
    matrix = _read_matrix(matrix_node)
    return matrix, _read_ops(ops_node, len(matrix))


def _syntax(text: str) -> ast.expr:
    """The text as a Python expression; JSON looks like one."""
    source = text
    if text.startswith("[") and (end := re.search(r"\]\s*\]", text)):  # two lists: make them a pair
        source = f"({text[: end.end()]}, {text[end.end() :].lstrip(' ,')})"
    try:
        with warnings.catch_warnings():  # such as for a backslash in a string
            warnings.simplefilter("ignore")
            return ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"{_shown(repr(text))} is not a cell: {HOW_TO_WRITE}") from None


def _two_parts(node: ast.expr) -> tuple[ast.expr, ast.expr]:
    """The expressions of the matrix and of the operations."""
    parts: dict[object, ast.expr] = {}
    if isinstance(node, ast.Tuple) and len(node.elts) == 2:
        return node.elts[0], node.elts[1]
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            parts[key.value if isinstance(key, ast.Constant) else None] = value
    elif isinstance(node, ast.Call) and _source(node.func).endswith("ModelSpec"):
        parts.update(zip(("matrix", "ops"), node.args, strict=False))
        parts.update((keyword.arg, keyword.value) for keyword in node.keywords)
    for names in (("matrix", "ops"), ("module_adjacency", "module_operations")):
        if all(name in parts for name in names):
            return parts[names[0]], parts[names[1]]
    raise InputError(f"a cell needs a matrix and ops: {HOW_TO_WRITE}")


def _read_matrix(node: ast.expr) -> Matrix:
    rows = [_items(row, f"row {i} of the matrix") for i, row in enumerate(_items(node, "the matrix"))]
    n = len(rows)
    if not 2 <= n <= MAX_VERTICES:
        raise InputError(f"the matrix has {n} rows, a cell has 2 to {MAX_VERTICES} vertices")
    for i, row in enumerate(rows):
        if len(row) != n:
            raise InputError(f"row {i} of the matrix has {len(row)} entries, the matrix has {n} rows")
    return tuple(tuple(_read_entry(entry, i, j) for j, entry in enumerate(row)) for i, row in enumerate(rows))


def _read_entry(node: ast.expr, i: int, j: int) -> int:
    value = _constant(node)
    if type(value) is not int or value not in (0, 1):
        raise InputError(f"row {i} column {j} of the matrix must be 0 or 1, not {_source(node)}")
    if value and j <= i:
        raise InputError(f"the matrix is not upper triangular: row {i} column {j} must be 0")
    return value


def _read_ops(node: ast.expr, n: int) -> Ops:
    items = _items(node, "ops")
    if len(items) != n:
        raise InputError(f"ops has {len(items)} entries, the matrix has {n} rows")
    names = [_constant(item) for item in items]
    for place, right in ((0, INPUT), (n - 1, OUTPUT)):
        if names[place] != right:
            raise InputError(f"entry {place} of ops must be {right!r}, not {_source(items[place])}")
    for place in range(1, n - 1):
        if names[place] not in OPS:
            hint = did_you_mean(str(names[place]), list(OPS))
            raise InputError(f"entry {place} of ops is {_source(items[place])}, not an operation: {hint}")
    return tuple(OPS.index(name) for name in names[1:-1])


def _items(node: ast.expr, what: str) -> list[ast.expr]:
    if not isinstance(node, ast.List | ast.Tuple):
        raise InputError(f"{what} must be a list, not {_source(node)}")
    return node.elts


def _constant(node: ast.expr) -> Any:
    """The number or string that is written there, or None."""
    if isinstance(node, ast.Name):
        return CONSTANTS.get(node.id)
    return node.value if isinstance(node, ast.Constant) else None


def _source(node: ast.expr) -> str:
    """What the user wrote there, shortened."""
    try:
        return _shown(ast.unparse(node))
    except (RecursionError, ValueError):  # deep nesting; a number of thousands of digits
        return "that"


def _shown(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


NB101 = NB101Space(
    name="nb101",
    title="NAS-Bench-101: graphs of at most 7 vertices and 9 edges",
    decisions=(
        *(Decision(f"edge {i}-{j}", ("0", "1")) for i, j in PAIRS),
        *(Decision(f"vertex {v}", OPS) for v in range(1, MAX_VERTICES - 1)),
    ),
)
