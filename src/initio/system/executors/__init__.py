"""Where work is done: here, in processes of this machine, or on a cluster. One boundary, `Executor`, for all of it.

Work is a function of one task, plain data in and plain data out. An executor is told a function once, sends it to
whoever works, and hears an answer for each task, in any order. What comes out does not depend on the executor: workers
that are not `alike` are refused. A worker may die: what it was at is done again, and a task of which workers die again
and again is named in the end.
"""

from __future__ import annotations

from initio.system.executors.base import DEATHS, Executor, Here, LostTasksError, Session, cores
from initio.system.executors.processes import Processes

__all__ = ["DEATHS", "Executor", "Here", "LostTasksError", "Processes", "Session", "cores"]
