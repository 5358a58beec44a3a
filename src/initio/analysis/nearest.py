"""Which published cell an architecture is nearest to: by the connections, with their operations, that both have."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import permutations

from initio.records import Architecture
from initio.spaces.base import Space
from initio.spaces.genotype import GenotypeSpace, Pairs
from initio.spaces.published import ZOO

MOST_NODES = 6  # up to which every order of nodes is tried: 720; beyond, the given one


@dataclass(frozen=True)
class NearestCell:
    """A published cell, and which share of the connections agrees, from 0 to 1; `then` is the next nearest."""

    name: str
    agreement: float
    then: NearestCell | None = None

    def __str__(self) -> str:
        if self.agreement < 1 or self.then is None:
            return f"{self.name}, {self.agreement:.0%} of the connections agree"
        return f"{self.name} itself; then {self.then}"


def nearest(space: Space, arch: Architecture) -> NearestCell | None:
    """The published cell that agrees most, the first of equals; None for cells that no paper of the zoo could print.

    >>> from initio.spaces import DARTS, parse
    >>> str(nearest(DARTS, parse("darts_v2")))
    'darts_v2 itself; then darts_v1, 75% of the connections agree'
    """
    if not isinstance(space, GenotypeSpace):
        return None
    mine = space.genotype(arch)
    found = {name: _agreement((mine.normal, mine.reduce), (its.normal, its.reduce)) for name, its in ZOO.items()}
    best, then, *_ = sorted(found, key=found.__getitem__, reverse=True)
    return NearestCell(best, found[best], NearestCell(then, found[then]))


def _agreement(mine: tuple[Pairs, ...], its: tuple[Pairs, ...]) -> float:
    """2 · (what both have) / (what either has), over normal and reduction cell."""
    common = sum(agreeing(a, b) for a, b in zip(mine, its, strict=True))
    return 2 * common / sum(map(len, (*mine, *its)))


def agreeing(a: Pairs, b: Pairs) -> int:
    """How many connections two cells share, operation included, in the order of nodes that makes them most.

    >>> agreeing((("skip_connect", 0), ("max_pool_3x3", 1)), (("max_pool_3x3", 1), ("sep_conv_3x3", 0)))
    1
    """
    count, most = len(a) // 2, max(len(a), len(b)) // 2
    orders = [tuple(range(count))]
    if most <= MOST_NODES:
        orders = list(permutations(range(most), count))
    theirs = _edges(b, tuple(range(len(b) // 2)))
    return max((_edges(a, order) & theirs).total() for order in orders)


def _edges(pairs: Pairs, order: tuple[int, ...]) -> Counter[tuple[str, int, int]]:
    """(operation, source, target), the nodes renamed; the inputs 0 and 1 are what they are."""
    name = (0, 1, *(node + 2 for node in order))
    return Counter((op, name[source], name[place // 2 + 2]) for place, (op, source) in enumerate(pairs))
