"""What a network costs: counted (params, flops, layers) or measured (latency). Baselines that a metric must beat."""

from __future__ import annotations

import statistics
import time

import torch

from initio.autodiff.parts import Parts
from initio.autodiff.passes import outputs
from initio.autodiff.record import output
from initio.metrics.base import Measurement, Metric, Value, needs
from initio.networks.cost import Tally, counted, uncounted

RUNS = 5


def params(at: Measurement) -> float:
    """The number of parameters."""
    return float(sum(p.numel() for p in at.model.parameters()))


def flops(at: Measurement) -> Value:
    """Multiply-adds of convolutions, linear and recurrent layers and attention on one input."""
    return Value(float(_count(at).flops), _uncounted(at))


def layers(at: Measurement) -> Value:
    """The layers with weights that one forward pass uses."""
    return Value(float(_count(at).layers), _uncounted(at))


def _count(at: Measurement) -> Tally:
    with counted(at.model) as total:
        outputs(at.model, at.x[:1], at.dtype)
    return total


def _uncounted(at: Measurement) -> str:
    names = uncounted(at.model)
    if not names:
        return ""
    return f"{len(names)} weights ({names[0]}, ...) are used outside of layers that are counted"


def latency(at: Measurement) -> Value:
    """Milliseconds of one forward pass of the batch: the median of five."""
    parts, seconds = Parts(at.model), []
    x = at.x.clone()  # which the model may write into
    for p in parts.parameters.values():
        x = x.to(p.dtype)
    with parts.evaluated(), torch.no_grad():
        for _ in range(RUNS + 1):
            start = time.perf_counter()
            output(at.model, x)
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
