"""What a search space is: named decisions, and everything that follows from them."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, ClassVar

from initio.errors import InputError, did_you_mean
from initio.networks.graphs import Graph, NetworkSettings
from initio.records import Architecture
from initio.report.cells import Cell as Cell  # what `cells` gives, for the spaces
from initio.report.cells import Edge as Edge
from initio.report.notebook import html_table

if TYPE_CHECKING:
    from torch import nn

    from initio.networks.cost import NetworkCost

MAX_DRAWS = 1_000_000
MOST_ROWS = 30  # decisions that a notebook lists


def rounded(count: int) -> str:
    """A count as people write it: exact up to ten million, then as a power.

    >>> rounded(423624), rounded(10**18), rounded(5**999)
    ('423,624', '1.0e18', '1.9e698')
    """
    return f"{count:,}" if count < 10_000_000 else f"{Decimal(count):.1e}".replace("e+", "e")


@dataclass(frozen=True)
class Decision:
    """One categorical choice of a space."""

    name: str
    options: tuple[str, ...]
    cell: str = field(default="", repr=False)  # that it is a choice of, where a space has several

    def __len__(self) -> int:
        return len(self.options)


@dataclass(frozen=True)
class Size:
    """How large a network is; None is the published width and depth, or the data's own images."""

    channels: int | None = None
    cells: int | None = None
    pixels: int | None = None  # of an image's side


@dataclass(frozen=True)
class Sizes:
    """The sizes that a space's networks have, by purpose."""

    published: Size = Size()
    scoring: Size = Size()  # thin but deep, since depth decides the ranking
    training: Size = Size()  # so small that an epoch takes seconds
    shared: Size = Size()  # of the network whose weights all architectures share: small, and as published
    shared_published: Size = Size()
    pruning: Size = Size()  # of a supernet that is pruned: the fewest cells that hold every choice
    growing: Size = Size()  # as published, of the first of several shared networks, each deeper than the one before


@dataclass(frozen=True)
class Space(ABC):
    """A search space: pure data about architectures; torch is not imported until `build`.

    Sampling, enumeration, neighbours and mutation follow from `decisions`. Where not every combination of options is
    valid, `why_invalid` says so.
    """

    name: str
    title: str
    decisions: tuple[Decision, ...] = field(repr=False)

    sizes: ClassVar[Sizes] = Sizes()
    notations: ClassVar[tuple[str, ...]] = ()  # how a text begins that is of this space though it does not say so
    one_shot: ClassVar[bool] = False  # whether it has a supernet
    prunable: ClassVar[bool] = False  # whether that holds all options side by side, whatever is sampled
    drops_paths: ClassVar[bool] = False  # whether its networks can drop paths while they learn
    auxiliary_head: ClassVar[bool] = False  # whether its networks can have one while they learn
    alike: ClassVar[bool] = False  # whether its further cells have the same decisions as the first
    wired: ClassVar[bool] = True  # whether `cells` shows how data flows
    paths: ClassVar[int] = 1  # categoricals of a group of `rivals` that an architecture uses

    def _repr_html_(self) -> str:
        """What a notebook shows: the decisions, and one architecture."""
        rows = [[decision.name, ", ".join(decision.options)] for decision in self.decisions[:MOST_ROWS]]
        if len(self.decisions) > MOST_ROWS:
            rows.append(["...", f"and {len(self.decisions) - MOST_ROWS} more decisions"])
        rows.append(["for example", self.format(self.sample(Random(0)))])
        caption = f"{self.name}: {self.title} ({rounded(self.count())} architectures)"
        return html_table(caption, ["decision", "options"], rows)

    # --- what a space has to say ---------------------------------------------------------------------------------

    @abstractmethod
    def parse(self, text: str) -> Architecture:
        """The architecture written as `text`, or an `InputError` that names the place."""

    @abstractmethod
    def format(self, arch: Architecture) -> str:
        """The text that `parse` reads back to `arch`, in the notation the field already uses."""

    @abstractmethod
    def cells(self, arch: Architecture) -> tuple[Cell, ...]:
        """The cells as people draw them."""

    @abstractmethod
    def build(self, arch: Architecture, settings: NetworkSettings | None = None, *, seed: int = 0) -> nn.Module:
        """The network as a plain PyTorch module; a `GraphSpace` initialises it from `seed`."""

    def why_invalid(self, choices: tuple[int, ...]) -> str:
        """The end of a sentence that begins with 'the architecture', or nothing when the choices are valid."""
        return ""

    def connected(self, arch: Architecture) -> bool:
        """Whether the output depends on the input."""
        return True

    def wires(self, decision: Decision, option: int) -> Hashable:
        """What an option says about connections; options that say the same connect the same nodes."""
        return option

    def canonical(self, arch: Architecture) -> Architecture:
        """The one representative of all architectures that must get the same score; it may be of a larger space.

        Only rewritings that keep every metric's value are used: those of `networks.graphs.prune`, and renaming nodes.
        Costs (parameters, FLOPs) are counted on the architecture itself, as the published tables do.
        """
        return arch

    @property
    def relaxation(self) -> tuple[Decision, ...]:
        """The categoricals that a gradient-based search weighs."""
        return self.decisions

    @property
    def rivals(self) -> tuple[tuple[int, ...], ...]:
        """The categoricals of `relaxation` in groups; `decode` compares options of one group with each other."""
        return tuple((categorical,) for categorical in range(len(self.relaxation)))

    def active(self, arch: Architecture) -> tuple[tuple[int, int], ...]:
        """The options of `relaxation` that an architecture uses, as (categorical, option)."""
        return tuple(enumerate(arch.choices))

    def resolve(self, settings: NetworkSettings) -> NetworkSettings:
        """The same settings with the space's own width and number of cells where none are given, if it has them."""
        return settings

    def cost(self, arch: Architecture, settings: NetworkSettings) -> NetworkCost:
        """What the network costs, counted on one input."""
        from initio.networks.cost import count_built

        return count_built(self.build(arch, settings), settings.shape)

    # --- what follows from the decisions -------------------------------------------------------------------------

    @property
    def digest(self) -> str:
        """Six letters that change with the decisions."""
        return hashlib.sha256(repr(self._identity()).encode()).hexdigest()[:6]

    @property
    def family(self) -> str:
        """What spaces that differ in size or detail share: `nb1shot1` of `nb1shot1-s2`."""
        return self.name.partition("-")[0]

    def _identity(self) -> object:
        return self.decisions, ()

    def architecture(self, *choices: int) -> Architecture:
        """The architecture with these choices, checked."""
        return self.check(Architecture(self.name, choices))

    def check(self, arch: Architecture) -> Architecture:
        """The same architecture, or an `InputError` when it is not of this space."""
        if arch.space != self.name:
            raise InputError(f"the architecture is of space {arch.space!r}, not of {self.name!r}")
        if len(arch.choices) != len(self.decisions):
            raise InputError(f"{self.name} has {len(self.decisions)} decisions, not {len(arch.choices)}")
        for decision, choice in zip(self.decisions, arch.choices, strict=True):
            if not 0 <= choice < len(decision):
                raise InputError(
                    f"decision {decision.name!r} of {self.name} has options 0 to {len(decision) - 1}, not {choice}"
                )
        if reason := self.why_invalid(arch.choices):
            raise InputError(f"the architecture {reason}")
        return arch

    def option(self, decision: Decision, word: str) -> int:
        """The number of the option that is written so, or an `InputError` that says what there is."""
        if word not in decision.options:
            hint = did_you_mean(word, list(decision.options))
            raise InputError(f"{decision.name} of {self.name} cannot be {word[:40]!r}: {hint}")
        return decision.options.index(word)

    def contains(self, arch: Architecture) -> bool:
        """Whether `check` passes."""
        try:
            self.check(arch)
        except InputError:
            return False
        return True

    def count(self) -> int:
        """How many architectures `architectures` lists."""
        if type(self).why_invalid is Space.why_invalid:
            return math.prod(len(decision) for decision in self.decisions)
        return sum(1 for _ in self.architectures())

    def architectures(self) -> Iterator[Architecture]:
        """All architectures in the order of their choices, one at a time."""
        for choices in itertools.product(*(range(len(decision)) for decision in self.decisions)):
            if not self.why_invalid(choices):
                yield Architecture(self.name, choices)

    def wirings(self) -> Iterator[tuple[Architecture, int]]:
        """One architecture for each way to connect the first cell's nodes, and how many of `architectures` have it."""
        if type(self).why_invalid is not Space.why_invalid:
            yield from ((arch, 1) for arch in self.architectures())
            return
        ways = [self._ways(decision) for decision in self.decisions]
        for picked in itertools.product(*ways):
            options, counts = zip(*picked, strict=True)
            yield Architecture(self.name, options), math.prod(counts)

    def _ways(self, decision: Decision) -> list[tuple[int, int]]:
        """The first of the options that connect alike, and their number; in other cells than the first, all do."""
        options = range(len(decision))
        if decision.cell != self.decisions[0].cell:
            return [(0, len(decision))]
        said = [self.wires(decision, option) for option in options]
        return [(said.index(word), count) for word, count in Counter(said).items()]

    def sample(self, rng: Random) -> Architecture:
        """A random architecture: every decision uniform, drawn again while the result is invalid."""
        for _ in range(MAX_DRAWS):
            choices = tuple(rng.randrange(len(decision)) for decision in self.decisions)
            if not self.why_invalid(choices):
                return Architecture(self.name, choices)
        raise InputError(f"no valid architecture of {self.name} in {MAX_DRAWS} random draws")

    def neighbours(self, arch: Architecture) -> Iterator[Architecture]:
        """All valid architectures that differ in one decision."""
        for place in range(len(self.decisions)):
            yield from self._others(arch, place)

    def _others(self, arch: Architecture, place: int) -> Iterator[Architecture]:
        for option in range(len(self.decisions[place])):
            choices = (*arch.choices[:place], option, *arch.choices[place + 1 :])
            if option != arch.choices[place] and not self.why_invalid(choices):
                yield Architecture(self.name, choices)

    def mutate(self, arch: Architecture, rng: Random) -> Architecture:
        """A random neighbour: a decision uniform among those that can change, then one of its other options."""
        places = list(range(len(self.decisions)))
        rng.shuffle(places)
        for place in places:
            if others := list(self._others(arch, place)):
                return rng.choice(others)
        raise InputError(f"{self.name} has no architecture beside {self.format(arch)}")

    def decode(self, weights: Sequence[Sequence[float]]) -> Architecture:
        """The connected architecture whose `active` options have the largest sum of weights.

        Ties go to the option that comes first. The best choices are tried first, then the next best, so a
        disconnected or invalid optimum gives way to the nearest one that is neither.
        """
        ranked = [sorted(range(len(row)), key=lambda option: (-row[option], option)) for row in weights]
        loss = [[row[order[0]] - row[o] for o in order] for row, order in zip(weights, ranked, strict=True)]
        start = (0,) * len(ranked)
        queue, seen = [(0.0, start)], {start}
        while queue:
            _, ranks = heapq.heappop(queue)
            choices = tuple(order[rank] for order, rank in zip(ranked, ranks, strict=True))
            if not self.why_invalid(choices) and self.connected(arch := Architecture(self.name, choices)):
                return arch
            for place in range(len(ranks)):
                following = (*ranks[:place], ranks[place] + 1, *ranks[place + 1 :])
                if following[place] < len(ranked[place]) and following not in seen:
                    seen.add(following)
                    total = sum(row[rank] for row, rank in zip(loss, following, strict=True))
                    heapq.heappush(queue, (total, following))
        raise InputError(f"{self.name} has no connected architecture")


@dataclass(frozen=True)
class GraphSpace(Space):
    """A space whose networks are described as data; its published size has channels and cells."""

    images: ClassVar[bool] = True  # whether inputs must be (channels, height, width)
    chosen: ClassVar[tuple[str, ...]] = ()  # how the names of the steps begin that an architecture's choices fill

    @abstractmethod
    def network(self, arch: Architecture, settings: NetworkSettings) -> Graph:
        """The whole network as data."""

    @property
    def by_node(self) -> GraphSpace:
        """The same with the relaxation that NASI samples from, where that is another one."""
        return self

    def supernet(self, choices: Sequence[int], settings: NetworkSettings) -> Graph:
        """The one-shot network around a sample: `Mixed` steps hold the options of every categorical of `relaxation`.

        `choices` has one option a categorical; where a choice decides the width of others (`nb1shot1`), the graph is
        that of the sample.
        """
        raise InputError(f"{self.name} has no supernet: `initio spaces` says which spaces have one")

    def side_by_side(self, settings: NetworkSettings) -> Graph:
        """The network whose weights all architectures share: every option of every categorical, whatever is sampled."""
        return self.supernet((0,) * len(self.relaxation), settings)

    def is_chosen(self, parameter: str) -> bool:
        """Whether a parameter of a built network belongs to an operation that the architecture chose.

        Its name is a path of step names; those of cells come second.
        """
        return any(step.startswith(self.chosen) for step in parameter.split(".")[1:])

    def cost(self, arch: Architecture, settings: NetworkSettings) -> NetworkCost:
        """The sum over the graph's operations; nothing is built."""
        from initio.networks.cost import count

        return count(self.network(self.check(arch), settings), settings)

    def resolve(self, settings: NetworkSettings) -> NetworkSettings:
        """The same settings with the space's own width and number of cells where none are given."""
        if self.images and len(settings.shape) != 3:
            raise InputError(f"{self.name} needs inputs of shape (channels, height, width), not {settings.shape}")
        return replace(
            settings,
            channels=settings.channels or self.sizes.published.channels,
            cells=settings.cells or self.sizes.published.cells,
        )

    def size(self, settings: NetworkSettings) -> tuple[int, int]:
        """Channels and cells as `resolve` gives them."""
        settings = self.resolve(settings)
        assert settings.channels is not None
        assert settings.cells is not None
        return settings.channels, settings.cells

    def build(self, arch: Architecture, settings: NetworkSettings | None = None, *, seed: int = 0) -> nn.Module:
        """The network as a plain PyTorch module, initialised from `seed`."""
        from initio.networks.build import build

        settings = self.resolve(settings or NetworkSettings())
        return build(self.network(self.check(arch), settings), settings, seed=seed)
