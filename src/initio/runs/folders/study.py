"""The folder of a study: tasks that are done in workers, each answer on disk as it comes.

| file            | what                                                               |
|-----------------|--------------------------------------------------------------------|
| `plan.json`     | what was asked, written first; the same call goes on where it stopped |
| `answers.jsonl` | one line a task, written and flushed as it ends; survives kill −9  |
| `result.json`   | what it came to, written last                                      |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from initio.autodiff.work import executor_for
from initio.errors import InputError
from initio.records import decode, encode
from initio.runs.folders.base import Folder, add_record, read_lines, write_record
from initio.system.executors import DEATHS, LostTasksError

Task = TypeVar("Task")
Answer = TypeVar("Answer")
P = TypeVar("P")
R = TypeVar("R")


class StudyFolder(Folder[P, R]):
    """Where a study keeps what it has."""

    kind = "study"
    plan_name = "plan.json"

    @property
    def go_on(self) -> str:
        """By the same call."""
        return "ask the same again, and it goes on"

    def answers(
        self,
        work: Callable[[Task], Answer],
        tasks: Sequence[Task],
        record: type[Answer],
        *,
        name: str = "answers",
        workers: int = 1,
        cluster: str | None = None,
        on_done: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[Answer]:
        """What `work` answers to every task, in order; what is on disk already is not asked again."""
        path = self.folder / f"{name}.jsonl"
        found: dict[int, Answer] = {}
        found.update(read_lines(path, lambda data: (data.pop("task"), decode(record, data))))
        waiting = [number for number in range(len(tasks)) if number not in found]
        on_done(len(found), len(tasks))

        def keep(place: int, answer: Answer) -> None:
            add_record(path, {"task": waiting[place]} | encode(answer))
            found[waiting[place]] = answer
            on_done(len(found), len(tasks))

        try:
            executor_for(workers, cluster).map(work, [tasks[number] for number in waiting], keep)
        except LostTasksError as lost:
            raise InputError(
                f"{len(lost.numbers)} of {len(tasks)} tasks could not be done, because a worker died of each {DEATHS} "
                f"times: perhaps memory ran out, so try fewer workers (the other answers are kept)"
            ) from None
        return [found[number] for number in range(len(tasks))]

    def finish(self, result: R) -> None:
        """Writes the result; it comes last and says that all is there."""
        write_record(self.result_path, result)
