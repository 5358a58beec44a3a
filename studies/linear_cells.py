"""The widest and the narrowest linear cell [Understanding 4.3; thesis 4.2 to 4.4]: constants beside their bounds.

    widest  y(i) = W(i) x          narrowest  ŷ(i) = W(i) ··· W(1) x          i = 1 ... n, z concatenates all

with the same objective f of z behind both. λ(i) is the spectral norm of W(i): the theorems print "largest eigenvalue",
under which they fail for a nilpotent W. Their proofs take ∂f̂/∂ŷ(i) for ∂f/∂y(i) (A.4), which is so only where f is
linear in z. Then block-wise Lipschitz constants are zero in both cells, and Theorem 4.3 says nothing; for any other
objective its factor is too small, and `lipschitz` has one that holds. Theorem 4.4 holds for linear objectives, with
n − i + 1 in the place of n, and fails for others; `tests/studies/test_linear_cells.py` has counterexamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

Matrices = Sequence[np.ndarray]  # W(1) ... W(n), square


def spectral(W: np.ndarray) -> float:
    """λ: the largest singular value."""
    return float(np.linalg.norm(W, 2))


def chain(weights: Matrices, size: int) -> np.ndarray:
    """W(k) ··· W(1), the identity for none."""
    return reduce(lambda product, W: W @ product, weights, np.eye(size))


@dataclass(frozen=True)
class BlockBound:
    """A constant of the narrowest cell's block i, what the theorem prints for it, and what holds."""

    block: int  # i, from 1
    constant: float
    printed: float
    holds: float


def lipschitz(weights: Matrices, x: np.ndarray) -> list[BlockBound]:
    """Theorem 4.3 for f = Σ_k ‖y(k)‖²/2, where the constants are known: L(i) = ‖x‖² in the widest cell.

    In the narrowest, with P_k = W(k) ··· W(i+1) and q = W(i−1) ··· W(1) x, the gradient of block i is
    Σ_{k≥i} P_kᵀ P_k W(i) q qᵀ, whose constant is the largest eigenvalue of Σ P_kᵀ P_k times ‖q‖². The theorem prints
    (Π_{j<i} λ(j)) L(i); what holds is (Π_{j<i} λ(j))² Σ_{k≥i} (Π_{i<j≤k} λ(j))² L(i).
    """
    size, norms = len(x), [spectral(W) for W in weights]
    widest, found = float(x @ x), []
    for i in range(len(weights)):
        after = [chain(weights[i + 1 : k + 1], size) for k in range(i, len(weights))]
        q = chain(weights[:i], size) @ x
        constant = spectral(sum((P.T @ P for P in after), np.zeros((size, size)))) * float(q @ q)
        before = float(np.prod(norms[:i]))
        holds = before**2 * sum(float(np.prod(norms[i + 1 : k + 1])) ** 2 for k in range(i, len(weights))) * widest
        found.append(BlockBound(i + 1, constant, before * widest, holds))
    return found


def gradients(weights: Matrices, x: np.ndarray, slopes: np.ndarray, i: int, *, narrow: bool) -> np.ndarray:
    """∂f/∂W(i) where ∂f/∂y(k) = slopes[k] (1) and (3) of the paper; `i` counts from 0."""
    if not narrow:
        return np.outer(slopes[i], x)
    size = len(x)
    back = sum((chain(weights[i + 1 : k + 1], size).T @ slopes[k] for k in range(i, len(weights))), np.zeros(size))
    return np.outer(back, chain(weights[:i], size) @ x)


def gradient_variance(
    weights: Matrices, xs: np.ndarray, slopes: np.ndarray, narrow_slopes: np.ndarray | None = None
) -> list[BlockBound]:
    """Theorem 4.4 over samples: E‖∂f̂/∂W(i) − E ∂f̂/∂W(i)‖² ≤ n Σ_{k≥i} (σ(k)/λ(i) Π_{j≤k} λ(j))².

    Args:
        weights: n of them.
        xs: inputs, (samples, size).
        slopes: ∂f/∂y(k) of each sample in the widest cell, (samples, n, size).
        narrow_slopes: the same in the narrowest; by default equal, as of an objective linear in z.
    """
    n, norms = len(weights), [spectral(W) for W in weights]
    behind = slopes if narrow_slopes is None else narrow_slopes
    deviation = [
        np.sqrt(_variance([gradients(weights, x, s, k, narrow=False) for x, s in zip(xs, slopes, strict=True)]))
        for k in range(n)
    ]
    found = []
    for i in range(n):
        mine = [gradients(weights, x, s, i, narrow=True) for x, s in zip(xs, behind, strict=True)]
        terms = [(deviation[k] * np.prod([norms[j] for j in range(k + 1) if j != i])) ** 2 for k in range(i, n)]
        found.append(BlockBound(i + 1, _variance(mine), n * float(sum(terms)), (n - i) * float(sum(terms))))
    return found


def _variance(samples: Sequence[np.ndarray]) -> float:
    """E‖G − E G‖² in the Frobenius norm, which is the largest of the usual ones."""
    stacked = np.stack(samples)
    return float(((stacked - stacked.mean(axis=0)) ** 2).sum(axis=(1, 2)).mean())


@dataclass(frozen=True)
class DescentBound:
    """Theorem 4.2 (Ghadimi and Lan, 2013): E‖∇f(w_R)‖² of a run of SGD, and its bound."""

    gradient: float
    bound: float


def descent(curvatures: np.ndarray, noise: float, rate: float, steps: int) -> DescentBound:
    """Many runs of SGD with a rate γ < 1/L on f(w) = Σ h_d w_d²/2, with Gaussian noise of variance σ² on its gradients.

    E‖∇f(w_R)‖² ≤ 2 (f(w_0) − f*)/H + Lσ² Σγ²/H with H = Σγ; w_R is drawn among the iterates with probability γ/H.
    """
    rng, runs = np.random.default_rng(0), 200
    size, L = len(curvatures), float(curvatures.max())
    w = np.ones((runs, size))
    start, total = float((curvatures / 2).sum()), 0.0
    for _ in range(steps):
        slope = curvatures * w
        total += float((slope**2).sum(axis=1).mean())
        w = w - rate * (slope + rng.standard_normal((runs, size)) * noise / np.sqrt(size))
    H = rate * steps
    return DescentBound(total / steps, 2 * start / H + L * noise**2 * steps * rate**2 / H)
