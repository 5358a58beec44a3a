"""The paper's search with training [Eigen, section 5.1], and Algorithm 1's training of what it finds.

The supernet of depth L mixes all activations of a layer and scales each skip:

    f_l = Σ_k p_lk σ_k(W_l f_{l−1}) + α_{l−1} f_{l−1},   p_l = softmax(a_l),   α ∈ [0, 1].

W learns on one half of the data and (a, α) on the other, in turns (first-order DARTS). α starts at 1/2 and is clipped;
a starts at 0. Taken are the activation with the largest share and the skips with α > 1/2. As in the paper, inputs have
norm 1 [Assumption 1] and weights start as N(0, 1/m) [Algorithm 1]; its width m is 1024, here 128, for a CPU.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from initio.errors import InputError
from initio.records import Architecture, Cost, SearchResult, Settings, settings
from initio.searches.base import OnRow, Problem, peak_bytes, versions
from initio.spaces.mlp import ACTIVATIONS, MlpSpace

REPORTS = 20  # rows of the trace


@dataclass(frozen=True)
class EigenDarts:
    """First-order DARTS over activations and skips.

    Args:
        width: units in a layer (1024 in the paper).
        samples: images used, half for W and half for the architecture.
        steps: pairs of updates.
        batch: images in an update.
        lr: of W, by SGD with momentum 0.9, falling to zero as a cosine.
        arch_lr: of a and α, by Adam.
    """

    width: int = 128
    samples: int = 20_000
    steps: int = 500
    batch: int = 128
    lr: float = 0.05
    arch_lr: float = 1e-2

    name: ClassVar[str] = "eigen-darts"
    resumes: ClassVar[bool] = False

    @property
    def n_rows(self) -> None:
        """Not known: some rows are losses, the last ones shares."""

    def summary(self, problem: Problem, result: SearchResult) -> str:
        """What the choice rests on."""
        return f"largest share in each layer after {self.steps} updates of a supernet of width {self.width}"

    def __post_init__(self) -> None:
        for name in ("width", "samples", "steps", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")

    def run(
        self, problem: Problem, *, seed: int, rows: Sequence[Settings] = (), on_row: OnRow | None = None
    ) -> SearchResult:
        """Trains the supernet from the start; rows hold the losses, the last ones the shares of each layer."""
        begin = time.perf_counter()
        space = problem.space
        if not isinstance(space, MlpSpace):
            raise InputError(f"eigen-darts searches the mlp spaces, not {space.name}")
        data = problem.data.batch(self.samples, seed)
        x, y = unit_scale(data.x), torch.tensor(data.y)
        generator = torch.Generator().manual_seed(seed)
        net = Supernet(space.depth, x.shape[1], self.width, data.classes, generator)
        done: list[Settings] = []

        def report(row: Settings) -> None:
            done.append(row)
            if on_row:
                on_row(row)

        self._train(net, x, y, generator, report)
        arch = net.chosen(space)
        for row in net.shares():
            report(row)
        return SearchResult(
            method=self.name,
            space=space.name,
            seed=seed,
            chosen=(arch,),
            settings=settings(**asdict(self)),
            trace=tuple(done),
            cost=Cost(trainings=1, seconds=time.perf_counter() - begin, peak_bytes=peak_bytes()),
            versions=versions(),
        )

    def _train(self, net: Supernet, x: Tensor, y: Tensor, generator: torch.Generator, report: OnRow) -> None:
        half = len(x) // 2
        weights = torch.optim.SGD(net.weights.parameters(), lr=self.lr, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(weights, self.steps)
        architecture = torch.optim.Adam([net.a, net.alpha], lr=self.arch_lr, betas=(0.5, 0.999))
        for number in range(1, self.steps + 1):
            held_out = half + torch.randint(len(x) - half, (self.batch,), generator=generator)
            loss_a = functional.cross_entropy(net(x[held_out]), y[held_out])
            architecture.zero_grad()
            loss_a.backward()  # type: ignore[no-untyped-call]
            architecture.step()
            with torch.no_grad():
                net.alpha.clamp_(0, 1)
            some = torch.randint(half, (self.batch,), generator=generator)
            loss_w = functional.cross_entropy(net(x[some]), y[some])
            weights.zero_grad()
            loss_w.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(net.weights.parameters(), 5.0)
            weights.step()
            schedule.step()
            if not math.isfinite(float(loss_w.detach())):
                raise InputError(f"the loss is not finite at step {number}: use a smaller lr than {self.lr}")
            if number % max(1, self.steps // REPORTS) == 0:
                report(settings(step=number, loss=float(loss_w.detach()), held_out=float(loss_a.detach())))


class Supernet(nn.Module):
    """All architectures of one depth at once."""

    def __init__(self, depth: int, inputs: int, width: int, classes: int, generator: torch.Generator) -> None:
        super().__init__()
        sizes = [inputs, *[width] * (depth - 1), classes]
        self.weights = nn.ParameterList(
            torch.randn(b, a, generator=generator) / math.sqrt(width) for a, b in pairwise(sizes)
        )
        self.a = nn.Parameter(torch.zeros(depth - 1, len(ACTIVATIONS)))
        self.alpha = nn.Parameter(torch.full((depth - 2,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        """The outputs of the mixture."""
        p = torch.softmax(self.a, dim=1)
        *hidden, last = self.weights
        for layer, W in enumerate(hidden):
            z = functional.linear(x, W)
            f = sum((p[layer, k] * apply(name, z) for k, name in enumerate(ACTIVATIONS)), torch.zeros_like(z))
            x = f + self.alpha[layer - 1] * x if layer else f
        return functional.linear(x, last)

    def chosen(self, space: MlpSpace) -> Architecture:
        """The largest share of each layer, the skips above 1/2."""
        activations = self.a.detach().argmax(1).tolist()
        skips = [int(alpha > 0.5) for alpha in self.alpha.detach().tolist()]
        return space.architecture(*activations, *skips)

    def shares(self) -> list[Settings]:
        """One row a layer: the share of each activation, and α of the skip around the layer [Eigen, Figure 1]."""
        p = torch.softmax(self.a.detach(), dim=1).tolist()
        alphas = [None, *self.alpha.detach().tolist()]
        return [
            settings(layer=layer, skip=alpha, **dict(zip(ACTIVATIONS, row, strict=True)))
            for layer, (row, alpha) in enumerate(zip(p, alphas, strict=True), start=1)
        ]


def apply(name: str, z: Tensor) -> Tensor:
    """σ(z); `sigmoid` is sigmoid − 1/2."""
    if name == "relu":
        return torch.relu(z)
    if name == "leaky_relu":
        return functional.leaky_relu(z)
    if name == "sigmoid":
        return torch.sigmoid(z) - 0.5
    return torch.tanh(z) if name == "tanh" else functional.silu(z)


def unit_scale(x: np.ndarray) -> Tensor:
    """Inputs as vectors of norm 1."""
    flat = torch.tensor(np.asarray(x, dtype=np.float32).reshape(len(x), -1))
    unit: Tensor = functional.normalize(flat)
    return unit


# --- Algorithm 1, second part ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """What Algorithm 1's SGD ends with: 0-1 errors of the iterate it draws and of the last one."""

    iterate: int
    error: float
    last_error: float
    last_loss: float  # mean over the last tenth of the samples


def algorithm_1(
    space: MlpSpace,
    arch: Architecture,
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    *,
    width: int = 128,
    gamma: float = 0.05,
    seed: int = 0,
) -> Trained:
    """One epoch of SGD, a sample a step, constant step size γ, loss log(1 + e^{−yf}), labels y of −1 and 1.

    W_l ~ N(0, 1/m); the result is one of the N iterates, drawn uniformly.
    """
    x, y = unit_scale(train[0]), torch.tensor(np.asarray(train[1], dtype=np.float32))
    generator = torch.Generator().manual_seed(seed)
    wanted = int(torch.randint(len(x), (1,), generator=generator))
    names, skips = space.activations(arch), (0, *space.skips(arch))
    sizes = [x.shape[1], *[width] * (space.depth - 1), 1]
    weights = [(torch.randn(b, a, generator=generator) / math.sqrt(width)).requires_grad_() for a, b in pairwise(sizes)]

    def f(inputs: Tensor) -> Tensor:
        for name, skip, W in zip(names, skips, weights, strict=False):
            value = apply(name, functional.linear(inputs, W))
            inputs = value + inputs if skip else value
        return functional.linear(inputs, weights[-1])[..., 0]

    @torch.no_grad()
    def zero_one() -> float:
        outputs = f(unit_scale(test[0]))
        wrong = outputs * torch.tensor(np.asarray(test[1], dtype=np.float32)) <= 0
        return float(wrong.float().mean())

    losses: list[float] = []
    error = 1.0
    for i in range(len(x)):
        if i == wanted:
            error = zero_one()
        loss = functional.softplus(-y[i] * f(x[i]))
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for W, gradient in zip(weights, gradients, strict=True):
                W -= gamma * gradient
        losses.append(float(loss.detach()))
    tail = losses[-max(1, len(losses) // 10) :]
    return Trained(wanted + 1, error, zero_one(), sum(tail) / len(tail))
