"""What all folders share: a plan first and a result last, names below `runs`, records as files, and journals.

A journal has a record a line, on disk before the work goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from itertools import chain, count
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar, Generic, Self, TypeGuard, TypeVar

from initio.errors import InputError
from initio.records import encode, from_json, load_json, to_json
from initio.system.files import add_line, fresh_folder, read_text, whole_lines, write_text

P = TypeVar("P")
R = TypeVar("R")


class Folder(Generic[P, R]):
    """A folder that a work writes to: what was asked first, what came out last."""

    kind: ClassVar[str]  # as sentences call it
    verb: ClassVar[str]  # the command that makes it
    plan_name: ClassVar[str]
    result_name: ClassVar[str] = "result.json"
    plan_type: ClassVar[type[Any]]
    result_type: ClassVar[type[Any]]

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.plan_path = self.folder / self.plan_name
        self.result_path = self.folder / self.result_name

    @classmethod
    def is_at(cls, place: object) -> TypeGuard[str | Path]:
        """Whether this is the path of such a folder."""
        try:
            return isinstance(place, str | Path) and place != "" and cls(place).started
        except (OSError, ValueError):  # too long for a path: a notation
            return False

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """An existing one."""
        found = cls(folder)
        if not found.started:
            what = f"{str(folder)!r} is no {cls.kind}: it has no {cls.plan_name}"
            raise InputError(f"{what}; make one by `initio {cls.verb}`")
        return found

    def start(self, plan: P) -> Self:
        """A new one; an existing one is never overwritten."""
        text = to_json(plan, indent=2) + "\n"  # what is not JSON is refused before there is a folder
        fresh_folder(self.folder, f", or {self.go_on}" * self.started)
        write_text(self.plan_path, text)
        return self

    def begin(self, plan: P, *, resume: bool) -> None:
        """A new one, or the same again if it is there; of another one it says what differs."""
        if not (resume and self.started):
            self.start(plan)
            return
        before = self.plan()
        for item in sorted(fields(plan), key=lambda item: item.name == "fingerprint"):  # type: ignore[arg-type]
            was, now = getattr(before, item.name), getattr(plan, item.name)
            if item.compare and was != now:
                if item.name == "fingerprint":
                    data = getattr(plan, "data", "what it learns")
                    raise InputError(f"{data!r} has changed since the {self.kind} began: bring the data back")
                what = f"the {self.kind} was started with {item.name}"
                raise InputError(f"{what} {was}, not {now}: give another folder than {str(self.folder)!r}")

    @property
    def started(self) -> bool:
        """Whether it is known what was asked."""
        return self.plan_path.is_file()

    @property
    def finished(self) -> bool:
        """Whether something came out."""
        return self.result_path.is_file()

    @property
    def go_on(self) -> str:
        """How an unfinished one is finished."""
        return f"go on with `initio {self.verb} --resume {quote(str(self.folder))}`"

    def plan(self) -> P:
        """What was asked, as `start` wrote it."""
        plan: P = read_record(self.plan_type, self.plan_path)
        return plan

    def result(self) -> R:
        """What came out; an unfinished one says how to finish it."""
        if not self.finished:
            raise InputError(f"the {self.kind} {str(self.folder)!r} is not finished: {self.go_on}")
        result: R = read_record(self.result_type, self.result_path)
        return result


def new_folder(*names: str, seed: int) -> Path:
    """The folder of a work for which none was named; a part of one's own is called by its class.

    >>> new_folder("train", "package.module:Mine", seed=3).name
    'train-mine-seed3'
    """
    return unused("-".join([*(name.rpartition(":")[2].lower() for name in names), f"seed{seed}"]))


def unused(name: str) -> Path:
    """The folder of that name below `runs`, numbered if there is one already."""
    numbered = (f"{name}-{number}" for number in count(2))
    return next(folder for folder in map(Path("runs").joinpath, chain([name], numbered)) if not folder.exists())


def write_record(path: Path, record: Any) -> None:
    """The record as a whole file, or nothing."""
    write_text(path, to_json(record, indent=2) + "\n")


def read_record(kind: type[R], path: Path) -> R:
    """Reads it back; an `InputError` names the file."""
    return from_json(kind, read_text(path), where=str(path))


def add_record(journal: Path, record: Any) -> None:
    """Adds a line with the record; it is on disk when this returns."""
    add_line(journal, json.dumps(encode(record), allow_nan=False))


def read_lines(journal: Path, read: Callable[[Any], R]) -> list[R]:
    """What `read` makes of each line; a last one that a crash left half-written is cut off."""
    found = []
    for number, line in enumerate(whole_lines(journal), start=1):
        where = f"line {number} of {str(journal)!r}"
        try:
            found.append(read(load_json(line, where)))
        except InputError as error:
            raise InputError(f"{where} is damaged: {error}") from None
    return found
