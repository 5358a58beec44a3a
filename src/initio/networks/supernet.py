"""Supernets: one network that holds the parameters of every option of a space and computes only the sampled path.

A sample has one option for each categorical of `space.relaxation`; all cells of a type share it. The chosen operation's
output is multiplied by its gate, a number of value 1 that carries a gradient to the architecture's weights. What a
`none` makes zero and what the output does not read is not computed, as in the pruned network that `space.build` gives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from initio.autodiff.record import Recall, Tape, push, record, watch
from initio.networks.graphs import SUM, ZERO, Graph, Mixed, NetworkSettings, Op, reached
from initio.networks.initialise import initialise
from initio.networks.operations import OPERATIONS, Kit


@dataclass(frozen=True)
class Ghost:
    """The value of a chosen `none`: zero, but with a derivative; sums of ghosts alone are zero without one."""

    tensor: Tensor


Maybe = Tensor | Ghost | None  # None is zero
Mix = Callable[[Mixed, str, list[Maybe]], Maybe]  # the value of a mixed step, from its path and inputs


class OneShot(Protocol):
    """What a supernet needs of a space: its categoricals, and its graph around a sample."""

    @property
    def relaxation(self) -> Sequence[Sized]:
        """The categoricals."""

    def resolve(self, settings: NetworkSettings) -> NetworkSettings:
        """The settings with width and depth."""

    def supernet(self, choices: Sequence[int], settings: NetworkSettings) -> Graph:
        """The graph with `Mixed` steps."""


Apply = Callable[..., Tensor]  # of a module to tensors
Reads = Callable[[Mixed, tuple[int, ...]], tuple[int, ...]]  # which of a mixed step's inputs matter


def call(module: nn.Module, *tensors: Tensor) -> Tensor:
    """How an operation is applied: by calling it."""
    return module(*tensors)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Walk:
    """How a graph is run: what mixed steps read and give, and how modules are applied."""

    reads: Reads
    mix: Mix
    apply: Apply = call


def all_inputs(mixed: Mixed, inputs: tuple[int, ...]) -> tuple[int, ...]:
    """What a mixed step reads where all its options matter."""
    return inputs


def reads_of(choices: Sequence[int]) -> Reads:
    """What mixed steps read by the chosen options."""
    return lambda mixed, inputs: mixed.choose(choices[mixed.categorical], inputs)[1]


class Supernet(nn.Module):
    """The one-shot network of a space.

    Parameters are made when a path first needs them. They depend on (seed, where, which operation) alone, hence not on
    the order in which paths are sampled.

    Args:
        space: nb201, nb1shot1-s1, -s2, -s3 or darts.
        settings: size of the network; `prune` and `auxiliary` have no meaning here.
        seed: of the parameters.
    """

    like: Tensor

    def __init__(self, space: OneShot, settings: NetworkSettings, seed: int = 0) -> None:
        super().__init__()
        self.space, self.settings, self.seed = space, space.resolve(settings), seed
        self.kit = Kit(self.settings)
        self.operations = nn.ModuleDict()
        self.stateless: dict[str, nn.Module] = {}  # sums, poolings: made once, but no parts of the network
        self.register_buffer("like", torch.empty(0), persistent=False)  # what new parameters are like

    def operation(self, path: str, op: Op) -> nn.Module:
        """The module of one operation in one place, `path` being the names of its steps joined by dots."""
        key = f"{path}:{op.kind}:{op.c_in}:{op.c_out}:{op.stride}".replace(".", "/")
        if key in self.stateless:
            module = self.stateless[key]
            if module.training != self.training:
                module.train(self.training)
            return module
        if key not in self.operations:
            module = OPERATIONS[op.kind](op, self.kit)
            digest = hashlib.sha256(f"{self.seed} {key}".encode()).digest()
            initialise(module, self.settings.init, int.from_bytes(digest[:7], "big"))
            module = module.to(self.like.device, self.like.dtype).train(self.training)
            if not module.state_dict():
                self.stateless[key] = module
                return module
            self.operations[key] = module
        return self.operations[key]

    def forward(
        self, x: Tensor, choices: Sequence[int], gates: Sequence[Tensor] | None = None, *, all_options: bool = False
    ) -> Tensor:
        """The logits of a sample.

        Args:
            x: inputs.
            choices: one option a categorical.
            gates: for each categorical a vector with one gate an option; None stands for ones.
            all_options: compute every option times its gate, the slow and obvious way to the derivatives of zero gates.
        """

        def mix(mixed: Mixed, path: str, inputs: list[Maybe]) -> Maybe:
            chosen = choices[mixed.categorical]
            options = [chosen]
            if all_options:
                options = list(range(len(mixed.options)))
            terms = []
            for option in options:
                value = self.option(mixed, option, path, inputs)
                if isinstance(value, Tensor):
                    if gates is not None:
                        value = value * gates[mixed.categorical][option]
                    terms.append(value)
            if not terms:
                return None
            total = terms[0]
            if len(terms) > 1:
                total = torch.stack(terms).sum(0)
            if is_zero(mixed, chosen):
                return Ghost(total)
            return total

        graph = self.space.supernet(choices, self.settings)
        reads: Reads = all_inputs
        if not all_options:
            reads = reads_of(choices)
        return self.run(graph, x, Walk(reads, mix))

    def trace_gradient(
        self, x: Tensor, y: Tensor, choices: Sequence[int], *, all_options: bool = False
    ) -> tuple[float, list[list[float]]]:
        """T = ‖∇θ L‖², L the mean cross-entropy, and ∂T/∂h for the gates h of all categoricals, at one-hot gates.

        Without `all_options` only the chosen gates have a derivative. With it, the others have it too, at the price of
        a forward pass and a tangent of every option.
        """
        training = self.training
        try:
            return self.eval()._trace_gradient(x, y, _Sample(self, choices, all_options))
        finally:
            self.train(training)

    def _trace_gradient(self, x: Tensor, y: Tensor, sample: _Sample) -> tuple[float, list[list[float]]]:
        path, recall, dtype = sample.module(), Recall(), self.like.dtype
        first = record(path, x, dtype=dtype, recall=recall)
        p = first.f.detach().softmax(1)
        delta = (p - F.one_hot(y, p.shape[1])) / len(y)
        g = first.gradient(delta)
        del first
        tape = record(path, x, dtype=dtype, direction=g, recall=recall)
        dT = [[0.0] * len(decision) for decision in self.space.relaxation]
        if tape.ft is not None:
            f_dot = tape.ft.detach()
            delta_dot = p * (f_dot - (p * f_dot).sum(1, keepdim=True)) / len(y)  # d/dt softmax(f)
            gradients = tape.watched_gradients(delta, delta_dot, [place.value for place in sample.places])
            for place, (d, d_dot) in zip(sample.places, gradients, strict=True):
                # ∂T/∂h = 2 (⟨δ̇, u⟩ + ⟨δ, u̇⟩), see `autodiff.record`. The value u that another option would add in
                # this place has the same δ and δ̇.
                for option, u, u_dot in sample.options(place, tape):
                    dT[place.mixed.categorical][option] += 2 * (_dot(d_dot, u) + _dot(d, u_dot))
        return sum(float(t.double().square().sum()) for t in g.values()), dT

    # --- running a graph -----------------------------------------------------------------------------------------

    def run(self, graph: Graph, x: Tensor, walk: Walk) -> Tensor:
        """The output of a network's graph."""
        out = self._graph(graph, [x], "", walk)
        assert isinstance(out, Tensor)
        return out

    def option(self, mixed: Mixed, option: int, path: str, inputs: Sequence[Maybe], apply: Apply = call) -> Maybe:
        """The value of one option of a mixed step."""
        if is_zero(mixed, option):
            return None
        op, read = mixed.options[option], list(inputs)
        if mixed.places:
            read = [inputs[i] for i in mixed.places[option]]
        if isinstance(op, Graph):
            return self._graph(op, read, f"{path}.", Walk(all_inputs, _nothing_mixed, apply))
        return self._op(op, path, read, apply)

    def _graph(self, graph: Graph, inputs: Sequence[Maybe], path: str, walk: Walk) -> Maybe:
        needed = _needed(graph, walk.reads)
        values = list(inputs)
        for number, step in enumerate(graph.steps, start=graph.n_inputs):
            read = [values[i] for i in step.inputs]
            name = f"{path}{step.name}"
            out: Maybe = None
            if number not in needed:
                pass
            elif isinstance(step.op, Graph):
                out = self._graph(step.op, read, f"{name}.", walk)
                if not isinstance(out, Tensor):  # a disconnected cell
                    first = read[0]
                    assert isinstance(first, Tensor)
                    out = torch.zeros_like(first)
            elif isinstance(step.op, Mixed):
                out = walk.mix(step.op, name, read)
            else:
                out = self._op(step.op, name, read, walk.apply)
            values.append(out)
        return values[graph.output]

    def _op(self, op: Op, path: str, inputs: Sequence[Maybe], apply: Apply) -> Maybe:
        if op.kind == ZERO:
            return None
        tensors = [value for value in inputs if isinstance(value, Tensor)]
        if op.kind == SUM and tensors:
            tensors += [value.tensor for value in inputs if isinstance(value, Ghost)]
        elif op.kind == SUM or len(tensors) < len(inputs):
            return None
        return apply(self.operation(path, op), *tensors)


@dataclass(frozen=True)
class _Place:
    """A mixed step of a sample that ran: its inputs, and its value, or the zeros in the place of a chosen `none`."""

    mixed: Mixed
    path: str
    inputs: tuple[Maybe, ...]
    value: Tensor


class _Path(nn.Module):
    """A sample's operations, and how they are run."""

    def __init__(self, operations: Sequence[nn.Module], run: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.operations, self.run = nn.ModuleList(operations), run

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        return self.run(x)


class _Sample:
    """One path through a supernet, whose mixed steps are watched while it runs [see `autodiff.record.watch`].

    With `all_options` the steps' inputs are watched too, and zeros in the place of every chosen `none`.
    """

    def __init__(self, supernet: Supernet, choices: Sequence[int], all_options: bool) -> None:
        self.supernet, self.choices, self.all_options = supernet, choices, all_options
        self.graph = supernet.space.supernet(choices, supernet.settings)
        self.places: list[_Place] = []
        self.names: dict[int, tuple[Tensor, Tensor]] = {}  # by identity: an input, and what it is watched as

    def module(self) -> nn.Module:
        """The sample as a module of its own, with the parameters on its path and no others."""
        found: list[nn.Module] = []

        def note(module: nn.Module, *tensors: Tensor) -> Tensor:
            found.append(module)
            return tensors[0]

        self._run(torch.empty(0), note)  # computes nothing
        return _Path(found, self._run)

    def _run(self, x: Tensor, apply: Apply = call) -> Tensor:
        self.places.clear()
        self.names.clear()
        reads: Reads = all_inputs
        if not self.all_options:
            reads = reads_of(self.choices)

        def mix(mixed: Mixed, path: str, inputs: list[Maybe]) -> Maybe:
            return self._mix(mixed, path, inputs, apply)

        return self.supernet.run(self.graph, x, Walk(reads, mix, apply))

    def _mix(self, mixed: Mixed, path: str, inputs: list[Maybe], apply: Apply) -> Maybe:
        chosen = self.choices[mixed.categorical]
        if self.all_options:
            inputs = [self._watched(t) for t in inputs]
        tensors = [t for t in inputs if isinstance(t, Tensor)]
        if not is_zero(mixed, chosen):
            value = self.supernet.option(mixed, chosen, path, inputs, apply)
            if isinstance(value, Tensor):
                value = watch(value)
                self.places.append(_Place(mixed, path, tuple(inputs), value))
            return value
        if not (self.all_options and tensors):
            return None
        zeros = watch(torch.zeros_like(tensors[0]))
        self.places.append(_Place(mixed, path, tuple(inputs), zeros))
        return Ghost(zeros)

    def _watched(self, t: Maybe) -> Maybe:
        """One name for all places that read a value, so that they share what they compute of it."""
        if not isinstance(t, Tensor):
            return t
        if id(t) not in self.names:
            self.names[id(t)] = (t, watch(t))
        return self.names[id(t)][1]

    def options(self, place: _Place, tape: Tape) -> Iterator[tuple[int, Tensor, Tensor | None]]:
        """Every option that has a derivative in a place, with its value and tangent there."""
        mixed, chosen = place.mixed, self.choices[place.mixed.categorical]
        if not is_zero(mixed, chosen):
            yield chosen, place.value, tape.tangent(place.value)
        tensors = [t for t in place.inputs if isinstance(t, Tensor)]
        if not self.all_options or len(tensors) < len(place.inputs):
            return
        inputs = [(t, tape.tangent(t)) for t in tensors]
        for option in range(len(mixed.options)):
            if option != chosen and not is_zero(mixed, option):
                yield option, *self._pushed(mixed, option, place.path, inputs)

    def _pushed(
        self, mixed: Mixed, option: int, path: str, inputs: list[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor | None]:
        def function(*tensors: Tensor) -> Tensor:
            out = self.supernet.option(mixed, option, path, tensors)
            assert isinstance(out, Tensor)
            return out

        return push(function, *inputs)


def _nothing_mixed(mixed: Mixed, path: str, inputs: list[Maybe]) -> Maybe:
    raise TypeError(f"{path}: an option has no options of its own")


def is_zero(mixed: Mixed, option: int) -> bool:
    """Whether an option of a mixed step is `none`."""
    op = mixed.options[option]
    return isinstance(op, Op) and op.kind == ZERO


def _needed(graph: Graph, read: Reads) -> set[int]:
    """The values that the output reads."""

    def reads(number: int) -> tuple[int, ...]:
        if number < graph.n_inputs:
            return ()
        step = graph.steps[number - graph.n_inputs]
        if isinstance(step.op, Mixed):
            return read(step.op, step.inputs)
        return step.inputs

    return reached([graph.output], reads)


def _dot(a: Tensor | None, b: Tensor | None) -> float:
    """⟨a, b⟩; None is zero."""
    if a is None or b is None:
        return 0.0
    return float((a.detach() * b.detach()).sum())
