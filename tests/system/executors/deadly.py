"""Tasks for workers, in a module that imports nothing slow: each worker imports it."""

import atexit
import gc
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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


@dataclass
class TellsAtTheEnd:
    """Writes how many objects its process no longer looks at when it ends."""

    path: Path

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        atexit.register(lambda: self.path.write_text(str(gc.get_freeze_count())))

    def __call__(self, number: int) -> int:
        return number


def until_abandoned(folder: str, number: int) -> None:
    from initio.system.tasks import AbandonedError, go_on

    Path(folder, "begun").touch()
    try:
        while True:
            go_on()
            time.sleep(0.05)
    except AbandonedError:
        Path(folder, "abandoned").touch()
        raise


def hold_until_abandoned(folder: str, number: int) -> list[str]:
    """Holds a folder's lease; the first task for as long as anybody waits for it, and then some."""
    from initio.system.leases import leased
    from initio.system.tasks import AbandonedError, go_on

    with leased(Path(folder)):
        Path(folder, f"held-{number}").touch()
        while number == 1:
            try:
                go_on()
            except AbandonedError:
                time.sleep(0.5)
                Path(folder, "left-1").touch()
                raise
            time.sleep(0.05)
        return [name for name in ("held-1", "left-1", "held-2") if Path(folder, name).exists()]
