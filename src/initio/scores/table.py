"""`ScoreTable`: the scores of many architectures, whoever made them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random
from typing import Any

import numpy as np

from initio.errors import InputError, did_you_mean
from initio.records import Architecture, Settings
from initio.report.notebook import data_frame, html_table
from initio.spaces import get_space

SHOWN = 10  # rows of a table in a notebook

Draw = tuple[int, str]  # seed of the weights, fingerprint of the batch
Flags = Mapping[tuple[int, int], str]  # (draw, row): why there is no value, or why it is to be doubted


@dataclass(frozen=True)
class Origin:
    """How the values of one metric were made; draws differ in the seed of the weights and in the batch alone."""

    settings: Settings = ()
    source: str = ""  # of the data
    version: int = 1  # of the metric
    draws: tuple[Draw, ...] = ()

    @property
    def counted(self) -> bool:
        """A cost of the architecture as written, which needs no data."""
        return bool(self.draws) and not any(data for _, data in self.draws)


@dataclass(frozen=True, eq=False, repr=False)
class ScoreTable:
    """Architectures × metrics × draws; NaN where a metric has no value, ±infinity where it says so.

    A draw is a batch and a seed of the weights. `table[metric]` is the mean over draws, in the order of the
    architectures; an architecture that lacks a value in one draw has none at all.

    >>> archs = [Architecture("nb201", (0, 0, 0, 0, 0, k)) for k in range(3)]
    >>> table = ScoreTable.of(archs, {"trace": [1.0, 5.0, float("nan")]})
    >>> table
    ScoreTable of 3 architectures of nb201, 1 metric (trace), 1 draw
    >>> table["trace"].tolist()
    [1.0, 5.0, nan]
    >>> table.reason(archs[2], "trace")
    'it was not scored'
    """

    architectures: tuple[Architecture, ...]
    columns: Mapping[str, np.ndarray]  # a metric's values, draws × architectures
    flags: Mapping[str, Flags] = field(default_factory=dict)
    origins: Mapping[str, Origin] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        architectures: Iterable[Architecture],
        columns: Mapping[str, Sequence[float] | np.ndarray],
        flags: Mapping[str, Flags] | None = None,
        origins: Mapping[str, Origin] | None = None,
    ) -> ScoreTable:
        """A table from plain sequences, checked: one value for each architecture, or a row of them for each draw."""
        archs = tuple(architectures)
        if len(set(archs)) < len(archs):
            raise InputError("an architecture stands twice in the table of scores: give each one row")
        arrays = {name: np.array(values, dtype=np.float64) for name, values in columns.items()}
        for name, values in arrays.items():
            if values.ndim not in (1, 2) or values.shape[-1] != len(archs):
                raise InputError(
                    f"there are {len(archs)} architectures, but the scores {name!r} have shape {values.shape}"
                )
            arrays[name] = np.atleast_2d(values)
            arrays[name].flags.writeable = False
        return cls(archs, arrays, flags or {}, origins or {})

    # --- what it holds -----------------------------------------------------

    def __len__(self) -> int:
        return len(self.architectures)

    def __repr__(self) -> str:
        spaces = " and ".join(dict.fromkeys(arch.space for arch in self.architectures)) or "no space"
        draws = max(map(len, self.columns.values()), default=0)
        parts = [
            f"{len(self):,} architecture{'s' * (len(self) != 1)} of {spaces}",
            f"{len(self.columns)} metric{'s' * (len(self.columns) != 1)} ({', '.join(self.columns)})",
            f"{draws} draw{'s' * (draws != 1)}",
        ]
        return f"ScoreTable of {', '.join(parts)}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.columns)

    @property
    def draws(self) -> int:
        """How many times every metric was drawn, each with its own weights and batch; costs do not count."""
        return min((len(self.columns[name]) for name in self._measured()), default=0)

    def __getitem__(self, metric: str) -> np.ndarray:
        values = self.each(metric)
        if len(values) == 1:
            return values[0]  # type: ignore[no-any-return]
        with np.errstate(invalid="ignore"):  # inf - inf
            mean: np.ndarray = values.mean(axis=0)
        mean.flags.writeable = False
        return mean

    def each(self, metric: str) -> np.ndarray:
        """All values of a metric, draws × architectures."""
        if metric not in self.columns:
            raise InputError(f"the pool has no scores {metric!r}: {did_you_mean(metric, list(self.columns))}")
        return self.columns[metric]

    def origin(self, metric: str) -> Origin:
        """How a metric's values were made; nothing is known of values that did not come from a store."""
        return self.origins.get(metric, Origin())

    @cached_property
    def rows(self) -> dict[Architecture, int]:
        """The row of each architecture."""
        return {arch: row for row, arch in enumerate(self.architectures)}

    @cached_property
    def networks(self) -> frozenset[Architecture]:
        """Those whose network was measured, with or without a value; a cost alone is no measurement."""
        measured = np.zeros(len(self), dtype=bool)
        for name in self._measured():
            measured |= (~np.isnan(self.columns[name])).any(axis=0)
            measured[[row for _, row in self.flags.get(name, {})]] = True
        return frozenset(self.architectures[row] for row in np.flatnonzero(measured))

    @property
    def written(self) -> tuple[Architecture, ...]:
        """Those whose cost was counted, which are as someone wrote them; all where no cost was."""
        counted = [name for name in self.columns if self.origin(name).counted]
        known = np.full(len(self), not counted)
        for name in counted:
            known |= (~np.isnan(self.columns[name])).any(axis=0)
        return tuple(self.architectures[row] for row in np.flatnonzero(known))

    def _measured(self) -> list[str]:
        return [name for name in self.columns if not self.origin(name).counted]

    def value(self, metric: str, draw: int, row: int) -> float | None:
        """One value, None if it does not exist."""
        value = float(self.each(metric)[draw, row])
        return None if np.isnan(value) else value

    def flag(self, metric: str, draw: int, row: int) -> str:
        """Why a value is missing or to be doubted; nothing for most."""
        return self.flags.get(metric, {}).get((draw, row), "")

    # --- values that do not exist -----------------------------------------------------

    def reason(self, arch: Architecture, metric: str) -> str:
        """Why the architecture has no value, each reason once; nothing if it has one."""
        if arch not in self.rows:
            raise InputError(f"{_text(arch)} is not in the table of scores")
        row, values = self.rows[arch], self.each(metric)
        flags = self.flags.get(metric, {})
        missing = np.flatnonzero(np.isnan(values[:, row])).tolist()
        return "; ".join(dict.fromkeys(flags.get((draw, row), "it was not scored") for draw in missing))

    def missing(self, metric: str) -> dict[tuple[int, int], str]:
        """Why scored architectures have no value, by (draw, row)."""
        values = self.each(metric)
        return {place: flag for place, flag in self.flags.get(metric, {}).items() if np.isnan(values[place])}

    def undefined(self, metric: str) -> int:
        """How many architectures were scored and have no value in some draw."""
        return len({row for _, row in self.missing(metric)})

    # --- other tables from it -----------------------------------------------------

    def draw(self, number: int) -> ScoreTable:
        """One draw of every metric, as a table of its own.

        Draw s is the s-th of every metric; beyond the last one, each metric takes one of its draws at random, so that
        more tables can be made from few draws, though not independent ones.
        """
        columns, flags, origins = {}, {}, {}
        for name, values in self.columns.items():
            place = number
            if number >= len(values):
                place = Random(f"draw {number} of {name}").randrange(len(values))
            columns[name] = values[place]
            flags[name] = {(0, row): flag for (draw, row), flag in self.flags.get(name, {}).items() if draw == place}
            origins[name] = replace(self.origin(name), draws=self.origin(name).draws[place : place + 1])
        return ScoreTable.of(self.architectures, columns, flags, origins)

    def subset(self, rows: Sequence[int] | np.ndarray) -> ScoreTable:
        """Only these rows, in this order."""
        index = np.array(rows, dtype=np.intp)
        return self._take([self.architectures[row] for row in index], dict.fromkeys(self.columns, index))

    def spread(self, pairs: Sequence[tuple[Architecture, Architecture]]) -> ScoreTable:
        """A table of architectures as written, each given with its canonical representative.

        A score belongs to all architectures with the same network; a cost (parameters, FLOPs) to the one as written.
        """
        written, same = (np.array([self.rows.get(pair[i], -1) for pair in pairs], dtype=np.intp) for i in (0, 1))
        place = {True: written, False: same}
        index = {name: place[self.origin(name).counted] for name in self.columns}
        return self._take([arch for arch, _ in pairs], index)

    def _take(self, architectures: Sequence[Architecture], index: Mapping[str, np.ndarray]) -> ScoreTable:
        """For each column the rows to take its values from, -1 where there are none."""
        columns, flags = {}, {}
        for name, values in self.columns.items():
            rows = index[name]
            known = np.concatenate([values, np.full((len(values), 1), np.nan)], axis=1)  # what -1 stands for
            columns[name] = known[:, rows]
            flags[name] = self._taken_flags(name, rows)
        return ScoreTable.of(architectures, columns, flags, self.origins)

    def _taken_flags(self, metric: str, rows: np.ndarray) -> Flags:
        by_row: dict[int, list[tuple[int, str]]] = {}
        for (draw, row), flag in self.flags.get(metric, {}).items():
            by_row.setdefault(row, []).append((draw, flag))
        return {(draw, new): flag for new, old in enumerate(rows.tolist()) for draw, flag in by_row.get(old, ())}

    # --- frames, notebooks -----------------------------------------------------

    def to_frame(self) -> Any:
        """A pandas `DataFrame`: a column a metric, a row for each architecture and, if there are several, each draw."""
        texts = [_text(arch) for arch in self.architectures]
        draws = max(map(len, self.columns.values()), default=1)
        if draws == 1:
            return data_frame({"architecture": texts, **{name: self[name] for name in self.columns}}, ["architecture"])
        columns: dict[str, Any] = {"architecture": texts * draws, "draw": np.repeat(np.arange(draws), len(texts))}
        for name, values in self.columns.items():
            padded = np.full((draws, len(texts)), np.nan)
            padded[: len(values)] = values
            if self.origin(name).counted:  # the same in every draw
                padded[:] = values[0]
            columns[name] = padded.ravel()
        return data_frame(columns, ["architecture", "draw"])

    def _repr_html_(self) -> str:
        caption = repr(self)
        if len(self) > SHOWN:
            caption += f"; the first {SHOWN} architectures"
        means = [self[name] for name in self.columns]
        rows = (
            [_text(arch), *(f"{values[row]:.6g}" for values in means)]
            for row, arch in enumerate(self.architectures[:SHOWN])
        )
        return html_table(caption, ["architecture", *self.columns], rows)


def _text(arch: Architecture) -> str:
    """As its space writes it; a space of the user's own may be unknown here."""
    try:
        return get_space(arch.space).format(arch)
    except InputError:
        return f"{arch.space} {arch.choices}"
