"""The published cells, and every other genotype: cells of up to 16 nodes in the notation of DARTS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from initio.errors import InputError
from initio.records import Architecture
from initio.spaces.base import Decision
from initio.spaces.darts import CELLS, DARTS
from initio.spaces.genotype import GENOTYPE_OPS, MAX_NODES, Genotype, GenotypeSpace, Pairs, live, pairs_of
from initio.spaces.published import ZOO

NODES = range(2, MAX_NODES + 2)
PER_CELL = 1 + 5 * MAX_NODES  # how many nodes; two operations and sources of each; whether each is concatenated


@dataclass(frozen=True)
class ZooSpace(GenotypeSpace):
    """The decisions hold any genotype; what is listed and sampled are the published cells.

    Decisions about nodes that a cell does not have are 0.

    >>> ZOO_SPACE.count()
    9
    >>> ZOO_SPACE.format(ZOO_SPACE.parse("enas"))[:57]
    "Genotype(normal=[('sep_conv_3x3', 1), ('skip_connect', 1)"
    """

    repeats = True

    def parse(self, text: str) -> Architecture:
        """Reads `Genotype(...)` text, or the name of a published cell."""
        if text in ZOO:
            return self.from_genotype(ZOO[text])
        return super().parse(text)

    def why_invalid(self, choices: tuple[int, ...]) -> str:
        """A cell decides nothing about nodes it does not have, and concatenates something."""
        for name, half in zip(CELLS, (choices[:PER_CELL], choices[PER_CELL:]), strict=True):
            count, nodes, concat = half[0] + 1, half[1:-MAX_NODES], half[-MAX_NODES:]
            if any(nodes[4 * count :]) or any(concat[count:]):
                return f"decides about more than the {count} nodes of its {name} cell"
            if not any(concat):
                return f"concatenates nothing in its {name} cell"
        return ""

    def from_genotype(self, genotype: Genotype) -> Architecture:
        """Every genotype is of this space; the nodes are concatenated in their order."""
        choices: list[int] = []
        for pairs, concat in genotype.halves:
            numbers = [number for op, source in pairs for number in (GENOTYPE_OPS.index(op), source)]
            missing = 4 * MAX_NODES - len(numbers)
            choices += [len(pairs) // 2 - 1, *numbers, *[0] * missing, *(int(node in concat) for node in NODES)]
        return self.architecture(*choices)

    def genotype(self, arch: Architecture) -> Genotype:
        """The architecture in the notation of DARTS."""
        choices = self.check(arch).choices
        normal, reduce = _half(choices[:PER_CELL]), _half(choices[PER_CELL:])
        return Genotype(*normal, *reduce)

    def canonical(self, arch: Architecture) -> Architecture:
        """That of `darts` where the cells lie in that space; else without nodes that the output does not depend on."""
        genotype = self.genotype(arch)
        try:
            return DARTS.canonical(DARTS.from_genotype(genotype))
        except InputError:
            normal, reduce = (_shortened(*half) for half in genotype.halves)
            return self.from_genotype(Genotype(*normal, *reduce))

    def count(self) -> int:
        """The published cells."""
        return len(ZOO)

    def architectures(self) -> Iterator[Architecture]:
        """The published cells, in the order of their papers."""
        return map(self.from_genotype, ZOO.values())

    def sample(self, rng: Random) -> Architecture:
        """One of the published cells."""
        return self.from_genotype(rng.choice(list(ZOO.values())))

    @property
    def relaxation(self) -> tuple[Decision, ...]:
        """Nothing: a list of cells has no one-shot network."""
        return ()

    def active(self, arch: Architecture) -> tuple[tuple[int, int], ...]:
        """Nothing, as in `relaxation`."""
        return ()

    def decode(self, weights: Sequence[Sequence[float]]) -> Architecture:
        """Refuses: there is nothing to weigh."""
        raise InputError(f"{self.name} is a list of cells, not a space that weights decide in: take darts")


def _half(choices: Sequence[int]) -> tuple[Pairs, tuple[int, ...]]:
    """The pairs and the concatenation of one cell."""
    used = choices[1 : 1 + 4 * (choices[0] + 1)]
    pairs = tuple((GENOTYPE_OPS[op], source) for op, source in zip(used[::2], used[1::2], strict=True))
    return pairs, tuple(node for node, bit in zip(NODES, choices[-MAX_NODES:], strict=True) if bit)


def _shortened(pairs: Pairs, concat: tuple[int, ...]) -> tuple[Pairs, tuple[int, ...]]:
    """The cell without nodes that the output does not depend on."""
    nodes = sorted(live(pairs, concat) - {0, 1})
    number = {0: 0, 1: 1} | {old: new for new, old in enumerate(nodes, start=2)}
    renamed = tuple((op, number[source]) for node in nodes for op, source in pairs_of(pairs, node))
    return renamed, tuple(number[node] for node in concat)


def _decisions(cell: str) -> Iterator[Decision]:
    yield Decision(f"{cell} nodes", tuple(str(node - 1) for node in NODES), cell)
    for node in NODES:
        for place in ("first", "second"):
            yield Decision(f"{cell} node {node} {place} operation", GENOTYPE_OPS, cell)
            yield Decision(f"{cell} node {node} {place} source", tuple(map(str, range(node))), cell)
    for node in NODES:
        yield Decision(f"{cell} node {node} concatenated", ("0", "1"), cell)


ZOO_SPACE = ZooSpace(
    name="zoo",
    title="published cells, and any genotype of up to 16 nodes",
    decisions=tuple(decision for cell in CELLS for decision in _decisions(cell)),
)
