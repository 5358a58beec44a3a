"""Metrics: NAMES and their directions, which need no torch, and from `catalogue.py`, when it is used, all the rest.

>>> [name for name in NAMES if not is_higher_better(name)]
['kappa', 'latency']
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from initio.metrics.activations import tenas as tenas
    from initio.metrics.base import Metric as Metric
    from initio.metrics.base import Options as Options
    from initio.metrics.base import Value as Value
    from initio.metrics.catalogue import METRICS as METRICS
    from initio.metrics.catalogue import choose_metrics as choose_metrics
    from initio.metrics.catalogue import evaluate as evaluate
    from initio.metrics.catalogue import get_metric as get_metric

NAMES = (
    "grad", "grad_norm", "snip", "snip_printed", "grasp", "grasp_printed", "nasi", "nasi_sum", "fisher", "zico",
    "trace", "kappa", "lambda_min", "lambda_relative", "eigen", "knas", "synflow", "naswot", "regions", "near", "meco",
    "expressivity", "progressivity", "trainability", "jacob_cov", "nngp", "params", "flops", "layers", "latency",
)  # fmt: skip
SMALLER_IS_BETTER = frozenset({"kappa", "latency"})

__all__ = [
    "METRICS", "NAMES", "Metric", "Options", "Value",
    "choose_metrics", "evaluate", "get_metric", "is_higher_better", "tenas",
]  # fmt: skip


def is_higher_better(name: str) -> bool:
    """The direction of a metric; only one from outside is imported for it."""
    if name in NAMES:
        return name not in SMALLER_IS_BETTER
    found: Metric = __getattr__("get_metric")(name)
    return found.higher_is_better


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'initio.metrics' has no attribute {name!r}")
    return getattr(importlib.import_module("initio.metrics.catalogue"), name)
