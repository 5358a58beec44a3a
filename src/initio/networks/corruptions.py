"""Corruptions: images as a poor camera gives them. How much worse a network answers says how it bears other data.

Kinds and strengths are like those of CIFAR-10-C (Hendrycks and Dietterich, 2019), in torch and seeded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from initio.networks.attacks import Bounds

SEVERITIES = {  # of the weakest, a middle and the strongest corruption
    "noise": (0.04, 0.08, 0.12),  # its deviation, as a share of the bounds' distance
    "blur": (0.5, 0.75, 1.0),  # deviation of the Gaussian, in pixels
    "contrast": (0.75, 0.5, 0.3),  # share that is left
}
SEED = 0  # of the noise: all networks see the same


def noise(x: Tensor, strength: float, bounds: Bounds) -> Tensor:
    """x + σ ε, ε from N(0, 1), clipped."""
    generator = torch.Generator().manual_seed(SEED)
    drawn = torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x.device)
    return (x + strength * (bounds.high - bounds.low) * drawn).clamp(bounds.low, bounds.high)


def blur(x: Tensor, strength: float, bounds: Bounds) -> Tensor:
    """The mean over a Gaussian of this deviation, cut off at 4 of it; the border is continued."""
    radius = math.ceil(4 * strength)
    at = torch.arange(-radius, radius + 1, dtype=x.dtype, device=x.device)
    line = torch.exp(-at.square() / (2 * strength**2))
    kernel = (line / line.sum()).expand(x.shape[1], 1, -1)
    wide = F.pad(x, (radius,) * 4, mode="replicate")
    rows = F.conv2d(wide, kernel[:, :, None], groups=x.shape[1])
    return F.conv2d(rows, kernel[..., None], groups=x.shape[1])


def contrast(x: Tensor, strength: float, bounds: Bounds) -> Tensor:
    """The distance to each channel's mean, times the strength."""
    mean = x.mean((2, 3), keepdim=True)
    return (x - mean) * strength + mean


def corruptions(x: Tensor, bounds: Bounds) -> Iterator[tuple[str, int, Tensor]]:
    """Each corruption by name and severity, from 1, of images (m, c, h, w) between bounds."""
    for name, change in (("noise", noise), ("blur", blur), ("contrast", contrast)):
        for severity, strength in enumerate(SEVERITIES[name], start=1):
            yield name, severity, change(x, strength, bounds)
