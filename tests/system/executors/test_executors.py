"""What every executor promises: all tasks, each answer once, whoever dies, and a sentence about what cannot go on."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from distributed import Client, KilledWorker

from initio import InputError
from initio.autodiff import fused
from initio.autodiff.work import arithmetic, device_of_workers, executor_for
from initio.system.executors import DEATHS, Executor, Here, LostTasksError, Processes, base, cluster
from initio.system.executors.base import WorkerDiedError, relay, versions
from initio.system.executors.cluster import Cluster, _ClusterSession, local_cluster
from tests.system.executors.deadly import (
    TellsAtTheEnd,
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


def test_a_worker_does_not_wait_long_for_one_that_was_killed(scheduler: str) -> None:
    """It may have been about to ask it for the work that all share."""
    with Client(scheduler, set_as_default=False) as client:
        waits = client.run(lambda dask_worker: dask_worker.rpc.timeout)
    assert set(waits.values()) == {cluster.PEER}


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
    session._where, session._met, session._known = "tcp://host:1", set(), set()
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
        yield SimpleNamespace(workers=2, together=1, submit_all=self._submit_all, look=lambda: None)

    def _submit_all(self, tasks: list[int]) -> Future[list[int]]:
        future, [task] = Future[list[int]](), tasks
        if self.deaths.get(task, 0):
            self.deaths[task] -= 1
            future.set_exception(WorkerDiedError("killed"))
        else:
            self.done.append(task)
            future.set_result([square(task)])
        return future


def test_a_process_ends_without_looking_through_what_it_has_made(tmp_path: Path) -> None:
    """What was registered before is called after: by then all objects are left alone."""
    with Processes(1).open(TellsAtTheEnd(tmp_path / "told")) as session:
        session.submit(3).result(60)
    assert int((tmp_path / "told").read_text()) > 1000


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
def another(scheduler: str, changed: dict[str, str]) -> Iterator[None]:
    """A worker in another environment."""
    command = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler, "--no-nanny", "--no-dashboard"]
    command += ["--nthreads", "1"]
    with subprocess.Popen(command, env=os.environ | changed, stderr=subprocess.DEVNULL) as worker:
        try:
            yield
        finally:
            worker.kill()


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


def test_a_worker_of_another_version_is_refused_before_it_unpickles_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was there at the beginning, or comes while others work."""
    monkeypatch.setattr(cluster, "ASKED", 0.1)
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
            time.sleep(cluster.ASKED)
            for act in (lambda: session.submit(3), session.look):
                with refused:
                    act()


def test_a_worker_with_other_instructions_is_refused(tmp_path: Path) -> None:
    """Whose last bits differ: torch takes other code there. A GPU's values do not depend on it."""
    with local_cluster(0) as local, another(local.scheduler_address, {"ATEN_CPU_CAPABILITY": "default"}):
        refused = r"has instructions DEFAULT, this process has \S+: take processors of one kind"
        if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
            pytest.fail("this machine has nothing that could be switched off")
        with pytest.raises(InputError, match=refused):
            answers(executor_for(1, local.scheduler_address), square)
        assert answers(executor_for(1, local.scheduler_address, "cuda"), square) == SQUARES


def test_a_device_is_the_workers_own(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client needs no GPU, and does not say what is the fastest there."""
    assert device_of_workers("cuda:1", scheduler, measured=True) == "cuda:1"
    monkeypatch.setattr("initio.autodiff.devices.available", lambda: ["cuda", "cpu"])
    assert device_of_workers("auto", measured=True) == "cuda"
    assert device_of_workers("auto", scheduler, measured=True) == "cpu"
    for name, why in (("gpu", "a device is auto, cpu"), ("mps", "mps has no float64")):
        with pytest.raises(InputError, match=why):
            device_of_workers(name, scheduler, measured=True)


def test_small_tasks_travel_together(scheduler: str) -> None:
    """And large ones alone, so that an answer is not kept back."""
    with Cluster(scheduler).open(square) as session:
        assert session.together == 1
        assert session.submit_all([3, 4]).result(60) == [9, 16]
        assert session.together > 10
        session._pace = 30.0  # type: ignore[attr-defined]
        assert session.together == 1
    sent: list[int] = []
    submit_all = _ClusterSession.submit_all

    def noted(session: Any, tasks: Sequence[int]) -> Future[list[int]]:
        sent.append(len(tasks))
        future: Future[list[int]] = submit_all(session, tasks)
        return future

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_ClusterSession, "submit_all", noted)
        heard = dict[int, int]()
        Cluster(scheduler).map(square, range(2000), heard.__setitem__)
    assert heard == {number: number * number for number in range(2000)}
    assert sum(sent) == 2000
    assert len(sent) < 200


def test_who_works_is_asked_once_a_second(scheduler: str) -> None:
    with Cluster(scheduler).open(square) as session:
        asked: list[object] = []
        info = session._client.scheduler_info  # type: ignore[attr-defined]
        session._client.scheduler_info = lambda **given: (asked.append(given), info(**given))[1]  # type: ignore[attr-defined]
        began = time.monotonic()
        for number in range(50):
            session.submit(number).result(60)
            assert session.workers == 2
        assert len(asked) <= 1 + time.monotonic() - began


def test_workers_that_are_still_queued_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As those that were lost: with the same line, for as long."""
    for name, seconds in {"SAID": 0.1, "WAITED": 0.02, "ASKED": 0.1}.items():
        monkeypatch.setattr(cluster, name, seconds)
    with local_cluster(0) as local:
        monkeypatch.setattr(cluster, "DESERTED", 0.3)
        with pytest.raises(InputError, match="has had no worker for 0 minutes: .*dask worker starts them"):
            answers(Cluster(local.scheduler_address), square)
        assert "has no worker: waiting 0 minutes for one" in caplog.text
        monkeypatch.setattr(cluster, "DESERTED", 600.0)
        helper = threading.Timer(0.5, local.scale, [1])
        helper.start()
        assert answers(Cluster(local.scheduler_address), square) == SQUARES
        helper.join()


LOUD = """
import sys
from initio.cli.logs import json_lines, say
from initio.system.executors.cluster import Cluster
from tests.system.executors.deadly import refuse_three
if __name__ == "__main__":
    with json_lines():
        say("begun")
        try:
            Cluster("local:2").map(refuse_three, range(20), lambda number, answer: None)
        except ValueError as error:
            say(f"initio: {error}")
"""


def test_a_local_cluster_writes_nothing_past_the_log() -> None:
    """What a worker says of an error is on the same stream."""
    said = subprocess.run([sys.executable, "-c", LOUD], stderr=subprocess.PIPE, text=True, check=True).stderr
    lines = [json.loads(line) for line in said.splitlines()]
    assert [line["level"] for line in lines] == ["info", "error"]


def test_a_worker_without_a_package_is_refused(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "versions", lambda: {"nosuch": "1"})
    with pytest.raises(InputError, match=r"^the worker tcp://\S+ has no nosuch, this process has 1: install the same$"):
        answers(Cluster(scheduler), square)


def test_workers_whose_arithmetic_differs_are_refused(mortal: Executor) -> None:
    """Whatever the work is, by all that executors are made for."""
    asked = replace(mortal, alike=arithmetic)
    remedy = "this process has torch: give both a C compiler, or set INITIO_FUSED=0 for both"
    sentence = rf"^\S* ?worker \S+ has kernels {fused.ARITHMETIC}, {remedy}$"
    with fused.switched_off(), pytest.raises(InputError, match=sentence):
        answers(asked, square)


def test_executors_of_verbs_ask_for_the_arithmetic() -> None:
    facts = arithmetic()
    built = {"build of torch", "machine", "kernels", "instructions", "processor"}
    assert set(facts) == {"python", "initio", "torch", "numpy"} | built
    for executor in (executor_for(2), executor_for(1, "local:2")):
        assert executor.alike() == facts
    assert executor_for(2, device="cuda:1").alike() == versions(), "a GPU's values are not the processor's"


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


def test_a_scheduler_that_goes_away_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "REACH", 1)
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
    monkeypatch.setattr(cluster, "ASKED", 0.1)
    monkeypatch.setattr(cluster, "SAID", 0.2)
    monkeypatch.setattr(cluster, "MESSAGE", 0.0)  # one task a message, so that some are left when the worker goes
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


def test_what_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "REACH", 0.2)
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
