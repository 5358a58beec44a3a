"""Where work is done: here, in processes of this machine, or on a cluster. One boundary, `Executor`, for all of it.

Work is a function of one task, plain data in and plain data out. An executor is told a function once, sends it to
whoever works, and hears an answer for each task, in any order. What comes out does not depend on the executor. A
worker may die: what it was at is done again, and a task of which workers die again and again is named in the end.
"""

from __future__ import annotations

from initio.errors import InputError
from initio.system.executors.base import DEATHS, Executor, Here, LostTasksError, Session, cores
from initio.system.executors.processes import Processes

__all__ = ["DEATHS", "Executor", "Here", "LostTasksError", "Processes", "Session", "cores", "executor_for"]


def executor_for(workers: int = 1, cluster: str | None = None) -> Executor:
    """The executor that a user asks for.

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
        return Cluster(cluster)
    if workers == 1:
        return Here()
    return Processes(workers)
