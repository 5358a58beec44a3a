"""Crops and flips."""

import numpy as np
import pytest
import torch
from torch import nn

from initio.training.augment import Augmentation, augmentation, crop, crop_flip, keep


@pytest.mark.parametrize(
    ("shape", "kind"), [((3, 32, 32), crop_flip), ((1, 28, 28), crop), ((1, 8, 8), keep), ((64,), keep)]
)
def test_augmentation_follows_the_shape(shape: tuple[int, ...], kind: Augmentation) -> None:
    assert augmentation("auto", shape) is kind
    assert augmentation("none", shape) is keep


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
