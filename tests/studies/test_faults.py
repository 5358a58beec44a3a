"""The study of faults strikes, and tells what it struck."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from studies.faults import WORKS, Tally, Undisturbed, killed, strike, tallies, undisturbed

pytestmark = pytest.mark.filterwarnings("ignore:.*fork")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return undisturbed(WORKS["train"], tmp_path_factory.mktemp("train"))


def test_kills_strike_as_often_as_asked_and_lose_nothing(trained: Undisturbed, tmp_path: Path) -> None:
    found = strike(killed, trained, tmp_path, 3, Random(0))
    assert found.struck >= 3
    assert found.begun
    assert not found.bad, found


def test_a_result_that_is_another_one_is_counted(trained: Undisturbed, tmp_path: Path) -> None:
    assert strike(killed, replace(trained, result="another"), tmp_path, 1, Random(1)).different


def test_lost_records_are_counted(trained: Undisturbed, tmp_path: Path) -> None:
    seen = iter([["one"], *[[]] * 9])
    forgetful = replace(trained.work, records=lambda _: next(seen))
    assert strike(killed, replace(trained, work=forgetful), tmp_path, 2, Random(2)).lost


def test_a_fault_that_never_comes_in_time_is_said(trained: Undisturbed, tmp_path: Path) -> None:
    found = strike(lambda *_: Tally(tried=1), trained, tmp_path, 2, Random(0))
    assert found.wrong == ["0 of 16 came in time, 2 are wanted"]


def test_every_other_fault_on_a_training() -> None:
    for work, fault, found in tallies(["train"], kills=1, times=1, seed=1):
        assert found.struck, (work, fault)
        assert not found.bad, (work, fault, found)
