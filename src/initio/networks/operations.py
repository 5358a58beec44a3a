"""The operations that networks are made of: OPERATIONS, the one list.

An operation is a function of an `Op` (channels, stride) and a `Kit` (what all operations of a network share) that
returns a module. Convolutions followed by a batch norm have no bias.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from initio.networks.graphs import NetworkSettings, Op


@dataclass(frozen=True)
class Kit:
    """What all operations of a network share."""

    settings: NetworkSettings

    def norm(self, channels: int) -> list[nn.Module]:
        """The normalisation behind a convolution: one batch norm, or nothing."""
        norm = self.settings.norm
        return [] if norm == "none" else [nn.BatchNorm2d(channels, affine=norm == "affine")]


Operation = Callable[[Op, Kit], nn.Module]


def _undrawn(kind: type[nn.Module]) -> Callable[..., Any]:
    """Makes plain modules of a kind without drawing weights: `initialise` does that, from its own generator."""
    bare = type(kind.__name__, (kind,), {"reset_parameters": lambda module: None})

    def make(*args: Any, **kwargs: Any) -> nn.Module:
        module: nn.Module = bare(*args, **kwargs)
        module.__class__ = kind
        return module

    return make


conv2d: Callable[..., nn.Conv2d] = _undrawn(nn.Conv2d)
linear: Callable[..., nn.Linear] = _undrawn(nn.Linear)


# --- modules that torch does not have --------------------------------------------------------------------------------


class Zero(nn.Module):
    """Zeros in the shape that an operation of this stride and width would give."""

    def __init__(self, c_out: int, stride: int) -> None:
        super().__init__()
        self.c_out, self.stride = c_out, stride

    def forward(self, x: Tensor) -> Tensor:
        """(m, c_in, h, w) -> (m, c_out, ⌈h/stride⌉, ⌈w/stride⌉)."""
        height, width = (-(-side // self.stride) for side in x.shape[2:])
        return x.new_zeros(x.shape[0], self.c_out, height, width)


class Sum(nn.Module):
    """The sum of all its inputs."""

    def forward(self, *values: Tensor) -> Tensor:
        """Adds in the order given."""
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total


class Concat(nn.Module):
    """All its inputs side by side, as channels."""

    def forward(self, *values: Tensor) -> Tensor:
        """Concatenates in the order given."""
        return torch.cat(values, dim=1)


class Truncate(nn.Module):
    """The first `channels` channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        """(m, c, ...) -> (m, channels, ...)."""
        return x[:, : self.channels]


class GlobalPool(nn.Module):
    """The mean over all positions."""

    def forward(self, x: Tensor) -> Tensor:
        """(m, c, h, w) -> (m, c)."""
        return x.mean(dim=(2, 3))


class SigmoidHalf(nn.Module):
    """Sigmoid − 1/2, the centred sigmoid of Eigen-NAS."""

    def forward(self, x: Tensor) -> Tensor:
        """Elementwise."""
        return torch.sigmoid(x) - 0.5


class DropPath(nn.Module):
    """Drops a whole path for some samples while training, and scales up the rest, so that the mean stays.

    Attributes:
        always: drop in evaluation mode too, as Monte Carlo needs it.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.always = False

    def forward(self, x: Tensor) -> Tensor:
        """In evaluation mode the identity, unless it is to drop always."""
        if not (self.training or self.always) or self.probability == 0:
            return x
        keep = 1 - self.probability
        mask = torch.empty(len(x), 1, 1, 1, dtype=x.dtype, device=x.device).bernoulli_(keep)
        return x * mask / keep


class FactorizedReduce(nn.Module):
    """Halves the resolution with two 1x1 convolutions, one of them shifted by a pixel, so that no pixel is ignored."""

    def __init__(self, op: Op, kit: Kit) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.even = conv2d(op.c_in, op.c_out // 2, 1, stride=2, bias=False)
        self.odd = conv2d(op.c_in, op.c_out - op.c_out // 2, 1, stride=2, bias=False)
        self.norm = nn.Sequential(*kit.norm(op.c_out))

    def forward(self, x: Tensor) -> Tensor:
        """(m, c_in, h, w) -> (m, c_out, ⌈h/2⌉, ⌈w/2⌉)."""
        x = self.relu(x)
        height, width = x.shape[2:]
        shifted = nn.functional.pad(x, (0, width % 2, 0, height % 2))[:, :, 1:, 1:]
        if shifted.shape[2] == 0 or shifted.shape[3] == 0:  # a single pixel has no neighbour to shift to
            shifted = x
        out: Tensor = self.norm(torch.cat([self.even(x), self.odd(shifted)], dim=1))
        return out


class ResidualReduce(nn.Module):
    """NAS-Bench-201's block between stages: two 3x3 convolutions beside a pooled 1x1 shortcut, half the resolution."""

    def __init__(self, op: Op, kit: Kit) -> None:
        super().__init__()
        self.conv_a = relu_conv_norm(op.c_in, op.c_out, 3, 2, kit)
        self.conv_b = relu_conv_norm(op.c_out, op.c_out, 3, 1, kit)
        self.shortcut = nn.Sequential(
            nn.AvgPool2d(2, stride=2, ceil_mode=True), conv2d(op.c_in, op.c_out, 1, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(m, c_in, h, w) -> (m, c_out, ⌈h/2⌉, ⌈w/2⌉)."""
        out: Tensor = self.shortcut(x) + self.conv_b(self.conv_a(x))
        return out


# --- the usual sequences ---------------------------------------------------------------------------------------------


def conv_norm(c_in: int, c_out: int, kernel: int, stride: int, kit: Kit, *, relu: bool) -> nn.Sequential:
    """Convolution, batch norm, and a ReLU if asked for."""
    layers = [conv2d(c_in, c_out, kernel, stride, kernel // 2, bias=False), *kit.norm(c_out)]
    if relu:
        layers.append(nn.ReLU())
    return nn.Sequential(*layers)


def relu_conv_norm(c_in: int, c_out: int, kernel: int, stride: int, kit: Kit) -> nn.Sequential:
    """ReLU, convolution, batch norm."""
    conv = conv2d(c_in, c_out, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(nn.ReLU(), conv, *kit.norm(c_out))


def separable(c_in: int, c_out: int, kernel: int, stride: int, dilation: int, kit: Kit) -> list[nn.Module]:
    """ReLU, depthwise convolution, pointwise convolution, batch norm."""
    padding = dilation * (kernel - 1) // 2
    depthwise = conv2d(c_in, c_in, kernel, stride, padding, dilation, groups=c_in, bias=False)
    return [nn.ReLU(), depthwise, conv2d(c_in, c_out, 1, bias=False), *kit.norm(c_out)]


def nor_conv(kernel: int) -> Operation:
    """ReLU, convolution, batch norm."""
    return lambda op, kit: relu_conv_norm(op.c_in, op.c_out, kernel, op.stride, kit)


def conv_bn_relu(kernel: int) -> Operation:
    """NAS-Bench-101's Conv-BN-ReLU."""
    return lambda op, kit: conv_norm(op.c_in, op.c_out, kernel, op.stride, kit, relu=True)


def sep_conv(kernel: int) -> Operation:
    """DARTS' separable convolution, applied twice; the first has the stride."""
    return lambda op, kit: nn.Sequential(
        *separable(op.c_in, op.c_in, kernel, op.stride, 1, kit),
        *separable(op.c_in, op.c_out, kernel, 1, 1, kit),
    )


def dil_conv(kernel: int) -> Operation:
    """DARTS' dilated separable convolution, applied once."""
    return lambda op, kit: nn.Sequential(*separable(op.c_in, op.c_out, kernel, op.stride, 2, kit))


def conv_7x1_1x7(op: Op, kit: Kit) -> nn.Module:
    """NASNet's and AmoebaNet's factorised 7x7 convolution."""
    return nn.Sequential(
        nn.ReLU(),
        conv2d(op.c_in, op.c_in, (1, 7), (1, op.stride), (0, 3), bias=False),
        conv2d(op.c_in, op.c_out, (7, 1), (op.stride, 1), (3, 0), bias=False),
        *kit.norm(op.c_out),
    )


def skip_connect(op: Op, kit: Kit) -> nn.Module:
    """The identity; at stride 2 a factorised reduction."""
    return nn.Identity() if op.stride == 1 else FactorizedReduce(op, kit)


def stem_large_1(op: Op, kit: Kit) -> nn.Module:
    """DARTS' ImageNet stem, first half: two 3x3 convolutions of stride 2."""
    half = op.c_out // 2
    return nn.Sequential(
        *conv_norm(op.c_in, half, 3, 2, kit, relu=True), *conv_norm(half, op.c_out, 3, 2, kit, relu=False)
    )


def auxiliary_head(op: Op, kit: Kit) -> nn.Module:
    """DARTS' auxiliary classifier; `stride` is that of its 5x5 pooling, which leaves 2x2 positions of a square image.

    The head for ImageNet is the same here; DARTS' own left out its second batch norm.
    """
    return nn.Sequential(
        nn.ReLU(),
        nn.AvgPool2d(5, stride=op.stride, count_include_pad=False),
        conv2d(op.c_in, 128, 1, bias=False),
        *kit.norm(128),
        nn.ReLU(),
        conv2d(128, 768, 2, bias=False),
        *kit.norm(768),
        nn.ReLU(),
        GlobalPool(),  # of the one position left in a square image
        linear(768, op.c_out),
    )


OPERATIONS: dict[str, Operation] = {
    # structure
    "none": lambda op, kit: Zero(op.c_out, op.stride),
    "identity": lambda op, kit: nn.Identity(),
    "sum": lambda op, kit: Sum(),
    "concat": lambda op, kit: Concat(),
    "truncate": lambda op, kit: Truncate(op.c_out),
    "drop_path": lambda op, kit: DropPath(kit.settings.drop_path),
    # NAS-Bench-201
    "nor_conv_1x1": nor_conv(1),
    "nor_conv_3x3": nor_conv(3),
    "residual_reduce": ResidualReduce,
    # NAS-Bench-101
    "conv3x3-bn-relu": conv_bn_relu(3),
    "conv1x1-bn-relu": conv_bn_relu(1),
    "maxpool3x3": lambda op, kit: nn.MaxPool2d(3, stride=op.stride, padding=1),
    "max_pool_2x2": lambda op, kit: nn.MaxPool2d(2, stride=2, ceil_mode=True),
    # DARTS and the zoo
    "skip_connect": skip_connect,
    "max_pool_3x3": lambda op, kit: nn.MaxPool2d(3, stride=op.stride, padding=1),
    "avg_pool_3x3": lambda op, kit: nn.AvgPool2d(3, stride=op.stride, padding=1, count_include_pad=False),
    "sep_conv_3x3": sep_conv(3),
    "sep_conv_5x5": sep_conv(5),
    "sep_conv_7x7": sep_conv(7),
    "dil_conv_3x3": dil_conv(3),
    "dil_conv_5x5": dil_conv(5),
    "conv_7x1_1x7": conv_7x1_1x7,
    "relu_conv_1x1": nor_conv(1),
    "relu_conv_3x3": nor_conv(3),
    "factorized_reduce": FactorizedReduce,
    "stem_large_1": stem_large_1,
    "auxiliary_head": auxiliary_head,
    # stems and heads
    "conv3x3-bn": lambda op, kit: conv_norm(op.c_in, op.c_out, 3, op.stride, kit, relu=False),
    "bn_relu": lambda op, kit: nn.Sequential(*kit.norm(op.c_in), nn.ReLU()),
    "global_pool": lambda op, kit: GlobalPool(),
    "flatten": lambda op, kit: nn.Flatten(),
    "linear": lambda op, kit: linear(op.c_in, op.c_out),
    # multilayer perceptrons
    "linear_nobias": lambda op, kit: linear(op.c_in, op.c_out, bias=False),
    "relu": lambda op, kit: nn.ReLU(),
    "leaky_relu": lambda op, kit: nn.LeakyReLU(),
    "sigmoid_half": lambda op, kit: SigmoidHalf(),
    "tanh": lambda op, kit: nn.Tanh(),
    "swish": lambda op, kit: nn.SiLU(),
}
