"""The optimizer is torch's, to the last bit."""

import pytest
import torch
from torch import nn

from initio.training.sgd import Sgd


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 5e-4])
def test_updates_are_those_of_torch(momentum: float, weight_decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    mine, theirs = ([nn.Parameter(torch.ones(3, 5)), nn.Parameter(torch.ones(7))] for _ in range(2))
    fixed = nn.Parameter(torch.ones(1), requires_grad=False)
    oracle = torch.optim.SGD(theirs, 0.1, momentum=momentum, nesterov=momentum > 0, weight_decay=weight_decay)
    optimizer = Sgd([*mine, fixed], momentum, weight_decay)
    for t in range(6):
        for group in oracle.param_groups:
            group["lr"] = 0.1 / (1 + t)
        for a, b in zip(mine, theirs, strict=True):
            a.grad = b.grad = torch.randn(a.shape, generator=generator)
            if t == 2 and a.ndim == 1:
                a.grad = b.grad = None  # a layer that was skipped
        oracle.step()
        optimizer.step(0.1 / (1 + t))
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    optimizer.clear()
    assert all(p.grad is None for p in mine)
