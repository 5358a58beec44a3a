"""Limits on what a search may choose, and the watch that times a network."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from initio.autodiff.threads import one_thread
from initio.records import Architecture
from initio.spaces import GraphSpace, NetworkSettings

if TYPE_CHECKING:
    from initio.networks.cost import NetworkCost

WARM_UP = 2
PASSES = 7


@dataclass(frozen=True)
class Limits:
    """Upper limits on the network that will be built: of the published size or smaller, dead operations included.

    Parameters and FLOPs are counted. The latency, in seconds, is measured by a `Stopwatch`: it is noisy, belongs to one
    machine and costs seconds an architecture, so searches ask for it last and for few.
    """

    max_params: int | None = None
    max_flops: int | None = None
    max_latency: float | None = None

    @property
    def counted(self) -> bool:
        """Whether parameters or FLOPs are limited."""
        return self.max_params is not None or self.max_flops is not None

    def excess(self, cost: NetworkCost) -> float:
        """The largest ratio of a count to its limit: up to 1, the counted limits are kept."""
        counts = ((cost.parameters, self.max_params), (cost.flops, self.max_flops))
        return max(
            (count / limit if limit else float("inf") for count, limit in counts if limit is not None), default=0
        )

    def __str__(self) -> str:
        """
        >>> print(Limits(max_params=4_000_000, max_latency=0.02))
        at most 4,000,000 parameters and at most 20 ms a forward pass
        """
        parts = [(self.max_params, "parameters"), (self.max_flops, "FLOPs")]
        texts = [f"at most {limit:,} {what}" for limit, what in parts if limit is not None]
        if self.max_latency is not None:
            texts.append(f"at most {milliseconds(self.max_latency)} a forward pass")
        return " and ".join(texts)


def milliseconds(seconds: float) -> str:
    """A time as people say it.

    >>> milliseconds(0.0204)
    '20.4 ms'
    """
    return f"{1e3 * seconds:.3g} ms"


class Stopwatch:
    """Seconds of a forward pass: one input, one thread, eval mode, the median of 7 passes after 2 that do not count.

    Each architecture is timed once and remembered. A search under a latency limit is a function of its seed and of
    these times: who hands in the `known` ones gets the same answer.
    """

    def __init__(self, known: Mapping[Architecture, float] | None = None) -> None:
        self.known = dict(known or {})
        self.on_new: Callable[[Architecture, float], None] | None = None

    def seconds(self, space: GraphSpace, arch: Architecture, network: NetworkSettings) -> float:
        """The time of the architecture's network, known or measured now."""
        if arch not in self.known:
            self.known[arch] = forward_seconds(space, arch, network)
            if self.on_new:
                self.on_new(arch, self.known[arch])
        return self.known[arch]


def forward_seconds(space: GraphSpace, arch: Architecture, network: NetworkSettings) -> float:
    """Measures; the number of torch's threads is as before afterwards."""
    import torch

    model = space.build(arch, network, seed=0).eval()
    x = torch.randn(1, *network.shape, generator=torch.Generator().manual_seed(0))
    with one_thread(), torch.inference_mode():
        return median([_timed(model, x) for _ in range(WARM_UP + PASSES)][WARM_UP:])


def _timed(model: Callable[[object], object], x: object) -> float:
    start = time.perf_counter()
    model(x)
    return time.perf_counter() - start
