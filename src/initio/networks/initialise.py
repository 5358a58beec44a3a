"""Weights at initialisation, from a seed and without touching torch's global generator."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from initio.networks.graphs import Init


@torch.no_grad()
def initialise(model: nn.Module, init: Init, seed: int) -> None:
    """Draws every convolution and linear layer anew; normalisations become the identity.

    | init     | weights                           | biases                   |
    |----------|-----------------------------------|--------------------------|
    | `lecun`  | N(0, 1/fan_in)                    | 0                        |
    | `xavier` | N(0, 2/(fan_in + fan_out))        | 0                        |
    | `he`     | N(0, 2/fan_in)                    | 0                        |
    | `torch`  | U(−1/√fan_in, 1/√fan_in)          | U(−1/√fan_in, 1/√fan_in) |

    fan_in and fan_out count the weights of one group, kernel positions included.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.modules.conv._ConvNd | nn.Linear):
            _draw(module, init, generator)
        elif isinstance(module, _BatchNorm):
            module.reset_parameters()  # running statistics too


def _draw(module: nn.modules.conv._ConvNd | nn.Linear, init: Init, generator: torch.Generator) -> None:
    weight, bias = module.weight, module.bias
    fan_in, fan_out = nn.init._calculate_fan_in_and_fan_out(weight)
    if isinstance(module, nn.modules.conv._ConvNd):
        fan_out //= module.groups
    if init == "torch":
        bound = 1 / math.sqrt(fan_in)
        weight.uniform_(-bound, bound, generator=generator)
        if bias is not None:
            bias.uniform_(-bound, bound, generator=generator)
        return
    variance = {"lecun": 1 / fan_in, "xavier": 2 / (fan_in + fan_out), "he": 2 / fan_in}[init]
    weight.normal_(0, math.sqrt(variance), generator=generator)
    if bias is not None:
        bias.zero_()
