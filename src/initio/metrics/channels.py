"""Metrics of how channels go together: NEAR's effective rank, and MeCo's smallest eigenvalue.

Both read one matrix from every batch norm, G = ⟨x̂ x̂ᵀ⟩ over batch and positions, (C, C), x̂ its normalised values: at
initialisation the correlations of its outputs. In a network without batch norms the outputs of its convolutions and
linear layers stand for them, centred and scaled alike.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from initio.metrics.base import Measurement, Metric, UndefinedValue, Value, needs


def near(at: Measurement) -> Value:
    """Σ over batch norms of exp(−Σ_k p_k log p_k), p = λ / Σλ of the eigenvalues λ of G.

    The paper takes singular values, √λ, in the place of λ: then the many small ones, which a finite batch has anyway,
    count nearly as much as the large. It also takes the values after each activation.
    """
    return at.with_doubt(sum(float(np.exp(entropies(s)).sum()) for s in _spectra(at)), _outside(at))


def meco(at: Measurement) -> Value:
    """Σ over batch norms of λ_min(G). The paper takes every module's output on one image, and adds those up."""
    return at.with_doubt(sum(float(s[:, 0].sum()) for s in _spectra(at)), _outside(at))


def entropies(spectra: np.ndarray) -> np.ndarray:
    """−Σ_k p_k log p_k of each row, p = row / Σ row; −inf for a row of zeros, whose exponential counts for nothing.

    >>> np.exp(entropies(np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]])))
    array([3., 1., 0.])
    """
    total = spectra.sum(axis=1, keepdims=True)
    p = spectra / np.where(total > 0, total, 1.0)
    H = -np.sum(p * np.log(np.where(p > 0, p, 1.0)), axis=1)
    return np.where(total[:, 0] > 0, H, -np.inf)


def eigenvalues(matrices: np.ndarray, eps: float) -> np.ndarray:
    """Of symmetric matrices (n, C, C), ascending; what cannot be told from zero beside the largest is zero."""
    spectra = np.linalg.eigvalsh(matrices)
    spectra[spectra <= matrices.shape[1] * eps * spectra[:, -1:]] = 0.0
    return spectra


def _spectra(at: Measurement) -> list[np.ndarray]:
    """The eigenvalues of all G, those of equal size in one array."""
    _ = at.f
    found = at.tape.notes.features
    if not found:
        raise UndefinedValue(
            "the network has no batch norm, convolution or linear layer whose channels can be compared"
        )
    by_size = defaultdict(list)
    for G in found:
        by_size[len(G)].append(G.cpu().numpy())
    groups = [np.stack(same) for same in by_size.values()]
    if not all(np.isfinite(group).all() for group in groups):
        raise UndefinedValue("the correlations of channels are not finite")
    return [eigenvalues(group, at.eps) for group in groups]


def _outside(at: Measurement) -> str:
    """A note on layers that do not count, where no batch norm stands for them."""
    notes = at.tape.notes
    if notes.batch_norms or not (notes.unknown or notes.hidden):
        return ""
    return "what is neither a convolution nor a linear layer is left outside"


CHANNELS = (
    Metric("near", "Σ_norms exp(−Σ_k p_k log p_k), p = λ / Σλ", "after NEAR (Husistein et al. 2025)", True,
           needs("precision", "features"), near,
           "The effective rank of what batch norms give, λ the eigenvalues of their channels' correlations, added up.",
           version=2),
    Metric("meco", "Σ_norms λ_min(⟨x̂ x̂ᵀ⟩)", "MeCo (Jiang et al. 2023)", True, needs("precision", "features"), meco,
           "The smallest eigenvalue of the correlations of a batch norm's channels, added up; over the whole batch."),
)  # fmt: skip
