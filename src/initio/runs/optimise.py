"""Any function of architectures, maximised: `initio.optimise`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from initio.errors import InputError
from initio.records import Architecture, Observation, Query
from initio.runs.search import make_search
from initio.scores.table import ScoreTable
from initio.searches import Budget, Problem, SearchResult, drive
from initio.searches.queries import QuerySearch
from initio.spaces import Space, get_space
from initio.spaces import space as own_space


def optimise(
    space: Space | str | Mapping[str, Iterable[Any]],
    evaluate: Callable[[Architecture], float | None],
    *,
    queries: int = 20,
    scores: ScoreTable | Mapping[str, Mapping[Architecture, float]] | None = None,
    pool: Sequence[Architecture] = (),
    method: QuerySearch | str = "robust",
    seed: int = 0,
    **settings: Any,
) -> SearchResult:
    """The best architecture that so many evaluations find, by the robust hybrid or another search.

    Args:
        space: where; its name, or just the decisions with their options if there is nothing to build.
        evaluate: how good an architecture is, larger is better, None if that does not exist; never asked twice for the
            same one.
        queries: how many evaluations.
        scores: what is known beforehand, a column a metric; a value that is missing or NaN is undefined.
        pool: the architectures that may be evaluated; all of the space if empty.
        method: a search that learns from evaluations, by name or as in `RandomSearch()`.
        seed: of the search.
        settings: fields of the method.

    >>> options = {"kernel": [1, 3, 5, 7], "width": [8, 16, 32, 64], "skip": [False, True]}
    >>> found = optimise(options, lambda arch: sum(arch.choices), queries=12)
    >>> found.best.choices
    (3, 3, 1)
    >>> found.cost.queries
    12
    """
    if isinstance(space, Mapping):
        space = own_space("decisions", _nothing, **{str(name): options for name, options in space.items()})
    elif isinstance(space, str):
        space = get_space(space)
    chosen, known = make_search(method, space, settings), _table(scores)
    if not chosen.trains:
        raise InputError(f"{chosen.name} does not learn from evaluations: take robust, random, rea, ...")
    for arch in (*pool, *(known.architectures if known else ())):
        if not isinstance(arch, Architecture):
            raise InputError(f"pool and scores need architectures, made by space.architecture or parse, not {arch!r}")
        space.check(arch)

    def ask(query: Query) -> Observation:
        value = evaluate(query.architecture)
        if value is None:
            return Observation(None, flag="the evaluation gave no value")
        return Observation(float(value))

    problem = Problem(space, budget=Budget(queries=queries), pool=tuple(pool), scores=known, evaluate=ask)
    return drive(chosen, problem, seed=seed)


def _nothing(**_: Any) -> Any:
    raise InputError("this space has decisions only: make it with initio.space to build networks")


def _table(given: ScoreTable | Mapping[str, Mapping[Architecture, float]] | None) -> ScoreTable | None:
    if given is None or isinstance(given, ScoreTable):
        return given
    if wrong := [name for name, column in given.items() if not isinstance(column, Mapping)]:
        raise InputError(f"the scores {wrong[0]!r} must be a mapping of architectures to numbers")
    archs = list(dict.fromkeys(arch for column in given.values() for arch in column))
    return ScoreTable.of(archs, {name: [column.get(a, float("nan")) for a in archs] for name, column in given.items()})
