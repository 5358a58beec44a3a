"""When this process was started, and when a work must be over."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

READ = time.perf_counter()


def process_began() -> float:
    """When this process was started, by `time.perf_counter`; where the system does not say, when this file was read.

    >>> process_began() < time.perf_counter()
    True
    """
    try:
        facts = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        ticks = int(facts[19])  # Linux: since the machine was started
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return READ
    return time.perf_counter() - age


class OutOfTimeError(Exception):
    """The time was up before the work was done; what it had done by then is kept."""


@dataclass(frozen=True)
class Deadline:
    """When a work must be over, on the clock of this process.

    >>> Deadline.after(60).left > 59, Deadline().left, Deadline.after(60, used=70).passed
    (True, inf, True)
    """

    at: float = math.inf

    @classmethod
    def after(cls, seconds: float | None, used: float = 0.0) -> Deadline:
        """So many seconds from now, less those that were used before; None is never."""
        if seconds is None:
            return cls()
        return cls(time.perf_counter() + seconds - used)

    @property
    def left(self) -> float:
        """Seconds, negative when it has passed."""
        return self.at - time.perf_counter()

    @property
    def passed(self) -> bool:
        """Whether nothing is left."""
        return self.left <= 0

    def sooner(self, seconds: float) -> Deadline:
        """So many seconds before."""
        return Deadline(self.at - seconds)

    def share(self, part: float) -> Deadline:
        """When a part of what is left will be used up."""
        if math.isinf(self.at):
            return self
        return Deadline.after(part * max(0.0, self.left))

    def keep(self) -> None:
        """Ends the work if its time is up."""
        if self.passed:
            raise OutOfTimeError
