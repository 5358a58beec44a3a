import subprocess
import sys
from dataclasses import replace
from random import Random

import pytest
import torch
from torch import nn

from initio import InputError, NetworkSettings, build
from initio.networks.build import copied
from initio.networks.cost import count
from initio.networks.graphs import Op
from initio.networks.initialise import initialise
from initio.networks.operations import OPERATIONS, FactorizedReduce, Kit, Zero
from initio.spaces import NB201

KIT = Kit(NetworkSettings())


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    "kind",
    [
        "none",
        "skip_connect",
        "nor_conv_1x1",
        "nor_conv_3x3",
        "avg_pool_3x3",
        "max_pool_3x3",
        "sep_conv_3x3",
        "sep_conv_5x5",
        "sep_conv_7x7",
        "dil_conv_3x3",
        "dil_conv_5x5",
        "conv_7x1_1x7",
    ],
)
@pytest.mark.parametrize("side", [1, 7, 8])
def test_operations_of_one_stride_agree_on_the_shape(kind: str, stride: int, side: int) -> None:
    module = OPERATIONS[kind](Op(kind, 4, 4, stride), KIT).eval()
    rounded_up = -(-side // stride)
    assert module(torch.zeros(2, 4, side, side)).shape == (2, 4, rounded_up, rounded_up)


def test_factorized_reduce_sees_every_pixel() -> None:
    module = FactorizedReduce(Op("factorized_reduce", 1, 2), Kit(NetworkSettings(norm="none")))
    nn.init.ones_(module.even.weight)
    nn.init.ones_(module.odd.weight)
    x = torch.rand(1, 1, 6, 6) + 0.1
    x.requires_grad_()
    module(x).sum().backward()
    assert (x.grad != 0).sum() == 2 * 9  # the even and the shifted grid


def test_zero_has_no_memory_of_its_input() -> None:
    x = torch.full((1, 2, 4, 4), torch.nan)
    assert torch.equal(Zero(2, 1)(x), torch.zeros(1, 2, 4, 4))


@pytest.mark.parametrize(
    ("init", "variance"),
    [("lecun", 1 / 144), ("xavier", 2 / (144 + 576)), ("he", 2 / 144), ("torch", 1 / (3 * 144))],
)
def test_initialisations_have_their_variance(init: str, variance: float) -> None:
    model = nn.Sequential(nn.Conv2d(16, 64, 3), nn.BatchNorm2d(64))
    initialise(model, init, seed=0)  # type: ignore[arg-type]
    assert model[0].weight.var().item() == pytest.approx(variance, rel=0.05)
    assert model[0].weight.mean().item() == pytest.approx(0, abs=3 * (variance / model[0].weight.numel()) ** 0.5)
    if init != "torch":
        assert not model[0].bias.any()
    assert torch.equal(model[1].weight, torch.ones(64))


def test_torch_initialisation_is_that_of_the_layers() -> None:
    """The same bounds as the layers' own draw."""
    model = nn.Sequential(nn.Conv2d(8, 256, 3, groups=2), nn.Linear(300, 400))
    own = [p.abs().max().item() for p in model.parameters()]
    initialise(model, "torch", seed=0)
    assert [p.abs().max().item() for p in model.parameters()] == pytest.approx(own, rel=0.05)


@pytest.mark.parametrize(("norm", "per_channel"), [("affine", 2), ("plain", 0), ("none", 0)])
def test_batch_norm_handling(norm: str, per_channel: int) -> None:
    arch = NB201.architecture(3, 0, 0, 0, 3, 0)
    settings = NetworkSettings(channels=4, cells=1, norm=norm)  # type: ignore[arg-type]
    model = NB201.build(arch, settings)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert bool(norms) == (norm != "none")
    bare = NB201.build(arch, replace(settings, norm="none"))
    channels = sum(module.num_features for module in norms)
    expected = sum(p.numel() for p in bare.parameters()) + per_channel * channels
    assert sum(p.numel() for p in model.parameters()) == expected
    assert count(NB201.network(arch, settings), settings).parameters == expected


def test_layers_are_plain_torch() -> None:
    model = build("darts_v2", channels=4, cells=3)
    assert {type(m) for m in model.modules() if isinstance(m, nn.Conv2d)} == {nn.Conv2d}
    assert {type(m) for m in model.modules() if isinstance(m, nn.Linear)} == {nn.Linear}


def test_options_reach_the_network() -> None:
    model = build(
        "|nor_conv_3x3~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|",
        channels=6,
        cells=2,
        classes=3,
        shape=(1, 12, 12),
    )
    assert model(torch.zeros(2, 1, 12, 12)).shape == (2, 3)
    assert sum("edge" in name and isinstance(m, nn.Conv2d) for name, m in model.named_modules()) == 6
    assert model.stem[0].out_channels == 6


def test_gradients_reach_every_parameter_of_a_pruned_network() -> None:
    rng = Random(0)
    for _ in range(10):
        arch = NB201.sample(rng)
        if not NB201.connected(arch):
            continue
        model = NB201.build(arch, NetworkSettings(channels=4, cells=1))
        model(torch.randn(4, 3, 8, 8)).square().sum().backward()
        assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"channels": 0}, "channels must be a whole number of at least 1, not 0"),
        ({"channels": 10**9}, "channels must be at most 1,000,000, not 1,000,000,000"),
        ({"cells": 10**9}, "cells must be at most 10,000, not 1,000,000,000"),
        ({"classes": -2}, "classes must be a whole number of at least 1"),
        ({"shape": (3, 0, 3)}, "shape must hold positive whole numbers"),
        ({"shape": 32}, "shape must hold positive whole numbers"),
        ({"channels": 2.5}, "channels must be a whole number"),
        ({"classes": None}, "classes must be a whole number"),
        ({"norm": "layer"}, "norm must be one of affine, plain, none, not 'layer'"),
        ({"init": "orthogonal"}, "init must be one of lecun"),
        ({"drop_path": 1.0}, r"drop_path must be in \[0, 1\)"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        NetworkSettings(**wrong)  # type: ignore[arg-type]


def test_a_network_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def stem(message: str) -> None:
        def fail(op: Op, kit: Kit) -> nn.Module:
            raise RuntimeError(message)

        monkeypatch.setitem(OPERATIONS, "conv3x3-bn", fail)
        build("darts_v1", channels=9, cells=2)

    with pytest.raises(InputError, match="a network of 9 channels and 2 cells does not fit into memory: take fewer"):
        stem("DefaultCPUAllocator: can't allocate memory: you tried to allocate 36000000 bytes")
    with pytest.raises(RuntimeError, match="another reason"):
        stem("another reason")


def test_repeated_cells_are_copies_that_share_nothing():
    settings = NetworkSettings(channels=4, cells=3)
    model = NB201.build(NB201.architecture(3, 2, 4, 1, 3, 0), settings, seed=0)
    tensors = [*model.parameters(), *model.buffers()]
    assert len({t.data_ptr() for t in tensors}) == len(tensors)
    modules = [m for m in model.modules() if not isinstance(m, nn.Identity)]
    assert len({id(m._forward_hooks) for m in modules}) == len(modules)
    one, two = model.stage_1_cell_1.state_dict(), model.stage_1_cell_2.state_dict()
    assert list(one) == list(two)
    assert not torch.equal(one["edge_0_1.1.weight"], two["edge_0_1.1.weight"])


@pytest.mark.parametrize("kind", sorted(OPERATIONS))
def test_a_copied_operation_is_the_operation(kind):
    made = OPERATIONS[kind](Op(kind, 4, 4, 2 if "reduce" in kind else 1), KIT)
    initialise(made, "lecun", 0)
    copy = copied(made)
    assert repr(copy) == repr(made)
    assert [type(m) for m in copy.modules()] == [type(m) for m in made.modules()]
    mine, theirs = copy.state_dict(), made.state_dict()
    assert list(mine) == list(theirs)
    assert all(torch.equal(mine[n], theirs[n]) and mine[n].data_ptr() != theirs[n].data_ptr() for n in mine)
    assert all(isinstance(p, nn.Parameter) for p in copy.parameters())


def test_costs_are_counted_without_torchs_compiler() -> None:
    code = "import sys; from initio.spaces import DARTS, NetworkSettings as S; from random import Random\n"
    code += "DARTS.cost(DARTS.sample(Random(0)), S(8, 8)); assert not {'torch._dynamo', 'sympy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
