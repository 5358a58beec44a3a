"""One process at a time works on a folder: on this machine, on another, and after either died."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from initio.errors import InputError
from initio.system import leases
from initio.system.leases import NAME, Holder, leased
from initio.system.tasks import AbandonedError, as_task

HOLD = "import sys, time; from pathlib import Path; from initio.system.leases import leased\n"
HOLD += "with leased(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"RENEWAL": 0.05, "EXPIRY": 0.4, "LOOK": 0.02, "SETTLE": 0.02}.items():
        monkeypatch.setattr(leases, name, seconds)


def write(folder: Path, holder: Holder, renewals: int = 0, *, renewed: str = "Thu Jan  1 00:00:00 1970") -> None:
    lines = json.dumps(asdict(holder) | {"renewals": renewals, "renewed": renewed})
    (folder / ".new").write_text(lines)
    (folder / ".new").replace(folder / NAME)


def elsewhere(pid: int = 4711) -> Holder:
    return Holder("node7", "another machine", pid, "1", "aa")


def test_a_folder_is_given_back(tmp_path: Path) -> None:
    for _ in range(2):
        with leased(tmp_path):
            assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()
        assert not list(tmp_path.iterdir())


def test_a_living_process_of_this_machine_is_named_at_once(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        before, start = (tmp_path / NAME).read_bytes(), time.monotonic()
        with (
            pytest.raises(InputError, match=rf"process {other.pid} of \S+ is working on .*: wait for it"),
            leased(tmp_path),
        ):
            pytest.fail("two are inside")
        assert time.monotonic() - start < leases.RENEWAL / 2
        assert (tmp_path / NAME).read_bytes() == before
        other.send_signal(signal.SIGKILL)
        other.wait()
        notes: list[str] = []
        with leased(tmp_path, notes.append):  # nobody waits for a lease to expire
            assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()
        assert not notes


def test_a_new_process_with_an_old_number_is_not_the_holder(tmp_path: Path) -> None:
    write(tmp_path, replace(Holder.me(), began="1"))
    with leased(tmp_path):
        pass


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("renewed", ["Thu Jan  1 00:00:00 1970", "Fri Jan  1 00:00:00 2999"])
def test_a_lease_of_another_machine_counts_while_it_changes_whatever_its_clock_says(
    tmp_path: Path, renewed: str
) -> None:
    over, notes = threading.Event(), list[str]()

    def live() -> None:
        number = 0
        while not over.wait(0.1):
            write(tmp_path, elsewhere(), number := number + 1, renewed=renewed)

    write(tmp_path, elsewhere())
    owner = threading.Thread(target=live)
    owner.start()
    try:
        with pytest.raises(InputError, match=r"^process 4711 of node7 is working on"), leased(tmp_path, notes.append):
            pytest.fail("two are inside")
    finally:
        over.set()
        owner.join()
    assert "whether process 4711 of node7 still works" in notes[0]
    start = time.monotonic()
    with leased(tmp_path):  # now it changes no more
        assert time.monotonic() - start >= leases.EXPIRY
        assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("text", ["", "{", "[1]", '{"pid": 1}'])
def test_a_damaged_lease_expires_too(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    with leased(tmp_path):
        pass


@pytest.mark.usefixtures("quick")
def test_a_holder_renews_and_keeps_what_it_has(tmp_path: Path) -> None:
    with leased(tmp_path):
        first = json.loads((tmp_path / NAME).read_text())
        time.sleep(0.3)
        later = json.loads((tmp_path / NAME).read_text())
    assert later["renewals"] > first["renewals"]
    assert later["token"] == first["token"]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Also where the suite runs in the background of a shell, which lets it ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("quick", "interruptible")
def test_a_holder_that_slept_too_long_stops_in_a_sentence(tmp_path: Path) -> None:
    stopped = pytest.raises(InputError, match="process 4711 of node7 took over .* what was written before is kept")
    with stopped, leased(tmp_path):
        write(tmp_path, elsewhere())
        time.sleep(30)  # interrupted
    assert json.loads((tmp_path / NAME).read_text())["host"] == "node7"


@pytest.mark.usefixtures("quick")
def test_ctrl_c_stays_ctrl_c(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), leased(tmp_path):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("quick")
def test_a_task_waits_for_a_living_holder_which_may_be_its_orphan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, over, told = threading.Event(), threading.Event(), list[str]()

    def hold() -> None:
        with leased(tmp_path):
            inside.set()
            over.wait(60)

    def ending() -> bool:  # asked while the task waits
        over.set()
        return True

    orphan = threading.Thread(target=hold)
    orphan.start()
    inside.wait(60)
    with as_task(lambda: False), pytest.raises(AbandonedError), leased(tmp_path):
        pytest.fail("nobody waits for this one")
    monkeypatch.setattr(leases, "PATIENCE", 0.1)
    with as_task(), pytest.raises(InputError, match="is working on"), leased(tmp_path):
        pytest.fail("two are inside")
    monkeypatch.undo()
    with as_task(ending), leased(tmp_path, told.append):
        assert over.is_set()
    orphan.join()
    assert len(told) == 1
    assert "waiting for process" in told[0]


@pytest.mark.usefixtures("quick")
def test_of_many_who_come_at_once_to_a_dead_lease_one_is_inside(tmp_path: Path) -> None:
    write(tmp_path, replace(Holder.me(), began="1"))
    inside, refused, gate = list[int](), list[int](), threading.Barrier(8)

    def come(number: int) -> None:
        gate.wait()
        try:
            with leased(tmp_path):
                inside.append(number)
                time.sleep(0.5)
        except InputError:
            refused.append(number)

    threads = [threading.Thread(target=come, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(inside) == 1
    assert len(refused) == 7
