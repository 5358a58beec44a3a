"""Damaged inputs to readers, in child processes with a limit on time and memory.

An input is named by a reader and a number, so a child that dies tells by one number what killed it. A child writes
that number into memory that it shares with its parent, before it reads; the parent ends a child whose number stands
still.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from initio.errors import InputError
from tests.fuzz.readers import READERS, Reader, examples

CPU_SECONDS = 8.0  # for one input; the slowest valid one takes a tenth of a second
WAIT_SECONDS = 90.0  # without any progress, for whoever waits and does not work
MEMORY = 1 << 30  # bytes that a child may map beyond those of its parent
MANY = 20  # findings of one reader are enough
IN_MEMORY = Path("/dev/shm")  # where there is such a folder
CORPUS = Path(__file__).with_name("corpus")
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect", "ctypes.dlopen")


Inputs = Callable[[str, int], bytes]  # (reader, number) -> what it reads


class Overtime(BaseException):
    """Raised inside a reader that takes too long; no reader catches it."""


class Executed(BaseException):
    """Raised inside a reader that starts a program or opens a connection."""


@dataclass(frozen=True)
class Finding:
    """An input that was answered by more than a sentence."""

    reader: str
    number: int
    kind: str  # traceback, hang, memory, executed, died
    place: str  # where in the package
    text: str


@dataclass
class Outcome:
    """What came of the inputs of one reader."""

    tried: int = 0
    refused: int = 0
    seconds: float = 0.0
    memory: int = 0  # bytes beyond those at the start
    findings: list[Finding] = field(default_factory=list)

    def count(self, kind: str) -> int:
        """The findings of a kind."""
        return sum(finding.kind == kind for finding in self.findings)


# --- a child ----------------------------------------------------------------------------------------------------------

_watching = False


def _audit(event: str, args: Any) -> None:
    if _watching and event.startswith(FORBIDDEN):
        raise Executed(event)


def _too_long(*_: object) -> None:
    raise Overtime


def answer(reader: Reader, raw: bytes, folder: Path) -> tuple[str, str, str]:
    """What a reader makes of an input: `read`, `refused`, or a kind of finding with its place and text."""
    global _watching
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS, 1.0)
    _watching = True
    try:
        reader.read(raw, folder)
        return "read", "", ""
    except InputError as error:
        if len(str(error).strip().splitlines()) != 1:
            return "traceback", _place(error), f"an InputError that is no sentence: {str(error)[:300]!r}"
        return "refused", "", ""
    except Overtime as error:
        return "hang", _place(error), f"more than {CPU_SECONDS:.0f} seconds of work"
    except MemoryError as error:
        return "memory", _place(error), f"more than {MEMORY >> 20} MB"
    except Executed as error:
        return "executed", _place(error), str(error)
    except BaseException as error:  # whatever it is, it is a finding
        return "traceback", _place(error), f"{type(error).__name__}: {error}"[:300]
    finally:
        _watching = False
        signal.setitimer(signal.ITIMER_PROF, 0)


def _clear(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _place(error: BaseException) -> str:
    """The innermost line of the package on the way to an error."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "initio" in Path(frame.filename).parts]
    if not frames:
        return "outside the package"
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"


def _child(name: str, inputs: Inputs, numbers: range, board: mmap.mmap, report: Path) -> None:
    """Reads these inputs, and writes a line for each finding and one at the end."""
    reader, folder = READERS[name], Path(tempfile.mkdtemp(dir=report.parent))
    os.chdir(folder)
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silent, stream)
    reader.read(examples(name)[0], folder)  # whatever it imports is there before the limits
    _clear(folder)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, _too_long)
    sys.addaudithook(_audit)
    before, found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    with report.open("a", encoding="utf-8") as file:
        for number in numbers:
            board[:8] = struct.pack("<q", number)
            kind, place, text = answer(reader, inputs(name, number), folder)
            _clear(folder)
            board[8:16] = struct.pack("<q", struct.unpack("<q", board[8:16])[0] + (kind == "refused"))
            if kind not in ("read", "refused"):
                found += 1
                print(json.dumps(asdict(Finding(name, number, kind, place, text))), file=file, flush=True)
                if found == MANY:
                    break
        else:
            board[:8] = struct.pack("<q", numbers.stop)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps({"memory": (peak - before) * 1024}), file=file, flush=True)


# --- the parent -------------------------------------------------------------------------------------------------------


class Work:
    """The inputs of one reader, read by one child after another until all are."""

    def __init__(self, name: str, inputs: Inputs, count: int, folder: Path) -> None:
        self.name, self.inputs, self.count = name, inputs, count
        self.outcome = Outcome()
        self.board = mmap.mmap(-1, 16)
        self.report = folder / hashlib.sha256(name.encode()).hexdigest()[:16]
        self.begun = time.monotonic()
        self._start(0)

    def _start(self, first: int) -> None:
        self.board[:8] = struct.pack("<q", first)
        self.seen, self.since = first, time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                _child(self.name, self.inputs, range(first, self.count), self.board, self.report)
                code = 0
            finally:
                os._exit(code)

    def ended(self) -> bool:
        """Looks after the child; True when every input was read."""
        number = struct.unpack("<q", self.board[:8])[0]
        if number != self.seen:
            self.seen, self.since = number, time.monotonic()
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        stuck = pid == 0 and time.monotonic() - self.since > WAIT_SECONDS
        if pid == 0 and not stuck:
            return False
        if stuck:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if stuck or status:
            kind, why = ("hang", "it waits") if stuck else ("died", f"exit status {status}")
            self.outcome.findings.append(Finding(self.name, self.seen, kind, "outside the package", why))
            if self.seen + 1 < self.count and len(self.outcome.findings) < MANY:
                self._start(self.seen + 1)
                return False
        self._sum_up()
        return True

    def _sum_up(self) -> None:
        for line in self.report.read_text(encoding="utf-8").splitlines() if self.report.is_file() else ():
            found = json.loads(line)
            if "memory" in found:
                self.outcome.memory = max(self.outcome.memory, found["memory"])
            else:
                self.outcome.findings.append(Finding(**found))
        number, self.outcome.refused = struct.unpack("<qq", self.board[:16])
        self.outcome.tried = min(number + 1, self.count)
        self.outcome.seconds = time.monotonic() - self.begun


def shares(total: int, names: list[str]) -> dict[str, int]:
    """How many inputs each reader gets of all; at least one.

    >>> sum(shares(100_000, list(READERS)).values()) >= 100_000
    True
    """
    whole = sum(READERS[name].share for name in names)
    return {name: 1 + int(total * READERS[name].share / whole) for name in names}


def fuzz(counts: Mapping[str, int], inputs: Inputs, *, jobs: int = 1) -> Iterator[tuple[str, Outcome]]:
    """Gives each reader so many inputs, `jobs` readers at a time; the slowest come first."""
    for name in counts:
        examples(name)  # which children share
    waiting = sorted(counts, key=lambda name: READERS[name].share)
    running: list[Work] = []
    folder = Path(tempfile.mkdtemp(dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop(0)
                running.append(Work(name, inputs, counts[name], folder))
            time.sleep(0.02)
            for work in [work for work in running if work.ended()]:
                running.remove(work)
                yield work.name, work.outcome
    finally:
        for work in running:
            os.kill(work.pid, signal.SIGKILL)
            os.waitpid(work.pid, 0)
        shutil.rmtree(folder)


def keep(finding: Finding, raw: bytes) -> Path:
    """Adds the input of a finding to the corpus, so that the tests read it from now on."""
    path = CORPUS / finding.reader.replace(" ", "_") / hashlib.sha256(raw).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path
