"""Processes of this machine, by loky: each is told the work once, and ends with the process that started it."""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from initio.system.executors.base import (
    Alike,
    Answer,
    Executor,
    Session,
    Task,
    Work,
    WorkerDiedError,
    refuse_unlike,
    relay,
)
from initio.system.tasks import as_task


@dataclass(frozen=True)
class Processes(Executor):
    """So many processes of one thread."""

    count: int

    @property
    def workers(self) -> int:
        """As many as were asked for."""
        return self.count

    @contextmanager
    def open(self, work: Work[Task, Answer]) -> Iterator[Session[Task, Answer]]:
        """New processes; whoever leaves the block early ends them at once."""
        import cloudpickle
        from joblib.externals.loky import ProcessPoolExecutor

        told = os.getpid(), cloudpickle.dumps(work), self.alike, dict(self.alike())
        pool = ProcessPoolExecutor(self.count, initializer=_begin, initargs=told)
        kill = True
        try:
            yield _ProcessSession(pool, self.count)
            kill = False
        finally:
            pool.shutdown(wait=True, kill_workers=kill)


class _ProcessSession(Session[Task, Answer]):
    def __init__(self, pool: Any, count: int) -> None:
        from joblib.externals.loky.process_executor import BrokenProcessPool

        self._pool, self._count, self._broken = pool, count, BrokenProcessPool

    @property
    def workers(self) -> int:
        return self._count

    def submit(self, task: Task) -> Future[Answer]:
        try:
            sent = self._pool.submit(_do, task)
        except self._broken as error:  # it died of an earlier task, before anybody heard of it
            died: Future[Answer] = Future()
            died.set_exception(WorkerDiedError(str(error)))
            return died
        return relay(sent, self._answer)

    def _answer(self, sent: Any) -> Any:
        try:
            return sent.result()
        except self._broken as error:
            raise WorkerDiedError(str(error)) from None


# --- in a worker ------------------------------------------------------------------------------------------------------

_works: list[Work[Any, Any]] = []  # what this worker was told
_terms: list[tuple[Alike, Mapping[str, str]]] = []  # what must be as in the process that started it, until it is known


def _begin(parent: int, work: bytes, alike: Alike, ours: Mapping[str, str]) -> None:
    end_with(parent)
    gc.disable()  # what is imported stays: it need not look through it, now or later
    _works[:] = [pickle.loads(work)]
    gc.freeze()
    gc.enable()
    _terms[:] = [(alike, ours)]
    atexit.register(gc.freeze)  # it need not look through all that torch has made before it ends


def _do(task: Any) -> Any:
    for alike, ours in _terms:
        refuse_unlike("a worker process", alike(), ours)
    _terms.clear()
    with as_task():
        return _works[0](task)


def end_with(parent: int) -> None:
    """A worker must not outlive the process that started it, even if that one is killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
