"""What a search ends with: `SearchResult`."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, fields
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

from initio.errors import InputError
from initio.records import Architecture, Cost, Scalar, decode, decode_fields, encode_fields
from initio.searches.base import SearchStep, decode_step, encode_step
from initio.searches.limits import milliseconds
from initio.spaces import NetworkSettings, Space, get_space

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Facts:
    """What people want to know beside the choice; None where it does not apply."""

    data: str | None = None
    classes: int | None = None
    fingerprint: str | None = None  # of the first batch
    parameters: int | None = None  # of the network that is wanted
    flops: int | None = None
    channels: int | None = None  # of the same, where it is not the published one
    cells: int | None = None
    limits: str | None = None
    latency: float | None = None


@dataclass(frozen=True)
class SearchResult:
    """What a search chose, what it looked at on the way, and what that cost.

    Two runs are equal when they chose and saw the same; their cost does not count.

    Args:
        method: the search's name.
        space: where it searched.
        seed: of the search.
        chosen: one architecture, or the members of an ensemble; best first.
        steps: what it did, in order; each is a record of the search's own type.
        why: the choice in one sentence.
        cost: what it spent.
        settings: the search's own.
        versions: of initio, torch, python.
        facts: the data, the size of the published network.
    """

    method: str
    space: str
    seed: int
    chosen: tuple[Architecture, ...]
    steps: tuple[SearchStep, ...] = field(default=(), repr=False, metadata={"saved": False})
    why: str = ""
    cost: Cost = field(default_factory=Cost, compare=False)
    settings: dict[str, Scalar] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)
    home: Space | None = field(default=None, compare=False, repr=False, metadata={"saved": False})

    kind: ClassVar[str] = "search result"
    oldest: ClassVar[int] = 2  # format version; before, steps were rows of pairs

    @property
    def best(self) -> Architecture:
        """The first choice."""
        return self.chosen[0]

    def build(self, *, seed: int = 0, **network: Any) -> nn.Module:
        """The chosen network as a plain PyTorch module, of the size that keeps the limits and with the data's classes.

        The keywords are those of `NetworkSettings`.
        """
        known = {name: getattr(self.facts, name) for name in ("classes", "channels", "cells")}
        network = {name: value for name, value in known.items() if value is not None} | network
        return self._space.build(self.best, NetworkSettings(**network), seed=seed)

    def to_frame(self) -> Any:
        """One row a step, as a pandas table; architectures are written in their space's notation."""
        from initio.report.notebook import data_frame

        rows = [self._row(step) for step in self.steps]
        names = dict.fromkeys(name for row in rows for name in row)
        return data_frame({name: [row.get(name) for row in rows] for name in names})

    def show(self) -> None:
        """Prints the chosen cells, and why."""
        print(self)

    def __str__(self) -> str:
        from initio.report.terminal import columns, draw_text

        drawing = draw_text(self._space.cells(self.best), width=shutil.get_terminal_size((100, 24)).columns)
        return f"{drawing}\n\n{columns(self.told())}"

    def _repr_html_(self) -> str:
        from initio.report.picture import svg_text

        rows = "".join(f"<tr><th>{escape(n)}</th><td>{escape(text)}</td></tr>" for n, text in self.told().items())
        return f"{svg_text(self._space.cells(self.best))}<table>{rows}</table>"

    def told(self) -> dict[str, str]:
        """What is worth saying, by its name."""
        facts, cost = self.facts, self.cost
        told = {"chosen": self._space.format(self.best), "why": self.why}
        if facts.parameters is not None and facts.flops is not None:
            told["size"] = f"{facts.parameters:,} parameters, {facts.flops:,} FLOPs, {facts.classes} classes"
            if facts.channels is not None:
                told["size"] += f"; {facts.channels} channels, {facts.cells} cells"
        if facts.limits is not None:
            told["limits"] = f"{facts.limits} asked for"
        if facts.latency is not None:
            told["latency"] = f"{milliseconds(facts.latency)} measured here"
        work = {"scorings": cost.scorings, "trainings": cost.queries + cost.trainings}
        counts = [f"{count} {what}" for what, count in work.items() if count]
        held = [f"{peak >> 20} MB" for peak in (cost.peak_bytes,) if peak is not None]
        told["cost"] = ", ".join([*counts, f"{cost.seconds:.0f} s", *held])
        return told

    @property
    def _space(self) -> Space:
        return self.home or get_space(self.space)

    def _row(self, record: Any) -> dict[str, Any]:
        """The fields of a step by name; a mapping becomes a column for each of its names."""
        row: dict[str, Any] = {}
        for item in fields(record):
            value = getattr(record, item.name)
            if isinstance(value, Architecture):
                value = self._space.format(value)
            if isinstance(value, dict):
                row |= value
            elif item.name != "restart" or value is not None:
                row[item.name] = value
        return row

    # --- JSON -----------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON values; each step says of what kind it is."""
        return encode_fields(self) | {"steps": [encode_step(step) for step in self.steps]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SearchResult:
        """The inverse of `to_dict`; the method's own search knows the kinds of steps."""
        from initio.searches import name_today, steps_of

        known = decode_fields(cls, data)
        if not known["chosen"]:
            raise InputError("nothing was chosen")
        known["method"] = name_today(known["method"], known["settings"])
        steps = decode(list, data.get("steps"), "steps")
        if steps:
            kinds = steps_of(known["method"])
            steps = [decode_step(kinds, step) for step in steps]
        return cls(**known, steps=tuple(steps))
