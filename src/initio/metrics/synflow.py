"""synflow, in the log domain [Tanaka et al. 2020]."""

from __future__ import annotations

import math

import torch

from initio.autodiff.passes import positive_flow
from initio.kernels.empirical import is_weight
from initio.metrics.base import Measurement, Metric, UndefinedValue, Value, needs


def synflow(at: Measurement) -> Value:
    """log Σ |θ ∘ ∂R/∂θ|: R the summed output on an input of ones, |θ| for θ, no batch norm, in float64."""
    generator = torch.get_rng_state()
    R, g, parameters = positive_flow(at.model, tuple(at.x.shape[1:]))
    note = ""
    if not torch.equal(generator, torch.get_rng_state()):
        note = "the network draws random numbers, so that no two passes agree"
    if not math.isfinite(R):
        raise UndefinedValue("the summed output exceeds float64")
    total = sum(float((parameters[n] * t).abs().sum()) for n, t in g.items() if is_weight(t))
    if not math.isfinite(total):
        raise UndefinedValue("the sum exceeds float64")
    if total == 0:
        raise UndefinedValue(
            "no path of weights leads from input to output, so the logarithm of the flow does not exist"
        )
    return Value(math.log(total), note)


SYNFLOW = (
    Metric("synflow", "log Σ |θ ∘ ∂R/∂θ|", "Tanaka et al. 2020", True, needs("gradients", "float64"), synflow,
           "The flow through all paths of absolute weights, no batch norm; the published score is its exponential."),
)  # fmt: skip
