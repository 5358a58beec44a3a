"""Corruptions against scipy and by hand."""

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

from initio.networks.attacks import Bounds
from initio.networks.corruptions import SEVERITIES, blur, contrast, corruptions, noise

X = torch.rand(4, 3, 9, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_blur_is_a_gaussian() -> None:
    for strength in SEVERITIES["blur"]:
        ours = blur(X, strength, Bounds())
        radius = int(np.ceil(4 * strength))
        theirs = gaussian_filter(X.numpy(), (0, 0, strength, strength), mode="nearest", radius=(0, 0, radius, radius))
        np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-12)


def test_noise_has_its_deviation_and_is_the_same_for_all() -> None:
    x = torch.full((50, 3, 16, 16), 8.0)
    changed = noise(x, 0.04, Bounds(0, 16))
    assert abs(float((changed - x).std()) - 0.04 * 16) < 0.01
    assert torch.equal(changed, noise(x, 0.04, Bounds(0, 16)))
    assert noise(torch.ones(9, 1, 4, 4), 0.5, Bounds()).max() <= 1


def test_contrast_keeps_the_mean() -> None:
    changed = contrast(X, 0.3, Bounds())
    torch.testing.assert_close(changed.mean((2, 3)), X.mean((2, 3)))
    torch.testing.assert_close(changed.std((2, 3)), 0.3 * X.std((2, 3)))


def test_each_kind_gets_worse() -> None:
    found = list(corruptions(X, Bounds()))
    assert [(name, severity) for name, severity, _ in found] == [(n, s) for n in SEVERITIES for s in (1, 2, 3)]
    for name in SEVERITIES:
        moved = [float((changed - X).norm()) for own, _, changed in found if own == name]
        assert moved == sorted(moved)
