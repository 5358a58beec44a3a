"""Eigenvalues of a kernel matrix, and what can be said about its condition."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The spectrum of a symmetric positive semi-definite matrix, computed in float64.

    `precision` is the relative precision of the entries (that of the arithmetic they were computed in): an eigenvalue
    below m · precision · λ_max cannot be told from zero.

    >>> Spectrum(np.diag([4.0, 2.0, 1.0])).kappa
    4.0
    >>> singular = Spectrum(np.ones((2, 2)))
    >>> singular.kappa
    inf
    >>> singular.flag
    'the smallest eigenvalue 0.0e+00 is zero beside the largest, 2.0e+00'
    """

    K: np.ndarray
    precision: float = float(np.finfo(np.float64).eps)

    @cached_property
    def eigenvalues(self) -> np.ndarray:
        """In ascending order; the matrix is symmetrised first."""
        return np.linalg.eigvalsh((self.K + self.K.T) / 2)

    @property
    def lambda_min(self) -> float:
        """The smallest eigenvalue, at least 0: what rounding pushed below is zero."""
        return max(0.0, float(self.eigenvalues[0]))

    @property
    def lambda_max(self) -> float:
        """The largest eigenvalue."""
        return max(0.0, float(self.eigenvalues[-1]))

    @property
    def singular(self) -> bool:
        """Whether λ_min cannot be told from zero."""
        return self.lambda_min <= len(self.K) * self.precision * self.lambda_max

    @property
    def kappa(self) -> float:
        """λ_max / λ_min; infinite for a numerically singular matrix."""
        return float("inf") if self.singular else self.lambda_max / self.lambda_min

    @property
    def flag(self) -> str:
        """Why κ is infinite, or nothing."""
        if not self.singular:
            return ""
        return f"the smallest eigenvalue {self.lambda_min:.1e} is zero beside the largest, {self.lambda_max:.1e}"
