"""Metrics: METRICS, the one list, and `evaluate`, which measures any of them on one network and one batch."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from initio.errors import InputError, did_you_mean
from initio.metrics.activations import ACTIVATIONS, tenas
from initio.metrics.base import Measurement, Metric, Options, Value
from initio.metrics.costs import COSTS
from initio.metrics.gradients import GRADIENTS
from initio.metrics.jacobian import JACOBIAN
from initio.metrics.kernel import KERNEL
from initio.metrics.nngp import NNGP
from initio.metrics.synflow import SYNFLOW
from initio.records import Batch

METRICS: dict[str, Metric] = {
    metric.name: metric
    for family in (GRADIENTS, KERNEL, SYNFLOW, ACTIVATIONS, JACOBIAN, NNGP, COSTS)
    for metric in family
}

__all__ = ["METRICS", "Metric", "Options", "Value", "choose", "evaluate", "tenas"]


def choose(names: str | Iterable[str] = "all") -> tuple[Metric, ...]:
    """The metrics of these names; `all` stands for every reproducible one.

    >>> [metric.name for metric in choose("kappa,trace")]
    ['kappa', 'trace']
    >>> choose("kapa")
    Traceback (most recent call last):
    initio.errors.InputError: there is no metric 'kapa': did you mean 'kappa'?
    """
    given = names.split(",") if isinstance(names, str) else list(names)
    out: dict[str, Metric] = {}
    for name in (part.strip() for part in given):
        if name == "all":
            out |= {m.name: m for m in METRICS.values() if m.reproducible}
        elif name in METRICS:
            out[name] = METRICS[name]
        else:
            raise InputError(f"there is no metric {name!r}: {did_you_mean(name, list(METRICS))}")
    return tuple(out.values())


def evaluate(
    model: nn.Module, batch: Batch, metrics: str | Iterable[str] = "all", options: Options | None = None
) -> dict[str, Value]:
    """Every metric's value, or the reason why it has none, of a model with weights on one batch.

    The forward pass and the backward passes are shared by all metrics that need them. Nothing of the model changes:
    parameters, buffers, gradients, training flags and hooks are as they were, and so is torch's generator.

    >>> model = nn.Linear(2, 2, bias=False)
    >>> _ = nn.init.eye_(model.weight)
    >>> batch = Batch([[3.0, 0.0], [0.0, 4.0]], [0, 1], classes=2, source="two points")
    >>> evaluate(model, batch, "trace,kappa,naswot")
    {'trace': Value(value=3.535..., flag=''),
     'kappa': Value(value=1.777..., flag=''),
     'naswot': Value(value=None, flag='the network has no ReLU, so inputs have no binary codes')}
    """
    wanted = choose(metrics)
    options = options or Options()
    needs = frozenset[str]().union(*(metric.needs for metric in wanted))
    x, y = torch.from_numpy(batch.x.copy()), torch.from_numpy(batch.y.copy())
    measurement = Measurement(model, x, y, options, needs)
    return {metric.name: _value(metric, measurement) for metric in wanted}


def _value(metric: Metric, measurement: Measurement) -> Value:
    try:
        return metric.value(measurement)
    except InputError:
        raise
    except torch.OutOfMemoryError as error:
        return Value(None, f"out of memory: {error}")
