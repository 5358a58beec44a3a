"""Variants keep what they promise, and adapted cells cost what the paper prints."""

from collections import Counter
from random import Random

import pytest

from initio.analysis.topology import distribution, shape
from initio.analysis.variants import adapted, pictured, random_connections, random_operations, variants
from initio.errors import InputError
from initio.networks.graphs import NetworkSettings
from initio.spaces import DARTS, NB201, get_space
from initio.spaces.zoo import ZOO_SPACE

DARTS_V2 = DARTS.canonical(ZOO_SPACE.canonical(ZOO_SPACE.parse("darts_v2")))
SPACES = ["darts", "zoo", "nb201", "nb101", "nb1shot1-s1", "mlp-5"]


@pytest.mark.parametrize("name", SPACES)
def test_connections_keep_operations_and_operations_keep_connections(name: str) -> None:
    space, rng = get_space(name), Random(1)
    for arch in (space.sample(rng) for _ in range(5)):
        rewired, repainted = random_connections(space, arch, rng), random_operations(space, arch, rng)
        assert space.contains(rewired)
        assert space.connected(rewired)
        old, new = space.cells(arch)[0], space.cells(repainted)[0]
        assert [(e.source, e.target) for e in old.edges] == [(e.source, e.target) for e in new.edges] or name == "mlp-5"
        if name in ("darts", "zoo"):
            before, after = space.genotype(arch), space.genotype(rewired)  # type: ignore[attr-defined]
            by_node = [sorted(op for op, _ in pairs[n : n + 2]) for pairs in (before.normal, after.normal)
                       for n in range(0, len(pairs), 2)]  # fmt: skip
            assert by_node[: len(by_node) // 2] == by_node[len(by_node) // 2 :]
            assert (before.reduce, before.normal_concat) == (after.reduce, after.normal_concat)


def test_random_connections_of_darts_are_uniform_over_its_wirings() -> None:
    rng = Random(0)
    drawn = Counter(shape(DARTS.cells(random_connections(DARTS, DARTS_V2, rng))[0]) for _ in range(3000))
    for seen, count in distribution(DARTS).items():
        assert drawn[seen] / 3000 == pytest.approx(count / DARTS.count(), abs=0.035)


def test_variants_are_seeded_different_and_sorted() -> None:
    found = variants(DARTS, DARTS_V2, 13)
    assert found == variants(DARTS, DARTS_V2, 13)
    assert found != variants(DARTS, DARTS_V2, 13, seed=1)
    assert len({one.architecture for one in found}) == 14
    order = [(one.shape.width, -one.shape.depth) for one in found[1:]]
    assert order == sorted(order)
    assert found[0].architecture == DARTS_V2
    assert pictured(DARTS, found[0]).name == "C0: 3.5c, 3"
    assert not any(edge.label for edge in pictured(DARTS, found[0]).edges)


def test_more_variants_than_there_are_is_an_error() -> None:
    single = NB201.parse("|none~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|")
    with pytest.raises(InputError, match="only 3 different variants of operations"):
        variants(NB201, single, 9, kind="operations")
    with pytest.raises(InputError, match="not of 'weights'"):
        variants(NB201, single, 1, kind="weights")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "published"),
    [("nasnet", "5c, 2"), ("amoebanet", "3c, 2"), ("enas", "5c, 2"), ("darts_v2", "4c, 2"), ("snas", "4c, 2")],
)
def test_adapted_cells_have_the_published_shape(name: str, published: str) -> None:
    """Figure 25 of the paper."""
    arch = ZOO_SPACE.parse(name)
    assert str(shape(ZOO_SPACE.cells(adapted(ZOO_SPACE, arch))[0])) == published


@pytest.mark.parametrize("name", SPACES)
def test_the_adapted_cell_is_never_narrower(name: str) -> None:
    space, rng = get_space(name), Random(2)
    for arch in (space.sample(rng) for _ in range(2)):
        before, after = (shape(space.cells(one)[0]) for one in (arch, adapted(space, arch)))
        assert (after.width, -after.depth) >= (before.width, -before.depth) or name == "zoo"  # nobody reads some nodes


PRINTED = {"darts_v2": 3.35, "enas": 3.86, "amoebanet": 3.15, "nasnet": 3.83}


@pytest.mark.parametrize(("name", "published"), PRINTED.items())
def test_parameters_of_table_4_3(name: str, published: float) -> None:
    """Column C0, printed as MB but counted in millions: 20 cells, C = 36."""
    found = ZOO_SPACE.cost(ZOO_SPACE.parse(name), NetworkSettings(prune=False)).parameters / 1e6
    assert found == pytest.approx(published, abs=0.005)


@pytest.mark.parametrize(
    ("name", "added"), [("nasnet", 0.03), ("amoebanet", 0.0), ("enas", 0.0), ("darts_v2", 0.07), ("snas", 0.05)]
)
def test_what_adapting_adds_in_table_4_1(name: str, added: float) -> None:
    """A skip from a node to one that reads an input halves the resolution in reduction cells, which takes weights."""
    arch, size = ZOO_SPACE.parse(name), NetworkSettings(prune=False)
    before, after = (ZOO_SPACE.cost(one, size).parameters / 1e6 for one in (arch, adapted(ZOO_SPACE, arch)))
    assert after - before == pytest.approx(added, abs=0.01)
