"""Supernets: one network that holds the parameters of every option of a space and computes only the sampled path.

A sample has one option for each categorical of `space.relaxation`; all cells of a type share it. The chosen operation's
output is multiplied by its gate, a number of value 1 that carries a gradient to the architecture's weights. What a
`none` makes zero and what the output does not read is not computed, as in the pruned network that `space.build` gives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from initio.autodiff.nodes import Value
from initio.autodiff.pearlmutter import Tape, dual
from initio.networks.graphs import SUM, ZERO, Graph, Mixed, NetworkSettings, Op, reached
from initio.networks.initialise import initialise
from initio.networks.operations import OPERATIONS, Kit


@dataclass(frozen=True)
class Ghost:
    """The value of a chosen `none`: zero, but with a derivative; sums of ghosts alone are zero without one."""

    tensor: Tensor


Maybe = Tensor | Ghost | None  # None is zero
Mix = Callable[[Mixed, str, list[Maybe]], Maybe]


class OneShot(Protocol):
    """What a supernet needs of a space: its categoricals, and its graph around a sample."""

    @property
    def relaxation(self) -> Sequence[Sized]:
        """The categoricals."""

    def resolve(self, settings: NetworkSettings) -> NetworkSettings:
        """The settings with width and depth."""

    def supernet(self, choices: Sequence[int], settings: NetworkSettings) -> Graph:
        """The graph with `Mixed` steps."""


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
        self.register_buffer("like", torch.empty(0), persistent=False)  # what new parameters are like

    def operation(self, path: str, op: Op) -> nn.Module:
        """The module of one operation in one place, `path` being the names of its steps joined by dots."""
        key = f"{path}:{op.kind}:{op.c_in}:{op.c_out}:{op.stride}".replace(".", "/")
        if key not in self.operations:
            module = OPERATIONS[op.kind](op, self.kit)
            digest = hashlib.sha256(f"{self.seed} {key}".encode()).digest()
            initialise(module, self.settings.init, int.from_bytes(digest[:7], "big"))
            module = module.to(self.like.device, self.like.dtype).train(self.training)
            if not module.state_dict():
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
            terms = []
            for option in range(len(mixed.options)) if all_options else [chosen]:
                value = self._option(mixed, option, path, inputs)
                if isinstance(value, Tensor):
                    terms.append(value if gates is None else value * gates[mixed.categorical][option])
            if not terms:
                return None
            total = torch.stack(terms).sum(0) if len(terms) > 1 else terms[0]
            return Ghost(total) if _is_zero(mixed, chosen) else total

        return self._run(x, choices, mix, all_options)

    def trace_gradient(
        self, x: Tensor, y: Tensor, choices: Sequence[int], *, all_options: bool = False
    ) -> tuple[float, list[list[float]]]:
        """T = ‖∇θ L‖², L the mean cross-entropy, and ∂T/∂h for the gates h of all categoricals, at one-hot gates.

        Without `all_options` only the chosen gates have a derivative. With it, the others have it too, at the price of
        a forward pass and a tangent of every option [see `initio.autodiff.pearlmutter`].
        """
        places: list[tuple[Mixed, str, list[Maybe], Tensor]] = []
        tape = Tape()

        def mix(mixed: Mixed, path: str, inputs: list[Maybe]) -> Maybe:
            chosen = choices[mixed.categorical]
            if _is_zero(mixed, chosen):
                tensors = [t for t in inputs if isinstance(t, Tensor)]
                if not (all_options and tensors):
                    return None
                ghost = Ghost(tape.zeros(tensors[0]))
                places.append((mixed, path, inputs, ghost.tensor))
                return ghost
            value = self._option(mixed, chosen, path, inputs)
            if isinstance(value, Tensor):
                value = tape.alias(value)
                places.append((mixed, path, inputs, value))
            return value

        training = self.training
        self.eval()  # batch norms keep their counters; the tape takes the batch's statistics in any case
        with tape:
            f = self._run(x, choices, mix, all_options)
        self.train(training)
        for _, _, inputs, at in places:
            tape.keep(at, *(t for t in inputs if all_options and isinstance(t, Tensor) and tape.value(t) is not None))
        with torch.no_grad():
            p = F.softmax(f, dim=1)
            delta = p.clone()
            delta[torch.arange(len(y)), y] -= 1
            tape.backward(f, delta / len(y))
            tape.tangent()
            f_dot = tape.values[id(f)].dot
            if f_dot is not None:
                delta_dot = p * (f_dot - (p * f_dot).sum(1, keepdim=True))  # R{softmax(f)}
                tape.tangent_backward(f, delta_dot / len(y))
            dT = [[0.0] * len(decision) for decision in self.space.relaxation]
            for mixed, path, inputs, at in places:
                chosen = choices[mixed.categorical]
                place = tape.values[id(at)]
                for option in range(len(mixed.options)) if all_options else [chosen]:
                    u = place if option == chosen else self._dual_option(mixed, option, path, inputs, tape)
                    if u is not None:
                        dT[mixed.categorical][option] += 2 * _rate(place, u)
        return tape.parameters.squared_norm(), dT

    # --- running a graph -----------------------------------------------------------------------------------------

    def _run(self, x: Tensor, choices: Sequence[int], mix: Mix, all_options: bool) -> Tensor:
        graph = self.space.supernet(choices, self.settings)
        out = self._graph(graph, [x], "", choices, mix, all_options)
        assert isinstance(out, Tensor)
        return out

    def _graph(
        self, graph: Graph, inputs: Sequence[Maybe], path: str, choices: Sequence[int], mix: Mix, all_options: bool
    ) -> Maybe:
        needed = _needed(graph, None if all_options else choices)
        values = list(inputs)
        for number, step in enumerate(graph.steps, start=graph.n_inputs):
            read = [values[i] for i in step.inputs]
            name = f"{path}{step.name}"
            if number not in needed:
                values.append(None)
            elif isinstance(step.op, Graph):
                out = self._graph(step.op, read, f"{name}.", choices, mix, all_options)
                first = read[0]
                assert isinstance(first, Tensor)
                values.append(out if isinstance(out, Tensor) else torch.zeros_like(first))  # a disconnected cell
            elif isinstance(step.op, Mixed):
                values.append(mix(step.op, name, read))
            else:
                values.append(self._op(step.op, name, read))
        return values[graph.output]

    def _option(self, mixed: Mixed, option: int, path: str, inputs: list[Maybe]) -> Maybe:
        if _is_zero(mixed, option):
            return None
        places = mixed.places[option] if mixed.places else range(len(inputs))
        op, read = mixed.options[option], [inputs[i] for i in places]
        if isinstance(op, Graph):
            return self._graph(op, read, f"{path}.", (), _nothing_mixed, True)
        return self._op(op, path, read)

    def _op(self, op: Op, path: str, inputs: Sequence[Maybe]) -> Maybe:
        if op.kind == ZERO:
            return None
        if op.kind == SUM:
            real = [value for value in inputs if isinstance(value, Tensor)]
            ghosts = [value.tensor for value in inputs if isinstance(value, Ghost)]
            return self.operation(path, op)(*real, *ghosts) if real else None
        tensors = [value for value in inputs if isinstance(value, Tensor)]
        if len(tensors) < len(inputs):
            return None
        return self.operation(path, op)(*tensors)  # type: ignore[no-any-return]

    def _dual_option(self, mixed: Mixed, option: int, path: str, inputs: list[Maybe], tape: Tape) -> Value | None:
        """The value and tangent of an option that was not chosen."""
        known = [value for t in inputs if isinstance(t, Tensor) and (value := tape.value(t)) is not None]
        if _is_zero(mixed, option) or len(known) < len(inputs):
            return None

        def function(*tensors: Tensor) -> Tensor:
            out = self._option(mixed, option, path, list(tensors))
            assert isinstance(out, Tensor)
            return out

        return dual(function, *known)


def _nothing_mixed(mixed: Mixed, path: str, inputs: list[Maybe]) -> Maybe:
    raise TypeError(f"{path}: an option has no options of its own")


def _is_zero(mixed: Mixed, option: int) -> bool:
    op = mixed.options[option]
    return isinstance(op, Op) and op.kind == ZERO


def _needed(graph: Graph, choices: Sequence[int] | None) -> set[int]:
    """The values that the output reads, by the chosen options or by any."""

    def reads(number: int) -> tuple[int, ...]:
        if number < graph.n_inputs:
            return ()
        step = graph.steps[number - graph.n_inputs]
        if isinstance(step.op, Mixed) and choices is not None:
            return step.op.choose(choices[step.op.categorical], step.inputs)[1]
        return step.inputs

    return reached([graph.output], reads)


def _rate(place: Value, u: Value) -> float:
    """R{⟨δ, u⟩} = ⟨R{δ}, u⟩ + ⟨δ, R{u}⟩."""
    total = 0.0
    for a, b in ((place.delta_dot, u.tensor), (place.delta, u.dot)):
        if a is not None and b is not None:
            total += float((a * b).sum())
    return total
