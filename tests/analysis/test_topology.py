"""Width and depth by the paper's definition, for published cells and for whole spaces."""

from collections import Counter
from random import Random

import pytest

from initio.analysis.topology import CellShape, distribution, extremes, shape, shapes, share
from initio.errors import InputError
from initio.report.cells import Cell, Edge
from initio.spaces import DARTS, get_space, space_of_modules
from initio.spaces.zoo import ZOO_SPACE

PUBLISHED = {"nasnet": (5, 2), "amoebanet": (4, 4), "enas": (5, 2), "darts_v2": (3.5, 3), "snas": (4, 2)}


def slow(cell: Cell) -> CellShape:
    """Every path from an input to the output, one by one."""
    out = len(cell.nodes) - 1

    def paths(node: int, so_far: tuple[int, ...]) -> list[tuple[int, ...]]:
        if node == out:
            return [(*so_far, node)]
        onward = [e.target for e in cell.edges if e.source == node and e.label != "none"]
        return [path for target in onward for path in paths(target, (*so_far, node))]

    every = [path for start in range(cell.n_inputs) for path in paths(start, ())]
    used = {node for path in every for node in path}
    width = 0.0
    for node in used - {*range(cell.n_inputs), out}:
        sources = [e.source for e in cell.edges if e.target == node and e.label != "none" and e.source in used]
        width += sum(source < cell.n_inputs for source in sources) / len(sources)
    return CellShape(round(width, 9), max((len(path) - 1 for path in every), default=0))


@pytest.mark.parametrize(("name", "expected"), PUBLISHED.items())
def test_published_cells_have_the_published_width_and_depth(name: str, expected: tuple[float, int]) -> None:
    """Figure 1 of the paper; a darts cell is the same in either space."""
    assert shape(ZOO_SPACE.cells(ZOO_SPACE.parse(name))[0]) == CellShape(*expected)


@pytest.mark.parametrize("name", ["nb201", "nb101", "nb1shot1-s1", "nb1shot1-s3", "darts", "mlp-5", "zoo"])
def test_the_definition_path_by_path(name: str) -> None:
    space, rng = get_space(name), Random(3)
    for arch in (space.sample(rng) for _ in range(50)):
        for cell in space.cells(arch):
            fast, by_hand = shape(cell), slow(cell)
            assert (round(fast.width, 9), fast.depth) == (by_hand.width, by_hand.depth)


@pytest.mark.parametrize("name", ["nb201", "nb1shot1-s1", "mlp-4", "zoo"])
def test_a_whole_space_counted_one_by_one(name: str) -> None:
    space = get_space(name)
    assert distribution(space) == Counter(shape(space.cells(arch)[0]) for arch in space.architectures())


def test_all_of_nb101() -> None:
    space = get_space("nb101")
    assert distribution(space).total() == space.count() == 423_624


def test_the_distribution_of_darts_is_that_of_its_180_wirings() -> None:
    found = distribution(DARTS)
    assert found.total() == DARTS.count()
    assert {count * 180 % DARTS.count() for count in found.values()} == {0}
    rng = Random(0)
    drawn = Counter(shape(DARTS.cells(DARTS.sample(rng))[0]) for _ in range(3000))
    assert set(drawn) <= set(found)
    for seen, count in found.items():
        assert drawn[seen] / 3000 == pytest.approx(count / DARTS.count(), abs=0.04)
    assert share(DARTS, CellShape(3.5, 3))[0] > 0.9  # Observation 3.1: DARTS' own cell is among the widest


@pytest.mark.parametrize(
    ("name", "widest", "deepest"),
    [("darts", (4, 2), (1.5, 5)), ("nb201", (2, 2), (1, 3)), ("mlp-6", (1, 6), (1, 6)), ("zoo", (5, 2), (2, 5))],
)
def test_extremes(name: str, widest: tuple[float, int], deepest: tuple[float, int]) -> None:
    space = get_space(name)
    cells = (shape(space.cells(arch)[0]) for arch in extremes(space))
    assert list(cells) == [CellShape(*widest), CellShape(*deepest)]


def test_a_cell_without_a_path_is_nothing() -> None:
    cell = Cell("cell", ("input", "1", "output"), (Edge(0, 1, "none"), Edge(1, 2, "skip_connect")))
    assert shape(cell) == CellShape(0.0, 0)


def test_own_modules_have_no_topology() -> None:
    from torch import nn

    own = space_of_modules("plain", {"linear": lambda: nn.Linear(2, 2), "tanh": nn.Tanh})
    assert shapes(own, own.architecture(0)) == {}
    with pytest.raises(InputError, match="says nothing of how its networks are connected"):
        distribution(own)
