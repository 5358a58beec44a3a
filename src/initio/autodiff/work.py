"""Work that is done elsewhere, to the same bits: workers must compute as this process does."""

from __future__ import annotations

from initio.autodiff.threads import one_thread
from initio.errors import InputError
from initio.system.executors import Executor, Here, Processes
from initio.system.executors.base import versions


def arithmetic() -> dict[str, str]:
    """What decides the last bits of a value on one thread: versions, compiled kernels, the processor's instructions."""
    import torch

    from initio.autodiff import fused

    with one_thread():
        kernels = fused.arithmetic()
    return versions() | {"kernels": kernels, "instructions": torch.backends.cpu.get_cpu_capability()}


def executor_for(workers: int = 1, cluster: str | None = None) -> Executor:
    """The executor that a user asks for; workers that would compute other bits are refused.

    Args:
        workers: processes of this machine; 1 is this process.
        cluster: in their place, the address of a Dask scheduler (tcp://host:8786), or local:8, a cluster of eight
            processes of this machine.

    >>> executor_for(4).workers
    4
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, not {workers}")
    if cluster is not None:
        from initio.system.executors.cluster import Cluster

        if workers > 1:
            raise InputError("workers are those of the cluster: give --workers or --cluster, not both")
        return Cluster(cluster, alike=arithmetic)
    if workers == 1:
        return Here()
    return Processes(workers, alike=arithmetic)
