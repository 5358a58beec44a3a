"""Crops, flips, zooms and erased squares."""

import numpy as np
import pytest
import torch
from torch import nn

from initio.errors import InputError
from initio.training import TrainingSettings
from initio.training.augment import Augmentation, augmentation, crop, crop_flip, keep, zoom


@pytest.mark.parametrize(
    ("shape", "kind"), [((3, 32, 32), crop_flip), ((1, 28, 28), crop), ((1, 8, 8), keep), ((64,), keep)]
)
def test_augmentation_follows_the_shape(shape: tuple[int, ...], kind: Augmentation) -> None:
    assert augmentation(TrainingSettings(augment="auto"), shape) is kind
    assert augmentation(TrainingSettings(augment="none"), shape) is keep


def test_crops_and_flips_are_windows_of_the_padded_image() -> None:
    x = torch.arange(1.0, 1 + 40 * 3 * 16 * 24).reshape(40, 3, 16, 24)
    out = crop_flip(x.clone(), np.random.default_rng(0))
    padded = nn.functional.pad(x, (3, 3, 2, 2))
    seen = set()
    for image, around in zip(out, padded, strict=True):
        found = [
            (top, left, mirrored)
            for top in range(5)
            for left in range(7)
            for mirrored in (False, True)
            if torch.equal(image.flip(2) if mirrored else image, around[:, top : top + 16, left : left + 24])
        ]
        assert len(found) == 1
        seen.add(found[0])
    assert {top for top, _, _ in seen} == set(range(5))
    assert {left for _, left, _ in seen} == set(range(7))
    assert {mirrored for _, _, mirrored in seen} == {False, True}


def test_cutout_erases_one_square_around_any_pixel() -> None:
    erase = augmentation(TrainingSettings(augment="none", cutout=4), (2, 12, 10))
    out = erase(torch.ones(400, 2, 12, 10), np.random.default_rng(0))
    corners = set()
    for image in out:
        assert torch.equal(image[0], image[1])
        rows, columns = (torch.nonzero((image[0] == 0).any(dim=side)).flatten().tolist() for side in (1, 0))
        assert float((image[0] == 0).sum()) == len(rows) * len(columns)  # all of the rectangle
        assert 2 <= len(rows) <= 4  # fewer at the border
        assert 2 <= len(columns) <= 4
        assert rows == list(range(rows[0], rows[-1] + 1))
        corners.add((rows[0], columns[0]))
    assert {row for row, _ in corners} == set(range(10))  # a centre in the last row begins two above it
    assert {column for _, column in corners} == set(range(8))


def test_cutout_larger_than_the_image_is_refused() -> None:
    for shape in ((3, 8, 8), (64,)):
        with pytest.raises(InputError, match=r"cutout=8 needs images larger than that, .* take less, or 0"):
            augmentation(TrainingSettings(augment="none", cutout=8), shape)


def test_zooms_are_parts_of_the_image() -> None:
    """Of a ramp, every zoom is a ramp between two of its values, in the same direction."""
    ramp = torch.linspace(0, 1, 32).expand(200, 1, 32, 32)
    out = zoom(ramp, np.random.default_rng(0))
    assert out.shape == ramp.shape
    steps = out[:, 0, 0, 2:-2].diff(dim=1)
    widths = out[:, 0, 0, -3] - out[:, 0, 0, 2]
    assert (steps >= -1e-6).all()
    assert float(out.min()) >= 0
    assert float(out.max()) <= 1
    assert float(widths.min()) < 0.4
    assert float(widths.max()) > 0.7
