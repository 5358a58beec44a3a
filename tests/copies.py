"""Copies of this process that are killed: what `kill -9` leaves, without the seconds in which a new Python starts."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

needs_copies = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be copied")


def die(*_: object) -> None:
    """What an out-of-memory killer does."""
    os.kill(os.getpid(), signal.SIGKILL)


def start_copy(work: Callable[[], object], said: str | Path = os.devnull) -> int:
    """Starts the work in a copy of this process, on one thread; its number. What it says goes to a file."""
    if child := os.fork():
        return child
    try:
        told = os.open(said, os.O_CREAT | os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(told, stream)
        sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        torch.set_num_threads(1)
        work()
    finally:
        os._exit(0)


def dies(work: Callable[[], object], said: str | Path = os.devnull) -> None:
    """The work is killed before it comes to its end."""
    assert ended(start_copy(work, said)) == -signal.SIGKILL, "it was not killed"


def killed_once(reached: Callable[[], object], work: Callable[[], object], seconds: float = 200) -> None:
    """Kills the work as soon as it has reached something."""
    child, end = start_copy(work), time.monotonic() + seconds
    while not reached() and time.monotonic() < end:
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    ended(child)


def ended(child: int) -> int:
    """Waits for a copy; its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
