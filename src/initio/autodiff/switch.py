"""What the recorded functions share: which layer they are a use of, how its parameters move, what a pass is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from initio.autodiff.layers import Geometry

Statistics = Literal["frozen", "coupled"]  # batch statistics as constants, or differentiated


@dataclass(frozen=True)
class Layer:
    """A recorded use of weights: their names in the model, and the map they take part in (None: a normalisation)."""

    weight: str
    bias: str
    geometry: Geometry | None
    shape: tuple[int, ...] = ()  # of the weights


# visit(layer, x, δ, ẋ, δ̇): the layer's input and output gradient, with their tangents in a dual pass. A normalisation
# shows what its parameters' gradients are made of instead: per sample Σ_p δ x̂ and Σ_p δ, and the tangents of both.
Visit = Callable[[Layer, Tensor, Tensor, Tensor | None, Tensor | None], None]


@dataclass
class PartGradients:
    """Gradients of weights from equal parts of the batch, (parts, *shape) by name, filled by a pass that gives g."""

    parts: int
    found: dict[str, Tensor] = field(default_factory=dict)

    def add(self, name: str, shares: Tensor) -> None:
        """Weights that are used twice have the sum of both gradients."""
        if name in self.found:
            shares = self.found[name] + shares
        self.found[name] = shares


@dataclass
class Switch:
    """What the backward pass that runs now is to do; one for each tape."""

    batch_norm: Statistics = "coupled"
    wanted: frozenset[str] | None = None  # the parameters that the pass is for; None: all of them
    inputs: Tensor | None = None  # what the network was given
    to_inputs: bool = False  # whether the pass is for their gradient, too
    visit: Visit | None = None
    gradients: dict[str, Tensor] | None = None  # the dual pass leaves g here
    fisher: dict[str, Tensor] | None = None  # Σ over positions of z ∘ δ, (m, channels), by layer
    by_part: PartGradients | None = None  # the pass leaves g of parts of the batch here

    def wants(self, name: str) -> bool:
        """Whether the pass asks for this parameter; an empty name is none."""
        return bool(name) and (self.wanted is None or name in self.wanted)

    def returns(self, name: str) -> bool:
        """Whether the pass gives this parameter's gradient back, instead of showing layers to a visitor."""
        return self.visit is None and self.wants(name)

    def add_gradient(self, name: str, value: Tensor) -> None:
        """Weights that are used twice have the sum of both gradients."""
        if self.gradients is not None and name:
            old = self.gradients.get(name)
            if old is not None:
                value = old + value
            self.gradients[name] = value


@dataclass(frozen=True)
class Motion:
    """How a layer's parameters move: (Ẇ, ḃ), the direction v at their names; None is zero.

    In GraSP's direction v = θ the product Ẇ ∗ x is W ∗ x, which is there already: `own_weight`, `own_bias`.
    """

    weight: Tensor | None = None
    bias: Tensor | None = None
    own_weight: bool = False
    own_bias: bool = False


@dataclass
class Memo:
    """What one function of a first pass leaves for a second one: what it computed, and its output's loss gradient δ."""

    values: tuple[Tensor, ...] = ()  # without their history, which would be a cycle through autograd's graph
    delta: Tensor | None = None


class Recall:
    """The memos of a network, in the order of its functions: a first pass fills them, a second one reads them.

    A direction v = g takes two passes of the same network and input, one that gives g and one along it, and all values
    and all δ are the same in both. So the second need not compute them, nor send δ back through tangents: it only
    sends back δ̇, to which every layer adds what comes of its own δ. That leaves out the second derivatives of
    whatever is not a recorded function; hence it is for networks whose other operations are piecewise linear.
    """

    def __init__(self) -> None:
        self.memos: list[Memo] = []
        self.place = 0

    def start(self) -> None:
        """A pass begins."""
        self.place = 0

    def take(self) -> Memo:
        """The memo of the next function."""
        if self.place == len(self.memos):
            self.memos.append(Memo())
        self.place += 1
        return self.memos[self.place - 1]


@dataclass(frozen=True)
class Use:
    """All that a recorded function needs to know beside its tensors."""

    layer: Layer
    switch: Switch
    dual: bool  # whether tangents are carried
    motion: Motion
    memo: Memo | None = None

    def values(self, compute: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """What the forward pass computes, unless an earlier one did."""
        if self.memo is None:
            return compute()
        if not self.memo.values:
            self.memo.values = compute()
        return tuple(t.detach() for t in self.memo.values)

    def deltas(self, dz: Tensor | None, dzt: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """(δ, δ̇) from the gradients of value and tangent: in a dual pass δ is the tangent's, else it is the value's."""
        if dzt is not None:
            return dzt, dz
        if self.memo is None:
            return dz, None
        if not self.dual:
            self.memo.delta = dz
            return dz, None
        return self.memo.delta, dz
