"""From a store to a `ScoreTable`: which scores belong together, and all of them in one sweep.

Scores that differ in nothing but the seed of the weights and the batch (the same settings, the same data set, the same
version of the metric) are draws of one quantity: their mean is a better score, their spread its error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random

import numpy as np

from initio.errors import InputError, did_you_mean
from initio.metrics import NAMES
from initio.records import Architecture
from initio.scores.packed import Key, ScoreColumn
from initio.scores.store import UNRECORDED, Group, Store
from initio.scores.table import Draw, Flags, Origin, ScoreTable
from initio.spaces import Space

Chosen = dict[str, list[Group]]  # for each metric, groups that differ in the batch alone
Wanted = Mapping[str, tuple[Origin, frozenset[Key]]]  # for each metric, how it was made and where it is


def read_table(
    store: Store,
    space: Space,
    *,
    pool: Sequence[Architecture] = (),
    where: Mapping[str, str] | None = None,
    metrics: Iterable[str] = (),
) -> ScoreTable:
    """All draws of all metrics, for the architectures of the pool whose network was scored, or for all that were.

    Args:
        store: an open store.
        space: whose scores; a network that it shares with a larger space is found there.
        pool: architectures as written.
        where: which scores to take if the store has several kinds, as in {"cells": "5"}.
        metrics: names; by default all that the store has.
    """
    home = space.canonical(space.sample(Random(0))).space  # nb101 for nb1shot1: a network is scored once for both
    table = read_all(store, space.name, home=home, where=where, metrics=metrics)
    pairs = [(arch, arch) for arch in sorted(table.networks)]
    if pool:
        pairs = [(arch, same) for arch in pool if (same := space.canonical(arch)) in table.networks]
    return table.spread(pairs)


def read_all(
    store: Store,
    space: str,
    *,
    home: str | None = None,
    where: Mapping[str, str] | None = None,
    metrics: Iterable[str] = (),
) -> ScoreTable:
    """Every architecture that has a score, as the store has it: costs and networks stand in rows of their own."""
    chosen = choose_kind(store.groups(), space, where or {}, metrics, home=home)
    wanted = {}
    for metric, groups in chosen.items():
        made = Origin(groups[0].settings, groups[0].source, groups[0].version)
        wanted[metric] = made, frozenset(group.key for group in groups)
    return fill(store, wanted)


def fill(store: Store, wanted: Wanted, among: Iterable[Architecture] | None = None) -> ScoreTable:
    """The values under these keys, of all architectures or `among` some; where an origin names draws, those alone."""
    metric_of = {key: metric for metric, (_, keys) in wanted.items() for key in keys}
    row_of: dict[tuple[str, str], int] = {}  # an architecture by its texts, which are quick to compare
    places: dict[tuple[str, tuple[str, ...]], np.ndarray] = {}  # the rows of a list of architectures
    found: dict[str, list[tuple[Draw, np.ndarray, ScoreColumn]]] = {metric: [] for metric in wanted}
    for block in store.blocks({key[0] for key in metric_of}, among):
        if block.key in metric_of:
            space = block.key[0]
            if (space, block.choices) not in places:
                rows = [row_of.setdefault((space, choices), len(row_of)) for choices in block.choices]
                places[space, block.choices] = np.array(rows, dtype=np.intp)
            draw = block.seed, block.key[2]
            found[metric_of[block.key]].append((draw, places[space, block.choices], block))
    columns, flags, origins = {}, {}, {}
    for metric, (origin, _) in wanted.items():
        try:
            draws = origin.draws or tuple(sorted({draw for draw, _, _ in found[metric]}))
        except TypeError as error:  # a text where a number belongs
            raise store.damaged(error) from None
        columns[metric], flags[metric] = _column(found[metric], draws, len(row_of))
        origins[metric] = replace(origin, draws=draws)
    return ScoreTable.of((store.architecture(*texts) for texts in row_of), columns, flags, origins)


def _column(
    found: Sequence[tuple[Draw, np.ndarray, ScoreColumn]], draws: Sequence[Draw], rows: int
) -> tuple[np.ndarray, Flags]:
    place = {draw: number for number, draw in enumerate(draws)}
    column = np.full((len(draws), rows), np.nan)
    flags: dict[tuple[int, int], str] = {}
    for draw, where, block in found:
        if draw in place:
            column[place[draw], where] = block.values
            flags |= {(place[draw], int(where[at])): flag for at, flag in block.flags.items()}
    return column, flags


# --- which scores -----------------------------------------------------


def choose_kind(
    groups: Sequence[Group],
    space: str,
    where: Mapping[str, str],
    metrics: Iterable[str] = (),
    *,
    home: str | None = None,
) -> Chosen:
    """For each metric the one kind of scores that `where` leaves; several are an error that names the difference.

    `home` is the space that the networks' scores are filed under, if it is not `space` itself; costs never are.
    """
    filed_under = {True: space, False: home or space}
    mine = [group for group in groups if group.space == filed_under[group.counted]]
    if not mine:
        held = ", ".join(sorted({group.space for group in groups})) or "no scores"
        raise InputError(f"the store has no scores of {space}: it has {held}")
    names = sorted(set().union(*map(_facts, mine)))
    if wrong := [name for name in where if name not in names]:
        raise InputError(f"scores have no setting {wrong[0]!r}: {did_you_mean(wrong[0], names)}")
    fitting = [group for group in mine if _fits(group, where)]
    if not fitting:
        shown = ",".join(f"{name}={value}" for name, value in where.items())
        raise InputError(f"the store has no scores of {space} with {shown}")
    by_metric: Chosen = {}
    for group in fitting:
        by_metric.setdefault(group.metric, []).append(group)
    own = [name for name in by_metric if name not in NAMES]
    wanted = list(metrics) or [*(name for name in NAMES if name in by_metric), *own]
    if unknown := [name for name in wanted if name not in by_metric]:
        raise InputError(f"the store has no scores of {unknown[0]!r}: {did_you_mean(unknown[0], list(by_metric))}")
    return {name: _only(by_metric[name]) for name in wanted}


def _only(groups: list[Group]) -> list[Group]:
    newest = max(group.version for group in groups)
    groups = [group for group in groups if group.version == newest]
    if len({(group.settings, group.source or group.data) for group in groups}) == 1:
        return groups
    facts = [_facts(group) for group in groups]
    for name in dict.fromkeys(name for fact in facts for name in fact):
        values = sorted({fact.get(name, "") for fact in facts})
        if len(values) > 1:
            raise InputError(
                f"the store has several scores of {groups[0].metric}, with {name} = {', '.join(values)}: "
                f"choose with --where {name}={values[-1]}"
            )
    raise AssertionError("two groups with the same key")


def _facts(group: Group) -> dict[str, str]:
    """What tells groups apart, as text; the data last, since its fingerprint says least."""
    facts = {name: str(value) for name, value in group.settings}
    if not group.counted:
        facts = UNRECORDED | facts
    return facts | {"source": group.source, "data": group.data}


def _fits(group: Group, where: Mapping[str, str]) -> bool:
    """Costs have neither data nor most settings: what a group lacks does not exclude it."""
    facts = {name: value for name, value in _facts(group).items() if value or name not in ("source", "data")}
    return all(facts.get(name, value) == value for name, value in where.items())
