"""`initio demo`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from initio.cli.progress import watch
from initio.runs.folders.base import new_folder

REACHED = """\
reached ten such cells (seeds 0 to 9) have 95.84 % on average by a NAS-Bench-301 surrogate, the worst of them 95.60;
        climbing on parameters gives 95.48. Nothing was trained: docs/results/training-free.md"""


@dataclass(frozen=True)
class DemoCommand:
    """Chooses a darts cell from noise: `initio search`, without options.

    Args:
        seed: the same seed chooses the same architecture.
        out: folder of the run; by default a new one below `runs`.
        json: print the result as JSON.
    """

    seed: int = 0
    out: str | None = None
    json: bool = False

    def run(self) -> None:
        """Searches, draws the cell, says where the run is."""
        from initio.runs.search import search

        folder = new_folder("darts", "votes", seed=self.seed) if self.out is None else Path(self.out)
        watch(partial(search, "darts", "votes", "noise", seed=self.seed), folder, json=self.json)
        if not self.json:
            print(REACHED)
