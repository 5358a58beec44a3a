"""`initio demo`."""

from __future__ import annotations

from dataclasses import dataclass

from initio.cli.search import SearchCommand


@dataclass(frozen=True)
class DemoCommand:
    """Chooses a darts cell from noise: `initio search`, without options.

    Args:
        seed: the same seed chooses the same architecture.
        out: folder of the run; by default a new one below `runs`.
    """

    seed: int = 0
    out: str | None = None

    def run(self) -> None:
        """Searches, draws the cell, says where the run is."""
        SearchCommand(seed=self.seed, out=self.out).run()
