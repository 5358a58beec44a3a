"""What fits into a time: how many trainings of what length, decided by the speed of one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

SCORING = 0.3  # share of a search's time in which a pool is scored
SMALLEST_POOL, LARGEST_POOL = 30, 400  # architectures that are drawn to be scored
FEWEST = 6  # trainings, below which they become shorter
LONGEST = 12  # epochs of one; beyond that there are more trainings instead
VALIDATION = 1.2  # an epoch with its validation, in units of one without
TICK = 2.0  # seconds between two notes of the time
LEAST_PER_CLASS = 20  # samples, where the data are cut


@dataclass(frozen=True)
class TrainingSizes:
    """How much is trained in a search: so many networks, for so many epochs, on so many samples (None: on all)."""

    pool: int | None
    queries: int
    epochs: int
    samples: int | None = None

    kind: ClassVar[str] = "training sizes"

    def __str__(self) -> str:
        cut = pool = ""
        if self.samples is not None:
            cut = f" on {self.samples:,} samples"
        if self.pool is not None:
            pool = f"{self.pool} architectures were scored, "
        return f"{pool}up to {self.queries} trainings of {self.epochs} epochs{cut} fit into the time"


def pool_within(seconds: float) -> int:
    """How many architectures are drawn for a search of so many seconds; its share of the time says how many are scored.

    >>> pool_within(5), pool_within(120), pool_within(3600)
    (30, 120, 400)
    """
    return round(min(max(SMALLEST_POOL, seconds), LARGEST_POOL))


def sizes_within(
    seconds: float,
    epoch: float,
    samples: int,
    classes: int,
    *,
    pool: int | None = None,
    queries: int | None = None,
    epochs: int | None = None,
) -> TrainingSizes:
    """Trainings that fit into so many seconds, where an epoch on so many samples takes `epoch` seconds.

    A third more trainings than their epochs squared, so that both grow with the time; where there is not enough for
    six trainings of one epoch, an epoch has fewer samples. What is given stays as it is.

    >>> print(sizes_within(300, epoch=2.0, samples=7000, classes=10))
    up to 20 trainings of 6 epochs fit into the time
    >>> print(sizes_within(60, epoch=20.0, samples=7000, classes=10))
    up to 6 trainings of 1 epochs on 2,916 samples fit into the time
    """
    affordable = max(0.0, seconds) / (VALIDATION * epoch)  # epochs in all
    if epochs is None:
        epochs = min(LONGEST, math.floor(math.sqrt(affordable / 3)))
        if queries is not None:
            epochs = math.floor(affordable / queries)
    epochs = max(1, epochs)
    wanted = queries or max(FEWEST, math.floor(affordable / epochs))
    cut: int | None = None
    if affordable < wanted * epochs:
        least = min(samples, LEAST_PER_CLASS * classes)
        cut = max(least, math.floor(samples * affordable / (wanted * epochs)))
    return TrainingSizes(pool, wanted, epochs, cut)


@dataclass(frozen=True)
class Ending:
    """What is left of a budget of time for what comes after the trainings.

    Args:
        share: of the budget,
        least: or so many seconds of this process, at the speed that it has had: others use the machine too,
        most: but no more than this share.
    """

    share: float
    least: float
    most: float

    def seconds(self, budget: float, began: float) -> float:
        """Of a budget that began then.

        >>> Ending(share=0.1, least=0.0, most=0.4).seconds(600, time.perf_counter())
        60.0
        """
        busy = (time.perf_counter() - began) / max(time.process_time(), 1e-3)
        return min(max(self.share * budget, self.least * busy), self.most * budget)


@dataclass
class Ticking:
    """Passes on what it hears, and notes the time now and then: what was used before a kill counts.

    Args:
        tick: notes the seconds of all work so far.
        start: when it would have begun, had it never been interrupted.
        on_event: hears what this hears.
    """

    tick: Callable[[float], None]
    start: float
    on_event: Callable[[Any], None] | None
    noted: float = 0.0

    def __call__(self, what: object) -> None:
        """Hears something."""
        now = time.perf_counter()
        if now - self.noted > TICK:
            self.noted = now
            self.tick(now - self.start)
        if self.on_event is not None:
            self.on_event(what)
