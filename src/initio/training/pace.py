"""How fast a network learns here: `pace`."""

from __future__ import annotations

import time
from contextlib import suppress

from torch import nn

from initio.training.examples import Examples
from initio.training.fit import TrainingProgress, fit
from initio.training.settings import TrainingSettings

UPDATES = 8  # that are timed, after the first, which is slower
LONGEST = 5.0  # seconds, after which what was seen must do


class _SeenEnoughError(Exception):
    """Ends a training that was only watched."""


def pace(network: nn.Module, examples: Examples, settings: TrainingSettings) -> float:
    """Seconds of an epoch without its validation, from its first updates; the network is changed."""
    times: list[float] = []

    def hear(progress: TrainingProgress) -> None:
        times.append(time.perf_counter())
        few = progress.batch == progress.batches
        if few or len(times) > UPDATES or (len(times) > 1 and times[-1] - times[0] > LONGEST):
            times.append(float(progress.batches))
            raise _SeenEnoughError

    begin = time.perf_counter()
    with suppress(_SeenEnoughError):
        fit(network, examples, settings, on_progress=hear)
    *ends, batches = times
    if len(ends) == 1:
        return (ends[0] - begin) * batches
    return (ends[-1] - ends[0]) / (len(ends) - 1) * batches
