"""Leases: one process at a time works on a folder, whichever machine it is on.

Shared folders (NFS) may ignore file locks. A lease is a small file, `lease.json`, that names its holder and that the
holder rewrites every `RENEWAL` seconds. The clocks of two machines may differ, so nobody compares times: whoever meets
the lease of another machine watches whether it changes, and takes it over if it has not for `EXPIRY` seconds. Of a
process of the same machine the system says whether it is alive, so a run that was killed goes on at once.

Only a task of an executor waits for a living holder: its run has the lease of the whole, so whoever is inside is a
worker of the same run that has not heard yet that its client was killed.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from platform import node
from secrets import token_hex

from initio.errors import InputError
from initio.system.files import this_machine, write_text
from initio.system.tasks import go_on, is_task

NAME = "lease.json"
RENEWAL, EXPIRY = 10.0, 60.0  # seconds
LOOK = 0.5  # seconds between two looks at the lease of another machine
SETTLE = 0.2  # seconds after which, of several who took over at once, the last one has it
PATIENCE = 600.0  # seconds that a task waits for a living holder, which may be the same task of a client that is gone


@contextmanager
def leased(folder: Path, tell: Callable[[str], object] | None = None) -> Iterator[None]:
    """Nobody else is inside such a block with this folder, on this machine or another.

    Who comes second gets an `InputError`; so does a holder that slept until another one took over. `tell` hears that
    it takes a while to find out whether somebody is there.
    """
    lease, over = Lease(folder / NAME), threading.Event()
    lease.take(tell)
    renewing = threading.Thread(target=lease.keep, args=(over, threading.current_thread()), daemon=True)
    renewing.start()
    try:
        yield
        lease.check()
    except KeyboardInterrupt:
        lease.check()
        raise
    finally:
        over.set()
        renewing.join()
        lease.give_back()


@dataclass(frozen=True)
class Holder:
    """A process: its number, the moment it began, and its machine."""

    host: str
    machine: str
    pid: int
    began: str
    token: str  # of one block

    @classmethod
    def me(cls) -> Holder:
        """This process, in a new block."""
        return cls(node(), this_machine(), os.getpid(), _began(os.getpid()) or "", token_hex(8))

    def alive(self) -> bool | None:
        """Whether it still runs; None where this machine cannot know."""
        if self.machine != this_machine():
            return None
        now = _began(self.pid)
        if now is None or now != self.began:
            return False
        return bool(now) or None


@dataclass
class Lease:
    """The lease of this process."""

    path: Path
    holder: Holder = field(default_factory=Holder.me)
    renewals: int = 0
    lost: bool = False

    @property
    def text(self) -> str:
        """What the file has, another text after each renewal; the time is for people."""
        return json.dumps(asdict(self.holder) | {"renewals": self.renewals, "renewed": time.ctime()}) + "\n"

    def take(self, tell: Callable[[str], object] | None) -> None:
        """Returns once it is ours; an `InputError` if it is another's."""
        say, waits = tell or (lambda _: None), False
        until = time.monotonic() + PATIENCE * is_task()
        while not self._make():
            seen, alive = self._look(say)
            if alive and time.monotonic() >= until:
                raise InputError(f"{_name(seen)} is working on {self._where}: wait for it, or end it")
            if alive:
                if not waits:
                    say(f"waiting for {_name(seen)}, which is working on {self._where}")
                waits = True
                go_on()
                time.sleep(LOOK)
            elif seen is not None and self._take_over(seen):
                return

    def keep(self, over: threading.Event, worker: threading.Thread) -> None:
        """Renews until it is over; wakes a worker whose lease was taken."""
        while not over.wait(RENEWAL):
            with suppress(OSError):  # a server that is away for a moment; a file that is gone is left to who comes next
                if not self._mine():
                    self.lost = True
                    _interrupt(worker)
                    return
                self.renewals += 1
                write_text(self.path, self.text)

    def check(self) -> None:
        """An `InputError` if another one took it."""
        if self.lost:
            raise InputError(
                f"{_name(_read(self.path))} took over {self._where}, since this process was not heard of for "
                f"{EXPIRY:.0f} seconds: what was written before is kept"
            )

    def give_back(self) -> None:
        """Leaves the folder to others."""
        with suppress(OSError):
            if self._mine():
                self.path.unlink()

    @property
    def _where(self) -> str:
        return repr(str(self.path.parent))

    def _look(self, say: Callable[[str], object]) -> tuple[bytes | None, bool]:
        """The lease that is there, and whether its holder lives; of another machine that takes a while to see."""
        seen = _read(self.path)
        alive = None if (holder := _holder(seen)) is None else holder.alive()
        if alive is None and seen is not None:
            say(f"looking for up to {EXPIRY:.0f} seconds whether {_name(seen)} still works on {self._where}")
            now = _changed(self.path, seen)
            if now is not None and now != seen:
                return now, True
        return seen, bool(alive)

    def _make(self) -> bool:
        try:
            with self.path.open("x", encoding="utf-8") as file:
                file.write(self.text)
        except FileExistsError:
            return False
        return True

    def _take_over(self, seen: bytes) -> bool:
        if _read(self.path) != seen:
            return False
        write_text(self.path, self.text)
        time.sleep(SETTLE)
        return self._mine()

    def _mine(self) -> bool:
        return _holder(self.path.read_bytes()) == self.holder


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _holder(text: bytes | None) -> Holder | None:
    """Whose lease it is; None for one that is just being written, or damaged."""
    try:
        data = json.loads(text or b"")
        return Holder(*(data[name] for name in Holder.__dataclass_fields__))
    except (ValueError, TypeError, KeyError):
        return None


def _name(text: bytes | None) -> str:
    holder = _holder(text)
    return "another process" if holder is None else f"process {holder.pid} of {holder.host}"


def _changed(path: Path, seen: bytes) -> bytes | None:
    """What the file has once it changed, None once it is gone; the same if nothing happened until a lease expires."""
    deadline, now = time.monotonic() + EXPIRY, _read(path)
    while now == seen and time.monotonic() < deadline:
        time.sleep(LOOK)
        now = _read(path)
    return now


def _began(pid: int) -> str | None:
    """When a process of this machine began, as the system counts; empty if that is not known, None if it has ended."""
    if os.name == "nt":  # where asking by os.kill would end it
        return ""
    try:
        os.kill(pid, 0)
        state, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except ProcessLookupError:
        return None
    except OSError:  # a process of somebody else, or no Linux
        return ""
    return None if state in "ZX" else numbers[18]


def _interrupt(worker: threading.Thread) -> None:
    """Ends what the main thread waits for, as Ctrl-C does; another thread hears of it when it is done."""
    if worker is threading.main_thread() and worker.ident is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(worker.ident, signal.SIGINT)
