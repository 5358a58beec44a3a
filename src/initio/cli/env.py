"""`initio env`."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from initio.cli.units import size, tell
from initio.report.terminal import columns
from initio.system.executors import cores
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
        "threads": f"one in each process; {cores()} processors for --workers",
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
    """What this process may use: the machine's, or less in a container or a job with a limit."""
    found = list(memory_limits(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")))
    with suppress(AttributeError, ValueError, OSError):  # not Unix, or one that keeps it to itself
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return size(min(found)) if found else "the system does not say"


def memory_limits(root: Path, own: Path) -> Iterator[int]:
    """The limits in bytes of the control groups, of either version, that a process is in.

    Args:
        root: where control groups are.
        own: which groups the process is in, a line each: `0::/job/step`, or `4:memory:/job` of the first version.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, group = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        home, name = {True: (root / "memory", "memory.limit_in_bytes"), False: (root, "memory.max")}[bool(kinds)]
        place = home / group.strip("/")
        for folder in (place, *place.parents):
            if folder.is_relative_to(home):
                with suppress(OSError, ValueError):  # no limit is `max`
                    yield int((folder / name).read_text())
