"""The cost of one-shot searches is counted in passes of one architecture and one batch."""

import pytest
import torch

from initio.networks.shared import Blend, SharedNetwork
from initio.spaces import NB201, NetworkSettings
from studies.oneshot import counted


def test_a_blend_costs_its_options_and_a_forward_pass_a_third() -> None:
    network = SharedNetwork(NB201, NetworkSettings(2, 1, shape=(3, 8, 8)))
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    path = Blend.path(NB201, NB201.architecture(3, 2, 1, 4, 3, 2))
    with counted() as costs:
        network(x, path)
        network(x, Blend.rows([torch.ones(5) / 5] * 6))
        with torch.no_grad():
            network(x, path)
    assert costs == pytest.approx([1, 4, 1 / 3])  # of five options one is `none`
    network(x, path)
    assert len(costs) == 3, "nothing is counted outside"
