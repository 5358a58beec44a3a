"""TE-NAS (Chen et al., 2021; thesis 3.4): prunes a supernet by condition number and number of linear regions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, ClassVar

from initio.data import Data, load
from initio.errors import InputError, at_least
from initio.networks.graphs import SUM, ZERO, Builder, Graph, Mixed, Op, prune
from initio.records import Architecture, Batch, Query
from initio.searches.problem import DRAWS, Problem
from initio.searches.queries import Proposals, QuerySearch
from initio.spaces import GraphSpace, NetworkSettings, spaces_that

if TYPE_CHECKING:
    from torch import Tensor, nn

NOISE = "noise:3x16x16"  # where the problem has no data of its own, as on a published table
DECIMALS = 3  # to which changes are rounded before they are ranked

Kept = tuple[tuple[int, ...], ...]  # for each categorical of the relaxation, the options that are left


@dataclass(frozen=True)
class TeNas(QuerySearch):
    """From all options side by side to one a categorical, without any training.

    In each round every option that is left is tried without: how much does κ grow then, and how much the number of
    linear regions? Both relative to the supernet of the round with the same weights, means over repeats. Each
    categorical loses the option whose removal has the best sum of the two ranks. The one query at the end only tells
    how good the choice is.

    As in the authors' code `none` leaves before the first round (its removal changes nothing, so it would often be the
    last), options of an edge are averaged, changes are rounded before they are ranked, and nb201's regions are those of
    one cell without a stem that sees one channel. Two departures: batch-norm statistics are frozen, and all options of
    a round are tried with the same weights. The defaults are small, for a CPU; the paper has 72 real images of 32x32.
    The images are the problem's; on a published table, which has none, they are noise.

    Args:
        images: how many κ is measured on.
        width: channels of κ's network; the regions' network has one.
        repeats: weights and batches that a change is the mean of; 3 in the paper.
        prunes: options that a categorical loses in a round.
    """

    images: int = 32
    width: int = 3
    repeats: int = 1
    prunes: int = 1

    name: ClassVar[str] = "te-nas"

    def __post_init__(self) -> None:
        at_least(self, images=2, width=1, repeats=1, prunes=1)

    def propose(self, problem: Problem, seed: int) -> Proposals:
        """Prunes, then asks for what is left."""
        data = load(NOISE) if problem.data is None else problem.data
        weights = self.weights(problem.graphs, data, seed, problem.device)
        yield Query(problem.member(problem.space.decode(weights)) or _heaviest(problem, weights))
        return None

    def check(self, problem: Problem) -> None:
        """Refuses a space without a supernet that holds all options side by side."""
        space = problem.space
        if not (isinstance(space, GraphSpace) and space.prunable):
            prunable = spaces_that("prunable")
            raise InputError(f"te-nas prunes a supernet, which {space.name} does not have: take {prunable}")

    def weights(self, space: GraphSpace, data: Data, seed: int, device: str = "cpu") -> list[list[float]]:
        """How long each option survived: 0 for the first that its categorical loses, and so on.

        Where an architecture leaves categoricals out (darts: two edges a node), the last option's weight tells which:
        the edges whose removal is worst stay.
        """
        rng = Random(f"{self.name} {seed}")
        kept = _start(space)
        weights = [[0.0] * len(decision) for decision in space.relaxation]
        while any(len(options) > 1 for options in kept):
            undecided = [k for k, options in enumerate(kept) if len(options) > 1]
            regret = self._regret(space, data, kept, rng, undecided, device)
            for k in regret:
                worst_last = sorted(regret[k], key=lambda option: (regret[k][option], option))
                for option in worst_last[: min(self.prunes, len(kept[k]) - 1)]:
                    weights[k][option] = len(weights[k]) - len(kept[k])
                    kept = _without(kept, k, option)
        final = [float(len(row)) for row in weights]
        if len(space.active(space.sample(rng))) < len(kept):
            last = self._regret(space, data, kept, rng, range(len(kept)), device)
            most = 1 + max(last[k][options[0]] for k, options in enumerate(kept))
            final = [n + last[k][kept[k][0]] / most for k, n in enumerate(final)]
        for k, (option,) in enumerate(kept):
            weights[k][option] = final[k]
        return weights

    def _regret(
        self, space: GraphSpace, data: Data, kept: Kept, rng: Random, categoricals: Sequence[int], device: str
    ) -> dict[int, dict[int, float]]:
        """For each option of these categoricals, how bad it is to remove it: TE-NAS's sum of ranks."""
        tried = [(k, option) for k in categoricals for option in kept[k]]
        smaller = [_without(kept, k, option) for k, option in tried]
        draws = [rng.randrange(2**31) for _ in range(self.repeats)]
        repeats = [self.changes(space, data, kept, smaller, draw, device) for draw in draws]
        kappa, regions = (
            [sum(values) for values in zip(*column, strict=True)] for column in zip(*repeats, strict=True)
        )
        by_kappa = dense_ranks([total / self.repeats for total in kappa])
        by_regions = dense_ranks([-total / self.repeats for total in regions])
        out: dict[int, dict[int, float]] = {k: {} for k in categoricals}
        for (k, option), a, b in zip(tried, by_kappa, by_regions, strict=True):
            out[k][option] = float(a + b)
        return out

    def changes(
        self, space: GraphSpace, data: Data, kept: Kept, smaller: Sequence[Kept], draw: int, device: str = "cpu"
    ) -> tuple[list[float], list[float]]:
        """By how much κ and the number of linear regions grow from the supernet to each of the smaller ones."""
        batch = data.batch(self.images, draw)
        cells = space.sizes.pruning.cells  # of one cell a stage, the first alone has the regions
        wide = NetworkSettings(channels=self.width, cells=cells, classes=batch.classes, shape=batch.shape, init="he")
        nets = PrunedSupernet(space, kept, wide, draw, device=device)
        kappa = [_kappa(net, batch) for net in nets.parts(smaller)]
        grey = _one_channel(batch, draw)
        nets = PrunedSupernet(space, kept, replace(wide, channels=1, shape=grey.shape), draw, cells == 1, device)
        regions = [_regions(net, grey, draw) for net in nets.parts(smaller)]
        return [growth(kappa[0], k) for k in kappa[1:]], [growth(regions[0], r) for r in regions[1:]]


# --- what is measured, and its ranks ---------------------------------------------------------------------------------


def _kappa(net: nn.Module, batch: Batch) -> float:
    from initio.metrics import Options, evaluate

    value = evaluate(net, batch, "kappa", Options(reduction="sum"))["kappa"].value
    return math.inf if value is None else value


def _regions(net: nn.Module, batch: Batch, seed: int) -> float:
    from initio.metrics import Options, evaluate

    return evaluate(net, batch, "regions", Options(seed=seed))["regions"].value or 0.0


def _one_channel(batch: Batch, seed: int) -> Batch:
    """A random channel of each image."""
    import numpy as np

    channel = np.random.default_rng(seed).integers(0, batch.x.shape[1], len(batch.x))
    return replace(batch, x=batch.x[np.arange(len(batch.x)), channel][:, None], mean=(), std=())


def growth(before: float, after: float) -> float:
    """The relative change, where κ may be infinite and there may be no regions at all.

    >>> growth(10.0, 12.0), growth(10.0, math.inf), growth(math.inf, 10.0), growth(math.inf, math.inf)
    (0.2, inf, -1.0, 0.0)
    """
    if before == after:
        return 0.0
    if math.isinf(before):
        return -1.0
    return round(after / before - 1, 12) if before else math.inf


def dense_ranks(values: Sequence[float]) -> list[int]:
    """0 for the smallest, the next number for the next value; values that agree to three decimals are the same.

    >>> dense_ranks([0.2, -0.1, 0.2001, math.inf])
    [1, 0, 1, 2]
    """
    rounded = [round(value, DECIMALS) for value in values]
    place = {value: rank for rank, value in enumerate(sorted(set(rounded)))}
    return [place[value] for value in rounded]


# --- supernets -------------------------------------------------------------------------------------------------------


def _start(space: GraphSpace) -> Kept:
    """All options but `none`."""
    return tuple(tuple(i for i, o in enumerate(decision.options) if o != ZERO) for decision in space.relaxation)


def _without(kept: Kept, categorical: int, option: int) -> Kept:
    left = tuple(o for o in kept[categorical] if o != option)
    return (*kept[:categorical], left, *kept[categorical + 1 :])


@dataclass(frozen=True)
class PrunedSupernet:
    """One set of weights for the supernet of a round and all its parts; `bare` is the first cell alone."""

    space: GraphSpace
    kept: Kept
    settings: NetworkSettings
    seed: int
    bare: bool = False
    device: str = "cpu"

    def parts(self, smaller: Sequence[Kept]) -> list[nn.Module]:
        """The supernet itself, then the smaller ones with its weights."""
        whole = self._build(self.kept)
        weights = whole.state_dict()
        nets = [self._build(kept) for kept in smaller]
        for net in nets:
            net.load_state_dict({name: weights[name] for name in net.state_dict()})
        return [whole, *nets]

    def _build(self, kept: Kept) -> nn.Module:
        from initio.autodiff.devices import find_device
        from initio.networks.build import build

        settings = self.space.resolve(self.settings)
        supernet = self.space.supernet((0,) * len(kept), settings)
        graph = keep(supernet, kept)
        net = build(_first_cell(graph) if self.bare else graph, settings, seed=self.seed)
        edges = mixed_names(supernet)
        for name, module in net.named_modules():
            if name.rpartition(".")[2] in edges:
                module.register_forward_hook(_average)
        return net.to(find_device(self.device, measured=True))


def _average(_: nn.Module, values: tuple[Tensor, ...], total: Tensor) -> Tensor:
    return total / len(values)


def mixed_names(graph: Graph) -> frozenset[str]:
    """The names of all steps that are `Mixed`, in cells too: where options of an edge are summed."""
    own = {step.name for step in graph.steps if isinstance(step.op, Mixed)}
    return frozenset(own).union(*(mixed_names(step.op) for step in graph.steps if isinstance(step.op, Graph)))


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


def _first_cell(graph: Graph) -> Graph:
    """The first cell and the ReLU that follows the last one, pooled: no stem, no reduction, no classifier."""
    cell = next(step.op for step in graph.steps if isinstance(step.op, Graph))
    net = Builder()
    x = net("head", Op("bn_relu", 1, 1), net("cell", cell, 0))
    return net.graph(net("pool", Op("global_pool", 1, 1), x))  # it has no regions of its own: metrics want a matrix


def _heaviest(problem: Problem, weights: Sequence[Sequence[float]]) -> Architecture:
    """Where the choice itself may not be trained, the member of the pool whose options survived longest.

    Without a pool, limits are in the way: then the best of many random architectures that keep them.
    """
    rng = Random("te-nas within limits")
    pool = problem.pool or [problem.draw(rng) for _ in range(DRAWS)]
    return max(pool, key=lambda arch: sum(weights[k][option] for k, option in problem.space.active(arch)))
