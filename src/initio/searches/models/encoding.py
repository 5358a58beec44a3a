"""How much two architectures have in common, in three ways that need nothing but what every space says.

Each way describes an architecture by a bag of tokens (token -> weight), and the distance of two architectures is the
weight of what they do not share, d(a, b) = |a| + |b| − 2 Σ min(a, b):

- decisions: the options that are chosen, as `Space.active` names them;
- paths: the sequences of operations from an input to the output of a drawn cell, identities left out;
- motifs: operations, and nodes with what goes in and out (one round of Weisfeiler and Lehman).

The first knows positions; the others do not change when nodes are renamed, nor by what cannot reach the output. Options
with similar names are similar: `nor_conv_1x1` and `nor_conv_3x3` share two of three words, and numbers are near when
they are near in order.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache

import numpy as np
from scipy.sparse import csr_array

from initio.networks.graphs import IDENTITY, ZERO
from initio.records import Architecture
from initio.spaces import Space
from initio.spaces.base import Cell, Edge

Bag = dict[Hashable, float]

WAYS = ("decisions", "paths", "motifs")
MAX_PATHS = 256  # of one cell; where there are more, paths say too little for what they cost
REMEMBERED = 50_000  # descriptions
SAME_VALUE = (IDENTITY, "skip_connect", "skip", "")  # labels that a path leaves out


@lru_cache(maxsize=4096)
def words(name: str) -> tuple[str, ...]:
    """The parts of an option's name.

    >>> words("nor_conv_3x3"), words("conv1x1-bn-relu"), words("0,2")
    (('nor', 'conv', '3x3'), ('conv1x1', 'bn', 'relu'), ('0', '2'))
    """
    return tuple(re.findall(r"[^\W_]+", name)) or (name,)


@lru_cache(maxsize=65_536)
def described(options: tuple[str, ...], option: int) -> tuple[tuple[Hashable, float], ...]:
    """The tokens of one option among others: half its weight is its name, half what it shares with similar ones.

    >>> described(("16", "32", "64"), 1)
    (('32', 0.5), (('at least', 1), 0.25))
    >>> described(("none", "conv_1x1"), 1)
    (('conv_1x1', 0.5), (('word', 'conv'), 0.25), (('word', '1x1'), 0.25))
    """
    name = options[option]
    order = _order(options)
    if order is not None:
        steps = 0.5 / (len(options) - 1)
        return (name, 0.5), *((("at least", k), steps) for k in range(1, order[option] + 1))
    parts = words(name)
    return (name, 0.5), *((("word", word), 0.5 / len(parts)) for word in dict.fromkeys(parts))


@lru_cache(maxsize=4096)
def _order(options: tuple[str, ...]) -> tuple[int, ...] | None:
    """The rank of each option if all are numbers."""
    try:
        values = [float(option) for option in options]
    except ValueError:
        return None
    return tuple(sorted(set(values)).index(value) for value in values) if len(set(values)) == len(values) > 1 else None


@lru_cache(maxsize=REMEMBERED)
def bags(space: Space, arch: Architecture) -> tuple[Bag, ...]:
    """The architecture in each of the WAYS; many searches of one space describe the same ones."""
    cells = [_Live(cell) for cell in space.cells(arch)]
    return (
        _decisions(space, arch),
        _sum(cell.paths() for cell in cells),
        _sum(cell.motifs() for cell in cells),
    )


def one_hot(space: Space, archs: Sequence[Architecture]) -> np.ndarray:
    """A row of numbers an architecture, such that |a − b|² is twice the weight of the decisions that differ."""
    choices = np.array([arch.choices for arch in archs], dtype=np.intp).reshape(len(archs), len(space.decisions))
    blocks = []
    for place, decision in enumerate(space.decisions):
        tokens: dict[Hashable, int] = {}
        rows = [described(decision.options, option) for option in range(len(decision))]
        block = np.zeros((len(decision), sum(map(len, rows))))
        for option, row in enumerate(rows):
            for token, weight in row:
                block[option, tokens.setdefault(token, len(tokens))] = weight**0.5
        blocks.append(block[:, : len(tokens)][choices[:, place]])
    return np.concatenate(blocks, axis=1)


def _decisions(space: Space, arch: Architecture) -> Bag:
    decisions, out = _relaxation(space), Bag()
    for place, option in space.active(arch):
        for token, weight in described(decisions[place], option):
            out[(place, token)] = weight
    return out


@lru_cache(maxsize=64)
def _relaxation(space: Space) -> tuple[tuple[str, ...], ...]:
    return tuple(decision.options for decision in space.relaxation)


def _sum(parts: Iterable[Bag]) -> Bag:
    out: Bag = {}
    for part in parts:
        for token, weight in part.items():
            out[token] = out.get(token, 0.0) + weight
    return out


class _Live:
    """A cell without the nodes and edges that lie on no path from an input to the output."""

    def __init__(self, cell: Cell) -> None:
        edges = [edge for edge in cell.edges if edge.label != ZERO]
        self.name, self.n_inputs, self.output = cell.name, cell.n_inputs, len(cell.nodes) - 1
        fed = set(range(cell.n_inputs))
        for edge in sorted(edges, key=lambda e: e.target):
            if edge.source in fed:
                fed.add(edge.target)
        used = {self.output}
        for edge in sorted(edges, key=lambda e: -e.source):
            if edge.target in used:
                used.add(edge.source)
        self.nodes = {v: "" if name.isdigit() else name for v, name in enumerate(cell.nodes) if v in fed & used}
        self.edges = [edge for edge in edges if edge.source in self.nodes and edge.target in self.nodes]
        self.into: dict[int, list[Edge]] = defaultdict(list)
        self.out: dict[int, list[Edge]] = defaultdict(list)
        for edge in self.edges:
            self.into[edge.target].append(edge)
            self.out[edge.source].append(edge)

    def paths(self) -> Bag:
        """Each sequence of labels and how many paths have it; nothing when there are too many."""
        found: dict[int, Counter[tuple[str, ...]]] = {v: Counter() for v in self.nodes}
        for v in sorted(self.nodes):
            own = (self.nodes[v],) if self.nodes[v] else ()
            if v < self.n_inputs:
                found[v][own] = 1
            for edge in self.into[v]:
                step = own if edge.label in SAME_VALUE else (edge.label, *own)
                for path, count in found[edge.source].items():
                    found[v][(*path, *step)] += count
            if len(found[v]) > MAX_PATHS:
                return {}
        return {(self.name, *path): float(count) for path, count in found.get(self.output, Counter()).items()}

    def motifs(self) -> Bag:
        """Labels, and each node's label with those around it."""
        out: Counter[Hashable] = Counter()
        for edge in self.edges:
            out[(self.name, "edge", edge.label)] += 1
        for v, label in self.nodes.items():
            before = sorted((edge.label, self.nodes[edge.source]) for edge in self.into[v])
            after = sorted((edge.label, self.nodes[edge.target]) for edge in self.out[v])
            out[(self.name, label)] += 1
            out[(self.name, label, tuple(before), tuple(after))] += 1
        return dict(out)


class Encoder:
    """Rows of tokens for as many architectures as were asked for; each is described once."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self._rows: dict[Architecture, int] = {}
        self._columns: list[dict[Hashable, int]] = [{} for _ in WAYS]
        self._indices = [array("q") for _ in WAYS]
        self._weights = [array("d") for _ in WAYS]
        self._starts = [array("q", [0]) for _ in WAYS]
        self._matrices: list[csr_array] = []

    def rows(self, archs: Sequence[Architecture]) -> np.ndarray:
        """The row of each architecture."""
        for arch in archs:
            if arch not in self._rows:
                self._rows[arch] = len(self._rows)
                self._matrices = []
                for way, bag in enumerate(bags(self.space, arch)):
                    self._add(way, bag)
        return np.array([self._rows[arch] for arch in archs], dtype=np.intp)

    def _add(self, way: int, bag: Bag) -> None:
        columns = self._columns[way]
        for token, weight in bag.items():
            for unit, part in _units(token, weight):
                self._indices[way].append(columns.setdefault(unit, len(columns)))
                self._weights[way].append(part**0.5)
        self._starts[way].append(len(self._indices[way]))

    def distances(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """d of rows a and rows b in each way: (ways, |a|, |b|)."""
        out = np.empty((len(WAYS), len(a), len(b)))
        for way, X in enumerate(self._built()):
            A, B = X[a], X[b]
            shared = (A @ B.T).toarray()
            out[way] = np.maximum(_sizes(A)[:, None] + _sizes(B)[None, :] - 2 * shared, 0.0)
        return out

    def _built(self) -> list[csr_array]:
        if not self._matrices:
            self._matrices = [
                csr_array(
                    (np.array(weights), np.array(indices), np.array(starts)),
                    shape=(len(starts) - 1, max(len(columns), 1)),
                )
                for weights, indices, starts, columns in zip(
                    self._weights, self._indices, self._starts, self._columns, strict=True
                )
            ]
        return self._matrices


def _sizes(X: csr_array) -> np.ndarray:
    sizes: np.ndarray = np.add.reduceat(np.append(X.data**2, 0.0), X.indptr[:-1]) * (np.diff(X.indptr) > 0)
    return sizes


def _units(token: Hashable, weight: float) -> Iterable[tuple[Hashable, float]]:
    """A token that is there n times as n tokens, so that a product of rows is Σ min(a, b)."""
    whole = int(weight)
    if whole != weight:
        return [(token, weight)]
    return [((token, number), 1.0) for number in range(whole)]
