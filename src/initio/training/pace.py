"""How fast a network learns here: `pace`."""

from __future__ import annotations

import math
import time
from contextlib import suppress

from torch import nn

from initio.training.examples import Examples
from initio.training.fit import TrainingProgress, fit
from initio.training.machine import PlainMachine
from initio.training.settings import TrainingSettings

UPDATES = 8  # that are timed, after the first, which is slower
LONGEST = 5.0  # seconds, after which what was seen must do


class _SeenEnoughError(Exception):
    """Ends a training that was only watched."""


def pace(
    network: nn.Module, examples: Examples, settings: TrainingSettings, machine: PlainMachine | None = None
) -> float:
    """Seconds of an epoch without its validation, from its first updates; the network is changed.

    Of a training that diverges, the updates before that count, or the one that did.
    """
    heard = list[TrainingProgress]()

    def hear(progress: TrainingProgress) -> None:
        heard.append(progress)
        spent = progress.seconds - heard[0].seconds
        if spent > LONGEST or len(heard) > UPDATES or progress.batch == progress.batches:
            raise _SeenEnoughError

    begin = time.perf_counter()
    with suppress(_SeenEnoughError):
        fit(network, examples, settings, machine=machine, on_progress=hear)
    if not heard:
        return (time.perf_counter() - begin) * math.ceil(len(examples) / settings.batch_size)
    first, last = heard[0], heard[-1]
    if first is last:
        return first.seconds * first.batches
    return (last.seconds - first.seconds) / (len(heard) - 1) * first.batches
