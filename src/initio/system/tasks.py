"""What work may know of who asked for it: that it is a task of an executor, and whether anybody waits for the answer.

A worker of a cluster outlives the client that sent its task. Long work asks `go_on` now and then, so that what was sent
by a client that was killed ends soon, and leaves its folder to whoever goes on with the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_WANTED: ContextVar[Callable[[], bool] | None] = ContextVar("whether anybody waits for this task", default=None)


class AbandonedError(Exception):
    """Nobody waits for the answer of this task any more; what it has kept is for those who come next."""


@contextmanager
def as_task(wanted: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Inside, work is a task; `wanted` says whether anybody waits for it."""
    token = _WANTED.set(wanted)
    try:
        yield
    finally:
        _WANTED.reset(token)


def is_task() -> bool:
    """Whether this is done for an executor.

    >>> is_task()
    False
    >>> with as_task():
    ...     is_task()
    True
    """
    return _WANTED.get() is not None


def go_on() -> None:
    """Ends a task that nobody waits for.

    >>> with as_task(lambda: False):
    ...     go_on()
    Traceback (most recent call last):
    initio.system.tasks.AbandonedError: nobody waits for the answer
    """
    wanted = _WANTED.get()
    if wanted is not None and not wanted():
        raise AbandonedError("nobody waits for the answer")
