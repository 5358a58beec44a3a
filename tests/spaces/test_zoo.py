from random import Random

import pytest
import torch

from initio import Architecture, InputError, build, parse
from initio.networks.cost import count_module
from initio.spaces import DARTS, ZOO, ZOO_SPACE, Genotype, NetworkSettings

WIDE = Genotype.parse(  # node 3 reaches nothing, both edges of node 2 have one source
    "Genotype(normal=[('sep_conv_7x7', 0), ('skip_connect', 0), ('conv_7x1_1x7', 1), ('skip_connect', 2), "
    "('avg_pool_3x3', 2), ('sep_conv_3x3', 1)], normal_concat=[4], "
    "reduce=[('max_pool_3x3', 1), ('skip_connect', 0)], reduce_concat=[2])"
)


def test_published_cells_inside_darts_stay_architectures_of_darts() -> None:
    spaces = {name: parse(name).space for name in ZOO}
    assert {name for name, space in spaces.items() if space == "zoo"} == {"nasnet", "amoebanet", "enas"}
    assert set(spaces.values()) == {"darts", "zoo"}


@pytest.mark.parametrize("name", ZOO)
def test_a_published_cell_is_its_genotype(name: str) -> None:
    arch = ZOO_SPACE.parse(name)
    assert ZOO_SPACE.genotype(arch) == ZOO[name]
    assert ZOO_SPACE.parse(ZOO_SPACE.format(arch)) == arch
    assert ZOO_SPACE.canonical(arch).space == parse(name).space


def test_any_genotype_is_of_the_zoo() -> None:
    arch = parse(str(WIDE))
    assert arch.space == "zoo"
    assert ZOO_SPACE.genotype(arch) == WIDE
    largest = Genotype((("sep_conv_3x3", 1),) * 32, tuple(range(2, 18)), *ZOO["enas"].halves[1])
    assert ZOO_SPACE.genotype(parse(str(largest))) == largest


def test_a_node_that_reaches_nothing_is_neither_scored_nor_built_but_counted() -> None:
    arch = parse(str(WIDE))
    shorter = ZOO_SPACE.genotype(ZOO_SPACE.canonical(arch))
    assert shorter.normal == (
        ("sep_conv_7x7", 0), ("skip_connect", 0), ("avg_pool_3x3", 2), ("sep_conv_3x3", 1),
    )  # fmt: skip
    assert shorter.normal_concat == (3,)
    built = [build(arch, channels=4, cells=3, prune=prune) for prune in (True, False)]
    names = [{name for name, _ in model.named_parameters()} for model in built]
    assert {name.split(".")[1] for name in names[1] - names[0]} == {"node_3_from_1_a"}
    settings = NetworkSettings(channels=4, cells=3, prune=False)
    assert ZOO_SPACE.cost(arch, settings) == count_module(built[1].eval(), torch.zeros(1, 3, 32, 32))[0]


def test_a_cell_decides_about_its_own_nodes_only() -> None:
    choices = ZOO_SPACE.parse("nasnet").choices
    with pytest.raises(InputError, match="decides about more than the 5 nodes of its normal cell"):
        ZOO_SPACE.check(Architecture("zoo", (*choices[:25], 1, *choices[26:])))
    with pytest.raises(InputError, match="concatenates nothing in its reduce cell"):
        ZOO_SPACE.check(Architecture("zoo", (*choices[:-16], *[0] * 16)))
    assert all(DARTS.contains(ZOO_SPACE.canonical(ZOO_SPACE.parse(name))) for name in ("snas", "gdas"))
    assert ZOO_SPACE.genotype(ZOO_SPACE.sample(Random(0))) in ZOO.values()
