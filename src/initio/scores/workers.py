"""Where tasks are done: here, or in processes that may die. Knows nothing of scores."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from initio.errors import InputError

DEATHS = 3  # of a worker, after which a task is given up
PAYS = 16  # tasks from which processes are worth their start

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Answers = Iterator[tuple[int, Answer | None]]  # restarts so far, and one answer; None when a worker died


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class LostTasksError(Exception):
    """Workers died of these tasks again and again; all others are done."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers
        super().__init__(f"{len(numbers)} tasks were given up")


def in_process(work: Callable[[Task], Answer], tasks: Sequence[Task]) -> Answers[Answer]:
    """One after the other, here."""
    for task in tasks:
        yield 0, work(task)


def in_workers(work: Callable[[Task], Answer], tasks: Sequence[Task], workers: int) -> Answers[Answer]:
    """In so many processes, in any order; ends with a `LostTasksError` if some cannot be done.

    loky gives up when a worker dies. So the others go on, and those that were under way are tried again one by one:
    whoever dies then has only itself to blame.
    """
    from joblib.externals.loky.process_executor import BrokenProcessPool

    waiting, alone = deque(range(len(tasks))), deque[int]()
    deaths, restarts = Counter[int](), 0
    while waiting or alone:
        source = waiting or deque([alone.popleft()])
        running: set[int] = set()
        answers = _parallel(work, tasks, source, running, workers)
        try:
            for number, answer in answers:
                running.remove(number)
                yield restarts, answer
        except BrokenProcessPool:
            restarts += 1
            deaths.update(running)
            alone.extend(number for number in sorted(running) if deaths[number] < DEATHS)
            yield restarts, None
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # joblib regrets work that is thrown away when we stop early
                answers.close()
    if lost := sorted(number for number, count in deaths.items() if count >= DEATHS):
        raise LostTasksError(lost)


def ordered(work: Callable[[Task], Answer], tasks: Sequence[Task], workers: int) -> Iterator[Answer]:
    """The answers in the order of the tasks; here where there are too few to start processes for."""
    if workers == 1 or len(tasks) < PAYS:
        yield from map(work, tasks)
        return
    ready: dict[int, Answer] = {}
    place = 0
    try:
        for _, found in in_workers(partial(_kept, work), list(enumerate(tasks)), workers):
            if found is not None:
                ready[found[0]] = found[1]
            while place in ready:
                yield ready.pop(place)
                place += 1
    except LostTasksError as error:
        raise InputError(f"workers died {DEATHS} times of the same task, perhaps for want of memory: take 1") from error


def _kept(work: Callable[[Task], Answer], numbered: tuple[int, Task]) -> tuple[int, Answer]:
    return numbered[0], work(numbered[1])


def _parallel(
    work: Callable[[Task], Answer], tasks: Sequence[Task], source: deque[int], running: set[int], workers: int
) -> Generator[tuple[int, Answer], None, None]:
    """Sends out the tasks numbered in `source`, noting in `running` those that were sent."""
    from joblib import Parallel, delayed

    def feed() -> Iterator[Any]:
        while source:
            number = source.popleft()
            running.add(number)
            yield delayed(_numbered)(work, number, tasks[number])

    parallel = Parallel(
        workers,
        backend="loky",
        return_as="generator_unordered",
        batch_size=1,
        max_nbytes=None,  # no temporary files, which a kill would leave behind
        initializer=end_with,
        initargs=(os.getpid(),),
    )
    answers: Generator[tuple[int, Answer], None, None] = parallel(feed())
    return answers


def _numbered(work: Callable[[Task], Answer], number: int, task: Task) -> tuple[int, Answer]:
    return number, work(task)


def end_with(parent: int) -> None:
    """A worker must not outlive the process that started it, even if that one is killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
