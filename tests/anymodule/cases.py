"""What a case is, and the small networks that an operation is put into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

SAMPLES, CLASSES = 4, 3
EVERY = tuple(
    name
    for line in (
        ("grad", "grad_norm", "snip", "snip_printed", "grasp", "grasp_printed", "nasi", "nasi_sum", "fisher"),
        ("synflow", "jacob_cov", "naswot", "trace", "kappa", "lambda_min", "eigen", "knas", "params"),
        ("near", "meco", "expressivity", "progressivity", "trainability", "zico"),
    )
    for name in line
)


@dataclass(frozen=True)
class Case:
    """A model, and what `score` is expected to say of it.

    Args:
        name: of the case.
        build: makes the model, after the generator was seeded.
        shape: of one input.
        refused: a piece of the sentence with which the whole model is refused; nothing if it is scored.
        flagged: metrics that may have no value, or a doubted one, with a reason.
        oracle: the model that the slow oracle is asked about, where stock autograd needs another.
        inputs: changes the batch.
        samples: in the batch.
    """

    name: str
    build: Callable[[], nn.Module] = field(repr=False)
    shape: tuple[int, ...] = (5,)
    refused: str = ""
    flagged: tuple[str, ...] = ()
    oracle: Callable[[nn.Module], nn.Module] = field(default=lambda model: model, repr=False)
    inputs: Callable[[Tensor], Tensor] = field(default=lambda x: x, repr=False)
    samples: int = SAMPLES

    def model(self) -> nn.Module:
        """The same weights in every process."""
        torch.default_generator.manual_seed(3)  # the others' would each be told where from, which takes long
        return self.build()

    def batch(self) -> tuple[Tensor, Tensor]:
        """Inputs in float32, and labels of every class."""
        generator = torch.Generator().manual_seed(7)
        x = torch.randn(self.samples, *self.shape, generator=generator)
        return self.inputs(x), torch.arange(self.samples) % CLASSES


Operation = Callable[[Tensor, Tensor], Tensor]


class Host(nn.Module):
    """Linear, ReLU, the operation on the values h (m, 6) and a parameter w (6, 6), tanh, linear."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self.operation = operation
        self.first = nn.Linear(5, 6)
        self.act = nn.ReLU()
        self.second = nn.Linear(6, 6)
        self.w = nn.Parameter(torch.randn(6, 6) * 0.5)
        with torch.no_grad():
            features = self.middle(torch.randn(SAMPLES, 5)).shape[1]
        self.head = nn.Linear(features, CLASSES)

    def middle(self, x: Tensor) -> Tensor:
        """The features that the operation leaves."""
        h = self.second(self.act(self.first(x)))
        return torch.tanh(self.operation(h, self.w).flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.middle(x))


class ImageHost(nn.Module):
    """Convolution, ReLU, the operation on images h (m, 8, 6, 6) and a parameter w (8, 8, 3, 3), tanh, mean, linear."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self.operation = operation
        self.first = nn.Conv2d(2, 8, 3, padding=1)
        self.act = nn.ReLU()
        self.w = nn.Parameter(torch.randn(8, 8, 3, 3) * 0.3)
        with torch.no_grad():
            features = self.middle(torch.randn(SAMPLES, 2, 6, 6)).shape[1]
        self.head = nn.Linear(features, CLASSES)

    def middle(self, x: Tensor) -> Tensor:
        """The features that the operation leaves."""
        h = self.act(self.first(x)) + 0.1 * self.first(x)
        return torch.tanh(self.operation(h, self.w).flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.middle(x))


def on_values(name: str, operation: Operation, **facts: object) -> Case:
    """A case of an operation in `Host`."""
    return Case(name, lambda: Host(operation), **facts)  # type: ignore[arg-type]


def on_images(name: str, operation: Operation, **facts: object) -> Case:
    """A case of an operation in `ImageHost`."""
    return Case(name, lambda: ImageHost(operation), (2, 6, 6), **facts)  # type: ignore[arg-type]
