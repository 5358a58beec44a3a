import numpy as np
import pytest
import torch

from initio.data import load
from initio.errors import InputError
from initio.searches import Problem, drive
from initio.searches.methods.eigen_darts import EigenDarts, LayerShares, MlpSupernet, SupernetLoss, apply, unit_scale
from initio.spaces import NB201, NetworkSettings
from initio.spaces.mlp import ACTIVATIONS, mlp_space

SMALL = EigenDarts(width=16, samples=400, steps=20, batch=32)


def problem(depth: int = 4) -> Problem:
    return Problem(mlp_space(depth), load("digits"), NetworkSettings())


def test_same_seed_same_answer_and_shares_that_sum_to_one() -> None:
    first, second = (drive(SMALL, problem(), seed=3) for _ in range(2))
    assert first.chosen == second.chosen
    assert first.steps == second.steps
    layers = [step for step in first.steps if isinstance(step, LayerShares)]
    assert [step.layer for step in layers] == [1, 2, 3]
    for step in layers:
        assert sum(step.shares[name] for name in ACTIVATIONS) == pytest.approx(1, abs=1e-5)
    assert layers[0].skip is None
    assert all(0 <= (step.skip or 0.0) <= 1 for step in layers[1:])


def test_the_chosen_architecture_has_the_largest_shares() -> None:
    net = MlpSupernet(4, 5, 3, 2, torch.Generator().manual_seed(0))
    with torch.no_grad():
        net.a[:, 3] = 1.0
        net.alpha.copy_(torch.tensor([0.2, 0.9]))
    assert mlp_space(4).format(net.chosen(mlp_space(4))) == "mlp:tanh,tanh,tanh;skips=2"


def test_a_supernet_of_one_hot_shares_is_the_network() -> None:
    """f_l = σ_l(W_l f_{l−1}) + α f_{l−1} with all weight on one activation."""
    net = MlpSupernet(4, 5, 6, 2, torch.Generator().manual_seed(0))
    names = ["relu", "swish", "sigmoid"]
    with torch.no_grad():
        for layer, name in enumerate(names):
            net.a[layer, ACTIVATIONS.index(name)] = 200.0
        net.alpha.copy_(torch.tensor([1.0, 0.0]))
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(1))
    W = list(net.weights)
    f1 = apply("relu", x @ W[0].T)
    f2 = apply("swish", f1 @ W[1].T) + f1
    f3 = apply("sigmoid", f2 @ W[2].T)
    torch.testing.assert_close(net(x), f3 @ W[3].T)


def test_training_lowers_the_loss() -> None:
    result = drive(EigenDarts(width=32, samples=1000, steps=120, batch=64), problem(), seed=0)
    losses = [step.loss for step in result.steps if isinstance(step, SupernetLoss)]
    assert losses[-1] < 0.7 * losses[0]


def test_unit_scale() -> None:
    assert torch.allclose(unit_scale(np.ones((2, 3, 4, 4), dtype=np.float32)).norm(dim=1), torch.ones(2))


def test_errors() -> None:
    with pytest.raises(InputError, match="steps must be at least 1, not 0"):
        EigenDarts(steps=0)
    with pytest.raises(InputError, match="samples must be at least 2, not 1"):
        EigenDarts(samples=1)  # a half for the weights, a half for the architecture
    with pytest.raises(InputError, match="lr must be a positive number, not 0"):
        EigenDarts(lr=0)
    with pytest.raises(InputError, match="eigen-darts does not search nb201: choose mlp"):
        drive(SMALL, Problem(NB201, load("digits")), seed=0)
