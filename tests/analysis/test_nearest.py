"""The published cell that agrees most, whatever the order of nodes."""

from initio.analysis.nearest import agreeing, nearest
from initio.spaces import DARTS, NB201, parse
from initio.spaces.published import ZOO
from initio.spaces.zoo import ZOO_SPACE


def test_every_published_cell_is_nearest_to_itself() -> None:
    for name, genotype in ZOO.items():
        found = nearest(ZOO_SPACE, ZOO_SPACE.from_genotype(genotype))
        assert found is not None
        assert (found.name, found.agreement) == (name, 1.0)
        assert found.then is not None
        assert found.then.agreement < 1
        assert str(found).startswith(f"{name} itself; then {found.then.name}, ")


def test_the_order_of_nodes_does_not_matter() -> None:
    arch = parse("darts_v2")
    assert DARTS.canonical(arch) != arch
    assert nearest(DARTS, DARTS.canonical(arch)) == nearest(DARTS, arch)


def test_one_operation_less_in_common() -> None:
    arch = parse("darts_v2")
    one = next(iter(DARTS.neighbours(DARTS.architecture(*arch.choices))))
    other = DARTS.architecture(arch.choices[0], 6, *arch.choices[2:])
    found = nearest(DARTS, other)
    assert found is not None
    assert (found.name, found.agreement) == ("darts_v2", 15 / 16)
    assert one != arch


def test_cells_of_other_spaces_have_no_published_neighbour() -> None:
    assert nearest(NB201, NB201.architecture(1, 2, 3, 4, 0, 1)) is None


def test_cells_of_different_size() -> None:
    small = (("skip_connect", 0), ("skip_connect", 1))
    large = (("max_pool_3x3", 0), ("max_pool_3x3", 1), ("skip_connect", 1), ("skip_connect", 0))
    assert agreeing(small, large) == agreeing(large, small) == 2
