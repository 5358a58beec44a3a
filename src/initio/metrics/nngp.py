"""nngp: how well the network's own Gaussian process predicts held-out labels [Park et al. 2020; thesis 3.4]."""

from __future__ import annotations

import math

import numpy as np
import torch

from initio.autodiff.passes import outputs_of_redrawn
from initio.metrics.base import Measurement, Metric, UndefinedValue, Value, needs

NETWORKS = 8
NOISE = 0.1  # variance of the labels' noise, in units of the kernel's mean diagonal


def nngp(at: Measurement) -> Value:
    """Mean log density of the second half's centred one-hot labels, given the first half's.

    K = mean over random networks and their outputs of f(x) f(x'), scaled to a mean diagonal of 1. The random networks
    are the model with every weight drawn again, N(0, variance of its tensor); biases and norms stay.
    """
    n = at.f.shape[1]
    if at.m < 4 or n < 2:
        raise UndefinedValue(
            "half a batch must predict the other half: at least four samples and two classes are needed"
        )
    K = monte_carlo_kernel(at)
    if not np.isfinite(K).all() or np.trace(K) <= 0:
        raise UndefinedValue("the outputs of random networks are zero or not finite")
    K = K * at.m / np.trace(K)
    Y = np.eye(n)[at.y.cpu().numpy()] - 1 / n
    half = at.m // 2
    return at.with_doubt(log_density(K, Y, half))


def monte_carlo_kernel(at: Measurement) -> np.ndarray:
    """(1/S) Σ_networks f fᵀ / n."""
    K = torch.zeros(at.m, at.m, dtype=torch.float64, device=at.x.device)
    for f in outputs_of_redrawn(at.model, at.x, NETWORKS, at.options.seed, at.dtype):
        f = f.double()
        K += f @ f.T / f.shape[1]
    return (K / NETWORKS).cpu().numpy()


def log_density(K: np.ndarray, Y: np.ndarray, half: int) -> float:
    """Mean over held-out samples of log N(Y | posterior mean, posterior variance), outputs independent.

    >>> round(log_density(np.eye(2), np.zeros((2, 1)), 1), 4)  # N(0 | 0, 1.1)
    -0.9666
    """
    A = K[:half, :half] + NOISE * np.eye(half)
    B = K[half:, :half]
    solved = np.linalg.solve(A, B.T).T
    mean = solved @ Y[:half]
    variance = np.maximum(np.diag(K)[half:] + NOISE - np.sum(solved * B, axis=1), NOISE)
    error = np.sum((Y[half:] - mean) ** 2, axis=1)
    density = -0.5 * (error / variance + Y.shape[1] * np.log(2 * math.pi * variance))
    return float(density.mean())


NNGP = (
    Metric("nngp", "mean log p(y' | x', x, y)", "Park et al. 2020; thesis 3.4", True,
           needs("precision", "labels", "forward passes"), nngp,
           "The likelihood of held-out labels under the network's own Gaussian process (kernel of 8 random networks)."),
)  # fmt: skip
