from itertools import permutations
from random import Random

import pytest
import torch

from initio import InputError, build
from initio.networks.cost import count
from initio.networks.operations import DropPath
from initio.spaces import DARTS, ZOO, Genotype, NetworkSettings, parse
from initio.spaces.darts import NODES, OPS, PER_CELL


def test_size_of_the_space() -> None:
    assert DARTS.count() == (1 * 3 * 6 * 10 * 7**8) ** 2


def test_published_size_of_the_second_order_cell() -> None:
    settings = NetworkSettings()
    arch = DARTS.from_genotype(ZOO["darts_v2"])
    assert count(DARTS.network(arch, settings), settings).parameters == 3_349_342  # "3.3 M" in the paper's Table 1


def test_imagenet_network_runs() -> None:
    model = build("darts_v2", channels=4, cells=3, shape=(3, 128, 128), classes=7).eval()
    assert model(torch.zeros(1, 3, 128, 128)).shape == (1, 7)


def test_auxiliary_head_speaks_in_training_only_and_is_not_counted() -> None:
    settings = NetworkSettings(channels=4, cells=6, auxiliary=True)
    arch = DARTS.sample(Random(0))
    model = DARTS.build(arch, settings)
    x = torch.randn(2, 3, 32, 32)
    logits, auxiliary = model.train()(x)
    assert logits.shape == auxiliary.shape == (2, 10)
    assert model.eval()(x).shape == (2, 10)
    plain = NetworkSettings(channels=4, cells=6)
    assert count(DARTS.network(arch, settings), settings) == count(DARTS.network(arch, plain), plain)
    with pytest.raises(InputError, match="auxiliary head needs at least 6x6 positions"):
        DARTS.build(arch, NetworkSettings(channels=4, cells=6, auxiliary=True, shape=(3, 16, 16)))


def test_drop_path_keeps_the_mean_and_is_off_in_evaluation() -> None:
    path = DropPath(0.25)
    x = torch.ones(4000, 2, 1, 1)
    torch.manual_seed(0)
    dropped = path.train()(x)
    assert dropped.unique().tolist() == pytest.approx([0, 4 / 3])
    assert dropped.mean().item() == pytest.approx(1, abs=0.05)
    assert torch.equal(path.eval()(x), x)


@pytest.mark.parametrize(("probability", "found"), [(0.3, {0.3}), (0.0, set())])
def test_paths_are_dropped_with_the_given_probability(probability: float, found: set[float]) -> None:
    model = build("darts_v1", channels=4, cells=3, drop_path=probability)
    assert {module.probability for module in model.modules() if isinstance(module, DropPath)} == found


@pytest.mark.parametrize("shape", [(64,), (3, 8), (3, 8, 8, 8)])
def test_inputs_must_be_images(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="darts needs inputs of shape"):
        build("darts_v2", shape=shape)


def test_large_images_need_two_channels() -> None:
    with pytest.raises(InputError, match="channels must be at least 2, not 1"):
        build("darts_v2", channels=1, cells=3, shape=(3, 96, 96))


def test_canonical_forgets_the_order_of_nodes() -> None:
    """Renames the nodes of a cell in every order that can still be computed; the least of them stands for all."""
    rng = Random(2)
    for _ in range(20):
        arch = DARTS.sample(rng)
        genotype = DARTS.genotype(arch)
        nodes = [genotype.normal[2 * i : 2 * i + 2] for i in range(NODES)]
        names = []
        for order in permutations(range(NODES)):
            place = {0: 0, 1: 1} | {old + 2: new + 2 for new, old in enumerate(order)}
            pairs = tuple((op, place[s]) for old in order for op, s in nodes[old])
            if all(s < i // 2 + 2 for i, (_, s) in enumerate(pairs)):
                renamed = Genotype(pairs, genotype.normal_concat, genotype.reduce, genotype.reduce_concat)
                names.append(DARTS.from_genotype(renamed))
        least = min(name.choices[:PER_CELL] for name in names)
        assert {DARTS.canonical(name).choices[:PER_CELL] for name in names} == {least}
        assert len({DARTS.canonical(name) for name in names}) == 1


def test_decode_keeps_the_two_heaviest_edges_of_each_node() -> None:
    weights = [[0.0] * len(OPS) for _ in DARTS.relaxation]
    names = [decision.name for decision in DARTS.relaxation]
    weights[names.index("normal 1-5")][3] = 5.0
    weights[names.index("normal 3-5")][6] = 4.0
    weights[names.index("normal 4-5")][0] = 3.0
    genotype = DARTS.genotype(DARTS.decode(weights))
    assert genotype.normal[6:] == (("sep_conv_3x3", 1), ("dil_conv_5x5", 3))


def test_either_order_of_a_nodes_edges_is_the_same_architecture() -> None:
    text = str(ZOO["darts_v2"])
    swapped = text.replace("('sep_conv_3x3', 0), ('sep_conv_3x3', 1)", "('sep_conv_3x3', 1), ('sep_conv_3x3', 0)", 1)
    assert swapped != text
    assert parse(swapped) == parse(text)


@pytest.mark.parametrize("name", ZOO)
def test_zoo_cells_are_built_printed_and_read_back(name: str) -> None:
    assert Genotype.parse(str(ZOO[name])) == ZOO[name]
    assert build(name, channels=4, cells=3)(torch.zeros(2, 3, 16, 16)).shape == (2, 10)


def test_range_is_read_as_darts_prints_it() -> None:
    text = str(ZOO["darts_v2"]).replace("[2, 3, 4, 5]", "range(2, 6)")
    assert Genotype.parse(text) == ZOO["darts_v2"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            ("('dil_conv_3x3', 2)", "('dil_conv_9x9', 2)"),
            "pair 7 of normal: unknown operation 'dil_conv_9x9'",
        ),
        (("('dil_conv_3x3', 2)", "('dil_conv_3x3', 5)"), "pair 7 of normal: source 5 is not one of 0 to 4"),
        (
            ("('dil_conv_3x3', 2)", "('sep_conv_7x7', 2)"),
            "sep_conv_7x7 is not one of the operations of darts",
        ),
        (("('dil_conv_3x3', 2)", "('dil_conv_3x3', 0)"), "both edges of node 5 come from 0"),
        (("normal_concat=[2, 3, 4, 5]", "normal_concat=[4, 5]"), "a darts cell concatenates nodes"),
        (("normal_concat=[2, 3, 4, 5]", "normal_concat=[2, 9]"), "must hold different nodes from 2 to 5"),
        (("normal_concat=", "normal_cat="), "the genotype lacks normal_concat"),
        (("[2, 3, 4, 5]", "__import__('os').listdir()"), "must be a plain list"),
        (("[2, 3, 4, 5]", "range(2, 99999999)"), "must be a plain list"),
        (("Genotype(", "os.system("), "a genotype is written"),
        ((", 0)", ", '0')"), "pair 0 of normal must look like"),
    ],
)
def test_errors_name_the_place(damage: tuple[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DARTS.parse(str(ZOO["darts_v2"]).replace(*damage, 1))
