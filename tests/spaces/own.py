"""Two spaces of a user's own."""

from torch import nn

from initio.spaces import space, space_of_modules


class Net(nn.Sequential):
    def __init__(self, kernel: int, width: int) -> None:
        super().__init__(
            nn.Conv2d(3, width, kernel),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, 10),
        )


OWN = space("own", Net, kernel=[1, 3], width=[4, 8, 16])
LISTED = space_of_modules("listed", {"narrow": lambda: Net(3, 4), "wide": lambda: Net(3, 8)})
