"""A search from a function of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from initio.errors import InputError
from initio.records import Architecture, Observation, SearchResult
from initio.spaces import Space, get_space
from initio.spaces import space as own_space

if TYPE_CHECKING:
    from torch import nn

    from initio.scores.table import ScoreTable
    from initio.searches.queries import QuerySearch


def optimise(
    space: Space | str | Mapping[str, Iterable[Any]],
    evaluate: Callable[[Architecture], float],
    *,
    queries: int = 20,
    scores: ScoreTable | Mapping[str, Mapping[Architecture, float]] | None = None,
    pool: Sequence[Architecture] = (),
    search: QuerySearch | None = None,
    seed: int = 0,
) -> SearchResult:
    """The best architecture that so many evaluations find, by the robust hybrid or another search.

    Args:
        space: where; its name, or just the decisions with their options if there is nothing to build.
        evaluate: how good an architecture is, larger is better; never asked twice for the same one.
        queries: how many evaluations.
        scores: what is known beforehand, a column a metric; a value that is missing or NaN is undefined.
        pool: the architectures that may be evaluated; all of the space if empty.
        search: one of those in `initio.searches.QUERY_SEARCHES`, as in `RandomSearch()`; `Robust()` if not given.
        seed: of the search.

    >>> options = {"kernel": [1, 3, 5, 7], "width": [8, 16, 32, 64], "skip": [False, True]}
    >>> found = optimise(options, lambda arch: sum(arch.choices), queries=12)
    >>> found.chosen[0].choices
    (3, 3, 1)
    >>> found.cost.queries
    12
    """
    from initio.searches.methods.robust import Robust
    from initio.searches.queries import Budget, Task, run_queries

    if isinstance(space, Mapping):
        space = own_space("decisions", _nothing, **{str(name): options for name, options in space.items()})
    elif isinstance(space, str):
        space = get_space(space)
    if isinstance(search, type | str):
        raise InputError(f"search must be a search such as RandomSearch(), not {search!r}")
    known = _scores(scores)
    for arch in (*pool, *(known.architectures if known else ())):
        if not isinstance(arch, Architecture):
            raise InputError(f"pool and scores need architectures, made by space.architecture or parse, not {arch!r}")
        space.check(arch)
    task = Task(space, Budget(queries=queries), tuple(pool), known)
    ask = lambda query: Observation(float(evaluate(query.architecture)))  # noqa: E731
    return run_queries(search or Robust(), task, ask, seed=seed)


def _nothing(**_: Any) -> nn.Module:
    raise InputError("this space has decisions only: make it with initio.space to build networks")


def _scores(given: ScoreTable | Mapping[str, Mapping[Architecture, float]] | None) -> ScoreTable | None:
    from initio.scores.table import ScoreTable

    if given is None or isinstance(given, ScoreTable):
        return given
    if wrong := [name for name, column in given.items() if not isinstance(column, Mapping)]:
        raise InputError(f"the scores {wrong[0]!r} must be a mapping of architectures to numbers")
    archs = list(dict.fromkeys(arch for column in given.values() for arch in column))
    return ScoreTable.of(archs, {name: [column.get(a, float("nan")) for a in archs] for name, column in given.items()})
