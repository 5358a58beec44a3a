"""`initio env`."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from initio.cli.units import size, tell
from initio.report.terminal import columns
from initio.system.files import cache_folder

EXTRAS = {"cluster": "distributed", "postgresql": "psycopg", "train": "lightning-fabric", "export": "onnx"}


@dataclass(frozen=True)
class EnvCommand:
    """Says what Initio runs on: versions, device, compiled kernels, threads, memory, and where runs and stores go.

    Args:
        json: print JSON instead of text.
    """

    json: bool = False

    def run(self) -> None:
        """Prints the facts."""
        facts = environment()
        tell(columns(facts), facts, json=self.json)


def environment() -> dict[str, str]:
    """What decides how fast Initio is here, and in which digit its values may differ from those elsewhere."""
    import torch

    from initio.autodiff.devices import available
    from initio.autodiff.fused import status

    torch.set_num_threads(1)  # as the commands that measure do
    facts = {name: version(name) for name in ("initio", "torch", "numpy")}
    return facts | {
        "extras": ", ".join(f"{extra}: {_installed(package)}" for extra, package in EXTRAS.items()),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": f"{', '.join(available())}; cpu unless --device names another or auto, which takes the first",
        "kernels": status(),
        "threads": f"one in each process; {os.cpu_count()} processors for --workers",
        "memory": _memory(),
        "runs": f"{Path('runs').absolute()}, unless --out names another folder",
        "stores": f"{Path('scores.db').absolute()}, unless --store names another file or postgresql://...",
        "cache": str(cache_folder("trainings")),
        "data": os.environ.get("INITIO_DATA") or "INITIO_DATA is not set; it may name a folder of tables and data",
    }


def _installed(package: str) -> str:
    """Its version.

    >>> _installed("no-such-package")
    'no no-such-package'
    """
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"


def _memory() -> str:
    try:
        return size(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not Unix, or one that keeps it to itself
        return "the system does not say"
