"""kill -9 of the main process or of a worker at random moments: the resumed store must equal an uninterrupted one.

python -m studies.score_faults --kills 20
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from initio.scores.store import Store, differences

SMALL = ("--metrics", "grad,trace,kappa,naswot,params", "--cells", "1", "--channels", "2", "--data", "noise:3x8x8",
         "--batch-size", "4", "--repeats", "2")  # fmt: skip
PATIENCE = 120  # seconds to the end of a run that nobody disturbs; more is a hang


@dataclass(frozen=True)
class Kill:
    """When, and whom: as soon as the store holds `scores` more scores, after `delay` seconds."""

    scores: int
    delay: float
    worker: bool


def random_kill(rng: Random) -> Kill:
    """Half of them at any time, start-up included, half while scores are written."""
    worker = rng.random() < 0.5
    if rng.random() < 0.5:
        return Kill(0, rng.random() * 8, worker)
    return Kill(rng.randrange(60), rng.random() / 2, worker)


def command(store: Path, sample: int, workers: int, options: Sequence[str] = SMALL) -> list[str]:
    return [
        *(sys.executable, "-m", "initio", "score", "nb201", "--sample", str(sample), "--workers", str(workers)),
        *("--store", str(store), *options),
    ]


def start(argv: list[str]) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


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


def count(store: Path) -> int:
    try:
        with Store(store, read_only=True) as opened:
            return len(opened)
    except ValueError:  # not made yet
        return 0


def strike(process: subprocess.Popen[str], store: Path, kill: Kill) -> str:
    """Kills as planned, if the process lives long enough; says what was done."""
    goal = count(store) + kill.scores
    while process.poll() is None and count(store) < goal:
        time.sleep(0.01)
    time.sleep(kill.delay)
    victims = [process.pid]
    while process.poll() is None and not (victims := workers_of(process.pid) if kill.worker else victims):
        time.sleep(0.01)
    if process.poll() is not None:
        return "it had ended"
    os.kill(victims[0], signal.SIGKILL)
    return "worker killed" if kill.worker else "main killed"


def survive(store: Path, sample: int, kills: list[Kill], options: Sequence[str] = SMALL, workers: int = 2) -> list[str]:
    """Runs the command until it ends by itself, killing on the way; what happened, in order."""
    events: list[str] = []
    plan = list(kills)
    while True:
        process = start(command(store, sample, workers, options))
        while plan and process.poll() is None:
            events.append(strike(process, store, plan[0]))
            del plan[: "killed" in events[-1]]  # a kill that came too late is tried again
            if events[-1] == "main killed":
                break
        _, errors = process.communicate(timeout=PATIENCE)
        if process.returncode == 0 and not plan:
            return events
        if process.returncode not in (0, -signal.SIGKILL):
            raise RuntimeError(f"exit code {process.returncode}: {errors}")
        if process.returncode == 0:  # all scored before the plan was through: begin again with an empty store
            events.append("complete, begun anew")
            for part in store.parent.glob(f"{store.name}*"):
                part.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = Random(args.seed)
    kills = [random_kill(rng) for _ in range(args.kills)]
    with tempfile.TemporaryDirectory() as folder:
        whole, survived = Path(folder) / "whole.db", Path(folder) / "survived.db"
        reference = start(command(whole, args.sample, workers=1))
        _, errors = reference.communicate()
        if reference.returncode:
            sys.exit(f"the uninterrupted run failed: {errors}")
        for number, event in enumerate(survive(survived, args.sample, kills), start=1):
            print(f"{number:>3}  {event}")
        with Store(whole, read_only=True) as a, Store(survived, read_only=True) as b:
            different = len(list(differences(a, b)))
            print(f"{args.kills} kills, {len(a)} scores uninterrupted, {len(b)} resumed, {different} differ")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
