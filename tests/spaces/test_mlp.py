from random import Random

import pytest

from initio.errors import InputError
from initio.networks.graphs import NetworkSettings, Op
from initio.records import Architecture
from initio.spaces.mlp import mlp_space


def test_counts_follow_the_paper() -> None:
    assert mlp_space(10).count() == 5**9 * 2**8
    assert mlp_space(10) is mlp_space(10)
    assert mlp_space(2).count() == 5


def test_text_reads_back() -> None:
    space = mlp_space(7)
    for seed in range(50):
        arch = space.sample(Random(seed))
        assert space.parse(space.format(arch)) == arch


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("mlp:relu,tanh;skips=none", "mlp:relu,tanh"),
        ("mlp:relu,tanh;skips=", "mlp:relu,tanh"),
        (" mlp: relu, tanh ,swish; skips= 2,1 ", "mlp:relu,tanh,swish;skips=1,2"),
    ],
)
def test_one_canonical_text(text: str, canonical: str) -> None:
    arch = mlp_space(10).parse(text)
    depth = int(arch.space.removeprefix("mlp-"))
    assert mlp_space(depth).format(arch) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("relu,tanh", "must look like 'mlp:relu,tanh,relu;skips=1'"),
        ("mlp:relu,tahn", "activation 2 of the mlp is unknown, 'tahn': did you mean 'tanh'?"),
        ("mlp:relu,tanh;skips=2", "skip '2' of the mlp must be a number from 1 to 1"),
        ("mlp:relu,tanh;skips=x", "skip 'x' of the mlp must be a number from 1 to 1"),
        ("mlp:relu,tanh,relu;skips=1,1", "skip 1 of the mlp is given twice"),
        ("mlp:", "activation 1 of the mlp is unknown"),
    ],
)
def test_errors_name_the_place(text: str, message: str) -> None:
    with pytest.raises(InputError, match="^.*" + message.replace("?", r"\?")):
        mlp_space(10).parse(text)


def test_a_text_says_its_depth() -> None:
    arch = mlp_space(5).parse("mlp:relu,tanh")
    assert arch == mlp_space(3).architecture(0, 3, 0)
    with pytest.raises(InputError, match="of space 'mlp-3', not of 'mlp-5'"):
        mlp_space(5).format(arch)


def test_depth_below_two() -> None:
    with pytest.raises(InputError, match="depth of at least 2, not 1"):
        mlp_space(1)


def test_network_is_the_papers_equation() -> None:
    space = mlp_space(4)
    arch = space.parse("mlp:relu,sigmoid,swish;skips=2")
    graph = space.network(arch, NetworkSettings(channels=8, classes=3, shape=(1, 2, 5)))
    steps = {step.name: step for step in graph.steps}
    assert [step.name for step in graph.steps] == [
        "flatten", "layer_1", "activation_1", "layer_2", "activation_2", "layer_3", "activation_3", "skip_2",
        "classifier",
    ]  # fmt: skip
    assert steps["layer_1"].op == Op("linear_nobias", 10, 8)
    assert steps["activation_2"].op == Op("sigmoid_half", 8, 8)
    assert steps["skip_2"].inputs == (7, 5)  # σ₃(...) + f₂
    assert steps["classifier"].op == Op("linear_nobias", 8, 3)


def test_the_drawing_shows_layers_and_skips() -> None:
    space = mlp_space(4)
    (cell,) = space.cells(Architecture("mlp-4", (0, 3, 0, 1, 0)))
    assert cell.nodes == ("input", "f1", "f2", "f3", "output")
    assert [(e.source, e.target, e.label) for e in cell.edges] == [
        (0, 1, "relu"), (1, 2, "tanh"), (1, 2, "skip"), (2, 3, "relu"), (3, 4, "linear"),
    ]  # fmt: skip
