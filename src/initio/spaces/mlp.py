"""Fully connected networks with an activation to choose in each layer and skips around layers [Eigen 1 and 2]."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache

from initio.errors import InputError, did_you_mean
from initio.networks.graphs import SUM, Builder, Graph, NetworkSettings, Op
from initio.records import Architecture
from initio.spaces.base import Cell, Decision, Edge, GraphSpace, Size, Sizes, Space

ACTIVATIONS = ("relu", "leaky_relu", "sigmoid", "tanh", "swish")  # sigmoid means sigmoid − 1/2 [Eigen, Table 1]
KINDS = {"sigmoid": "sigmoid_half"}  # operations that are not called as the activation
SKIPS = ("0", "1")
WIDTH = 1024  # [Eigen, section 5.1]
EXAMPLE = "mlp:relu,tanh,relu;skips=1"


def as_mlp(space: Space, refusal: str) -> MlpSpace:
    """The space, if it is one of mlps; else the sentence is an `InputError`."""
    if not isinstance(space, MlpSpace):
        raise InputError(refusal)
    return space


@dataclass(frozen=True)
class MlpSpace(GraphSpace):
    """f₁ = σ₁(W₁x), f_l = σ_l(W_l f_{l−1}) + α_{l−1} f_{l−1}, f = W_L f_{L−1}, for one depth L.

    Written `mlp:relu,tanh,relu;skips=1`: the activations of layers 1 to L − 1, then the numbers l with α_l = 1, where
    α_l is the skip around layer l + 1; the part after the semicolon is left out when there is no skip.

    >>> space = mlp_space(4)
    >>> arch = space.parse("mlp:relu,tanh,relu;skips=1")
    >>> arch.choices
    (0, 3, 0, 1, 0)
    >>> space.format(space.architecture(0, 3, 0, 0, 0))
    'mlp:relu,tanh,relu'
    >>> space.count()
    500
    """

    images = False
    sizes = Sizes(Size(WIDTH, 1), training=Size(128, 1))

    @property
    def depth(self) -> int:
        """L, the number of weight matrices."""
        return (len(self.decisions) + 3) // 2

    def activations(self, arch: Architecture) -> tuple[str, ...]:
        """σ₁ .. σ_{L−1} by name."""
        return tuple(ACTIVATIONS[choice] for choice in self.check(arch).choices[: self.depth - 1])

    def skips(self, arch: Architecture) -> tuple[int, ...]:
        """α₁ .. α_{L−2}."""
        return self.check(arch).choices[self.depth - 1 :]

    def parse(self, text: str) -> Architecture:
        """Reads the text form; the text itself says its depth, and with it the space its architecture is of."""
        activations, skips = _read(text)
        return mlp_space(len(activations) + 1).architecture(*activations, *skips)

    def format(self, arch: Architecture) -> str:
        """Activations in order, then the numbers of the skips."""
        text = "mlp:" + ",".join(self.activations(arch))
        if skips := [str(number) for number, alpha in enumerate(self.skips(arch), start=1) if alpha]:
            text += f";skips={','.join(skips)}"
        return text

    def wires(self, decision: Decision, option: int) -> Hashable:
        """Activations connect nothing."""
        return decision.options != ACTIVATIONS and option

    def cells(self, arch: Architecture) -> tuple[Cell, ...]:
        """The whole network as one chain; a node is what a layer hands on."""
        activations, skips = self.activations(arch), self.skips(arch)
        edges = [Edge(layer, layer + 1, name) for layer, name in enumerate(activations)]
        edges += [Edge(number, number + 1, "skip") for number, alpha in enumerate(skips, start=1) if alpha]
        edges.append(Edge(self.depth - 1, self.depth, "linear"))
        names = ("input", *(f"f{layer}" for layer in range(1, self.depth)), "output")
        return (Cell("network", names, tuple(sorted(edges, key=lambda e: (e.target, e.source, e.label == "skip")))),)

    def network(self, arch: Architecture, settings: NetworkSettings) -> Graph:
        """L weight matrices without offsets, `channels` units a layer (1024)."""
        width, size = self.size(settings)[0], math.prod(settings.shape)
        net = Builder()
        x = net("flatten", Op("flatten", size, size), 0)
        layers = zip(self.activations(arch), (0, *self.skips(arch)), strict=True)
        for layer, (name, alpha) in enumerate(layers, start=1):
            z = net(f"layer_{layer}", Op("linear_nobias", size, width), x)
            f = net(f"activation_{layer}", Op(KINDS.get(name, name), width, width), z)
            if alpha:
                f = net(f"skip_{layer - 1}", Op(SUM), f, x)
            x, size = f, width
        return net.graph(net("classifier", Op("linear_nobias", width, settings.classes), x))


@cache
def mlp_space(depth: int) -> MlpSpace:
    """The space of depth L: 5^(L−1) · 2^(L−2) architectures."""
    if depth < 2:
        raise InputError(f"an mlp has a depth of at least 2, not {depth}")
    activations = tuple(Decision(f"activation {layer}", ACTIVATIONS) for layer in range(1, depth))
    skips = tuple(Decision(f"skip {number}", SKIPS) for number in range(1, depth - 1))
    return MlpSpace(
        name=f"mlp-{depth}",
        title=f"fully connected, depth {depth}: an activation in each layer, skips around layers",
        decisions=activations + skips,
    )


def _read(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The choices of activations and skips in a text form."""
    match = re.fullmatch(r"\s*mlp:([^;]*)(?:;\s*skips=([^;]*))?\s*", text)
    if not match:
        raise InputError(f"an mlp must look like {EXAMPLE!r}, not {text!r}")
    names = [name.strip() for name in match[1].split(",")]
    for number, name in enumerate(names, start=1):
        if name not in ACTIVATIONS:
            hint = did_you_mean(name, list(ACTIVATIONS))
            raise InputError(f"activation {number} of the mlp is unknown, {name!r}: {hint}")
    places, skips, listed = range(1, len(names)), set[int](), (match[2] or "").strip()
    for place in [] if listed in ("", "none") else listed.split(","):
        if not re.fullmatch(r"\s*[0-9]{1,6}\s*", place) or int(place) not in places:
            raise InputError(f"skip {place.strip()!r} of the mlp must be a number from 1 to {len(places)}")
        if int(place) in skips:
            raise InputError(f"skip {int(place)} of the mlp is given twice")
        skips.add(int(place))
    return tuple(map(ACTIVATIONS.index, names)), tuple(int(place in skips) for place in places)
