"""METRICS, the one list, and `evaluate`, which measures any of them on one network and one batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import nn

from initio import plugins
from initio.autodiff.parts import Parts
from initio.autodiff.record import plain_arithmetic
from initio.errors import InputError
from initio.metrics.activations import ACTIVATIONS, tenas
from initio.metrics.base import Measurement, Metric, Options, Value
from initio.metrics.cells import CELLS
from initio.metrics.channels import CHANNELS
from initio.metrics.costs import COSTS
from initio.metrics.gradients import GRADIENTS
from initio.metrics.jacobian import JACOBIAN
from initio.metrics.kernel import KERNEL
from initio.metrics.nngp import NNGP
from initio.metrics.synflow import SYNFLOW
from initio.records import Batch

METRICS: dict[str, Metric] = {
    metric.name: metric
    for family in (GRADIENTS, KERNEL, SYNFLOW, ACTIVATIONS, CHANNELS, CELLS, JACOBIAN, NNGP, COSTS)
    for metric in family
}

__all__ = ["METRICS", "Metric", "Options", "Value", "choose_metrics", "evaluate", "get_metric", "tenas"]


def get_metric(name: str) -> Metric:
    """The metric of this name; one from outside is called by the name under which it was found.

    >>> get_metric("kapa")
    Traceback (most recent call last):
    initio.errors.InputError: there is no metric 'kapa': did you mean 'kappa'?
    """
    found = plugins.find("metrics", name, METRICS)
    if not isinstance(found, Metric):
        raise InputError(f"{name} must be an initio.metrics.Metric, not {type(found).__name__}")
    return replace(found, name=name)


BREAKS = {"precision", "second order", "second order of samples"}  # in half precision, what needs one of these


def choose_metrics(metrics: str | Iterable[str | Metric] = "all") -> tuple[Metric, ...]:
    """These metrics, each once; `all` stands for every reproducible one of Initio's own.

    >>> [metric.name for metric in choose_metrics("kappa,trace,kappa")]
    ['kappa', 'trace']
    """
    if isinstance(metrics, str):
        metrics = [name.strip() for name in metrics.split(",")]
    found: dict[str, Metric] = {}
    for wanted in metrics:
        if isinstance(wanted, Metric):
            found[wanted.name] = wanted
        elif wanted == "all":
            found |= {own.name: own for own in METRICS.values() if own.reproducible}
        else:
            found[wanted] = get_metric(wanted)
    return tuple(found.values())


def evaluate(
    model: nn.Module, batch: Batch, metrics: str | Iterable[str | Metric] = "all", options: Options | None = None
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
    wanted = choose_metrics(metrics)
    options = options or Options()
    refuse_half(wanted, options)
    needs = frozenset[str]().union(*(metric.needs for metric in wanted))
    device = Parts(model).device
    x, y = torch.from_numpy(batch.x.copy()).to(device), torch.from_numpy(batch.y.copy()).to(device)
    measurement = Measurement(model, x, y, options, needs)
    with plain_arithmetic(), torch.random.fork_rng(devices=[]):
        return {metric.name: _value(metric, measurement) for metric in wanted}


def refuse_half(metrics: Iterable[Metric], options: Options) -> None:
    """An `InputError` for metrics that half precision cannot measure: its ε is 1/128, and so are relative eigenvalues.

    The smallest eigenvalue of a kernel is a difference of numbers that are hundreds of times as large: what is left of
    it after such roundings is noise, and so is κ. A second derivative is a difference of gradients in the same way.
    """
    if options.dtype != "bfloat16":
        return
    for metric in metrics:
        if "float64" in metric.needs:
            raise InputError(f"{metric.name} is always measured in float64: leave it out, or take float32")
        if BREAKS & metric.needs:
            raise InputError(
                f"{metric.name} cannot be measured in half precision, which rounds away the small differences that it "
                f"is made of: leave it out, or take float32"
            )


def _value(metric: Metric, measurement: Measurement) -> Value:
    try:
        return metric.value(measurement)
    except InputError:
        raise
    except torch.OutOfMemoryError as error:
        return Value(None, f"out of memory: {error}")
