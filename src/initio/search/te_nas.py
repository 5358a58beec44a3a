"""TE-NAS (Chen et al., 2021; thesis 3.4): prunes a supernet by condition number and number of linear regions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, ClassVar

from initio.data import load
from initio.errors import InputError
from initio.graphs import SUM, ZERO, Builder, Graph, Mixed, Op, prune
from initio.records import Architecture, Query
from initio.search.queries import Proposals, Task
from initio.spaces import GraphSpace, NetworkSettings

if TYPE_CHECKING:
    from torch import nn

SUPERNETS = ("nb201", "darts")  # where all options exist side by side, whatever is sampled

Kept = tuple[tuple[int, ...], ...]  # for each categorical of the relaxation, the options that are left


@dataclass(frozen=True)
class TeNas:
    """From all options side by side to one a categorical, without any training.

    In each round every option that is left is tried without: how small is κ then, and how many linear regions remain?
    Each categorical loses the option whose removal has the best sum of the two ranks. The one query at the end only
    tells how good the choice is.

    The paper ranks relative changes against the supernet of the round, averaged over repeats. That divisor is the same
    for all, so the logarithm of κ and the count themselves are ranked here. Two more departures: options of an edge are
    added, not averaged, and batch-norm statistics are frozen. The defaults are small, for a CPU; the paper has 72 real
    images of 32x32, 3 channels for κ and 1 for the regions, and 3 repeats.

    Args:
        data: the images, as `initio.data.load` reads it: `noise:3x16x16`, `cifar10@16`.
        batch_size: images that κ is measured on.
        channels: width of κ's network; the regions' network has a width of 1.
        repeats: networks and batches that a measurement is the mean of.
        prunes: options that a categorical loses in a round.
    """

    data: str = "noise:3x16x16"
    batch_size: int = 32
    channels: int = 3
    repeats: int = 1
    prunes: int = 1

    name: ClassVar[str] = "te-nas"

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 2), ("channels", 1), ("repeats", 1), ("prunes", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be at least {least}, not {getattr(self, name)}")

    def propose(self, task: Task, seed: int) -> Proposals:
        """Prunes, then asks for what is left."""
        space = task.space
        if not isinstance(space, GraphSpace) or space.name not in SUPERNETS:
            raise InputError(
                f"te-nas prunes a supernet, which {space.name} does not have: take {' or '.join(SUPERNETS)}"
            )
        weights = self.weights(space, seed)
        yield Query(task.member(space.decode(weights)) or _heaviest(task, weights))
        return None

    def weights(self, space: GraphSpace, seed: int) -> list[list[float]]:
        """How long each option survived: 0 for the first that its categorical loses, and so on.

        Where an architecture leaves categoricals out (darts: two edges a node), the last option's weight tells which:
        the edges whose removal is worst stay.
        """
        rng = Random(f"{self.name} {seed}")
        kept: Kept = tuple(tuple(range(len(decision))) for decision in space.relaxation)
        weights = [[math.inf] * len(decision) for decision in space.relaxation]
        while any(len(options) > 1 for options in kept):
            regret = self._regret(space, kept, rng, [k for k, options in enumerate(kept) if len(options) > 1])
            for k in regret:
                worst_last = sorted(regret[k], key=lambda option: (regret[k][option], option))
                for option in worst_last[: min(self.prunes, len(kept[k]) - 1)]:
                    weights[k][option] = len(weights[k]) - len(kept[k])
                    kept = (*kept[:k], tuple(o for o in kept[k] if o != option), *kept[k + 1 :])
        final = [float(len(row)) for row in weights]
        if len(space.active(space.sample(rng))) < len(kept):
            last = self._regret(space, kept, rng, range(len(kept)))
            most = 1 + max(last[k][options[0]] for k, options in enumerate(kept))
            final = [n + last[k][kept[k][0]] / most for k, n in enumerate(final)]
        for k, (option,) in enumerate(kept):
            weights[k][option] = final[k]
        return weights

    def _regret(
        self, space: GraphSpace, kept: Kept, rng: Random, categoricals: Sequence[int]
    ) -> dict[int, dict[int, float]]:
        """For each option of these categoricals, how bad it is to remove it: TE-NAS's sum of ranks."""
        from initio.metrics import tenas

        draws = [rng.randrange(2**31) for _ in range(self.repeats)]
        tried = [(k, option) for k in categoricals for option in kept[k]]
        found = [self.measure(space, _without(kept, k, option), draws) for k, option in tried]
        ranks = tenas([log_kappa for log_kappa, _ in found], [regions for _, regions in found])
        out: dict[int, dict[int, float]] = {k: {} for k in categoricals}
        for (k, option), rank in zip(tried, ranks, strict=True):
            out[k][option] = rank
        return out

    def measure(self, space: GraphSpace, kept: Kept, draws: Sequence[int]) -> tuple[float, float]:
        """Mean log κ and mean number of linear regions; a network without a value is the worst of all."""
        from initio.metrics import Options, evaluate

        data = load(self.data)
        log_kappa = regions = 0.0
        for draw in draws:
            batch = data.batch(self.batch_size, draw)
            settings = NetworkSettings(
                channels=self.channels, cells=space_cells(space), classes=batch.classes, shape=batch.shape, init="he"
            )
            kappa = evaluate(_build(space, kept, settings, draw), batch, "kappa", Options(reduction="sum"))["kappa"]
            thin = _build(space, kept, replace(settings, channels=1), draw)
            count = evaluate(thin, batch, "regions", Options(seed=draw))["regions"]
            log_kappa += math.inf if kappa.value is None else math.log(kappa.value)
            regions += count.value or 0.0
        return log_kappa / len(draws), regions / len(draws)


def space_cells(space: GraphSpace) -> int:
    """The paper's depth: one cell a stage of nb201, one normal and one reduction cell of darts."""
    return 1 if space.name == "nb201" else 2


def keep(graph: Graph, kept: Kept) -> Graph:
    """A supernet in which every `Mixed` step is the sum of the options that are left; cells are pruned."""
    new = Builder(graph.n_inputs)
    values = list(range(graph.n_inputs))
    for step in graph.steps:
        op, inputs = step.op, tuple(values[i] for i in step.inputs)
        if isinstance(op, Graph):
            values.append(new(step.name, prune(keep(op, kept)), *inputs))
        elif isinstance(op, Mixed):
            chosen = [(option, *op.choose(option, inputs)) for option in kept[op.categorical]]
            terms = [new(f"{step.name}_{option}", inner, *read) for option, inner, read in chosen]
            none = Op(ZERO, op.c_in, op.c_out, op.stride)
            values.append(new(step.name, Op(SUM), *terms) if terms else new(step.name, none, *inputs))
        else:
            values.append(new(step.name, op, *inputs))
    return new.graph(values[graph.output])


def _build(space: GraphSpace, kept: Kept, settings: NetworkSettings, seed: int) -> nn.Module:
    from initio.networks import build

    settings = space.resolve(settings)
    return build(keep(space.supernet((0,) * len(kept), settings), kept), settings, seed=seed)


def _without(kept: Kept, categorical: int, option: int) -> Kept:
    left = tuple(o for o in kept[categorical] if o != option)
    return (*kept[:categorical], left, *kept[categorical + 1 :])


def _heaviest(task: Task, weights: Sequence[Sequence[float]]) -> Architecture:
    """Of a pool that lacks the choice itself, the member whose options survived longest."""
    return max(task.pool, key=lambda arch: sum(weights[k][option] for k, option in task.space.active(arch)))
