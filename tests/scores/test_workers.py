"""Workers may die: nothing is lost, nothing is done twice, and whoever kills them is found."""

from functools import partial
from pathlib import Path

import pytest

from initio.scores.workers import DEATHS, LostTasksError, in_process, in_workers
from tests.scores.deadly import die_of_three, die_once, square

TASKS = range(8)
SQUARES = [number * number for number in TASKS]


def test_both_ways_do_all_tasks() -> None:
    assert [answer for _, answer in in_process(square, TASKS)] == SQUARES
    assert sorted(answer for _, answer in in_workers(square, TASKS, 2) if answer is not None) == SQUARES


def test_a_worker_that_was_killed_costs_nothing_but_time(tmp_path: Path) -> None:
    found = list(in_workers(partial(die_once, str(tmp_path / "died")), TASKS, 2))
    assert sorted(answer for _, answer in found if answer is not None) == SQUARES
    assert [answer for _, answer in found].count(None) == found[-1][0] == 1  # one restart


def test_a_task_that_always_kills_its_worker_is_given_up_and_the_others_are_done() -> None:
    answers = in_workers(die_of_three, TASKS, 2)
    found = []
    with pytest.raises(LostTasksError) as lost:
        found.extend(answers)
    assert lost.value.numbers == [3]
    assert sorted(answer for _, answer in found if answer is not None) == [n for n in SQUARES if n != 9]
    assert DEATHS <= [answer for _, answer in found].count(None) <= 2 * DEATHS
