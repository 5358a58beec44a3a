"""A space of your own: a function and named choices. Builds every candidate and compares their sizes."""

from torch import nn

import initio


def net(kernel: int, width: int, activation: type[nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, width, kernel, padding="same"),
        activation(),
        nn.AvgPool2d(2),
        nn.Conv2d(width, 2 * width, kernel, padding="same"),
        activation(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 10),
    )


def main() -> None:
    space = initio.space("mine", net, kernel=[3, 5], width=[8, 16], activation=[nn.ReLU, nn.GELU])
    for arch in space.architectures():
        model = space.build(arch, seed=0)
        print(f"{sum(p.numel() for p in model.parameters()):>7,} parameters  {space.format(arch)}")


if __name__ == "__main__":
    main()
