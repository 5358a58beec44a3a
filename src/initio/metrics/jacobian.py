"""jacob_cov: how alike the inputs' gradients are [Mellor et al. 2020, Abdelfattah et al. 2021]."""

from __future__ import annotations

import numpy as np
import torch

from initio.metrics.base import Measurement, Metric, UndefinedValue, Value, needs

RIDGE = 1e-5  # of the published score


def jacob_cov(at: Measurement) -> Value:
    """−Σ_v (log(v + 1e-5) + 1/(v + 1e-5)), v the eigenvalues of the correlation matrix of ∂Σf/∂x_i."""
    _ = at.f
    if at.m < 2:
        raise UndefinedValue("a correlation needs at least two inputs")
    J = at.tape.input_gradient(torch.ones_like(at.tape.f)).reshape(at.m, -1).double().cpu().numpy()
    if not np.isfinite(J).all():
        raise UndefinedValue("the gradient of the input is not finite")
    centred = J - J.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(centred, axis=1)
    if (norms <= 1e-12 * np.maximum(np.abs(J).max(axis=1), np.finfo(np.float64).tiny)).any():
        raise UndefinedValue("an input's gradient is constant, so it has no correlation with others")
    centred /= norms[:, None]
    v = np.linalg.eigvalsh(centred @ centred.T)
    v = np.maximum(v, 0.0)
    return at.with_doubt(float(-np.sum(np.log(v + RIDGE) + 1 / (v + RIDGE))))


JACOBIAN = (
    Metric("jacob_cov", "−Σ_v (log(v + 1e-5) + 1/(v + 1e-5))", "Abdelfattah et al. 2021", True,
           needs("precision", "input gradients"), jacob_cov,
           "v: eigenvalues of the correlation matrix of the input gradients, by a symmetric solver.",
           reversed_on=("nb101",)),
)  # fmt: skip
