from itertools import product
from random import Random

import pytest
import torch

from initio import InputError
from initio.networks.cost import count
from initio.spaces import NB201, NetworkSettings
from initio.spaces.nb201 import graph_key
from studies.check_networks import paper_key

PUBLISHED = NetworkSettings(prune=False)


def test_distinct_cells_by_either_rule() -> None:
    everything = list(product(range(5), repeat=6))
    assert len({paper_key(choices) for choices in everything}) == 6466
    assert len({graph_key(choices) for choices in everything}) == 5260


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((3, 0, 0, 0, 1, 0), (0, 0, 0, 3, 0, 0)),  # a skip behind a convolution is folded
        ((3, 2, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0)),  # what does not reach the output is dropped
        ((0, 0, 3, 1, 3, 0), (0, 0, 0, 1, 0, 0)),  # a convolution of zeros is zero
        ((1, 3, 0, 0, 1, 1), (0, 3, 0, 1, 0, 1)),  # sums are flattened
        ((4, 4, 0, 0, 1, 1), (4, 0, 1, 0, 1, 1)),  # a pooling that is added twice
    ],
)
def test_rewritings(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    assert NB201.canonical(NB201.architecture(*one)) == NB201.canonical(NB201.architecture(*other))


def test_two_convolutions_are_not_one() -> None:
    twice = NB201.architecture(3, 3, 0, 0, 1, 1)  # conv(x) + conv'(x)
    shared = NB201.architecture(3, 0, 1, 0, 1, 1)  # conv(x) + conv(x)
    assert NB201.canonical(twice) != NB201.canonical(shared)


def test_members_of_a_class_compute_the_same_function_on_the_same_weights() -> None:
    """The convolutions of two members correspond in some order; with all weights equal, order does not matter."""
    settings = NetworkSettings(channels=2, cells=1, shape=(3, 8, 8))
    x = torch.randn(4, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rng = Random(5)
    for _ in range(40):
        arch = NB201.sample(rng)
        outputs = []
        for member in (arch, NB201.canonical(arch)):
            model = NB201.build(member, settings).double()
            for name, parameter in model.named_parameters():
                if "cell" in name and parameter.ndim == 4:
                    generator = torch.Generator().manual_seed(parameter.numel())
                    parameter.data.normal_(generator=generator)
                elif parameter.ndim > 1:
                    parameter.data.fill_(0.1)
            outputs.append(model(x))
        torch.testing.assert_close(*outputs)


def test_parameters_and_flops_of_known_rows() -> None:
    """Rows 0, 9930 and 15624 of the benchmark, on CIFAR-10 and ImageNet16-120."""
    for choices, parameters, flops in (
        ((4, 2, 1, 2, 1, 1), 129306, 15647370),
        ((3, 3, 3, 1, 3, 3), 1288506, 184730250),
        ((2, 0, 2, 0, 2, 2), 185306, 23511690),
    ):
        cost = count(NB201.network(NB201.architecture(*choices), PUBLISHED), PUBLISHED)
        assert (cost.parameters, cost.flops) == (parameters, flops)
    imagenet = NetworkSettings(prune=False, classes=120, shape=(3, 16, 16))
    cost = count(NB201.network(NB201.architecture(4, 2, 1, 2, 1, 1), imagenet), imagenet)
    assert (cost.parameters, cost.flops) == (136456, 3919480)


def test_dead_operations_are_not_built() -> None:
    dead = NB201.architecture(3, 3, 3, 1, 0, 0)  # three convolutions that lead nowhere
    names = [name for name, _ in NB201.build(dead).named_modules()]
    assert not any("edge" in name for name in names)


def test_a_disconnected_cell_is_built_and_constant() -> None:
    arch = NB201.architecture(0, 3, 3, 0, 3, 0)
    assert not NB201.connected(arch)
    model = NB201.build(arch, NetworkSettings(channels=4, cells=1)).eval()
    out = model(torch.randn(3, 3, 32, 32))
    assert torch.equal(out[0], out[1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("|nor_conv_9x9~0|", "an nb201 cell has 3 nodes joined by '\\+'"),
        (
            "|nor_conv_9x9~0|+|none~0|none~1|+|none~0|none~1|none~2|",
            "edge 1 of node 1 .*did you mean 'nor_conv_3x3'",
        ),
        (
            "|none~0|+|none~0|+|none~0|none~1|none~2|",
            "node 2 of the nb201 cell needs 2 incoming edges, not 1",
        ),
        ("|none~0|+|none~0|none~2|+|none~0|none~1|none~2|", "edge 2 of node 2 must look like 'op~1'"),
        ("none~0+|none~0|none~1|+|none~0|none~1|none~2|", "node 1 of the nb201 cell must look like"),
    ],
)
def test_errors_name_the_place(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        NB201.parse(text)
