"""The one scorer: metrics of one architecture, on one batch, for one seed of the weights.

A cost (parameters, FLOPs, layers) is that of the architecture as it is written, dead operations included, as published
tables have it; it needs neither data nor weights. Everything else is measured on the pruned network of the canonical
representative, once for all architectures that share it. `initio.score`, pools and the store all follow `subject`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from initio.records import Architecture, Batch
from initio.spaces import NetworkSettings, Space, get_space

if TYPE_CHECKING:
    from initio.metrics import Metric, Options, Value


def is_cost(metric: Metric) -> bool:
    """Whether the metric counts what an architecture costs."""
    return "counting" in metric.needs


def subject(space: Space, arch: Architecture, *, counted: bool) -> Architecture:
    """Whose value it is: that of the architecture as written if it is counted, of its representative if measured."""
    return arch if counted else space.canonical(arch)


def measure(
    arch: Architecture,
    batch: Batch,
    metrics: str | Iterable[str | Metric] = "all",
    *,
    space: Space | None = None,
    network: NetworkSettings | None = None,
    options: Options | None = None,
    seed: int = 0,
) -> dict[str, Value]:
    """The values of these metrics, or the reasons why they have none.

    Args:
        arch: any architecture of the space.
        batch: what the network sees; its classes and shape are those of the network.
        metrics: names, metrics of your own, or `all`.
        space: by default the one that the architecture names.
        network: how networks are built; with `prune=False` everything is measured on the architecture as written.
        options: how metrics are measured, but for their seed.
        seed: of the weights, and of the metrics that draw random numbers.
    """
    from initio.autodiff.devices import find_device
    from initio.metrics import Options, choose_metrics, evaluate

    space = space or get_space(arch.space)
    network = replace(network or NetworkSettings(), classes=batch.classes, shape=batch.shape)
    network = space.resolve(network)  # the sizes are this space's, wherever the representative lies
    chosen = choose_metrics(metrics)
    costs = [metric for metric in chosen if is_cost(metric)]
    others = [metric for metric in chosen if not is_cost(metric)]
    values: dict[str, Value] = {}
    if costs:
        values |= _counted(space, arch, batch, costs, network)
    if others:
        same = subject(space, arch, counted=not network.prune)
        options = replace(options or Options(), seed=seed)
        model = home_of(space, same).build(same, network, seed=seed).to(find_device(options.device, measured=True))
        values |= evaluate(model, batch, others, options)
    return {metric.name: values[metric.name] for metric in chosen}


def _counted(
    space: Space, arch: Architecture, batch: Batch, costs: Sequence[Metric], network: NetworkSettings
) -> dict[str, Value]:
    """From the graph, if the space has graphs, so that no weights are drawn and nothing is run."""
    from initio.metrics import Value, evaluate

    network, counts = replace(network, prune=False), {}
    if not network.auxiliary:  # which a count leaves out, as papers do, and a network that was asked for has
        counts = space.cost(arch, network).metrics
    values = {metric.name: Value(counts[metric.name]) for metric in costs if metric.name in counts}
    if len(values) < len(costs):  # a cost of the user's own
        uncounted = [metric for metric in costs if metric.name not in counts]
        values |= evaluate(space.build(arch, network), batch, uncounted)
    return values


def home_of(space: Space, arch: Architecture) -> Space:
    """The space itself, or the larger one that a canonical architecture lies in."""
    return space if arch.space == space.name else get_space(arch.space)
