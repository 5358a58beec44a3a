"""The smallest eigenvalue of a kernel, or the reason why it has none that can be told from zero."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Smallest:
    """λ_min with the largest eigenvalue beside it; `value` is None and `flag` says why when it is lost in rounding."""

    value: float | None
    largest: float
    flag: str = ""


def smallest_eigenvalue(K: Tensor) -> Smallest:
    """λ_min of a symmetric matrix; below N·ε·λ_max it is zero as far as float64 can tell.

    >>> smallest_eigenvalue(torch.diag(torch.tensor([3.0, 2.0], dtype=torch.float64)))
    Smallest(value=2.0, largest=3.0, flag='')
    >>> smallest_eigenvalue(torch.ones(2, 2, dtype=torch.float64)).value is None
    True
    """
    values = torch.linalg.eigvalsh(K)
    low, high = float(values[0]), float(values[-1])
    if low > len(K) * torch.finfo(K.dtype).eps * high:
        return Smallest(low, high)
    return Smallest(None, high, f"the smallest eigenvalue, {low:.1e}, is zero beside the largest, {high:.1e}")
