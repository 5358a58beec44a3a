"""`score`: every metric of any model or architecture, in one call."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from initio.errors import InputError
from initio.metrics import Options, Value, choose, evaluate, get_metric
from initio.records import Architecture, Batch
from initio.spaces import GraphSpace, NetworkSettings, Space, get_space, parse


@dataclass(frozen=True)
class Score:
    """One metric's values over repeats."""

    metric: str
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
        finite = self.value is not None and math.isfinite(self.value)
        return float(np.std(self.numbers, ddof=1)) if finite and len(self.numbers) > 1 else None

    @property
    def flag(self) -> str:
        """Every reason to doubt or miss a value, each once."""
        return "; ".join(dict.fromkeys(v.flag for v in self.values if v.flag))


@dataclass(frozen=True)
class Scores(Mapping[str, Score]):
    """The answer of `score`: a mapping from metric names that prints as a table."""

    scores: tuple[Score, ...]
    batch: str  # where the batch came from
    seeds: tuple[int, ...]

    def __getitem__(self, name: str) -> Score:
        for score in self.scores:
            if score.metric == name:
                return score
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (score.metric for score in self.scores)

    def __len__(self) -> int:
        return len(self.scores)

    def __str__(self) -> str:
        width = max((len(s.metric) for s in self.scores), default=0)
        lines = []
        for s in self.scores:
            arrow = "↑" if get_metric(s.metric).higher_is_better else "↓"
            number = "none" if s.value is None else f"{s.value:.6g}"
            spread = "" if s.spread is None else f" ± {s.spread:.2g}"
            flag = f"  ({s.flag})" if s.flag else ""
            lines.append(f"{s.metric:<{width}} {arrow} {number:>12}{spread}{flag}")
        repeats = f", seeds {self.seeds[0]} to {self.seeds[-1]}" if len(self.seeds) > 1 else ""
        return "\n".join([f"{self.batch}{repeats}   ↑ larger is better, ↓ smaller is better", *lines])


def score(
    model: nn.Module | Architecture | str,
    batch: Batch | tuple[Any, Any] | Iterable[Any],
    metrics: str | Iterable[str] = "all",
    *,
    options: Options | None = None,
    settings: NetworkSettings | None = None,
    seed: int = 0,
    repeats: int = 1,
) -> Scores:
    """Every metric of a model or an architecture on one batch.

    Args:
        model: any `nn.Module` that maps a batch of inputs to logits, an architecture, or its text.
        batch: a `Batch`, a pair (inputs, labels), or a loader, whose first batch is taken.
        metrics: names, or `all`.
        options: how metrics are measured.
        settings: how the network of an architecture is built; classes and shape are those of the batch.
        seed: of the weights of an architecture's network.
        repeats: how many initialisations are scored. The first one of a module is its own; for the others every layer
            that has `reset_parameters` is drawn again in a copy.

    >>> from initio import noise
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> out = score(model, noise((1, 2, 2), classes=2, batch_size=3, seed=0), "params")
    >>> print(out)
    noise   ↑ larger is better, ↓ smaller is better
    params ↑           10
    """
    batch = as_batch(batch)
    seeds = tuple(range(seed, seed + repeats))
    if repeats < 1:
        raise InputError(f"repeats must be at least 1, not {repeats}")
    names = [metric.name for metric in choose(metrics)]
    subject = _subject(model)
    rows = []
    for number, this in enumerate(seeds):
        if isinstance(subject, Architecture):
            rows.append(score_architecture(subject, batch, names, options, settings, this))
        else:
            network = materialised(subject, batch)
            network = network if number == 0 else redrawn(network, this)
            rows.append(evaluate(network, batch, names, options))
    return Scores(tuple(Score(n, tuple(row[n] for row in rows)) for n in names), batch.source, seeds)


def _subject(model: nn.Module | Architecture | str) -> nn.Module | Architecture:
    if not isinstance(model, str):
        return model
    return parse(model)


def score_architecture(
    arch: Architecture, batch: Batch, metrics: Iterable[str] = ("all",), options: Options | None = None,
    settings: NetworkSettings | None = None, seed: int = 0,
) -> dict[str, Value]:  # fmt: skip
    """Every metric of one architecture for one seed: the boundary that pools call.

    Parameters, FLOPs and layers are counted on the architecture as written, all other metrics on the pruned network.
    """
    settings = replace(settings or NetworkSettings(), classes=batch.classes, shape=batch.shape)
    space = get_space(arch.space)
    names = [metric.name for metric in choose(metrics)]
    counted = [name for name in names if name in ("params", "flops", "layers")] if settings.prune else []
    measured = [name for name in names if name not in counted]
    values: dict[str, Value] = {}
    if measured:
        values |= evaluate(space.build(arch, settings, seed=seed), batch, measured, options)
    if counted:
        values |= _counted(space, arch, batch, counted, replace(settings, prune=False))
    return {name: values[name] for name in names}


def _counted(
    space: Space, arch: Architecture, batch: Batch, names: list[str], settings: NetworkSettings
) -> dict[str, Value]:
    """Costs of the architecture as written: from its graph, if it has one, so that nothing is built or run."""
    if not isinstance(space, GraphSpace) or settings.auxiliary:
        return evaluate(space.build(arch, settings), batch, names)
    from initio.networks.cost import count

    graph = space.network(space.check(arch), space.resolve(settings))
    counts = count(graph, replace(settings, shape=batch.shape)).metrics
    return {name: Value(counts[name]) for name in names}


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
    x, y = (np.asarray(t.detach().cpu() if isinstance(t, Tensor) else t) for t in pair)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise InputError(f"labels must be whole numbers, one for each input, not {y.dtype} of shape {y.shape}")
    return Batch(x, y, classes=int(y.max()) + 1 if len(y) else 1, source=source)


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
        model(torch.from_numpy(batch.x[:2].copy()))
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
