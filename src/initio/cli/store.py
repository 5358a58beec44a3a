"""`initio store info A`, `diff A B`, `copy A B`, `pack A B.xz` and `update A`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from initio.cli.progress import Reporter
from initio.cli.units import print_json, settings_line, tell
from initio.errors import InputError
from initio.records import Evaluation, Settings
from initio.report.cells import printable
from initio.scores.database import STORE_VERSION
from initio.scores.sqlite import PACKED
from initio.scores.store import Group, Pair, Store, differences, find_store, pack, shipped

SHOWN = 10  # differences


@dataclass(frozen=True)
class StoreInfo:
    """Says what a store holds.

    Args:
        path: the store, or the name of scores that come with Initio.
        json: print JSON instead of a table.
    """

    path: str
    json: bool = False

    def run(self) -> None:
        """Prints the kinds of scores."""
        with Store(find_store(self.path), read_only=True) as store:
            groups = store.groups()
        if self.json:
            print_json(groups)
        else:
            _print_groups(groups)


@dataclass(frozen=True)
class StoreDiff:
    """Compares two stores; the exit code is 1 if a score differs.

    Args:
        path: the first, or the name of scores that come with Initio.
        other: the second.
        json: print JSON instead: how many scores differ, and all of them.
    """

    path: str
    other: str
    json: bool = False

    def run(self) -> None:
        """Prints what differs."""
        a, b = find_store(self.path), find_store(self.other)
        with Store(a, read_only=True) as first, Store(b, read_only=True) as second:
            scores, found = len(first), differences(first, second)
            if self.json:
                pairs = list(found)
                count = len(pairs)
                print_json({"scores": scores, "different": count, "pairs": pairs})
            else:
                count = _print_differences(f"scores in {first.name} | in {second.name}", found, scores)
        if count:
            raise SystemExit(1)


@dataclass(frozen=True)
class StoreCopy:
    """Copies a store into another, as of another machine or on a server; what the other has stays as it is.

    Args:
        path: the store that is read: a file, postgresql://... or the name of scores that come with Initio.
        other: the store that is written to; it is made when it is not there.
        json: print the numbers as JSON.
    """

    path: str
    other: str
    json: bool = False

    def run(self) -> None:
        """Copies, and says how much."""
        refuse_shipped(self.other)
        with Store(find_store(self.path), read_only=True) as store, Store(self.other) as other:
            total = len(store)
            with Reporter() as reporter:
                added = other.add(store, lambda done: reporter.show("copying", done, total, "scores"))
            facts = {"from": store.name, "scores": total, "to": other.name, "copied": added, "has": len(other)}
        sentence = "copied {copied:,} of {scores:,} scores to {to}, which has {has:,}".format_map(facts)
        tell(sentence, facts, json=self.json)


@dataclass(frozen=True)
class StorePack:
    """Writes a small read-only copy of a store.

    Args:
        path: the store.
        out: the file to write, which must end in .xz.
        json: print the numbers as JSON.
    """

    path: str
    out: str
    json: bool = False

    def run(self) -> None:
        """Packs, and says how much."""
        with Store(find_store(self.path), read_only=True) as store:
            pack(store, Path(self.out))
            facts = {"store": store.name, "scores": len(store), "written": self.out}
        tell("packed {scores:,} scores into {written}".format_map(facts), facts, json=self.json)


@dataclass(frozen=True)
class StoreUpdate:
    """Brings a store that an older Initio wrote up to date; all its scores stay as they are.

    Args:
        path: the store.
        json: print the version as JSON.
    """

    path: str
    json: bool = False

    def run(self) -> None:
        """Updates, and says the version."""
        refuse_shipped(self.path)
        place = find_store(self.path)
        if str(place).endswith(PACKED):
            raise InputError(f"the packed store {self.path!r} stays as it is: it is brought up to date when it is read")
        with Store(place) as store:
            facts = {"store": store.name, "scores": len(store), "version": STORE_VERSION}
        tell("{store} has version {version} and {scores:,} scores".format_map(facts), facts, json=self.json)


VERBS = {"info": StoreInfo, "diff": StoreDiff, "copy": StoreCopy, "pack": StorePack, "update": StoreUpdate}


def refuse_shipped(name: str) -> None:
    """Scores that come with Initio stay as they are."""
    if name in shipped() and not Path(name).is_file():
        raise InputError(f"{name!r} names scores that come with Initio: write to a store of your own")


def _print_groups(groups: list[Group]) -> None:
    """Metrics that were made alike stand together."""

    def made(group: Group) -> tuple[str, Settings, str, str]:
        return group.space, group.settings, group.source, group.data

    width = max((len(group.metric) for group in groups), default=0)
    print(f"{len(groups) or 'no'} kinds of scores")
    for (space, settings, source, data), metrics in groupby(groups, key=made):
        print("\n" + printable(f"{space}" + f", data {source or '?'} ({data})" * bool(data)))
        print("  " + settings_line(settings))
        for g in metrics:
            networks = f"{g.architectures:>9,} networks" + f" x {g.seeds} seeds" * (g.seeds > 1)
            missing = f"{g.undefined:,} undefined, {g.flagged:,} flagged"
            print(f"  {printable(g.metric):<{width}}  version {g.version}  {networks}  {missing}")


def _print_differences(title: str, pairs: Iterable[Pair], scores: int) -> int:
    count = 0
    for left, right in pairs:
        count += 1
        if count == 1:
            print(title)
        if count <= SHOWN:
            print(_difference(left, right))
    if count > SHOWN:
        print(f"... and {count - SHOWN:,} more")
    print(f"{count:,} scores differ" if count else f"the stores are equal: {scores:,} scores")
    return count


def _difference(left: Evaluation | None, right: Evaluation | None) -> str:
    which = left or right
    assert which is not None
    name = f"{which.metric} of {which.architecture.space} {which.architecture.choices}, seed {which.seed}"
    made = settings_line(which.settings) + f", data {which.data}" * bool(which.data)
    return printable(f"{name}: {_shown(left)} | {_shown(right)}") + f"\n  {made}"


def _shown(e: Evaluation | None) -> str:
    return "absent" if e is None else f"{e.value!r}" + f" ({e.flag})" * bool(e.flag)
