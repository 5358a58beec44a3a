"""How long a work may take."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


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
