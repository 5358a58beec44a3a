"""A space of your own: a function and named choices. Builds every candidate and compares their sizes.

`initio score examples.own_space:Mine --all` scores it.
"""

from torch import nn

import initio


def net(kernel: int, width: int, activation: type[nn.Module], shape: tuple[int, ...], classes: int) -> nn.Module:
    """One value for each choice; `shape` and `classes` are those of the data."""
    return nn.Sequential(
        nn.Conv2d(shape[0], width, kernel, padding="same"),
        activation(),
        nn.AvgPool2d(2),
        nn.Conv2d(width, 2 * width, kernel, padding="same"),
        activation(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, classes),
    )


Mine = initio.space("mine", net, kernel=[3, 5], width=[8, 16], activation=[nn.ReLU, nn.GELU])


def main() -> None:
    for arch in Mine.architectures():
        model = Mine.build(arch, initio.NetworkSettings(shape=(1, 28, 28)), seed=0)
        print(f"{sum(p.numel() for p in model.parameters()):>7,} parameters  {Mine.format(arch)}")


if __name__ == "__main__":
    main()
