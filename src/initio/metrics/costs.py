"""What a network costs: counted (params, flops, layers) or measured (latency). Baselines that a metric must beat."""

from __future__ import annotations

import statistics
import time

import torch

from initio.autodiff.parts import Parts
from initio.metrics.base import Measurement, Metric, Value, needs

RUNS = 5


def params(at: Measurement) -> float:
    """The number of parameters."""
    return float(sum(p.numel() for p in at.model.parameters()))


def flops(at: Measurement) -> float:
    """Multiply-adds of convolutions and linear layers on one input."""
    return float(_count(at)[0])


def layers(at: Measurement) -> float:
    """Convolutions and linear layers that one forward pass uses."""
    return float(_count(at)[1])


def _count(at: Measurement) -> tuple[int, int]:
    from initio.networks.cost import count_module

    with Parts(at.model).evaluated():
        cost, _ = count_module(at.model, at.x[:1])
    return cost.flops, cost.layers


def latency(at: Measurement) -> Value:
    """Milliseconds of one forward pass of the batch: the median of five."""
    seconds = []
    with Parts(at.model).evaluated(), torch.no_grad():
        for _ in range(RUNS + 1):
            start = time.perf_counter()
            at.model(at.x)
            seconds.append(time.perf_counter() - start)
    return Value(1000 * statistics.median(seconds[1:]), f"measured on {torch.get_num_threads()} threads")


COSTS = (
    Metric("params", "|θ|", "counted", True, needs("counting"), params, "The number of parameters."),
    Metric("flops", "Σ multiply-adds", "counted", True, needs("counting"), flops,
           "Multiply-adds of convolutions and linear layers for one input, as the NAS-Bench-201 table counts."),
    Metric("layers", "number of layers", "counted", True, needs("counting"), layers,
           "Convolutions and linear layers."),
    Metric("latency", "median milliseconds", "measured", False, needs("timing"), latency,
           "One forward pass of the batch on this machine."),
)  # fmt: skip
