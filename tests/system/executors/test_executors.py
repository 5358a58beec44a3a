"""What every executor promises: all tasks, each answer once, whoever dies, and a sentence about what cannot go on."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import KilledWorker

from initio import InputError
from initio.autodiff import fused
from initio.autodiff.work import arithmetic, executor_for
from initio.system.executors import DEATHS, Executor, Here, LostTasksError, Processes, base, cluster
from initio.system.executors.base import WorkerDiedError, relay
from initio.system.executors.cluster import Cluster, _ClusterSession, local_cluster
from tests.system.executors.deadly import (
    die_of_three,
    die_once,
    hold_until_abandoned,
    pid,
    refuse_three,
    square,
    until_abandoned,
)

TASKS = range(20)
OTHER = r"^the worker tcp://\S+ has initio 9\.9, this process has [\d.]+: install the same$"
SQUARES = [number * number for number in TASKS]


@pytest.fixture(params=["here", "processes", "cluster"])
def executor(request: pytest.FixtureRequest) -> Executor:
    if request.param == "here":
        return Here()
    if request.param == "processes":
        return Processes(2)
    return Cluster(request.getfixturevalue("scheduler"))


@pytest.fixture(params=["processes", "cluster"])
def mortal(request: pytest.FixtureRequest) -> Executor:
    return Processes(2) if request.param == "processes" else Cluster(request.getfixturevalue("scheduler"))


def answers(executor: Executor, work: object, deaths: list[None] | None = None) -> list[int]:
    found: dict[int, int] = {}

    def hear(number: int, answer: int) -> None:
        assert number not in found
        assert threading.current_thread() is threading.main_thread()
        found[number] = answer

    try:
        executor.map(work, TASKS, hear, on_death=lambda: (deaths if deaths is not None else []).append(None))  # type: ignore[arg-type]
    finally:
        hear(-1, 0)
        del found[-1]
    return [found[number] for number in sorted(found)]


def test_all_tasks_are_done_once(executor: Executor) -> None:
    assert answers(executor, square) == SQUARES
    assert list(executor.ordered(square, TASKS)) == SQUARES
    executor.map(square, [], lambda number, answer: pytest.fail("there was no task"))


def test_a_session_answers_one_by_one(executor: Executor) -> None:
    with executor.open(square) as session:
        assert [session.submit(number).result(60) for number in (3, 4)] == [9, 16]
        assert session.workers == (1 if executor == Here() else 2)


def test_what_the_work_raises_ends_everything(executor: Executor) -> None:
    with pytest.raises(InputError, match="three is refused"):
        answers(executor, refuse_three)


def test_what_the_listener_raises_ends_everything(mortal: Executor) -> None:
    def stop(number: int, answer: int) -> None:
        raise KeyError(number)

    with pytest.raises(KeyError):
        mortal.map(square, TASKS, stop)


def test_a_worker_that_was_killed_costs_nothing_but_time(mortal: Executor, tmp_path: Path) -> None:
    deaths: list[None] = []
    assert answers(mortal, partial(die_once, str(tmp_path / "died")), deaths) == SQUARES
    assert len(deaths) <= 1
    assert deaths or not isinstance(mortal, Processes)  # a scheduler may start a worker again without a word


def test_a_task_that_always_kills_its_worker_is_given_up_and_the_others_are_done() -> None:
    found: list[int] = []
    deaths: list[None] = []
    with pytest.raises(LostTasksError) as lost:
        Processes(2).map(
            die_of_three, TASKS, lambda number, _: found.append(number), on_death=lambda: deaths.append(None)
        )
    assert lost.value.numbers == [3]
    assert sorted(found) == [number for number in TASKS if number != 3]
    assert DEATHS <= len(deaths) <= 2 * DEATHS


@pytest.mark.parametrize(
    ("raised", "told", "match"),
    [
        (KilledWorker("task", SimpleNamespace(address="tcp://x"), 3), WorkerDiedError, "task"),
        (ModuleNotFoundError("No module named 'initio'", name="initio"), InputError, "has no initio: install the same"),
        (CancelledError(), InputError, "went away"),
        (OSError("Timed out trying to connect"), InputError, "went away: what was done is kept"),
    ],
)
def test_what_a_cluster_answers(raised: Exception, told: type[Exception], match: str) -> None:
    """Deaths that a scheduler no longer hides, and workers that lack something."""
    session = _ClusterSession.__new__(_ClusterSession)
    session._where, session._met = "tcp://host:1", set()
    session._client = SimpleNamespace(scheduler_info=lambda **_: {})
    future: Future[int] = Future()
    future.set_exception(raised)
    with pytest.raises(told, match=match):
        session._answer(future)


@pytest.mark.parametrize(
    ("status", "told", "match"),
    [
        ("running", WorkerDiedError, "died with an answer that it had not handed over"),  # hence done again
        ("connecting", InputError, "went away: what was done is kept"),
    ],
)
def test_an_answer_that_is_never_handed_over(
    monkeypatch: pytest.MonkeyPatch, status: str, told: type[Exception], match: str
) -> None:
    monkeypatch.setattr(cluster, "HAND_OVER", 0.01)
    session = _ClusterSession.__new__(_ClusterSession)
    session._where, session._client = "tcp://host:1", SimpleNamespace(status=status)
    with pytest.raises(told, match=match):
        session._answer(Future[int]())


class _Flaky(Executor):
    """Its workers die of a task so many times, by the task's number; all at once where a session is full."""

    def __init__(self, deaths: dict[int, int]) -> None:
        self.deaths, self.done = deaths, list[int]()

    @property
    def workers(self) -> int:
        return 2

    @contextmanager
    def open(self, work: object) -> Iterator[Any]:
        yield SimpleNamespace(workers=2, submit=self._submit, look=lambda: None)

    def _submit(self, task: int) -> Future[int]:
        future: Future[int] = Future()
        if self.deaths.get(task, 0):
            self.deaths[task] -= 1
            future.set_exception(WorkerDiedError("killed"))
        else:
            self.done.append(task)
            future.set_result(square(task))
        return future


def test_what_is_retried_and_what_is_given_up() -> None:
    """Without a process: a task may kill two workers, not three, and no other is done twice."""
    deaths: list[None] = []
    flaky = _Flaky({5: DEATHS - 1, 11: 1})
    assert answers(flaky, square, deaths) == SQUARES
    assert sorted(flaky.done) == list(TASKS)
    assert deaths
    flaky, found = _Flaky({5: DEATHS, 11: DEATHS}), []
    with pytest.raises(LostTasksError) as lost:
        flaky.map(square, TASKS, lambda number, _: found.append(number))
    assert lost.value.numbers == [5, 11]
    assert sorted(found) == [number for number in TASKS if number not in (5, 11)]


@contextmanager
def stranger(scheduler: str, folder: Path) -> Iterator[None]:
    """A worker that has another Initio, in which nothing of ours can be unpickled."""
    (folder / "initio").mkdir(exist_ok=True)
    (folder / "initio" / "__init__.py").touch()
    (folder / "initio-9.9.dist-info").mkdir(exist_ok=True)
    (folder / "initio-9.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: initio\nVersion: 9.9\n")
    command = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler, "--no-nanny", "--no-dashboard"]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    with subprocess.Popen(command, env=environment, cwd=folder, stderr=subprocess.DEVNULL) as worker:
        try:
            yield
        finally:
            worker.kill()


def test_a_worker_of_another_version_is_refused_before_it_unpickles_anything(tmp_path: Path) -> None:
    """Whether it was there at the beginning, or comes while others work."""
    refused = pytest.raises(InputError, match=OTHER)
    with local_cluster(0) as local:
        with stranger(local.scheduler_address, tmp_path), refused:
            answers(Cluster(local.scheduler_address), square)
        local.scale(1)
        local.wait_for_workers(1)
        with (
            Cluster(local.scheduler_address).open(square) as session,
            stranger(local.scheduler_address, tmp_path),
        ):
            while session.workers < 2:
                time.sleep(0.1)
            for act in (lambda: session.submit(3), session.look):
                with refused:
                    act()


def test_a_worker_without_a_package_is_refused(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "versions", lambda: {"nosuch": "1"})
    with pytest.raises(InputError, match=r"^the worker tcp://\S+ has no nosuch, this process has 1: install the same$"):
        answers(Cluster(scheduler), square)


def test_workers_whose_arithmetic_differs_are_refused(mortal: Executor) -> None:
    """Whatever the work is, by all that executors are made for."""
    asked = replace(mortal, alike=arithmetic)
    remedy = "this process has torch: give both a C compiler, or set INITIO_FUSED=0 for both"
    with fused.switched_off(), pytest.raises(InputError, match=rf"^\S* ?worker \S+ has kernels fused-2, {remedy}$"):
        answers(asked, square)


def test_executors_of_verbs_ask_for_the_arithmetic() -> None:
    facts = arithmetic()
    assert set(facts) == {"python", "initio", "torch", "numpy", "kernels", "instructions"}
    for executor in (executor_for(2), executor_for(1, "local:2")):
        assert executor.alike() == facts


def test_a_task_ends_when_its_client_is_gone(scheduler: str, tmp_path: Path) -> None:
    """One that asks; a task of a client that is there goes on."""
    with Cluster(scheduler).open(partial(until_abandoned, str(tmp_path))) as session:
        session.submit(1)
        while not (tmp_path / "begun").exists():
            time.sleep(0.05)
        time.sleep(0.5)
        assert not (tmp_path / "abandoned").exists()
    until = time.monotonic() + 30
    while not (tmp_path / "abandoned").exists():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_task_has_its_folder_once_that_of_a_client_that_is_gone_has_left(scheduler: str, tmp_path: Path) -> None:
    """Whoever goes on with a run whose client was killed waits for what that had under way, and nobody else writes."""
    with Cluster(scheduler).open(partial(hold_until_abandoned, str(tmp_path))) as session:
        session.submit(1)
        while not (tmp_path / "held-1").exists():
            time.sleep(0.05)
    with Cluster(scheduler).open(partial(hold_until_abandoned, str(tmp_path))) as session:
        assert session.submit(2).result(60) == ["held-1", "left-1", "held-2"]


def test_a_scheduler_that_goes_away_is_a_sentence() -> None:
    with local_cluster(1) as local:
        heard: list[int] = []

        def stop(number: int, answer: int) -> None:
            if not heard:
                local.close()
            heard.append(number)

        with pytest.raises(InputError, match="went away: what was done is kept, and the same command goes on"):
            Cluster(local.scheduler_address).map(square, range(1000), stop)
    assert heard


def test_a_cluster_that_loses_all_workers_is_waited_for_and_then_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(base, "LOOK", 0.1)
    monkeypatch.setattr(cluster, "SAID", 0.2)
    with local_cluster(1) as local:
        heard: list[int] = []

        def lose(number: int, answer: int) -> None:
            if not heard:
                local.sync(local.scheduler.retire_workers)
                local.scale(0)
            heard.append(number)

        def wait_for_one() -> None:
            while not caplog.records:
                time.sleep(0.1)
            local.scale(1)

        helper = threading.Thread(target=wait_for_one)
        helper.start()
        Cluster(local.scheduler_address).map(square, range(50), lose)
        helper.join()
        assert sorted(heard) == list(range(50))
        assert "has no worker: waiting 10 minutes for one" in caplog.text
        monkeypatch.setattr(cluster, "DESERTED", 1.0)
        heard.clear()
        with pytest.raises(InputError, match="has had no worker for 0 minutes: what was done is kept, and the same"):
            Cluster(local.scheduler_address).map(square, range(50), lose)
        assert 0 < len(heard) < 50


def test_a_lost_answer_keeps_no_other_waiting() -> None:
    lost, ready = Future[int](), Future[int]()
    never = threading.Event()

    def answer(future: Future[int]) -> int:
        if future is lost:
            never.wait(60)
        return future.result()

    with ThreadPoolExecutor(2) as pool:
        slow, quick = relay(lost, answer, pool), relay(ready, answer, pool)
        lost.set_result(1)
        ready.set_result(2)
        assert quick.result(30) == 2
        assert not slow.done()
        never.set()
        assert slow.result(30) == 1


def test_a_local_cluster_is_started_and_ended() -> None:
    """With as many processes as it says, whatever the machine has."""
    found: list[int] = []
    with Cluster("local:1").open(pid) as session:
        assert session.workers == 1
        found += [session.submit(number).result(60) for number in TASKS]
    assert len(set(found)) == 1
    assert found[0] != os.getpid()


def test_what_cannot_be() -> None:
    for workers in (0, -1):
        with pytest.raises(InputError, match=f"workers must be at least 1, not {workers}"):
            executor_for(workers)
    with pytest.raises(InputError, match="give --workers or --cluster, not both"):
        executor_for(2, "local:2")
    for wrong in ("local:0", "local", "http://x", ""):
        with pytest.raises(
            InputError, match="a cluster is the address of a Dask scheduler, tcp://HOST:PORT, or local:8"
        ):
            executor_for(1, wrong)
    with pytest.raises(InputError, match="the cluster tcp://127.0.0.1:1 cannot be reached"):
        answers(Cluster("tcp://127.0.0.1:1"), square)
