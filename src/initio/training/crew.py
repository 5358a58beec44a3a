"""Several trainings at once: `TrainingCrew`, a `Training` with workers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

from initio.records import Observation, Query
from initio.system.executors import Executor, Here, Session
from initio.system.executors.base import WorkerDiedError
from initio.training.evaluate import Training

PATIENCE = 0.2  # seconds between two looks at the clock, while workers train


class TrainingCrew:
    """Trains queries that are announced in workers, and all others here.

    Workers keep their answers in the training's folder, where it finds them when it is asked: so an answer is the same
    whoever made it, and a worker that dies costs no more than the training that it was at, which is then done here.

    Args:
        training: with a folder.
        executor: where workers are; they see the training's folder.
    """

    def __init__(self, training: Training, executor: Executor) -> None:
        assert training.folder is not None
        self.training, self.executor = training, executor
        self.waiting: list[Query] = []
        self.sent: dict[Query, Future[None]] = {}
        self._open = ExitStack()
        self._session: Session[Query, None] | None = None

    def ahead(self, queries: Sequence[Query]) -> None:
        """Takes note of queries that will be asked."""
        if self.executor != Here():
            self.waiting += [query for query in queries if query not in self.waiting and query not in self.sent]

    def __call__(self, query: Query) -> Observation:
        """The training's answer, from a worker if it was announced."""
        announced = next((known for known in (*self.sent, *self.waiting) if _same(known, query)), None)
        if announced is not None:
            self._wait_for(announced)
        return self.training(query)

    def close(self) -> None:
        """Ends the workers; what they were at is kept up to the last epoch."""
        if self._session is not None:
            self._session = None
            with suppress(_EndedError):
                self._open.__exit__(_EndedError, _EndedError(), None)

    def _wait_for(self, query: Query) -> None:
        self._send(query)
        assert self._session is not None
        future = self.sent.pop(query)
        try:
            while True:
                try:
                    return future.result(PATIENCE)
                except NotYetError:
                    self.training.deadline.keep()
                    self._top_up()
                    self._session.look()
        except WorkerDiedError as error:
            self.close()
            self.waiting = [*self.sent, *self.waiting]
            self.sent = {}
            self._say(f"a worker that trained died: its training is done here ({error})")

    def _send(self, query: Query) -> None:
        """This one, and as many others as there are workers for."""
        if query not in self.sent:
            self.waiting.remove(query)
            self._submit(query)
        self._top_up()

    def _top_up(self) -> None:
        """A worker that is free gets the next training."""
        assert self._session is not None
        while self.waiting and sum(not future.done() for future in self.sent.values()) + 1 < self._session.workers:
            self._submit(self.waiting.pop(0))

    def _submit(self, query: Query) -> None:
        if self._session is None:
            quiet = replace(self.training, on_progress=None, on_note=None)
            self._session = self._open.enter_context(self.executor.open(partial(_train, quiet)))
        self.sent[query] = self._session.submit(query)

    def _say(self, sentence: str) -> None:
        if self.training.on_note is not None:
            self.training.on_note(sentence)


def _same(known: Query, asked: Query) -> bool:
    """Hurdles are known when a query is asked; ahead of it, it is trained to its end."""
    return (known.architecture, known.epochs) == (asked.architecture, asked.epochs)


class _EndedError(Exception):
    """Ends workers at once: nobody asks for what they are at."""


def _train(training: Training, query: Query) -> None:
    """In a worker, of one thread."""
    import torch

    torch.set_num_threads(1)
    training(query)
