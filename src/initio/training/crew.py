"""Several trainings at once: `TrainingCrew`, a `Training` with worker processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import replace
from typing import Any

from initio.errors import InputError
from initio.records import Observation, Query
from initio.scores.workers import end_with
from initio.training.evaluate import Training

PATIENCE = 0.2  # seconds between two looks at the clock, while workers train


class TrainingCrew:
    """Trains queries that are announced in worker processes, and all others here.

    Workers keep their answers in the training's folder, where it finds them when it is asked: so an answer is the same
    whoever made it, and a worker that dies costs no more than the training that it was at, which is then done here.

    Args:
        training: with a folder.
        workers: how many processes.
    """

    def __init__(self, training: Training, workers: int) -> None:
        if workers < 1:
            raise InputError(f"workers must be at least 1, not {workers}")
        assert training.folder is not None
        self.training, self.workers = training, workers
        self.waiting: list[Query] = []
        self.sent: dict[Query, Future[None]] = {}
        self._executor: Any = None

    def ahead(self, queries: Sequence[Query]) -> None:
        """Takes note of queries that will be asked."""
        if self.workers > 1:
            self.waiting += [query for query in queries if query not in self.waiting and query not in self.sent]

    def __call__(self, query: Query) -> Observation:
        """The training's answer, from a worker if it was announced."""
        announced = next((known for known in (*self.sent, *self.waiting) if _same(known, query)), None)
        if announced is not None:
            self._wait_for(announced)
        return self.training(query)

    def close(self) -> None:
        """Ends the workers; what they were at is kept up to the last epoch."""
        if self._executor is not None:
            self._executor.shutdown(kill_workers=True)
            self._executor = None

    def _wait_for(self, query: Query) -> None:
        self._send(query)
        future = self.sent.pop(query)
        try:
            while True:
                try:
                    return future.result(PATIENCE)
                except NotYetError:
                    self.training.deadline.keep()
                    self._top_up()
        except (OSError, RuntimeError) as error:  # a worker died; loky's own errors are among these
            self.close()
            self.waiting = [*self.sent, *self.waiting]
            self.sent = {}
            self._say(f"a worker that trained died: its training is done here ({error or type(error).__name__})")

    def _send(self, query: Query) -> None:
        """This one, and as many others as there are workers for."""
        if query not in self.sent:
            self.waiting.remove(query)
            self._submit(query)
        self._top_up()

    def _top_up(self) -> None:
        """A worker that is free gets the next training."""
        while self.waiting and sum(not future.done() for future in self.sent.values()) + 1 < self.workers:
            self._submit(self.waiting.pop(0))

    def _submit(self, query: Query) -> None:
        from joblib.externals.loky import ProcessPoolExecutor

        if self._executor is None:
            quiet = replace(self.training, on_progress=None, on_note=None)
            self._executor = ProcessPoolExecutor(self.workers, initializer=_begin, initargs=(os.getpid(), quiet))
        self.sent[query] = self._executor.submit(_train, query)

    def _say(self, sentence: str) -> None:
        if self.training.on_note is not None:
            self.training.on_note(sentence)


def _same(known: Query, asked: Query) -> bool:
    """Hurdles are known when a query is asked; ahead of it, it is trained to its end."""
    return (known.architecture, known.epochs) == (asked.architecture, asked.epochs)


# --- in a worker ------------------------------------------------------------------------------------------------------

_mine: list[Training] = []  # what this worker trains with: its data are sent once


def _begin(parent: int, training: Training) -> None:
    import torch

    torch.set_num_threads(1)
    end_with(parent)
    _mine.append(training)


def _train(query: Query) -> None:
    _mine[-1](query)
