"""Images at another size: cut to the asked proportions around the centre, then averaged over areas."""

from __future__ import annotations

import math

import numpy as np

from initio.data.draw import whole
from initio.errors import InputError

Pixels = int | tuple[int, int]  # a square's side, or (height, width)
MOST_PIXELS = 4096


def height_and_width(pixels: Pixels) -> tuple[int, int]:
    """Both sides of what was asked for.

    >>> height_and_width(16), height_and_width((16, 24))
    ((16, 16), (16, 24))
    """
    sides = pixels
    if not isinstance(sides, tuple | list):
        sides = (sides, sides)
    if len(sides) != 2 or max(whole(side, "image size", 1) for side in sides) > MOST_PIXELS:
        raise InputError(f"the image size must be a side or (height, width) of up to {MOST_PIXELS}, not {pixels!r}")
    return sides[0], sides[1]


def resize(images: np.ndarray, pixels: tuple[int, int]) -> np.ndarray:
    """Images (..., h, w) at `pixels`; a pixel is the mean over the area that it covers. uint8 stays uint8.

    >>> resize(np.array([[0, 2, 8, 8], [4, 6, 8, 8]], dtype=np.uint8), (1, 2))
    array([[3, 8]], dtype=uint8)
    """
    images = _centre(images, pixels)
    if images.shape[-2:] == pixels:
        return images
    rows, columns = _areas(images.shape[-2], pixels[0]), _areas(images.shape[-1], pixels[1])
    means: np.ndarray = rows @ images.astype(np.float64) @ columns.T
    if images.dtype == np.uint8:
        # Rounding makes the result, hence a batch's fingerprint, the same whatever order a BLAS sums in.
        return np.floor(means + (0.5 + 1e-9)).astype(np.uint8)
    return means.astype(images.dtype)


def _centre(images: np.ndarray, pixels: tuple[int, int]) -> np.ndarray:
    """The largest part around the centre that has the proportions of `pixels`."""
    h, w = images.shape[-2:]
    height = min(h, max(1, math.floor(w * pixels[0] / pixels[1])))
    width = min(w, max(1, math.floor(h * pixels[1] / pixels[0])))
    top, left = (h - height) // 2, (w - width) // 2
    return images[..., top : top + height, left : left + width]


def _areas(n: int, m: int) -> np.ndarray:
    """(m, n): the share of each of n old pixels in each of m new ones; rows sum to one.

    >>> _areas(3, 2)
    array([[0.66666667, 0.33333333, 0. ],
           [0. , 0.33333333, 0.66666667]])
    """
    # In units of 1/(n m) of the side, every border is a whole number.
    new, old = np.arange(m)[:, None] * n, np.arange(n)[None, :] * m
    overlap = np.minimum(new + n, old + m) - np.maximum(new, old)
    shares: np.ndarray = np.maximum(overlap, 0) / n
    return shares
