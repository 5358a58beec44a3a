import numpy as np

from initio.data import load
from initio.spaces.mlp import mlp_space
from studies.infinite_width import algorithm_1


def test_algorithm_1_learns_and_draws_one_iterate() -> None:
    batch = load("digits").batch(900, 0)
    y = np.where(batch.y < 5, -1.0, 1.0)
    space = mlp_space(3)
    arch = space.parse("mlp:relu,relu;skips=1")
    train, test = (batch.x[:700], y[:700]), (batch.x[700:], y[700:])
    trained, again = (algorithm_1(space, arch, train, test, width=64, gamma=0.1) for _ in range(2))
    assert trained == again
    assert 1 <= trained.iterate <= 700
    assert trained.last_error < 0.3
