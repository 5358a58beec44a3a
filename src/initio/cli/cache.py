"""`initio cache`."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

from initio.cli.units import size, tell
from initio.report.terminal import columns
from initio.system.files import cache_folder


@dataclass(frozen=True)
class CacheInfo:
    """Says where finished trainings are kept between runs, how many there are, and how large they are.

    Args:
        json: print the numbers as JSON.
    """

    json: bool = False

    def run(self) -> None:
        """Prints the facts."""
        folder = cache_folder("trainings")
        files = [path for path in folder.glob("*") if path.is_file()]
        answers = sum(path.suffix == ".json" for path in files)
        unfinished, length = len(files) - answers, sum(path.stat().st_size for path in files)
        told = {
            "folder": folder,
            "trainings": f"{answers:,} finished, {unfinished:,} interrupted or given up",
            "size": size(length),
        }
        facts = {"folder": str(folder), "finished": answers, "unfinished": unfinished, "bytes": length}
        tell(columns(told), facts, json=self.json)


@dataclass(frozen=True)
class CacheEmpty:
    """Forgets all trainings that were kept between runs; runs and trained networks stay as they are.

    Args:
        json: print the numbers as JSON.
    """

    json: bool = False

    def run(self) -> None:
        """Removes the folder."""
        folder = cache_folder("trainings")
        answers = sum(1 for _ in folder.glob("*.json"))
        if folder.is_dir():
            shutil.rmtree(folder)
        facts = {"folder": str(folder), "forgotten": answers}
        tell(f"forgot {answers:,} trainings in {folder}", facts, json=self.json)


VERBS: dict[str, type[Any]] = {"info": CacheInfo, "empty": CacheEmpty}
