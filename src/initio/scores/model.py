"""`score`: every metric of any model or architecture, in one call."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from initio.errors import InputError
from initio.metrics import Metric, Options, Value, choose_metrics, evaluate
from initio.records import Architecture, Batch
from initio.report.notebook import data_frame, html_table
from initio.scores.measure import measure
from initio.spaces import NetworkSettings, Space, parse

ARROWS = {True: "↑", False: "↓"}


@dataclass(frozen=True)
class MetricScore:
    """One metric's values over repeats."""

    metric: str
    higher_is_better: bool
    values: tuple[Value, ...]

    @property
    def numbers(self) -> tuple[float, ...]:
        """The values that exist."""
        return tuple(v.value for v in self.values if v.value is not None)

    @property
    def value(self) -> float | None:
        """The mean over repeats, or None when a repeat has no value."""
        if len(self.numbers) < len(self.values):
            return None
        return float(np.mean(self.numbers))

    @property
    def spread(self) -> float | None:
        """The standard deviation over repeats, None for a single one."""
        if len(self.numbers) < 2 or self.value is None or math.isinf(self.value):
            return None
        return float(np.std(self.numbers, ddof=1))

    @property
    def flag(self) -> str:
        """Every reason to doubt or miss a value, each once."""
        return "; ".join(dict.fromkeys(v.flag for v in self.values if v.flag))

    @property
    def text(self) -> tuple[str, str, str]:
        """Direction, mean and spread, as people read them."""
        mean = "none" if self.value is None else f"{self.value:.6g}"
        spread = "" if self.spread is None else f" ± {self.spread:.2g}"
        return ARROWS[self.higher_is_better], mean, spread


@dataclass(frozen=True, repr=False)
class Scores(Mapping[str, MetricScore]):
    """The answer of `score`: a mapping from metric names that prints as a table."""

    scores: tuple[MetricScore, ...]
    batch: str  # where the batch came from
    seeds: tuple[int, ...]

    def __getitem__(self, name: str) -> MetricScore:
        return {score.metric: score for score in self.scores}[name]

    def __iter__(self) -> Iterator[str]:
        return (score.metric for score in self.scores)

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def title(self) -> str:
        """The batch, the seeds, and what the arrows mean."""
        repeats = f", seeds {self.seeds[0]} to {self.seeds[-1]}" * (len(self.seeds) > 1)
        return f"{self.batch}{repeats}   ↑ larger is better, ↓ smaller is better"

    def __repr__(self) -> str:
        width = max((len(s.metric) for s in self.scores), default=0)
        lines = [self.title]
        for s in self.scores:
            arrow, mean, spread = s.text
            lines.append(f"{s.metric:<{width}} {arrow} {mean:>12}{spread}" + f"  ({s.flag})" * bool(s.flag))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = ([s.metric, s.text[0], s.text[1] + s.text[2], s.flag] for s in self.scores)
        return html_table(self.title, ["metric", "", "value", "why doubtful or missing"], rows)

    def to_frame(self) -> Any:
        """A pandas `DataFrame`: a row for each metric and seed, with value and flag."""
        values = [value for s in self.scores for value in s.values]
        columns = {
            "metric": [s.metric for s in self.scores for _ in self.seeds],
            "seed": list(self.seeds) * len(self.scores),
            "value": np.array([v.value for v in values], dtype=np.float64),  # None becomes NaN
            "flag": [v.flag for v in values],
        }
        return data_frame(columns, ["metric", "seed"])


def score(
    model: nn.Module | Architecture | str,
    batch: Batch | tuple[Any, Any] | Iterable[Any],
    metrics: str | Iterable[str | Metric] = "all",
    *,
    options: Options | None = None,
    space: Space | None = None,
    seed: int = 0,
    repeats: int = 1,
    **network: Any,
) -> Scores:
    """Every metric of a model or an architecture on one batch.

    Args:
        model: any `nn.Module` that maps a batch of inputs to logits, an architecture, or its text.
        batch: a `Batch`, a pair (inputs, labels), or a loader, whose first batch is taken.
        metrics: names, metrics of your own, or `all`.
        options: how metrics are measured.
        space: of an architecture, if it was made in Python and has no name by which it is found.
        seed: of the weights of an architecture's network, and of the metrics that draw random numbers on it.
        repeats: how many initialisations are scored. The first one of a module is its own; for the others every layer
            that has `reset_parameters` is drawn again in a copy.
        network: how the network of an architecture is built, the fields of `NetworkSettings` (channels, cells, norm,
            ...); its classes and shape are those of the batch.

    >>> from initio import noise
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> out = score(model, noise((1, 2, 2), classes=2, batch_size=3, seed=0), "params")
    >>> print(out)
    noise   ↑ larger is better, ↓ smaller is better
    params ↑           10
    """
    batch = as_batch(batch)
    if repeats < 1:
        raise InputError(f"repeats must be at least 1, not {repeats}")
    seeds = tuple(range(seed, seed + repeats))
    chosen = choose_metrics(metrics)
    if isinstance(model, str):
        model = parse(model) if space is None else space.parse(model)
    if isinstance(model, Architecture):
        size = NetworkSettings(**network)
        rows = [measure(model, batch, chosen, space=space, network=size, options=options, seed=this) for this in seeds]
    elif space is not None:
        raise InputError("a module needs no space: leave it out")
    elif network:
        raise InputError(f"{', '.join(network)}: a module has its size already; only architectures are built here")
    else:
        model = materialised(model, batch)
        rows = [evaluate(model, batch, chosen, options)]
        rows += [evaluate(redrawn(model, this), batch, chosen, options) for this in seeds[1:]]
    scores = (MetricScore(m.name, m.higher_is_better, tuple(row[m.name] for row in rows)) for m in chosen)
    return Scores(tuple(scores), batch.source, seeds)


def as_batch(batch: Batch | tuple[Any, Any] | Iterable[Any]) -> Batch:
    """A `Batch` from anything that holds inputs and labels."""
    if isinstance(batch, Batch):
        return batch
    pair: Any = batch
    source = "a batch"
    if not _is_pair(pair):
        source = "the first batch of a loader"
        try:
            pair = next(iter(batch))
        except (TypeError, StopIteration):
            raise InputError("the batch must be a Batch, a pair (inputs, labels) or a loader of such pairs") from None
        if isinstance(pair, Batch):
            return pair
    if not _is_pair(pair):
        raise InputError("the loader must yield pairs (inputs, labels)")
    x, y = map(_array, pair)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise InputError(f"labels must be whole numbers, one for each input, not {y.dtype} of shape {y.shape}")
    return Batch(x, y, classes=int(y.max(initial=0)) + 1, source=source)


def _array(values: Tensor | np.ndarray) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        if values.dtype == torch.bfloat16:  # which numpy does not have
            values = values.float()
    return np.asarray(values)


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(t, Tensor | np.ndarray) for t in value)
    )


def materialised(model: nn.Module, batch: Batch) -> nn.Module:
    """The model itself, or a copy whose lazy layers have met the batch's shape; torch's generator stays as it was."""
    if not any(is_lazy(p) for p in [*model.parameters(), *model.buffers()]):
        return model
    model = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        flags = [(module, module.training) for module in model.modules()]
        model.eval()
        device = next((t.device for t in [*model.parameters(), *model.buffers()]), None)
        model(torch.from_numpy(batch.x[:2].copy()).to(device))
        for module, flag in flags:
            module.training = flag
    return model


def redrawn(model: nn.Module, seed: int) -> nn.Module:
    """A copy whose layers have drawn their weights again from this seed."""
    for name, module in model.named_modules():
        if next(module.parameters(recurse=False), None) is not None and not hasattr(module, "reset_parameters"):
            raise InputError(
                f"{name or 'the model'} ({type(module).__name__}) has parameters but no reset_parameters, so they "
                "cannot be drawn again: give it that method, or score with repeats=1"
            )
    model = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in model.modules():
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()
    return model
