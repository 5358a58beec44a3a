"""Work that is done elsewhere, to the same bits: workers must compute as this process does."""

from __future__ import annotations

import platform
import re
from functools import partial
from hashlib import sha256
from importlib.metadata import version

from initio.autodiff.devices import check_measures, check_name, find_device
from initio.autodiff.threads import one_thread
from initio.errors import InputError
from initio.system.executors import Executor, Here, Processes
from initio.system.executors.base import versions
from initio.system.executors.cluster import Cluster


def arithmetic() -> dict[str, str]:
    """What decides the last bits of a value on one thread: versions, compiled kernels, the processor's instructions."""
    import torch

    from initio.autodiff import fused

    with one_thread():
        kernels = fused.arithmetic()
    return versions() | {
        "build of torch": version("torch"),
        "machine": platform.machine(),
        "kernels": kernels,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "processor": vector_units(fused.processor()),
    }


def vector_units(flags: str) -> str:
    """Those of a processor that libraries choose their arithmetic by, as a short name that only the same ones have.

    >>> vector_units("flags : fpu sse2 avx md_clear") == vector_units("flags : fpu avx sse2 flush_l1d")
    True
    >>> vector_units("flags : avx") == vector_units("flags : avx avx2")
    False
    """
    units = sorted(set(re.findall(r"\b(?:s?sse|avx|fma|f16c|amx|asimd|sve|sme|bf16|i8mm|fphp)\w*", flags)))
    return f"{(units or ['-'])[0]}...-{sha256(' '.join(units).encode()).hexdigest()[:8]}"


def is_remote(cluster: str | None) -> bool:
    """Whether workers may be on other machines.

    >>> is_remote("tcp://host:8786"), is_remote("local:8"), is_remote(None)
    (True, False, False)
    """
    return cluster is not None and not cluster.startswith("local:")


def device_of_workers(name: str, cluster: str | None = None, *, measured: bool = False) -> str:
    """A device by its name; on a cluster it may be on the workers alone, and a worker says what `auto` is.

    Args:
        name: as the user gave it.
        cluster: as the user gave it.
        measured: whether it must have float64.
    """
    if not is_remote(cluster):
        return str(find_device(name, measured=measured))
    check_name(name)
    if name == "auto":
        found: list[str] = []
        asked = Cluster(str(cluster), alike=versions)
        asked.map(partial(_found, measured=measured), [name], lambda _, answer: found.append(answer))
        return found[0]
    if measured:
        check_measures(name)
    return name


def _found(name: str, *, measured: bool) -> str:
    return str(find_device(name, measured=measured))


def executor_for(workers: int = 1, cluster: str | None = None, device: str = "cpu") -> Executor:
    """The executor that a user asks for; workers that would compute other bits are refused.

    Args:
        workers: processes of this machine; 1 is this process.
        cluster: in their place, the address of a Dask scheduler (tcp://host:8786), or local:8, a cluster of eight
            processes of this machine.
        device: what computes there; elsewhere than on the CPU, its build and the processor may differ.

    >>> executor_for(4).workers
    4
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, not {workers}")
    alike = {True: arithmetic, False: versions}[device == "cpu"]
    if cluster is not None:
        if workers > 1:
            raise InputError("workers are those of the cluster: give --workers or --cluster, not both")
        return Cluster(cluster, alike=alike)
    if workers == 1:
        return Here()
    return Processes(workers, alike=alike)
