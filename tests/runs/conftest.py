"""Networks that many tests look at, trained once."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import initio

CELL = "|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|nor_conv_1x1~1|avg_pool_3x3~2|"


def draw_pictures(folder: Path, count: int = 20, seed: int = 0) -> Path:
    """Two classes of pictures of several sizes, dark and light ones."""
    rng = np.random.default_rng(seed)
    for label, name in enumerate(("dark", "light")):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = rng.integers(0, 128, size=(12 + number % 5, 14, 3)) + 127 * label
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="session")
def on_digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cell that has learned digits."""
    folder = tmp_path_factory.mktemp("digits") / "t"
    initio.train(CELL, "digits", folder=folder, epochs=2, channels=4, cells=1, tensorboard=False)
    return folder


@pytest.fixture(scope="session")
def on_pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cell that tells dark pictures from light ones; the pictures are beside it."""
    folder = tmp_path_factory.mktemp("pictures")
    draw_pictures(folder / "photos")
    initio.train(CELL, f"{folder / 'photos'}@8", folder=folder / "t", epochs=3, channels=4, cells=1, tensorboard=False)
    return folder / "t"
