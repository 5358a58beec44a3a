"""Which scores of a store belong together: one kind a metric, made alike, drawn one or several times.

A draw is a batch and a seed of the weights. Scores that differ in nothing else (the same settings, the same data set,
the same version of the metric) are draws of one quantity: their mean is a better score, their spread its error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from initio.errors import InputError, did_you_mean
from initio.records import Architecture
from initio.scores.store import Group, Store

Draw = tuple[int, str]  # seed of the weights, fingerprint of the batch


@dataclass(frozen=True)
class Kind:
    """All scores of one metric that were made alike."""

    groups: tuple[Group, ...]

    @property
    def metric(self) -> str:
        """Its name."""
        return self.groups[0].metric

    @property
    def is_cost(self) -> bool:
        """Counted on the architecture as written, without data."""
        return self.groups[0].data == ""


@dataclass(frozen=True)
class Values:
    """The values of one kind."""

    kind: Kind
    of: dict[tuple[Architecture, Draw], float | None] = field(repr=False)

    @cached_property
    def draws(self) -> tuple[Draw, ...]:
        """In the order of their seeds."""
        return tuple(sorted({draw for _, draw in self.of}))

    @cached_property
    def architectures(self) -> frozenset[Architecture]:
        """Those that were scored."""
        return frozenset(arch for arch, _ in self.of)


def read(store: Store, kind: Kind) -> Values:
    """All values of a kind."""
    found = {(e.architecture, (e.seed, group.data)): e.value for group in kind.groups for e in store.of_group(group)}
    return Values(kind, found)


def choose(
    groups: Sequence[Group], space: str, where: dict[str, str], metrics: Iterable[str] = (), *, home: str | None = None
) -> list[Kind]:
    """For each metric the one kind of scores that `where` leaves; several are an error that names the difference.

    `home` is the space that the networks' scores are filed under, if it is not `space` itself; costs never are.
    """
    from initio.metrics import METRICS

    mine = [group for group in groups if group.space == (space if Kind((group,)).is_cost else home or space)]
    if not mine:
        held = ", ".join(sorted({group.space for group in groups})) or "no scores"
        raise InputError(f"the store has no scores of {space}: it has {held}")
    _check_where(mine, where)
    fitting = [group for group in mine if _fits(group, where)]
    if not fitting:
        shown = ",".join(f"{name}={value}" for name, value in where.items())
        raise InputError(f"the store has no scores of {space} with {shown}")
    by_metric: dict[str, list[Group]] = {}
    for group in fitting:
        by_metric.setdefault(group.metric, []).append(group)
    wanted = list(metrics) or [name for name in METRICS if name in by_metric]
    if unknown := [name for name in wanted if name not in by_metric]:
        raise InputError(f"the store has no scores of {unknown[0]!r}: {did_you_mean(unknown[0], list(by_metric))}")
    return [_only(by_metric[name]) for name in wanted]


def _only(groups: list[Group]) -> Kind:
    newest = max(group.version for group in groups)
    groups = [group for group in groups if group.version == newest]
    if len({(group.settings, group.source or group.data) for group in groups}) == 1:
        return Kind(tuple(groups))
    facts = [_facts(group) for group in groups]
    for name in facts[0]:
        values = sorted({fact.get(name, "") for fact in facts})
        if len(values) > 1:
            raise InputError(
                f"the store has several scores of {groups[0].metric}, with {name} = {', '.join(values)}: "
                f"choose with --where {name}={values[-1]}"
            )
    raise AssertionError("two groups with the same key")


def _facts(group: Group) -> dict[str, str]:
    """What tells groups apart, as text; the data last, since its fingerprint says least."""
    return {name: str(value) for name, value in group.settings} | {"source": group.source, "data": group.data}


def _check_where(groups: Sequence[Group], where: dict[str, str]) -> None:
    names = sorted(set().union(*(_facts(group) for group in groups)))
    for name in where:
        if name not in names:
            raise InputError(f"scores have no setting {name!r}: {did_you_mean(name, names)}")


def _fits(group: Group, where: dict[str, str]) -> bool:
    """Costs have neither data nor most settings: what a group lacks does not exclude it."""
    facts = {name: value for name, value in _facts(group).items() if value or name not in ("source", "data")}
    return all(facts.get(name, value) == value for name, value in where.items())
