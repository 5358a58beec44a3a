"""`initio spaces`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class SpacesCommand:
    """Lists the search spaces.

    Args:
        json: print JSON instead of a table.
    """

    json: bool = False

    def run(self) -> None:
        """Prints one row a space."""
        from initio.spaces import SPACES

        if self.json:
            rows = [
                {
                    "name": space.name,
                    "title": space.title,
                    "architectures": space.count(),
                    "decisions": {decision.name: list(decision.options) for decision in space.decisions},
                    "example": space.format(space.sample(Random(0))),
                }
                for space in SPACES.values()
            ]
            print(json.dumps(rows, indent=2))
            return
        width = max(map(len, SPACES))
        for name, space in SPACES.items():
            print(f"{name:<{width}}  {_short(space.count()):>9}  {space.title}")


def _short(count: int) -> str:
    """A count as people write it: exact up to ten million, then as a power.

    >>> _short(423624), _short(10**18)
    ('423,624', '1.0e18')
    """
    if count < 10_000_000:
        return f"{count:,}"
    return f"{count:.1e}".replace("e+", "e")
