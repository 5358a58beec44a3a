"""Tasks for workers, in a module that imports nothing slow: each worker imports it."""

import os
import signal
from pathlib import Path


def square(number: int) -> int:
    return number * number


def die_of_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def die_once(marker: str, number: int) -> int:
    if number == 3 and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def refuse_three(number: int) -> int:
    if number == 3:
        from initio.errors import InputError

        raise InputError("three is refused")
    return number


def pid(number: int) -> int:
    return os.getpid()
