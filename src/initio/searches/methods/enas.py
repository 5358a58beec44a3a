"""ENAS (Pham et al., 2018): `--method enas`.

An LSTM writes an architecture decision by decision. Each update of the shared weights trains one that it wrote.
After every epoch of the weights, it learns by REINFORCE (Williams, 1992): the reward R of an architecture is its
accuracy on a held-out batch with the shared weights and a small part of the entropy met while it was written, b a
moving average of rewards, and it ascends mean[(R − b) log p]. The answer is the best of many that it writes, on one
held-out batch. Every number is that of NAS-Bench-201's own baseline, whose learning rate of the weights has restarts
that this has not.
"""

from __future__ import annotations

import math
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


class Controller(nn.Module):
    """An LSTM that chooses an option of each decision, knowing those before.

    Args:
        sizes: options of each decision.
        hidden: width of the LSTM.
        layers: how many stand on one another.
        temperature: logits are divided by it,
        bound: and bounded by this many times a tanh.
    """

    def __init__(self, sizes: Sequence[int], hidden: int, layers: int, temperature: float, bound: float) -> None:
        super().__init__()
        self.sizes, self.temperature, self.bound = tuple(sizes), temperature, bound
        self.cells = nn.ModuleList(nn.LSTMCell(hidden, hidden) for _ in range(layers))
        self.embedding = nn.Embedding(1 + sum(sizes), hidden)  # the first begins an architecture
        self.heads = nn.ModuleList(nn.Linear(hidden, size) for size in sizes)

    def forward(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """So many draws: choices (count, decisions), their log-probabilities, and the entropies met on the way."""
        read = torch.zeros(count, dtype=torch.int64, device=self.embedding.weight.device)
        states: list[tuple[Tensor, Tensor] | None] = [None] * len(self.cells)
        before = 1
        choices, logs, entropies = [], [], []
        for head, size in zip(self.heads, self.sizes, strict=True):
            out = self.embedding(read)
            for layer, cell in enumerate(self.cells):
                states[layer] = state = cell(out, states[layer])
                out, _ = state
            logits = self.bound * torch.tanh(head(out) / self.temperature)
            log_p = logits.log_softmax(1)
            chosen = torch.multinomial(log_p.detach().exp(), 1)
            choices.append(chosen)
            logs.append(log_p.gather(1, chosen))
            entropies.append(-(log_p.exp() * log_p).sum(1, keepdim=True))
            read, before = before + chosen[:, 0], before + size
        return torch.cat(choices, 1), torch.cat(logs, 1).sum(1), torch.cat(entropies, 1)


class ControllerState(Learned):
    """The controller's parameters in a row, uniform in ±`spread` at first, and the moving average of rewards."""

    def __init__(self, controller: Controller, spread: float, seed: int) -> None:
        count = sum(p.numel() for p in controller.parameters())
        noise = torch.rand(count, generator=torch.Generator().manual_seed(seed))
        super().__init__(spread * (2 * noise - 1))
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
        controller_beta: the first of its Adam's two decays; the second is 0.999.
        controller_epsilon: ε of its Adam.
        controller_clip: the largest norm that a gradient of it keeps.
        controller_start: its parameters begin uniform between this and its negative.
        bonus: weight of the entropy in a reward.
        decay: of the moving average of rewards.
        hidden: width of its LSTM.
        layers: of its LSTM.
        temperature: its logits are divided by it,
        bound: and bounded by this many times a tanh.
    """

    candidates: int = 100
    steps: int = 50
    batch: int = 20
    controller_lr: float = 1e-3
    controller_beta: float = 0.0
    controller_epsilon: float = 1e-3
    controller_clip: float = 5.0
    controller_start: float = 0.1
    bonus: float = 1e-4
    decay: float = 0.99
    hidden: int = 32
    layers: int = 2
    temperature: float = 5.0
    bound: float = 2.5
    lr: float = 0.05
    lr_end: float = 5e-4
    weight_decay: float = 2.5e-4
    nesterov: bool = True

    name: ClassVar[str] = "enas"
    usual_epochs: ClassVar[int] = 310
    usual_batch: ClassVar[int] = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, candidates=1, steps=0, batch=1, bonus=0, hidden=1, layers=1)
        positive(
            self, "controller_lr", "controller_epsilon", "controller_clip", "controller_start", "temperature", "bound"
        )
        for name in ("decay", "controller_beta"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 0 and below 1, not {getattr(self, name)}")
        if not self.held_out:
            raise InputError("the controller learns from held-out data: held_out must be above 0")

    def knowledge(self, space: GraphSpace, stage: int, done: Sequence[SharedEpoch], seed: int) -> ControllerState:
        """A controller with small random parameters."""
        with torch.random.fork_rng(devices=[]):  # which torch draws first, for nothing
            sizes = [len(decision) for decision in space.decisions]
            controller = Controller(sizes, self.hidden, self.layers, self.temperature, self.bound)
        return ControllerState(controller, self.controller_start, seed)

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
            R = torch.tensor(rewards, dtype=values.dtype).to(values.device) + self.bonus * entropies.detach().sum(1)
            if int(state.count) == 0:
                state.baseline.copy_(R.mean())
            state.baseline.mul_(self.decay).add_((1 - self.decay) * R.mean())
            [gradient] = torch.autograd.grad(-((R - state.baseline) * log_p).mean(), [values])
            gradient = gradient * (self.controller_clip / gradient.norm().clamp_min(self.controller_clip))
            state.adam(gradient, self.controller_lr, (self.controller_beta, 0.999), epsilon=self.controller_epsilon)

    def read(self, at: SharedTraining, now: Moment) -> Reading:
        """The best of `candidates` that it writes."""
        written = iter(self._written(at, self.candidates))
        arch = best_of(at, candidates(at, lambda: next(written), self.candidates), now)
        with torch.no_grad():
            _, _, entropies = controller_of(at).sample(at.knows.values, self.candidates)
        return Reading(arch, entropy=undecided(entropies, [len(decision) for decision in at.space.decisions]))

    def _written(self, at: SharedTraining, count: int) -> list[Architecture]:
        with torch.no_grad():
            choices, _, _ = controller_of(at).sample(at.knows.values, count)
        return [at.space.architecture(*row) for row in choices.tolist()]


def undecided(entropies: Tensor, sizes: Sequence[int]) -> float:
    """The mean of entropies as shares of a uniform choice's, over the decisions that have more than one option.

    >>> round(undecided(torch.tensor([[0.0, math.log(2), 0.0]]), [1, 2, 4]), 6)
    0.5
    """
    shares = [float(own) / math.log(size) for own, size in zip(entropies.mean(0), sizes, strict=True) if size > 1]
    return sum(shares) / max(1, len(shares))


def controller_of(at: SharedTraining) -> ControllerState:
    """What ENAS knows."""
    assert isinstance(at.knows, ControllerState)
    return at.knows
