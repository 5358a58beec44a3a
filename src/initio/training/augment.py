"""Random crops and flips of a batch of images."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from initio.errors import InputError
from initio.training.settings import Augment

LEAST_PIXELS = 16  # below it, a shift by a pixel changes too much
PADDING = 8  # a side is padded by its 8th part: 4 pixels for 32, as is usual

Augmentation = Callable[[Tensor, np.random.Generator], Tensor]


def augmentation(kind: Augment, shape: tuple[int, ...]) -> Augmentation:
    """What `kind` means for inputs of this shape.

    >>> [augmentation("auto", shape).__name__ for shape in ((3, 32, 32), (1, 28, 28), (1, 8, 8), (64,))]
    ['crop_flip', 'crop', 'keep', 'keep']
    """
    images = len(shape) == 3
    if kind == "auto":
        kind = "crop-flip"
        if not images or min(shape[1:]) < LEAST_PIXELS:
            kind = "none"
        elif shape[0] < 3:
            kind = "crop"  # a mirrored digit is another one
    if kind != "none" and not images:
        raise InputError(f"augment={kind!r} needs images, but inputs have shape {shape}: take 'none'")
    return AUGMENTATIONS[kind]


def keep(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Leaves images as they are."""
    return x


def crop_flip(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Crops, then mirrors each image left to right with probability 1/2."""
    x = crop(x, rng)
    mirrored = torch.from_numpy(rng.random(len(x)) < 0.5)
    x[mirrored] = x[mirrored].flip(3)
    return x


def crop(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Pads each image by an 8th of its sides with zeros, which are the mean colour, and cuts its size out anywhere."""
    height, width = x.shape[2:]
    dy, dx = height // PADDING, width // PADDING
    padded = functional.pad(x, (dx, dx, dy, dy))
    top, left = rng.integers(2 * dy + 1, size=len(x)), rng.integers(2 * dx + 1, size=len(x))
    out = torch.empty_like(x)
    for i, (y0, x0) in enumerate(zip(top.tolist(), left.tolist(), strict=True)):
        out[i] = padded[i, :, y0 : y0 + height, x0 : x0 + width]
    return out


AUGMENTATIONS: dict[str, Augmentation] = {"crop-flip": crop_flip, "crop": crop, "none": keep}
