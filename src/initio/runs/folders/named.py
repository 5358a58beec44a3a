"""What a user names: a notation, a published cell, a file with one of these, a run or a trained network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from initio.errors import InputError
from initio.records import Architecture, from_json
from initio.runs.folders.model import ModelFolder
from initio.runs.folders.run import RunFolder
from initio.searches.result import SearchResult
from initio.spaces import NetworkSettings, Space, get_space, parse
from initio.system.files import read_text

SEVERAL = {  # folders with several networks, by a file that they have
    "ensemble.json": "is an ensemble: name one of its members, {}/members/1",
    "solve.json": "is a solved task: name its search, {0}/search, or its network, {0}/found",
}


@dataclass(frozen=True)
class Named:
    """An architecture, and what is known of it.

    Args:
        architecture: what is meant.
        space: where it is at home.
        result: of the search that chose it, if a run was named.
        place: of that result, a folder or a file.
    """

    architecture: Architecture
    space: Space
    result: SearchResult | None = None
    place: Path | None = None

    @classmethod
    def of(cls, what: Architecture | SearchResult, place: Path | None = None) -> Named:
        """An architecture, or the best one of a search."""
        if isinstance(what, SearchResult):
            return cls(what.best, what.home or get_space(what.space), what, place)
        return cls(what, get_space(what.space))

    @property
    def searched(self) -> str | None:
        """The data that the run looked at, if its folder was named."""
        if self.place is None or not RunFolder.is_at(self.place):
            return None
        return RunFolder(self.place).plan().data

    @property
    def classes(self) -> int:
        """Of the data that the run searched on; the usual number where there is no run or it knows of none."""
        return (self.result.facts.classes if self.result else None) or NetworkSettings.classes


def find_named(what: Architecture | SearchResult | str | Path) -> Named:
    """Whatever a user may give for an architecture."""
    if isinstance(what, Architecture | SearchResult):
        return Named.of(what)
    path = Path(what)
    try:
        is_folder, is_file = str(what) != "" and path.is_dir(), path.is_file()
    except (OSError, ValueError):  # too long for a path: a notation
        is_folder = is_file = False
    if is_folder:
        return _in_folder(path)
    if is_file:
        return _in_file(path)
    return Named.of(parse(str(what)))


def _in_folder(path: Path) -> Named:
    if ModelFolder.is_at(path):
        return Named.of(ModelFolder(path).plan().architecture)
    for name, advice in SEVERAL.items():
        if (path / name).is_file():
            raise InputError(f"{str(path)!r} {advice.format(path)}")
    return Named.of(RunFolder.open(path).result(), path)


def _in_file(path: Path) -> Named:
    content = read_text(path)
    if '"search result"' in content:
        return Named.of(from_json(SearchResult, content, where=str(path)), path)
    try:
        return Named.of(parse(content))
    except InputError as error:
        raise InputError(f"{str(path)!r}: {error}") from None
