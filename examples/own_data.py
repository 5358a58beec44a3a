"""Data of your own: a function from the split to a data set. Named as `--data examples.own_data:bars`."""

import numpy as np

import initio
from initio.data import Dataset, from_arrays

PIXELS = 8


def bars(split: str) -> Dataset:
    """A bright row or a bright column somewhere in noise: two classes that only a convolution tells apart easily."""
    return from_arrays("bars", split, train=_draw(600, seed=0), test=_draw(200, seed=1), class_names=("row", "column"))


def _draw(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    images, labels = rng.normal(size=(n, PIXELS, PIXELS)), rng.integers(2, size=n)
    for image, label, place in zip(images, labels, rng.integers(PIXELS, size=n), strict=True):
        np.swapaxes(image, 0, label)[place] += 2.0
    return images, labels


def main() -> None:
    data = initio.load_data("examples.own_data:bars")
    print(data)
    print(data.batch(64, seed=0).x.shape)


if __name__ == "__main__":
    main()
