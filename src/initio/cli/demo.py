"""`initio demo`."""

from __future__ import annotations

from dataclasses import dataclass

from initio.cli.search import Search


@dataclass(frozen=True)
class Demo:
    """Chooses an architecture from noise: `initio search nb201`, without options.

    Args:
        seed: the same seed chooses the same architecture.
        out: folder of the run; by default a new one below `runs`.
    """

    seed: int = 0
    out: str | None = None

    def run(self) -> None:
        """Searches, draws the cell, says where the run is."""
        Search("nb201", seed=self.seed, out=self.out).run()
