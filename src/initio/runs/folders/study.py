"""The folder of a study: tasks that are done in workers, each answer on disk as it comes.

| file            | what                                                               |
|-----------------|--------------------------------------------------------------------|
| `plan.json`     | what was asked, written first; the same call goes on where it stopped |
| `answers.jsonl` | one line a task, written and flushed as it ends; survives kill −9  |
| `result.json`   | what it came to, written last                                      |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from initio.errors import InputError
from initio.records import decode, encode
from initio.runs.folders.base import add_record, read_lines, read_record, write_record
from initio.system.executors import DEATHS, LostTasksError, executor_for

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Plan = TypeVar("Plan")


@dataclass(frozen=True)
class StudyFolder:
    """Where a study keeps what it has."""

    folder: Path

    @property
    def plan_path(self) -> Path:
        """What was asked."""
        return self.folder / "plan.json"

    @property
    def result_path(self) -> Path:
        """What came out."""
        return self.folder / "result.json"

    def begin(self, plan: Any) -> None:
        """Starts a study, or goes on with the same one; of another one in the folder it says what differs."""
        if not self.plan_path.is_file():
            if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
                raise InputError(f"{str(self.folder)!r} holds something else than a study: give another folder")
            self.folder.mkdir(parents=True, exist_ok=True)
            write_record(self.plan_path, plan)
            return
        before = read_record(type(plan), self.plan_path)
        for item in fields(plan):
            was, now = getattr(before, item.name), getattr(plan, item.name)
            if item.compare and was != now:
                raise InputError(
                    f"the study in {str(self.folder)!r} was begun with {item.name} {was}, not {now}: "
                    f"give another folder, or ask the same to go on"
                )

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

    def result(self, kind: type[Answer]) -> Answer:
        """What it came to."""
        if not self.result_path.is_file():
            raise InputError(f"the study in {str(self.folder)!r} is not finished: ask the same again, and it goes on")
        return read_record(kind, self.result_path)

    def finish(self, result: Any) -> None:
        """Writes the result; it comes last and says that all is there."""
        write_record(self.result_path, result)
