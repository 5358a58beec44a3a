"""NAS-Bench-101's cells as graphs: which vertices matter, isomorphism, the benchmark's hash, and a list of all.

Vertex 0 is the cell's input, the last vertex its output. Inside this file a graph is its `Parents`: for each vertex,
the bit mask of the vertices that feed it. Outside it is the benchmark's own pair: an upper-triangular matrix, and the
operations of the vertices between input and output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from hashlib import md5
from typing import TYPE_CHECKING

from initio.errors import InputError
from initio.spaces.modelspec import MAX_VERTICES, Matrix, Ops

if TYPE_CHECKING:
    import numpy as np

Parents = tuple[int, ...]
Order = tuple[int, ...]

MAX_EDGES = 9
PAIRS = tuple((i, j) for j in range(MAX_VERTICES) for i in range(j))  # the order of the bits of a word
NO_PATH = "has no path from its input to its output"


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


def unpacked(bits: int, n: int) -> Parents:
    """Column j of the matrix is the j bits from place j (j - 1) / 2 on."""
    return tuple(bits >> (j * (j - 1) // 2) & ((1 << j) - 1) for j in range(n))


def parents_of(matrix: Sequence[Sequence[int]]) -> Parents:
    """The columns of a matrix."""
    return tuple(sum(1 << i for i in range(j) if matrix[i][j]) for j in range(len(matrix)))


def matrix_of(parents: Parents) -> Matrix:
    """The inverse of `parents_of`."""
    n = len(parents)
    return tuple(tuple(parents[j] >> i & 1 for j in range(n)) for i in range(n))


def on_paths(parents: Parents) -> int:
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


def cut(parents: Parents, ops: Ops) -> tuple[Parents, Ops]:
    """The cell without the vertices that are on no path from input to output."""
    live = on_paths(parents)
    if not live:
        raise InputError(f"the cell {NO_PATH}")
    kept = [v for v in range(len(parents)) if live >> v & 1]
    columns = (sum(1 << new for new, old in enumerate(kept) if parents[v] >> old & 1) for v in kept)
    return tuple(columns), tuple(ops[v - 1] for v in kept[1:-1])


def graph_hash(parents: Parents, ops: Ops) -> str:
    """The benchmark's MD5 hash of a pruned cell: equal for isomorphic cells, different for all others.

    Vertex v starts with h_v = md5(str((out-degree, in-degree, label))), labels being -1 for the input, -2
    for the output and the operation's number in `OPS`. Then, as often as there are vertices, all at once,
    h_v <- md5(sorted h of its parents | sorted h of its children | h_v); the result is md5(str(sorted h)).

    >>> graph_hash((0, 1), ())
    '043721b9c7fe8c5fad811d47d83132ec'
    """
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
    return 1 << MAX_VERTICES if mask else column


_smallest_cached = lru_cache(maxsize=1 << 14)(_smallest)


def smallest_form(parents: Parents, ops: Ops) -> tuple[Parents, Ops]:
    """The smallest matrix, then the smallest operations, over all ways to rename a pruned cell's vertices."""
    columns, orders = _smallest_cached(parents)
    return columns, min(tuple(ops[v - 1] for v in order[1:]) for order in orders)


def graphs(n: int) -> Iterator[tuple[Parents, tuple[Order, ...]]]:
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
        if on_paths(parents) == everything:
            columns, orders = _smallest(parents)
            if columns == parents:
                yield parents, orders


def is_smallest(ops: Ops, automorphisms: tuple[Order, ...]) -> bool:
    """Whether no automorphism of the graph gives smaller operations."""
    return all(ops <= tuple(ops[v - 1] for v in order[1:]) for order in automorphisms)
