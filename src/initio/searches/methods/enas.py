"""ENAS (Pham et al., 2018): `--method enas`.

An LSTM writes an architecture decision by decision. Each update of the shared weights trains one that it wrote.
After every epoch of the weights, it learns by REINFORCE (Williams, 1992): the reward R of an architecture is its
accuracy on a held-out batch with the shared weights, b a moving average of rewards, and it ascends mean[(R − b) log
p] + entropy bonus. The answer is the best of many that it writes, on one held-out batch. Sizes are those of
NAS-Bench-201's own baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call

from initio.errors import InputError, at_least, positive
from initio.networks.shared import Blend
from initio.records import Architecture
from initio.searches.oneshot import (
    Learned,
    Moment,
    OneShotSearch,
    Reading,
    SharedEpoch,
    SharedTraining,
    best_of,
    candidates,
)
from initio.spaces import GraphSpace

BETAS = (0.0, 0.999)  # of Adam, for the controller
CLIP = 5.0  # the largest norm of its gradient
SPREAD = 0.1  # its parameters begin uniform in ±0.1


class Controller(nn.Module):
    """An LSTM that chooses an option of each decision, knowing those before.

    Args:
        sizes: options of each decision.
        hidden: width of the LSTM.
        temperature: logits are divided by it,
        bound: and bounded by this many times a tanh.
    """

    def __init__(self, sizes: Sequence[int], hidden: int, temperature: float, bound: float) -> None:
        super().__init__()
        self.sizes, self.temperature, self.bound = tuple(sizes), temperature, bound
        self.cell = nn.LSTMCell(hidden, hidden)
        self.embedding = nn.Embedding(1 + sum(sizes), hidden)  # the first begins an architecture
        self.heads = nn.ModuleList(nn.Linear(hidden, size) for size in sizes)

    def forward(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """So many draws: choices (count, decisions), their log-probabilities, and the entropies met on the way."""
        read = torch.zeros(count, dtype=torch.int64)
        state, before = None, 1
        choices, logs, entropies = [], [], []
        for head, size in zip(self.heads, self.sizes, strict=True):
            state = self.cell(self.embedding(read), state)
            logits = self.bound * torch.tanh(head(state[0]) / self.temperature)
            log_p = logits.log_softmax(1)
            chosen = torch.multinomial(log_p.detach().exp(), 1)
            choices.append(chosen)
            logs.append(log_p.gather(1, chosen))
            entropies.append(-(log_p.exp() * log_p).sum(1, keepdim=True))
            read, before = before + chosen[:, 0], before + size
        return torch.cat(choices, 1), torch.cat(logs, 1).sum(1), torch.cat(entropies, 1)


class ControllerState(Learned):
    """The controller's parameters in a row, and the moving average of rewards behind them."""

    def __init__(self, controller: Controller, seed: int) -> None:
        count = sum(p.numel() for p in controller.parameters())
        noise = torch.rand(count, generator=torch.Generator().manual_seed(seed))
        super().__init__(SPREAD * (2 * noise - 1))
        self.register_buffer("baseline", torch.zeros(()))
        self.baseline: Tensor
        self.shapes = {name: p.shape for name, p in controller.named_parameters()}
        self.forms = [controller.requires_grad_(False)]  # in a list: its own parameters are no part of the state

    def sample(self, values: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """What `Controller` gives with these parameters."""
        parts = torch.split_with_sizes(values, [shape.numel() for shape in self.shapes.values()])
        named = {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}
        found: tuple[Tensor, Tensor, Tensor] = functional_call(self.forms[0], named, (count,))
        return found


@dataclass(frozen=True)
class Enas(OneShotSearch):
    """ENAS: a controller writes architectures and learns from their accuracy with shared weights.

    Args:
        candidates: architectures that it writes after an epoch, the best of which is the answer.
        steps: updates of the controller after each epoch of the weights.
        batch: architectures in each of them.
        controller_lr: its learning rate, by Adam.
        bonus: weight of the entropy in what it maximises.
        decay: of the moving average of rewards.
        hidden: width of its LSTM.
        temperature: its logits are divided by it,
        bound: and bounded by this many times a tanh.
    """

    candidates: int = 100
    steps: int = 50
    batch: int = 20
    controller_lr: float = 1e-3
    bonus: float = 1e-4
    decay: float = 0.95
    hidden: int = 32
    temperature: float = 5.0
    bound: float = 2.5
    weight_decay: float = 2.5e-4
    nesterov: bool = True

    name: ClassVar[str] = "enas"
    usual_epochs: ClassVar[int] = 300
    usual_batch: ClassVar[int] = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, candidates=1, steps=0, batch=1, bonus=0, hidden=1)
        positive(self, "controller_lr", "temperature", "bound")
        if not 0 <= self.decay < 1:
            raise InputError(f"decay must be at least 0 and below 1, not {self.decay}")
        if not self.held_out:
            raise InputError("the controller learns from held-out data: held_out must be above 0")

    def knowledge(self, space: GraphSpace, stage: int, done: Sequence[SharedEpoch], seed: int) -> ControllerState:
        """A controller with small random parameters."""
        with torch.random.fork_rng(devices=[]):  # which torch draws first, for nothing
            sizes = [len(decision) for decision in space.decisions]
            controller = Controller(sizes, self.hidden, self.temperature, self.bound)
        return ControllerState(controller, seed)

    def draw(self, at: SharedTraining, now: Moment) -> Blend:
        """What the controller writes."""
        return Blend.path(at.space, next(iter(self._written(at, 1))))

    def teach(self, at: SharedTraining, now: Moment) -> None:
        """REINFORCE with a baseline."""
        state = controller_of(at)
        at.network.eval()
        for x, y in at.held_out(now.epoch, self.steps, 3):
            values = state.leaf()
            choices, log_p, entropies = state.sample(values, self.batch)
            rewards = []
            for row in choices.tolist():
                with torch.no_grad():
                    logits = at.network(x, Blend.path(at.space, at.space.architecture(*row)))
                at.tally.add(F.cross_entropy(logits, y), logits, y)
                rewards.append(float((logits.argmax(1) == y).double().mean()))
            R = torch.tensor(rewards, dtype=values.dtype)
            if int(state.count) == 0:
                state.baseline.copy_(R.mean())
            state.baseline.mul_(self.decay).add_((1 - self.decay) * R.mean())
            gain = ((R - state.baseline) * log_p).mean() + self.bonus * entropies.sum(1).mean()
            [gradient] = torch.autograd.grad(-gain, [values])
            gradient = gradient * (CLIP / gradient.norm().clamp_min(CLIP))
            state.adam(gradient, self.controller_lr, BETAS)

    def read(self, at: SharedTraining, now: Moment) -> Reading:
        """The best of `candidates` that it writes."""
        written = iter(self._written(at, self.candidates))
        arch = best_of(at, candidates(at, lambda: next(written), self.candidates), now)
        with torch.no_grad():
            _, _, entropies = controller_of(at).sample(at.knows.values, self.candidates)
        most = torch.tensor([max(2, len(decision)) for decision in at.space.decisions]).log()
        return Reading(arch, entropy=float((entropies.mean(0) / most).mean()))

    def _written(self, at: SharedTraining, count: int) -> list[Architecture]:
        with torch.no_grad():
            choices, _, _ = controller_of(at).sample(at.knows.values, count)
        return [at.space.architecture(*row) for row in choices.tolist()]


def controller_of(at: SharedTraining) -> ControllerState:
    """What ENAS knows."""
    assert isinstance(at.knows, ControllerState)
    return at.knows
