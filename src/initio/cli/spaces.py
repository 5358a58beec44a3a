"""`initio spaces`."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from initio.cli.units import print_json


@dataclass(frozen=True)
class SpacesCommand:
    """Lists the search spaces.

    Args:
        json: print JSON instead of a table.
    """

    json: bool = False

    def run(self) -> None:
        """Prints one row a space, those of installed packages included."""
        from initio.plugins import announced
        from initio.spaces import SPACES, get_space
        from initio.spaces.base import rounded

        spaces = SPACES | {name: get_space(name) for name in announced("spaces")}
        if self.json:
            rows = [
                {
                    "name": space.name,
                    "title": space.title,
                    "architectures": space.count(),
                    "supernet": space.one_shot,
                    "decisions": {decision.name: list(decision.options) for decision in space.decisions},
                    "example": space.format(space.sample(Random(0))),
                }
                for space in spaces.values()
            ]
            print_json(rows)
            return
        width = max(map(len, spaces))
        for name, space in spaces.items():
            print(f"{name:<{width}}  {rounded(space.count()):>9}  {'supernet' * space.one_shot:<8}  {space.title}")
