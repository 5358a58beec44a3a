"""NAS-Bench-1Shot1 (Zela et al., 2020): three sub-spaces of NAS-Bench-101 with fixed in-degrees.

A cell has an input (vertex 0), 4 or 5 choice blocks with an operation each, and an output. Blocks whose
value nothing uses are allowed: NAS-Bench-101 prunes them. Every choice is a cell of NAS-Bench-101, with 9
edges before pruning.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from initio.errors import InputError
from initio.networks.graphs import CONCAT, IDENTITY, SUM, ZERO, Builder, Graph, Mixed, NetworkSettings, Op, reached
from initio.records import Architecture
from initio.spaces.base import Cell, Decision, GraphSpace
from initio.spaces.modelspec import MAX_VERTICES, OPS, Matrix, Ops, read_spec
from initio.spaces.nb101 import NB101, PROJECTION, vertex_channels

FILLER = OPS.index("conv1x1-bn-relu")  # of the isolated vertex that fills S1 and S2 up to 7 vertices


@dataclass(frozen=True)
class NB1Shot1Space(GraphSpace):
    """For each block and the output its parents, one of all combinations; then the blocks' operations.

    >>> [space.count() for space in (NB1SHOT1_S1, NB1SHOT1_S2, NB1SHOT1_S3)]
    [14580, 29160, 1312200]
    """

    n_parents: tuple[int, ...] = field(kw_only=True)  # of vertices 1, 2, ... and the output

    sizes = NB101.sizes
    one_shot = True
    chosen = NB101.chosen

    @property
    def n_blocks(self) -> int:
        """Vertices with an operation."""
        return len(self.n_parents) - 1

    def wires(self, decision: Decision, option: int) -> Hashable:
        """Operations connect nothing."""
        return decision.options != OPS and option

    def format(self, arch: Architecture) -> str:
        """The parents of blocks and output, then the blocks' operations.

        >>> NB1SHOT1_S1.format(NB1SHOT1_S1.architecture(0, 0, 2, 5, 9, 0, 0, 1, 2))
        'nb1shot1-s1:parents=0|0,1|1,2|2,3|3,4;ops=conv3x3-bn-relu,conv3x3-bn-relu,conv1x1-bn-relu,maxpool3x3'
        """
        choices = self.check(arch).choices
        words = [decision.options[choice] for decision, choice in zip(self.decisions, choices, strict=True)]
        vertices = len(self.n_parents)
        return f"{self.name}:parents={'|'.join(words[:vertices])};ops={','.join(words[vertices:])}"

    def parse(self, text: str) -> Architecture:
        """Reads what `format` writes; or a NAS-Bench-101 cell, with the filling vertex or without."""
        text = text.strip()
        if text.startswith(("ModelSpec", "{", "[", "(")):
            return self.from_matrix(*read_spec(text))
        name, _, rest = text.partition(":")
        parents, _, ops = rest.partition(";")
        if name != self.name or not parents.startswith("parents=") or not ops.startswith("ops="):
            example = self.format(Architecture(self.name, (0,) * len(self.decisions)))
            raise InputError(f"a cell of {self.name} looks like {example}")
        both = parents.removeprefix("parents=").split("|"), ops.removeprefix("ops=").split(",")
        for what, words, n in zip(("parents", "ops"), both, (len(self.n_parents), self.n_blocks), strict=True):
            if len(words) != n:
                raise InputError(f"{what} of {self.name} has {n} entries, not {len(words)}")
        pairs = zip(self.decisions, both[0] + both[1], strict=True)
        return self.architecture(*(self.option(decision, word.strip()) for decision, word in pairs))

    def from_matrix(self, matrix: Matrix, ops: Ops) -> Architecture:
        """The architecture of a NAS-Bench-101 matrix, if its vertices have the in-degrees of this space."""
        n = self.n_blocks
        filling = [*matrix[-2], *(row[-2] for row in matrix)]  # edges of the vertex before the output
        if len(matrix) == MAX_VERTICES == n + 3 and not any(filling):
            matrix = tuple((*row[: n + 1], row[-1]) for row in (*matrix[: n + 1], matrix[-1]))
            ops = ops[:n]
        if len(matrix) != n + 2:
            filled = " (7 with an isolated one before the output)" * (n + 2 < MAX_VERTICES)
            raise InputError(f"a cell of {self.name} has {n + 2} vertices{filled}, not {len(matrix)}")
        choices = []
        for v, degree in enumerate(self.n_parents, start=1):
            parents = [w for w in range(v) if matrix[w][v]]
            if len(parents) != degree:
                raise InputError(f"vertex {v} of a {self.name} cell has {degree} parents, not {len(parents)}")
            choices.append(self.decisions[v - 1].options.index(_word(parents)))
        return self.architecture(*choices, *ops)

    def to_matrix(self, arch: Architecture) -> tuple[Matrix, Ops]:
        """The NAS-Bench-101 matrix and operations, filled up to 7 vertices as the benchmark does."""
        choices = self.check(arch).choices
        out = len(self.n_parents)
        rows = [[0] * MAX_VERTICES for _ in range(MAX_VERTICES)]
        columns = (*range(1, out), -1)  # the output stays last when isolated vertices fill the matrix
        for column, decision, choice in zip(columns, self.decisions[:out], choices[:out], strict=True):
            for parent in decision.options[choice].split(","):
                rows[int(parent)][column] = 1
        filler = (FILLER,) * (MAX_VERTICES - 2 - self.n_blocks)
        return tuple(map(tuple, rows)), (*choices[out:], *filler)

    def to_nb101(self, arch: Architecture) -> Architecture:
        """The same cell in NAS-Bench-101."""
        return NB101.from_matrix(*self.to_matrix(arch))

    def canonical(self, arch: Architecture) -> Architecture:
        """NAS-Bench-101's canonical cell: the representative is of that space."""
        return NB101.canonical(self.to_nb101(arch))

    def cells(self, arch: Architecture) -> tuple[Cell, ...]:
        """The cell of NAS-Bench-101, without unused blocks."""
        return NB101.cells(self.to_nb101(arch))

    def network(self, arch: Architecture, settings: NetworkSettings) -> Graph:
        """The network of NAS-Bench-101."""
        return NB101.network(self.to_nb101(arch), settings)

    def supernet(self, choices: Sequence[int], settings: NetworkSettings) -> Graph:
        """The sampled cell's network; parents and operations of its blocks are mixed.

        Widths are those of the sample, so an option that would change them is `none`: parents that the sample does
        not use or that are too narrow, and an output of other than its width.
        """
        arch = self.architecture(*choices)
        return NB101.stacked(lambda c_in, c_out: self._mixed_cell(arch, c_in, c_out), settings)

    def side_by_side(self, settings: NetworkSettings) -> Graph:
        """All parents and operations, whatever is sampled: every block has its share of the output's width.

        That is the width of a built cell whose output reads blocks alone. An output that reads the cell's input too
        concatenates fewer blocks; they are repeated in turn until its width is full.
        """
        return NB101.stacked(self._shared_cell, settings)

    def _shared_cell(self, c_in: int, c_out: int) -> Graph:
        out = len(self.n_parents)
        width = c_out // self.n_parents[-1]
        if c_out % self.n_parents[-1]:
            raise InputError(f"channels must be a multiple of {self.n_parents[-1]} for {self.name}, not {c_out}")
        parents_of = [[tuple(map(int, o.split(","))) for o in d.options] for d in self.decisions[:out]]
        cell = Builder()
        value: dict[int, int] = {}
        for v in range(1, out):
            found = value | {0: cell(f"project_{v}", Op(PROJECTION, c_in, width), 0)}
            fits = [True] * len(parents_of[v - 1])
            summed = cell(f"sum_{v}", _mixed(v, parents_of[v - 1], fits, found, width), *found.values())
            choice = Mixed(
                "mixed", width, width, categorical=out + v - 1, options=tuple(Op(op, width, width) for op in OPS)
            )
            value[v] = cell(f"vertex_{v}", choice, summed)
        found = value | {0: cell(f"project_{out}", Op(PROJECTION, c_in, c_out), 0)}
        places = tuple(tuple(i for i, w in enumerate(found) if w in parents) for parents in parents_of[-1])
        joined = tuple(_filled(parents, self.n_parents[-1], c_out) for parents in parents_of[-1])
        last = Mixed("mixed", c_out, c_out, categorical=out - 1, options=joined, places=places)
        return cell.graph(cell("output", last, *found.values()))

    def _mixed_cell(self, arch: Architecture, c_in: int, c_out: int) -> Graph:
        out = len(self.n_parents)
        parents_of = [[tuple(map(int, o.split(","))) for o in d.options] for d in self.decisions[:out]]
        chosen = [(), *(options[choice] for options, choice in zip(parents_of, arch.choices[:out], strict=True))]
        live = sorted(reached([out], chosen.__getitem__) | {0})
        matrix, _ = NB101.pruned(self.to_nb101(arch))
        width = dict(zip(live, vertex_channels(matrix, c_in, c_out), strict=True))
        cell = Builder()
        value: dict[int, int] = {}
        for v in live[1:-1]:
            found = _readable(cell, v, width, value)
            fits = [found.keys() >= set(parents) for parents in parents_of[v - 1]]
            summed = cell(f"sum_{v}", _mixed(v, parents_of[v - 1], fits, found, width[v]), *found.values())
            ops = tuple(Op(op, width[v], width[v]) for op in OPS)
            choice = Mixed("mixed", width[v], width[v], categorical=out + v - 1, options=ops)
            value[v] = cell(f"vertex_{v}", choice, summed)
        found = value | {0: cell(f"project_{out}", Op(PROJECTION, c_in, c_out), 0)}
        fits = [  # what is concatenated must have the output's width
            found.keys() >= set(parents) and sum(width[w] for w in parents if w) == c_out for parents in parents_of[-1]
        ]
        last = _mixed(out, parents_of[-1], fits, found, c_out, concat=True)
        return cell.graph(cell("output", last, *found.values()))


def _readable(cell: Builder, v: int, width: dict[int, int], value: dict[int, int]) -> dict[int, int]:
    """The earlier vertices that are wide enough for v, with their values cut to its width; the input comes last."""
    found = {}
    for w in value:
        if width[w] == width[v]:
            found[w] = value[w]
        elif width[w] > width[v]:
            found[w] = cell(f"edge_{w}_{v}", Op("truncate", width[w], width[v]), value[w])
    return found | {0: cell(f"project_{v}", Op(PROJECTION, width[0], width[v]), 0)}


def _mixed(
    v: int,
    options: Sequence[tuple[int, ...]],
    fits: Sequence[bool],
    found: dict[int, int],
    c: int,
    concat: bool = False,
) -> Mixed:
    """One combination of parents; those that do not fit are `none`."""
    pairs = list(zip(options, fits, strict=True))
    ops = tuple(_joined(parents, c, concat) if fit else Op(ZERO, c, c) for parents, fit in pairs)
    places = tuple(tuple(i for i, w in enumerate(found) if fit and w in parents) for parents, fit in pairs)
    return Mixed("mixed", c, c, categorical=v - 1, options=ops, places=places)


def _joined(parents: Sequence[int], c: int, concat: bool) -> Op | Graph:
    """How the values of parents become one; the projected input comes last and is added even to a concatenation."""
    blocks = len(parents) - (0 in parents)
    if len(parents) == 1:
        return Op(IDENTITY, c, c)
    if not concat or blocks < 2:
        return Op(SUM, c, c)
    join = Builder(len(parents))
    both = join("concat", Op(CONCAT, c, c), *range(blocks))
    if 0 in parents:
        both = join("sum", Op(SUM, c, c), both, blocks)
    return join.graph(both)


def _filled(parents: Sequence[int], count: int, c: int) -> Graph:
    """So many blocks side by side, the parents in turn, and the projected input, which comes last, added."""
    blocks = len(parents) - (0 in parents)
    join = Builder(len(parents))
    both = join("concat", Op(CONCAT, c, c), *(k % blocks for k in range(count)))
    if 0 in parents:
        both = join("sum", Op(SUM, c, c), both, blocks)
    return join.graph(both)


def _word(parents: Sequence[int]) -> str:
    return ",".join(map(str, parents))


def _space(number: int, *n_parents: int) -> NB1Shot1Space:
    out = len(n_parents)
    names = [*(f"parents of block {v}" for v in range(1, out)), "parents of the output"]
    return NB1Shot1Space(
        name=f"nb1shot1-s{number}",
        title=f"NAS-Bench-1Shot1, search space {number}: {out - 1} blocks with fixed in-degrees",
        decisions=(
            *(
                Decision(name, tuple(map(_word, combinations(range(v), degree))))
                for v, (name, degree) in enumerate(zip(names, n_parents, strict=True), start=1)
            ),
            *(Decision(f"operation of block {v}", OPS) for v in range(1, out)),
        ),
        n_parents=n_parents,
    )


NB1SHOT1_S1 = _space(1, 1, 2, 2, 2, 2)
NB1SHOT1_S2 = _space(2, 1, 1, 2, 2, 3)
NB1SHOT1_S3 = _space(3, 1, 1, 1, 2, 2, 2)
