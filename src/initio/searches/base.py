"""What a search is: a frozen dataclass of settings that is told a `Problem` and yields typed steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import reduce
from operator import add
from typing import Any, ClassVar, Generic, Self, TypeVar

from initio.errors import InputError
from initio.records import Architecture, Cost, Scalar, decode, encode
from initio.searches.problem import Problem
from initio.spaces import Space
from initio.spaces.base import Size

SPACES = "by space"  # in the metadata of a field, which command lines show as its default


@dataclass(frozen=True)
class SearchStep:
    """One step of a search: plain data, whose fields are its JSON.

    `restart` is the number of the restart that it belongs to, where a search is run several times.
    """

    restart: int | None = field(default=None, kw_only=True)

    @classmethod
    def kind(cls) -> str:
        """What its JSON calls it."""
        return cls.__name__.lower()

    @property
    def cost(self) -> Cost:
        """What this step cost, time and memory aside."""
        return Cost(steps=1)

    def told(self) -> str:
        """A few words for people who wait."""
        return ""


@dataclass(frozen=True)
class _BySpace:
    """The value that a setting has where it is not given."""

    usual: Any
    families: Mapping[str, Any]

    def __call__(self, family: str) -> Any:
        return self.families.get(family, self.usual)

    def __str__(self) -> str:
        return "; ".join([str(self.usual), *(f"in {name} {value}" for name, value in self.families.items())])


def by_space(usual: Any, **families: Any) -> Any:
    """A setting of a search whose usual value is another one in some families of spaces.

    It is None until the search is `resolved` against its space, which whoever runs it does: what a result records is
    the value.

    >>> @dataclass(frozen=True)
    ... class Sharp:
    ...     sharpness: float = by_space(1.0, darts=2.0)
    >>> Sharp(), str(fields(Sharp)[0].metadata["by space"])
    (Sharp(sharpness=None), '1.0; in darts 2.0')
    """
    return field(default=None, metadata={SPACES: _BySpace(usual, families)})


S = TypeVar("S", bound=SearchStep)
SearchRun = Generator[S, None, Architecture]
OnStep = Callable[[Any], None]


@dataclass(frozen=True)
class Search(ABC, Generic[S]):
    """A frozen dataclass whose fields are its settings; what is true of all its runs are class attributes.

    `run` is a pure function of (problem, seed, steps so far): a search that is handed the steps of an interrupted run
    goes on where that one stopped, to the same answer.
    """

    name: ClassVar[str]
    trains: ClassVar[bool] = False  # asks for trainings: needs data with labels, and a budget of queries
    learns: ClassVar[bool] = False  # trains one network that holds all options: needs data with labels, and epochs
    usual_epochs: ClassVar[int] = 3  # of a training, where none are asked for
    usual_batch: ClassVar[int] = 64  # inputs in a batch, the same
    needs_scores: ClassVar[bool] = False  # of a pool, made before it starts
    resumes: ClassVar[bool] = True  # goes on from the steps of an interrupted run; a short search starts over instead
    parallel: ClassVar[bool] = False  # measures in several processes what it has to measure in any case
    limited: ClassVar[bool] = False  # keeps limits on parameters, FLOPs and latency
    step_types: ClassVar[tuple[type[SearchStep], ...]]  # the records that it yields

    @abstractmethod
    def run(self, problem: Problem, seed: int, done: Sequence[S]) -> SearchRun[S]:
        """Yields the steps after those of `done`, returns the chosen architecture."""

    def resolved(self, space: Space) -> Self:
        """The same with the values that its settings `by_space` have in this space, where none were given."""
        asked = {item.name: item.metadata[SPACES] for item in fields(self) if SPACES in item.metadata}
        own = {name: of(space.family) for name, of in asked.items() if getattr(self, name) is None}
        return replace(self, **own)

    def check(self, problem: Problem) -> None:
        """Refuses what it cannot search, with an `InputError`."""

    @property
    def trains_fully(self) -> bool:
        """Whether it asks for the longest trainings, whatever the length that the others ask for."""
        return False

    def network_size(self, space: Space) -> Size:
        """Of the networks that it looks at, where none is asked for."""
        return space.sizes.scoring

    def restarted(self, restarts: int) -> Search[Any]:
        """A search that runs this one several times; most have no common measure of what they choose."""
        raise InputError(f"restarts is not an option of {self.name}: only searches without training have it")

    def why(self, problem: Problem, steps: Sequence[S], chosen: Architecture) -> str:
        """Why this architecture, in one sentence."""
        return ""

    def n_steps(self, problem: Problem) -> int | None:
        """How many steps there will be, if that is known."""
        return None

    def leading(self, problem: Problem, steps: Sequence[S]) -> Architecture | None:
        """What these steps alone speak for, limits aside."""
        return None

    def cost(self, steps: Sequence[S]) -> Cost:
        """What the steps cost together."""
        return reduce(add, (step.cost for step in steps), Cost())

    def settings(self) -> dict[str, Scalar]:
        """Its fields, as a result records them."""
        return asdict(self)


def in_order(steps: Sequence[S]) -> list[S]:
    """The steps of an interrupted search, if none is missing, the k-th being of number k."""
    for place, step in enumerate(steps):
        number = getattr(step, "number", None)
        if number != place:
            raise InputError(f"step {place} of the run has number {number}: it is damaged, start the search again")
    return list(steps)


def encode_step(step: SearchStep) -> dict[str, Any]:
    """A step as JSON values that say what it is."""
    return {"kind": step.kind(), **encode(step)}


def decode_step(kinds: Sequence[type[SearchStep]], data: Any) -> SearchStep:
    """The inverse, given the kinds that may be there."""
    known = {kind.kind(): kind for kind in kinds}
    name = data.get("kind") if isinstance(data, dict) else None  # what is no object at all has no kind either
    if not isinstance(name, str) or name not in known:
        raise InputError(f"a step is of kind {name!r}, not one of {', '.join(known)}")
    step: SearchStep = decode(known[name], data)
    return step
