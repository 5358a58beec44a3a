"""Many NAS-Bench-101 cells at once, as arrays: their edges as a word of 21 bits, and their 5 operations.

Bit k of a word is the k-th of `PAIRS`, an edge of the 7-vertex matrix, as in the decisions of `nb101`. A cell of fewer
vertices has its output at vertex 6 all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from initio.records import Architecture
from initio.spaces import NB101
from initio.spaces.dags import PAIRS
from initio.spaces.modelspec import MAX_VERTICES, OPS
from initio.spaces.nb1shot1 import NB1Shot1Space

INNER = MAX_VERTICES - 2
LAST_COLUMN = len(PAIRS) - (MAX_VERTICES - 1)  # the place of the first edge into the output


def words_of_rows(n_vertices: np.ndarray, adj_bits: np.ndarray) -> np.ndarray:
    """The words of a table's rows: the last column of each matrix moves to the place of the seventh.

    >>> words_of_rows(np.array([2, 7]), np.array([1, 3]))
    array([32768,     3])
    """
    n, bits = n_vertices.astype(np.int64), adj_bits.astype(np.int64)
    before = (n - 1) * (n - 2) // 2  # edges between vertices other than the output
    moved: np.ndarray = (bits & ((1 << before) - 1)) | (bits >> before << LAST_COLUMN)
    return moved


def words_of_space(space: NB1Shot1Space) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Words, operations and choices of all architectures of an `nb1shot1` space, in the space's order."""
    n = len(space.n_parents)
    parents = np.array(list(np.ndindex(*(len(decision) for decision in space.decisions[:n]))))
    ops = np.array(list(np.ndindex(*[len(OPS)] * (len(space.decisions) - n))))
    words = np.array([_word(space, choices.tolist()) for choices in parents])
    choices = np.concatenate([np.repeat(parents, len(ops), 0), np.tile(ops, (len(parents), 1))], 1)
    padded = np.pad(ops, ((0, 0), (0, INNER - ops.shape[1])))
    return np.repeat(words, len(ops)), np.tile(padded, (len(parents), 1)), choices


def _word(space: NB1Shot1Space, parents: list[int]) -> int:
    arch = Architecture(space.name, (*parents, *[0] * (len(space.decisions) - len(parents))))
    matrix, _ = space.to_matrix(arch)
    return sum(matrix[i][j] << k for k, (i, j) in enumerate(PAIRS))


def architectures(words: np.ndarray, ops: np.ndarray) -> tuple[Architecture, ...]:
    """The cells as architectures of `nb101`."""
    choices = np.concatenate([words[:, None] >> np.arange(len(PAIRS)) & 1, np.maximum(ops, 0)], 1)
    return as_architectures(NB101.name, choices)


def as_architectures(space: str, choices: np.ndarray) -> tuple[Architecture, ...]:
    """Rows of choices as architectures."""
    return tuple(Architecture(space, tuple(row)) for row in choices.tolist())


def class_keys(words: np.ndarray, ops: np.ndarray) -> np.ndarray:
    """A number for each cell, equal for cells that are isomorphic after pruning.

    The benchmark's own hash, with a 64-bit mixing of sums in place of MD5 of sorted texts, for all cells at once: a
    vertex starts from its degrees and its operation; then, as often as there are vertices, it takes in what its live
    parents and its live children have.
    """
    words, ops = _pruned(words, ops)
    codes = words * len(OPS) ** INNER + ops @ len(OPS) ** np.arange(INNER)
    _, first, place = np.unique(codes, return_index=True, return_inverse=True)
    keys: np.ndarray = _keys_of_pruned(words[first], ops[first])[place]
    return keys


def _keys_of_pruned(words: np.ndarray, ops: np.ndarray) -> np.ndarray:
    n = len(words)
    edge = {pair: (words >> k & 1).astype(bool) for k, pair in enumerate(PAIRS)}
    label = [np.full(n, 11), *ops.T, np.full(n, 12)]
    inwards, outwards = ([np.zeros(n, np.int64) for _ in label] for _ in range(2))
    for (i, j), there in edge.items():
        outwards[i] += there
        inwards[j] += there
    state = [_mixed(100 * inwards[v] + 10 * outwards[v] + 1000 * label[v] + 1) for v in range(MAX_VERTICES)]
    for _ in range(MAX_VERTICES):
        above, below = ([np.zeros(n, np.uint64) for _ in label] for _ in range(2))
        for (i, j), there in edge.items():
            above[j] += np.where(there, state[i], 0)
            below[i] += np.where(there, state[j], 0)
        state = [_mixed(_mixed(s) + _mixed(a + np.uint64(1)) + b) for s, a, b in zip(state, above, below, strict=True)]
    live = [outwards[v] + inwards[v] > 0 for v in range(MAX_VERTICES)]
    return _mixed(np.sum([np.where(alive, s, 0) for s, alive in zip(state, live, strict=True)], 0))


def _pruned(words: np.ndarray, ops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cells without the edges and operations of vertices that are on no path from input to output."""
    edge = {pair: (words >> k & 1).astype(bool) for k, pair in enumerate(PAIRS)}
    ahead = [np.full(len(words), v == 0) for v in range(MAX_VERTICES)]
    behind = [np.full(len(words), v == MAX_VERTICES - 1) for v in range(MAX_VERTICES)]
    for i, j in PAIRS:
        ahead[j] |= ahead[i] & edge[i, j]
    for i, j in reversed(PAIRS):
        behind[i] |= behind[j] & edge[i, j]
    live = [a & b for a, b in zip(ahead, behind, strict=True)]
    kept = np.zeros(len(words), np.int64)
    for k, (i, j) in enumerate(PAIRS):
        kept |= (edge[i, j] & live[i] & live[j]).astype(np.int64) << k
    return kept, np.where(np.stack(live[1:-1], 1), np.maximum(ops, 0), 0).astype(np.int64)


def _mixed(values: np.ndarray | Sequence[int]) -> np.ndarray:
    """A bijection of 64-bit numbers that spreads every bit: shifted exclusive ors, multiplications by odd numbers."""
    x = np.asarray(values).astype(np.uint64)
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        x = (x ^ x >> np.uint64(30)) * np.uint64(factor)
    return x ^ x >> np.uint64(31)
