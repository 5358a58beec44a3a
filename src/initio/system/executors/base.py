"""`Executor`: what all of them promise, and the one loop that keeps it, whoever dies."""

from __future__ import annotations

import os
import platform
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures import Executor as Pool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Generic, TypeVar

from initio.errors import InputError
from initio.system.tasks import as_task

DEATHS = 3  # of a worker, after which a task is given up
PAYS = 16  # tasks from which processes are worth their start
AHEAD = 2  # tasks that are sent, for each worker: the next one waits there
LOOK = 5.0  # seconds without an answer after which somebody looks whether there will be one
SAME = ("initio", "torch", "numpy")  # whose versions must be the same everywhere
REMEDIES = {  # for what may differ besides versions
    "kernels": "give both a C compiler, or set INITIO_FUSED=0 for both",
    "build of torch": "install the same, as values of the CPU are promised to the bit",
    "machine": "take processors of one kind, whose last bits are the same",
    "processor": "take processors of one kind, whose last bits are the same",
    "instructions": "take processors of one kind, whose last bits are the same",
}

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Work = Callable[[Task], Answer]
Alike = Callable[[], Mapping[str, str]]


def versions() -> dict[str, str]:
    """What must be the same wherever work is done."""
    return {"python": platform.python_version()} | {name: public(version(name)) for name in SAME}


def public(number: str) -> str:
    """A version without what says how it was built: torch for a GPU and for the CPU are of one version.

    >>> public("2.13.0+cu126")
    '2.13.0'
    """
    return number.partition("+")[0]


def refuse_unlike(who: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> None:
    """An `InputError` about a worker in which something is not as in this process.

    >>> refuse_unlike("the worker w", {"torch": "2.5"}, {"torch": "2.6"})
    Traceback (most recent call last):
    initio.errors.InputError: the worker w has torch 2.5, this process has 2.6: install the same
    """
    for name, mine in ours.items():
        if name not in theirs:
            raise InputError(f"{who} has no {name}, this process has {mine}: install the same")
        if theirs[name] != mine:
            remedy = REMEDIES.get(name, "install the same")
            raise InputError(f"{who} has {name} {theirs[name]}, this process has {mine}: {remedy}")


class LostTasksError(Exception):
    """Workers died of these tasks again and again; all others are done."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers
        super().__init__(f"{len(numbers)} tasks were given up")


class WorkerDiedError(Exception):
    """A worker died of this task, or of another that it was at; the task is not done."""


class Session(ABC, Generic[Task, Answer]):
    """Workers that know one function."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many there are now."""

    @abstractmethod
    def submit(self, task: Task) -> Future[Answer]:
        """Sends a task; its future ends with the answer, what the work raised, or a `WorkerDiedError`."""

    @property
    def together(self) -> int:
        """How many of the next tasks are worth one message."""
        return 1

    def submit_all(self, tasks: Sequence[Task]) -> Future[list[Answer]]:
        """Sends some tasks to one worker, no more than are worth one message; ends as `submit` does."""
        [task] = tasks
        return relay(self.submit(task), lambda sent: [sent.result()])

    def look(self) -> None:
        """Asked while answers are waited for: an `InputError` once there is nobody who could give them."""


@dataclass(frozen=True)
class Executor(ABC):
    """Where tasks are done; plain data, which may be sent and compared.

    Args:
        alike: asked here and by whoever works: all that must be the same there, by name. Workers that differ are
            refused before they are given anything to do.
    """

    alike: Alike = field(default=versions, kw_only=True)

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many work at once, as far as that is known before it begins."""

    @abstractmethod
    def open(self, work: Work[Task, Answer]) -> AbstractContextManager[Session[Task, Answer]]:
        """Workers that know this function, until the block ends."""

    def map(
        self,
        work: Work[Task, Answer],
        tasks: Sequence[Task],
        on_result: Callable[[int, Answer], None],
        *,
        on_death: Callable[[], None] = lambda: None,
    ) -> None:
        """Does all tasks and tells, here and in any order, the number and the answer of each, once.

        Ends with a `LostTasksError` if some cannot be done. What the work or `on_result` raises ends everything.
        """
        for answered in self._answers(work, tasks):
            if answered is None:
                on_death()
            else:
                on_result(*answered)

    def ordered(self, work: Work[Task, Answer], tasks: Sequence[Task]) -> Iterator[Answer]:
        """The answers in the order of the tasks; done here where there are too few to start processes for."""
        if len(tasks) < PAYS:
            yield from map(work, tasks)
            return
        ready: dict[int, Answer] = {}
        place = 0
        try:
            for answered in self._answers(work, tasks):
                if answered is not None:
                    ready[answered[0]] = answered[1]
                while place in ready:
                    yield ready.pop(place)
                    place += 1
        except LostTasksError as error:
            raise InputError(f"workers died {DEATHS} times of the same task, perhaps for want of memory") from error

    def _answers(self, work: Work[Task, Answer], tasks: Sequence[Task]) -> Iterator[tuple[int, Answer] | None]:
        """Numbers and answers, and None for a worker that died.

        Whatever was under way when one died is tried again one by one: whoever dies then has only itself to blame.
        """
        waiting, alone, deaths = deque(range(len(tasks))), deque[int](), Counter[int]()
        while waiting or alone:
            source = waiting or deque([alone.popleft()])
            under_way: list[int] = []
            with self.open(work) as session:
                yield from _until_death(session, tasks, source, under_way)
            if under_way:
                deaths.update(under_way)
                alone.extend(number for number in sorted(under_way) if deaths[number] < DEATHS)
                yield None
        if lost := sorted(number for number, count in deaths.items() if count >= DEATHS):
            raise LostTasksError(lost)


def _until_death(
    session: Session[Task, Answer], tasks: Sequence[Task], source: deque[int], under_way: list[int]
) -> Iterator[tuple[int, Answer]]:
    """Answers to the tasks numbered in `source`; notes in `under_way` those that a dead worker was at."""
    running: dict[Future[list[Answer]], list[int]] = {}
    while running or (source and not under_way):
        while source and not under_way and len(running) < (places := AHEAD * session.workers):
            size = min(session.together, -(-len(source) // places))  # so that all have something to do until the end
            numbers = [source.popleft() for _ in range(size)]
            running[session.submit_all([tasks[number] for number in numbers])] = numbers
        done = wait(running, LOOK, FIRST_COMPLETED).done
        if not done:
            session.look()
        for future in done:
            numbers = running.pop(future)
            try:
                answers = future.result()
            except WorkerDiedError:
                under_way += numbers
            else:
                yield from zip(numbers, answers, strict=True)


class Here(Executor):
    """This process: one task after the other."""

    @property
    def workers(self) -> int:
        """One."""
        return 1

    @contextmanager
    def open(self, work: Work[Task, Answer]) -> Iterator[Session[Task, Answer]]:
        """The function as it is."""
        yield _SessionHere(work)

    def _answers(self, work: Work[Task, Answer], tasks: Sequence[Task]) -> Iterator[tuple[int, Answer] | None]:
        for number, task in enumerate(tasks):
            with as_task():
                answer = work(task)
            yield number, answer


class _SessionHere(Session[Task, Answer]):
    def __init__(self, work: Work[Task, Answer]) -> None:
        self._work = work

    @property
    def workers(self) -> int:
        return 1

    def submit(self, task: Task) -> Future[Answer]:
        future: Future[Answer] = Future()
        try:
            with as_task():
                future.set_result(self._work(task))
        except Exception as error:
            future.set_exception(error)
        return future


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def relay(source: Any, answer: Callable[[Any], Answer], by: Pool | None = None) -> Future[Answer]:
    """A plain future that ends as another one does, by `answer(other)`, which gives its result or raises.

    That may take a while if it is done by a pool, so that nobody waits for it.
    """
    target: Future[Answer] = Future()

    def end(ended: Any) -> None:
        try:
            result = answer(ended)
        except BaseException as error:
            target.set_exception(error)
        else:
            target.set_result(result)

    if by is None:
        source.add_done_callback(end)
    else:
        source.add_done_callback(lambda ended: by.submit(end, ended))
    return target
