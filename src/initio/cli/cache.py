"""`initio cache`."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

from initio.cli.units import columns, size
from initio.files import cache_folder


@dataclass(frozen=True)
class CacheInfo:
    """Says where finished trainings are kept between runs, how many there are, and how large they are."""

    def run(self) -> None:
        """Prints the facts."""
        folder = cache_folder("trainings")
        files = [path for path in folder.glob("*") if path.is_file()]
        answers = sum(path.suffix == ".json" for path in files)
        print(
            columns(
                {
                    "folder": folder,
                    "trainings": f"{answers:,} finished, {len(files) - answers:,} interrupted or given up",
                    "size": size(sum(path.stat().st_size for path in files)),
                }
            )
        )


@dataclass(frozen=True)
class CacheEmpty:
    """Forgets all trainings that were kept between runs; runs and trained networks stay as they are."""

    def run(self) -> None:
        """Removes the folder."""
        folder = cache_folder("trainings")
        answers = sum(1 for _ in folder.glob("*.json"))
        if folder.is_dir():
            shutil.rmtree(folder)
        print(f"forgot {answers:,} trainings in {folder}")


VERBS: dict[str, type[Any]] = {"info": CacheInfo, "empty": CacheEmpty}
