"""Whatever happens to five kinds of work, they lose nothing and end with the same bits.

Scoring, a search at initialisation, a search with trainings, a bench and a training are each run undisturbed, and then
again under kill −9, a disk without room, a folder that cannot be written, damaged files, two processes at once, dead
workers, and readers of their output that go away. Who was interrupted is resumed as a user would: by `--resume` where
there is something to resume, by the same command where there is not.

Half of the kills come when the work has used a random share of its processor time, half before a random operation on a
file of the work: between any two of them. One that comes too late is tried again: `struck` counts the processes that
died of it, and `begun` those of them that had records on disk to lose.

python -m studies.faults
python -m studies.faults --kills 40 --work search train
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from initio.cli import main as initio
from initio.scores.store import Store
from initio.system.files import TEMPORARY

SMALL = ("--metrics", "grad,trace,kappa,naswot,params", "--cells", "1", "--channels", "2", "--data", "noise:3x8x8",
         "--batch-size", "4", "--repeats", "2")  # fmt: skip
PATIENCE = 300  # seconds to the end of a run that nobody disturbs; more is a hang
FEW = 10  # touches; SQLite's own are not seen
LATE = 8  # times as many tries as strikes that are wanted
PAGE = 4096  # bytes of a store that are damaged together
CAPABILITY_VERSION, CAP_DAC_OVERRIDE = 0x20080522, 1 << 1  # linux/capability.h
POOL = 14  # networks that are scored
TIMES = ("seconds", "waited", "cost", "versions", "peak_bytes")

Records = list[str]


# --- five kinds of work -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """A command that writes, and what it leaves on disk.

    Args:
        begin: its words, given where to write.
        resume: the words to go on by; None where they are the same.
        marker: the file that says that there is something to resume.
        records: what is there, record by record and without times.
        result: what came out, without times.
    """

    name: str
    begin: Callable[[Path], list[str]]
    records: Callable[[Path], Records]
    result: Callable[[Path], object]
    resume: str | None = None
    marker: str = ""

    def again(self, place: Path) -> list[str]:
        """How a user goes on."""
        if self.resume is not None and (place / self.marker).is_file():
            return [self.resume, "--resume", str(place)]
        return self.begin(place)


def plain(value: Any) -> Any:
    """Without what tells the time."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items() if name not in TIMES}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def documents(text: str) -> Records:
    """The whole lines of a file of JSON; a torn last one was never written."""
    whole = text.rpartition("\n")[0]
    return [json.dumps(plain(json.loads(line))) for line in whole.splitlines()]


def lines_of(*patterns: str) -> Callable[[Path], Records]:
    def read(place: Path) -> Records:
        files = [path for pattern in patterns for path in sorted(place.glob(pattern))]
        return [f"{path.name.partition('-')[0]} {line}" for path in files for line in documents(path.read_text())]

    return read


def json_of(name: str) -> Callable[[Path], object]:
    return lambda place: plain(json.loads((place / name).read_text()))


def scores_of(place: Path) -> Records:
    try:
        with Store(place / "s.db", read_only=True) as store:
            return [repr(evaluation) for evaluation in store.evaluations()]
    except ValueError:  # not made yet
        return []


def count(path: Path) -> int:
    """The scores of a store that is perhaps not made yet."""
    try:
        with Store(path, read_only=True) as store:
            return len(store)
    except ValueError:
        return 0


def command(store: Path, sample: int, workers: int, options: Sequence[str] = SMALL) -> list[str]:
    """The words that score a sample."""
    return ["score", "nb201", "--sample", str(sample), "--workers", str(workers), "--store", str(store), *options]


def score(place: Path) -> list[str]:
    place.mkdir(parents=True, exist_ok=True)
    return command(place / "s.db", POOL, 1)


def search(place: Path) -> list[str]:
    size = ("--channels", "2", "--cells", "1", "--pixels", "8", "--batch-size", "8")
    return ["search", "nb201", "--method", "nasi-fit", "--steps", "6", *size, "--out", str(place)]


def hybrid(place: Path) -> list[str]:
    few = ("--queries", "3", "--epochs", "1", "--pool", "4", "--batch-size", "4")
    return ["search", "mlp", "--depth", "3", "--method", "robust", "--data", "digits", *few, "--out", str(place)]


def bench(place: Path) -> list[str]:
    table = place.parent / "table.npz"
    if not table.is_file():
        rng, cells = np.random.default_rng(0), list(product(range(3), repeat=6))
        values = {name: rng.uniform(50, 90, len(cells)) for name in ("val12_c10", "time200_c10", "test_c10_nb201")}
        np.savez(table, ops=np.array(cells, dtype=np.int8), **values)
    budget = ("--queries", "10", "--seeds", "8")
    return ["bench", str(table), "--search", "rea", *budget, "--out", str(place)]


def train(place: Path) -> list[str]:
    few = ("--data", "digits", "--epochs", "4", "--samples", "200", "--no-tensorboard")
    return ["train", "mlp:relu,tanh", *few, "--out", str(place)]


def table_of(place: Path) -> object:
    return (place / "runs.csv").read_text()


WORKS = {
    work.name: work
    for work in (
        Work("score", score, scores_of, scores_of),
        Work("search", search, lines_of("steps.jsonl"), json_of("result.json"), "search", "run.json"),
        Work("search with trainings", hybrid, lines_of("steps.jsonl"), json_of("result.json"), "search", "run.json"),
        Work("bench", bench, lines_of("unfinished*.jsonl"), table_of),
        Work("train", train, lines_of("epochs.jsonl"), json_of("trained.json"), "train", "train.json"),
    )
}


# --- one process ------------------------------------------------------------------------------------------------------

TOUCHES = ("open", "os.rename", "os.mkdir", "os.remove", "os.truncate", "os.rmdir", "sqlite3.connect", "shutil.rmtree")


@dataclass(frozen=True)
class Ran:
    """How a process ended."""

    code: int  # −9 of one that was killed
    said: str  # on stderr

    @property
    def sentence(self) -> bool:
        """Whether it refused as it should: code 2 and a last line that says why."""
        last = self.said.rstrip("\n").rpartition("\n")[2]
        return self.code == 2 and last.startswith("initio: ") and "Traceback" not in self.said


class Process:
    """A copy of this process that runs a command; it begins where everything is imported already."""

    def __init__(
        self,
        argv: list[str],
        place: Path,
        *,
        prepare: Callable[[], object] = lambda: None,
        last_touch: int | None = None,
    ) -> None:
        self.errors, self.touched = place.with_name(f"{place.name}.err"), place.with_name(f"{place.name}.touched")
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 99
            try:
                self._become(argv, str(place), prepare, last_touch)
                code = initio(argv)
                self.touched.write_text(str(self.touches))
            except SystemExit as end:
                code = int(end.code or 0)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)

    def _become(self, argv: list[str], place: str, prepare: Callable[[], object], last_touch: int | None) -> None:
        for stream, path in ((1, Path(os.devnull)), (2, self.errors)):
            os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), stream)
        prepare()
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        self.touches = 0

        def audit(event: str, args: tuple[Any, ...]) -> None:
            if event in TOUCHES and str(args[0] if args else "").startswith((place, f"file://{place}")):
                self.touches += 1
                if self.touches == last_touch:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(audit)

    def wait(self, seconds: float = PATIENCE) -> Ran:
        """Until it ends; one that does not is killed, and that is an error."""
        deadline = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return Ran(os.waitstatus_to_exitcode(status), self.errors.read_text())
            if time.monotonic() > deadline:
                self.kill()
                os.waitpid(self.pid, 0)
                return Ran(-1, f"it hung for {seconds:.0f} seconds")
            time.sleep(0.01)

    def kill(self) -> None:
        """At once."""
        os.kill(self.pid, signal.SIGKILL)

    def reaches(self, work: float) -> bool:
        """Waits until it has used so many seconds of processor time; False if it ended before."""
        while True:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return False
            if time.clock_gettime(~self.pid << 3 | 2) >= work:  # Linux: the clock of another process
                return True
            time.sleep(0.002)


def run(argv: list[str], place: Path, prepare: Callable[[], object] = lambda: None) -> Ran:
    """A process to its end."""
    return Process(argv, place, prepare=prepare).wait()


# --- what is looked at afterwards -------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What came of one fault on one kind of work."""

    tried: int = 0
    struck: int = 0  # it was in time to do something
    begun: int = 0  # and there was something to lose
    lost: int = 0  # records that were on disk and are not any more
    different: int = 0  # results that are not those of an undisturbed run
    wrong: list[str] = field(default_factory=list)  # tracebacks, hangs, refusals without a reason

    @property
    def bad(self) -> int:
        """Everything that should not be."""
        return self.lost + self.different + len(self.wrong)

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, name.name) + getattr(other, name.name) for name in fields(self)))


@dataclass(frozen=True)
class Undisturbed:
    """What a kind of work comes to."""

    work: Work
    result: object
    work_seconds: float  # of processor time
    touches: int


def undisturbed(work: Work, folder: Path) -> Undisturbed:
    """Run twice: here, so that everything is imported and known, and in a process that counts what it touches."""
    initio_silently(work.begin(folder / "warm"))
    place = folder / "undisturbed"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = Process(work.begin(place), place)
    ran = process.wait()
    if ran.code:
        sys.exit(f"undisturbed, {work.name} ends with {ran.code}: {ran.said}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Undisturbed(work, work.result(place), used, int(process.touched.read_text()))


def initio_silently(argv: list[str]) -> None:
    keep = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        sys.stdout.flush()
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        if initio(argv):
            raise RuntimeError(f"initio {' '.join(argv)} fails")
    finally:
        for stream, old in zip((1, 2), keep, strict=True):
            os.dup2(old, stream)


def finish(known: Undisturbed, place: Path, tally: Tally, before: Records, tries: int = 1) -> None:
    """Goes on as a user would, and compares."""
    work = known.work
    for _ in range(tries):
        ran = run(work.again(place), place)
        if ran.code:
            tally.wrong.append(f"{work.name} does not go on: {ran.said.strip()[-300:]}")
            return
    compare(known, place, tally, before)


def compare(known: Undisturbed, place: Path, tally: Tally, before: Records) -> None:
    work = known.work
    try:
        tally.different += work.result(place) != known.result
    except FileNotFoundError as error:
        tally.wrong.append(f"{work.name} ends without {error.filename}")
    if work.name != "bench":  # its journal has served when the table is written
        tally.lost += sum((Counter(before) - Counter(work.records(place))).values())
    if left := [path.name for path in place.rglob(".*") if TEMPORARY.fullmatch(path.name)]:
        tally.wrong.append(f"{work.name} leaves {left[0]} behind")


# --- the faults -------------------------------------------------------------------------------------------------------

Fault = Callable[[Undisturbed, Path, Random], Tally]


def interrupted(known: Undisturbed, place: Path, rng: Random, since: float = 0.0) -> Ran:
    """The work, begun or resumed, and killed at a random moment after this share of it; code 0 if that was too late."""
    share = rng.uniform(since, 1)
    if known.touches >= FEW and rng.random() < 0.5:
        last_touch = 1 + int(share * known.touches)
        return Process(known.work.again(place), place, last_touch=last_touch).wait()
    process = Process(known.work.again(place), place)
    if process.reaches(share * known.work_seconds):
        process.kill()
    return process.wait()


def killed(known: Undisturbed, place: Path, rng: Random) -> Tally:
    """kill −9, up to three times before it ends."""
    tally = Tally()
    before: Records = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        tally.tried += 1
        ran = interrupted(known, place, rng)
        if ran.code == 0:
            compare(known, place, tally, before)
            return tally
        if ran.code != -signal.SIGKILL:
            tally.wrong.append(f"{known.work.name} after a kill: code {ran.code}, {ran.said.strip()[-300:]}")
            return tally
        now = known.work.records(place) if place.is_dir() else []
        tally.struck += 1
        tally.begun += bool(now)
        if known.work.name != "bench" or not (place / "runs.csv").is_file():
            tally.lost += sum((Counter(before) - Counter(now)).values())
        before = now
    finish(known, place, tally, before)
    return tally


def no_room(known: Undisturbed, place: Path, rng: Random) -> Tally:
    """Files cannot grow beyond a size, as on a full disk."""
    tally, bound = Tally(tried=1), rng.choice((1, 200, 1000, 4096, 20_000))

    def prepare() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (bound, resource.RLIM_INFINITY))

    ran = run(known.work.begin(place), place, prepare)
    tally.struck = int(ran.code != 0)
    if ran.code and not (ran.sentence or (ran.code == 2 and len(ran.said) == bound)):  # stderr is a file here
        tally.wrong.append(f"{known.work.name} without room: code {ran.code}, {ran.said.strip()[-300:]}")
    finish(known, place, tally, known.work.records(place) if place.is_dir() else [])
    return tally


def full_output(known: Undisturbed, place: Path, rng: Random) -> Tally:
    """There is no room for what it prints."""
    tally = Tally(tried=1)

    def prepare() -> None:
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)

    ran = run(known.work.begin(place), place, prepare)
    tally.struck = int(ran.code != 0)
    if not (ran.code == 0 or ran.sentence):
        tally.wrong.append(f"{known.work.name} > /dev/full: code {ran.code}, {ran.said.strip()[-300:]}")
    finish(known, place, tally, known.work.records(place))
    return tally


def heed_permissions() -> None:
    """From here on the bits of a folder say whether it may be written, for root too; root may still read anything."""
    libc = ctypes.CDLL(None)
    header, sets = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, sets)
    sets[0] &= ~CAP_DAC_OVERRIDE  # the first of them are the effective ones
    libc.capset(header, sets)


def read_only(known: Undisturbed, place: Path, rng: Random) -> Tally:
    """The folder may not be written."""
    tally = Tally(tried=1)
    home = place.parent / f"{place.name}-home"
    home.mkdir()
    argv = known.work.begin(home / "x")
    before = sorted(home.rglob("*"))
    for path in (home / "x", home):
        if path.exists():
            path.chmod(0o555)

    ran = run(argv, place, heed_permissions)
    tally.struck = int(ran.code != 0)
    if not ran.sentence:
        tally.wrong.append(f"{known.work.name} where it may not write: code {ran.code}, {ran.said.strip()[-300:]}")
    home.chmod(0o755)
    if sorted(home.rglob("*")) != before:
        tally.wrong.append(f"{known.work.name} wrote where it may not")
    return tally


def damaged(known: Undisturbed, place: Path, rng: Random) -> Tally:
    """Half-way, a file is cut or gets other bytes: a sentence, or the same bits; the other files do not matter.

    SQLite keeps no sums of its pages, so a store gets whole pages that are none.
    """
    tally = Tally(tried=1)
    interrupted(known, place, rng, since=0.5)
    files = [path for path in sorted(place.rglob("*")) if path.is_file() and path.stat().st_size]
    if not files:
        finish(known, place, tally, [])
        return tally
    path = rng.choice(files)
    raw = bytearray(path.read_bytes())
    if rng.random() < 0.5:
        raw = raw[: rng.randrange(len(raw))]
    elif path.name.startswith("s.db"):
        at = rng.randrange(0, len(raw), PAGE)
        raw[at : at + PAGE] = rng.randbytes(PAGE)
    else:
        at = rng.randrange(len(raw))
        raw[at : at + 20] = rng.randbytes(20)
    path.write_bytes(raw)
    ran = run(known.work.again(place), place)
    tally.struck = 1
    if ran.code == 0:
        tally.different += int(known.work.result(place) != known.result)
    elif not ran.sentence:
        tally.wrong.append(f"{known.work.name} with a damaged {path.name}: code {ran.code}, {ran.said.strip()[-300:]}")
    return tally


def two_at_once(known: Undisturbed, place: Path, rng: Random) -> Tally:
    """Two processes write to the same place: both do, or the second one says why not."""
    tally = Tally(tried=1)
    first = Process(known.work.begin(place), place)
    tally.struck = int(first.reaches(rng.random() * known.work_seconds / 2))
    second = Process(known.work.again(place), place.with_name(place.name + "-2"))
    ended = [first.wait(), second.wait()]
    for ran in ended:
        if not (ran.code == 0 or ran.sentence):
            tally.wrong.append(f"{known.work.name} twice at once: code {ran.code}, {ran.said.strip()[-300:]}")
    if all(ran.code for ran in ended):
        tally.wrong.append(f"{known.work.name} twice at once: neither ends well, {ended[0].said.strip()[-300:]}")
        return tally
    compare(known, place, tally, [])
    return tally


def broken_pipe(known: Undisturbed, place: Path, rng: Random) -> Tally:
    """Nobody reads what it prints, or what it says about its progress: the work is done all the same."""
    tally, streams = Tally(tried=1, struck=1), rng.choice(((1,), (2,), (1, 2)))

    def prepare() -> None:
        reading, writing = os.pipe()
        os.close(reading)
        for stream in streams:
            os.dup2(writing, stream)

    ran = run(known.work.begin(place), place, prepare)
    if ran.code:
        tally.wrong.append(f"{known.work.name} into a broken pipe: code {ran.code}, {ran.said.strip()[-300:]}")
    compare(known, place, tally, [])
    return tally


def dead_worker(known: Undisturbed, place: Path, rng: Random) -> Tally:
    """A worker of a scoring is killed; the others go on, and a new one comes."""
    tally = Tally(tried=1)
    store = place / "s.db"
    place.mkdir()
    words = [sys.executable, "-m", "initio", *command(store, POOL, 2)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    goal = rng.randrange(count(place.parent / "undisturbed" / "s.db") // 2)
    while process.poll() is None and not ((workers := workers_of(process.pid)) and count(store) >= goal):
        time.sleep(0.02)
    if process.poll() is None:
        os.kill(rng.choice(workers), signal.SIGKILL)
        tally.struck = 1
    _, errors = process.communicate(timeout=PATIENCE)
    if process.returncode:
        tally.wrong.append(f"code {process.returncode}: {errors[-300:]}")
        return tally
    compare(known, place, tally, [])
    return tally


def workers_of(pid: int) -> list[int]:
    """The worker processes of a run, by what Linux says of their parents."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == pid and b"popen_loky" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except (OSError, ValueError, IndexError):
                continue  # it ended meanwhile
    return sorted(found)


FAULTS: dict[str, Fault] = {
    "kill -9": killed,
    "no room on disk": no_room,
    "no room for output": full_output,
    "read-only folder": read_only,
    "damaged file": damaged,
    "two at once": two_at_once,
    "broken pipes": broken_pipe,
}


def strike(fault: Fault, known: Undisturbed, folder: Path, times: int, rng: Random) -> Tally:
    """A fault again and again, each time in a new place, until it struck so often."""
    total = Tally()
    while total.struck < times:
        if total.tried >= LATE * times:
            total.wrong.append(f"{total.struck} of {total.tried} came in time, {times} are wanted")
            break
        total += fault(known, folder / f"{fault.__name__}-{total.tried}", rng)
    return total


def tallies(names: Sequence[str], kills: int, times: int, seed: int) -> Iterator[tuple[str, str, Tally]]:
    """Every fault on every kind of work."""
    for name in names:
        with tempfile.TemporaryDirectory() as root:
            folder = Path(root)
            folder.chmod(0o755)
            known, rng = undisturbed(WORKS[name], folder), Random(f"{seed} {name}")
            for fault, work in FAULTS.items():
                often = -(-kills // len(names)) if work is killed else times
                yield name, fault, strike(work, known, folder, often, rng)
            if name == "score":
                yield name, "dead worker", strike(dead_worker, known, folder, times, rng)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="over all kinds of work")
    parser.add_argument("--times", type=int, default=3, help="of each other fault on each kind of work")
    parser.add_argument("--work", nargs="+", choices=list(WORKS), default=list(WORKS))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    columns = ("tried", "struck", "begun", "lost", "different")
    total, kills = Tally(), 0
    print(f"{'work':<22}  {'fault':<18}  {'  '.join(columns)}  otherwise wrong", flush=True)
    for name, fault, tally in tallies(args.work, args.kills, args.times, args.seed):
        numbers = "  ".join(f"{getattr(tally, column):>{len(column)}}" for column in columns)
        print(f"{name:<22}  {fault:<18}  {numbers}  {len(tally.wrong):>15}", flush=True)
        for sentence in dict.fromkeys(tally.wrong):
            print(f"    {sentence}", flush=True)
        kills += tally.struck * (fault == "kill -9")
        total += tally
    print(
        f"{total.struck} faults, {kills} of them kills, over {len(args.work)} kinds of work: {total.lost} lost, "
        f"{total.different} bits different, {len(total.wrong)} otherwise wrong"
    )
    return bool(total.bad)


if __name__ == "__main__":
    sys.exit(main())
