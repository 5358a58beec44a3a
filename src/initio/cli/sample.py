"""`initio sample SPACE`."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import ClassVar

from initio.errors import InputError
from initio.records import to_json


@dataclass(frozen=True)
class SampleCommand:
    """Draws random architectures.

    Args:
        space: name of the search space; `initio spaces` lists them.
        count: how many to draw (short: -n).
        seed: the same seed draws the same architectures.
        json: print one JSON document a line instead of the space's own notation.
    """

    space: str
    count: int = 1
    seed: int = 0
    json: bool = False

    SHORT: ClassVar[dict[str, str]] = {"count": "-n"}

    def run(self) -> None:
        """Prints one architecture a line."""
        from initio.spaces import get_space

        if self.count < 1:
            raise InputError(f"--count must be at least 1, not {self.count}")
        space, rng = get_space(self.space), Random(self.seed)
        for _ in range(self.count):
            arch = space.sample(rng)
            print(to_json(arch) if self.json else space.format(arch))
