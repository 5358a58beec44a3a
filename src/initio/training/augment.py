"""Random changes of a whole batch of images: crops, flips, zooms, erased squares."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from initio.errors import InputError
from initio.training.settings import TrainingSettings

LEAST_PIXELS = 16  # below it, a shift by a pixel changes too much
PADDING = 8  # a side is padded by its 8th part: 4 pixels for 32, as is usual
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # of a zoomed part: its share of the image, its width over its height

Augmentation = Callable[[Tensor, np.random.Generator], Tensor]


def augmentation(settings: TrainingSettings, shape: tuple[int, ...]) -> Augmentation:
    """What the settings mean for inputs of this shape.

    >>> auto = TrainingSettings(augment="auto")
    >>> [augmentation(auto, shape).__name__ for shape in ((3, 32, 32), (1, 28, 28), (1, 8, 8), (64,))]
    ['crop_flip', 'crop', 'keep', 'keep']
    """
    kind, images = settings.augment, len(shape) == 3
    if kind == "auto":
        kind = "crop-flip"
        if not images or min(shape[1:]) < LEAST_PIXELS:
            kind = "none"
        elif shape[0] < 3:
            kind = "crop"  # a mirrored digit is another one
    if kind != "none" and not images:
        raise InputError(f"augment={kind!r} needs images, but inputs have shape {shape}: take 'none'")
    change, side = AUGMENTATIONS[kind], settings.cutout
    if not side:
        return change
    if not images or side >= min(shape[1:]):
        raise InputError(f"cutout={side} needs images larger than that, but inputs have shape {shape}: take less, or 0")
    return lambda x, rng: cutout(change(x, rng), rng, side)


def keep(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Leaves images as they are."""
    return x


def crop_flip(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Crops, then mirrors each image left to right with probability 1/2."""
    return flip(crop(x, rng), rng)


def zoom_flip(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Zooms, then mirrors each image left to right with probability 1/2."""
    return flip(zoom(x, rng), rng)


def flip(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Mirrors each image left to right with probability 1/2, in place."""
    mirrored = torch.from_numpy(rng.random(len(x)) < 0.5).to(x.device)
    x[mirrored] = x[mirrored].flip(3)
    return x


def crop(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Pads each image by an 8th of its sides with zeros, which are the mean colour, and cuts its size out anywhere."""
    height, width = x.shape[2:]
    dy, dx = height // PADDING, width // PADDING
    padded = functional.pad(x, (dx, dx, dy, dy))
    tops, lefts = (torch.from_numpy(rng.integers(2 * side + 1, size=len(x))).to(x.device) for side in (dy, dx))
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # (m, c, 2 dy + 1, 2 dx + 1, h, w), without a copy
    return windows[torch.arange(len(x), device=x.device), :, tops, lefts].contiguous()


def zoom(x: Tensor, rng: np.random.Generator) -> Tensor:
    """A part of each image, of random size, proportions and place, brought to the image's size (bilinear)."""
    m, height, width = len(x), *x.shape[2:]
    area, ratio = rng.uniform(*AREA, size=m), np.exp(rng.uniform(math.log(RATIO[0]), math.log(RATIO[1]), size=m))
    across = np.minimum(1.0, np.sqrt(area * ratio * height / width))  # the part's width and height, as shares
    down = np.minimum(1.0, np.sqrt(area / ratio * width / height))
    theta = np.zeros((m, 2, 3), dtype=np.float32)
    theta[:, 0, 0], theta[:, 1, 1] = across, down
    theta[:, 0, 2], theta[:, 1, 2] = (1 - across) * rng.uniform(-1, 1, size=m), (1 - down) * rng.uniform(-1, 1, size=m)
    grid = functional.affine_grid(torch.from_numpy(theta).to(x.device), list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, padding_mode="reflection", align_corners=False)


def cutout(x: Tensor, rng: np.random.Generator, side: int) -> Tensor:
    """Erases a square around a random pixel of each image, in place; what lies beyond the border is not there."""
    masks = []
    for length in x.shape[2:]:
        first = torch.from_numpy(rng.integers(length, size=len(x))).to(x.device) - side // 2
        place = torch.arange(length, device=x.device)
        masks.append((place >= first[:, None]) & (place < first[:, None] + side))
    rows, columns = masks
    return x.masked_fill_((rows[:, :, None] & columns[:, None, :])[:, None], 0)


AUGMENTATIONS: dict[str, Augmentation] = {
    "crop-flip": crop_flip,
    "crop": crop,
    "zoom-flip": zoom_flip,
    "none": keep,
}
