"""The space of Eigen-NAS [Eigen 1, 2]: fully connected networks with an activation and a skip for each layer.

f_1 = σ_1(W_1 x), f_l = σ_l(W_l f_{l−1}) + α_{l−1} f_{l−1} for l = 2..L−1, f = W_L f_{L−1}.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache

from initio.errors import InputError, did_you_mean
from initio.graphs import SUM, Builder, Graph, Op
from initio.records import Architecture
from initio.spaces.base import Cell, Decision, Edge, GraphSpace, NetworkSettings

ACTIVATIONS = ("relu", "leaky_relu", "sigmoid", "tanh", "swish")  # sigmoid is Sigmoid − 1/2
MAX_DEPTH = 1000


@dataclass(frozen=True)
class MlpSpace(GraphSpace):
    """Depth L is part of the name: `mlp-10` has 9 activations and 8 skips.

    >>> mlp_space(4).parse("mlp:relu,tanh,relu;skips=1").choices
    (0, 3, 0, 1, 0)
    """

    @property
    def depth(self) -> int:
        """L, the number of weight matrices."""
        return (len(self.decisions) + 3) // 2

    def parse(self, text: str) -> Architecture:
        """Reads `mlp:relu,tanh,relu;skips=1`: activations of layers 1..L−1, and the l with α_l = 1.

        The depth is that of the text, so `mlp_space(10).parse` may give an architecture of `mlp-4`.
        """
        body = text.strip().partition(":")[2]
        names, _, skips = body.partition(";")
        activations = names.split(",")
        for place, name in enumerate(activations, start=1):
            if name not in ACTIVATIONS:
                right = did_you_mean(name, list(ACTIVATIONS))
                raise InputError(f"layer {place} of the mlp has an unknown activation {name!r}: {right}")
        home = self._home(text, len(activations) + 1)
        taken = _parse_skips(skips, home.depth - 2) if ";" in body else set()
        alpha = (int(layer in taken) for layer in range(1, home.depth - 1))
        return home.architecture(*(ACTIVATIONS.index(name) for name in activations), *alpha)

    @staticmethod
    def _home(text: str, depth: int) -> MlpSpace:
        if depth > MAX_DEPTH:
            raise InputError(f"an mlp has at most depth {MAX_DEPTH}, not {depth}")
        prefix = text.strip().partition(":")[0]
        if prefix not in ("mlp", f"mlp-{depth}"):
            raise InputError(
                f"an mlp with {depth - 1} activations begins with 'mlp:' or 'mlp-{depth}:', not {prefix!r}"
            )
        return mlp_space(depth)

    def format(self, arch: Architecture) -> str:
        """`mlp:relu,tanh,relu;skips=1`; without skips the second part is left out."""
        activations, alpha = self.layers(arch)
        taken = ",".join(str(layer) for layer, skip in enumerate(alpha, start=1) if skip)
        return "mlp:" + ",".join(activations) + (f";skips={taken}" if taken else "")

    def layers(self, arch: Architecture) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Activations σ_1..σ_{L−1} and skips α_1..α_{L−2}."""
        choices = self.check(arch).choices
        return tuple(ACTIVATIONS[i] for i in choices[: self.depth - 1]), choices[self.depth - 1 :]

    def cells(self, arch: Architecture) -> tuple[Cell, ...]:
        """The layers in a row, skips as arrows around them."""
        activations, alpha = self.layers(arch)
        chain = [Edge(layer, layer + 1) for layer in range(self.depth)]
        skips = [Edge(layer, layer + 1, "skip_connect") for layer, skip in enumerate(alpha, start=1) if skip]
        return (Cell("network", ("input", *activations, "output"), tuple(chain[: self.depth] + skips)),)

    def network(self, arch: Architecture, settings: NetworkSettings) -> Graph:
        """Layers without bias, `channels` wide; inputs are flattened."""
        activations, alpha = self.layers(arch)
        width, _ = self.size(settings)
        net = Builder()
        x, c_in = net("flatten", Op("flatten"), 0), math.prod(settings.shape)
        for number, name in enumerate(activations, start=1):
            kind = "sigmoid_half" if name == "sigmoid" else name
            new = net(f"linear_{number}", Op("linear_nobias", c_in, width), x)
            new = net(f"activation_{number}", Op(kind, width, width), new)
            x, c_in = (
                net(f"skip_{number}", Op(SUM), new, x) if number > 1 and alpha[number - 2] else new,
                width,
            )
        return net.graph(net(f"linear_{self.depth}", Op("linear_nobias", width, settings.classes), x))


def _parse_skips(text: str, highest: int) -> set[int]:
    if not (match := re.fullmatch(r"skips=(none|[0-9]{1,4}(?:,[0-9]{1,4})*)", text)):
        raise InputError(f"the second part of an mlp must look like 'skips=1,3' or 'skips=none', not {text!r}")
    taken = set() if match[1] == "none" else {int(number) for number in match[1].split(",")}
    if wrong := sorted(layer for layer in taken if not 1 <= layer <= highest):
        right = f"1 to {highest}" if highest else "none, since there is one hidden layer"
        raise InputError(f"skip {wrong[0]} of the mlp is out of range: {right}")
    return taken


@cache
def mlp_space(depth: int) -> MlpSpace:
    """The space of depth L >= 2: 5^(L−1) · 2^(L−2) architectures."""
    if not 2 <= depth <= MAX_DEPTH:
        raise InputError(f"the depth of an mlp must be 2 to {MAX_DEPTH}, not {depth}")
    return MlpSpace(
        name=f"mlp-{depth}",
        title=f"Eigen-NAS: fully connected networks of depth {depth}, 5 activations, optional skips",
        decisions=(
            *(Decision(f"activation {layer}", ACTIVATIONS) for layer in range(1, depth)),
            *(Decision(f"skip {layer}", ("0", "1")) for layer in range(1, depth - 1)),
        ),
        default_channels=1024,
    )
