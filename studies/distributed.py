"""A cluster and a server lose nothing, do nothing twice and change no bit, whoever is killed.

Starts PostgreSQL and a Dask cluster of this machine, scores cells of nb201 there while workers and clients are killed
with −9 at points spread over the work, starts a killed client again as a user would, and compares the store with that
of one undisturbed process and an SQLite file. A trigger in the database counts every score that anybody tries to write,
so that one that was in the store and was scored again is seen.

python -m studies.distributed
python -m studies.distributed --cells 60 --worker-kills 2 --client-kills 1
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from initio.scores.store import Store, differences
from initio.system.executors.cluster import local_cluster
from studies.servers import postgres_server

NETWORKS = ("--metrics", "params,trace,kappa,naswot", "--channels", "4", "--cells", "1", "--batch-size", "8")
LOOK = 0.05  # seconds between two looks at the store
COUNTED = """
CREATE TABLE public.attempts (n BIGINT GENERATED ALWAYS AS IDENTITY, choices TEXT, metric TEXT);
CREATE FUNCTION public.attempted() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN INSERT INTO public.attempts (choices, metric) VALUES (NEW.choices, NEW.metric); RETURN NEW; END$$;
CREATE TRIGGER attempted BEFORE INSERT ON initio.scores FOR EACH ROW EXECUTE FUNCTION public.attempted();
"""


@dataclass
class Killed:
    """How often, and how many processes a client took."""

    workers: int = 0
    clients: int = 0
    starts: int = 0


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=300)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--worker-kills", type=int, default=10)
    parser.add_argument("--client-kills", type=int, default=3)
    args = parser.parse_args(argv)
    command = [sys.executable, "-m", "initio", "score", "nb201", "--sample", str(args.cells), *NETWORKS, "--quiet"]
    kills = ["worker"] * args.worker_kills + ["client"] * args.client_kills
    random.Random(0).shuffle(kills)
    with tempfile.TemporaryDirectory() as folder, postgres_server() as server:
        plain, url = Path(folder, "plain.db"), server.create("scores")
        began = time.perf_counter()
        subprocess.run([*command, "--store", str(plain)], check=True)
        alone = time.perf_counter() - began
        with Store(plain, read_only=True) as expected:
            total = len(expected)
        print(f"{args.cells} cells of nb201, {total:,} scores: one process and SQLite took {alone:.0f} s")
        with Store(url), psycopg.connect(url, autocommit=True) as connection:
            connection.execute(COUNTED)
        began = time.perf_counter()
        with local_cluster(args.workers) as cluster:
            print(f"PostgreSQL and {args.workers} workers: kill −9 of " + ", ".join(kills))
            killed = disturbed(
                [*command, "--store", url, "--cluster", cluster.scheduler_address], cluster, url, total, kills
            )
        print(
            f"{time.perf_counter() - began:.0f} s, {killed.workers} workers and {killed.clients} clients killed, "
            f"{killed.starts} starts of the same command"
        )
        if not report(plain, url):
            raise SystemExit(1)


def disturbed(command: list[str], cluster: Any, url: str, total: int, kills: list[str]) -> Killed:
    """Runs a command again and again until it ends by itself, with kills at even steps of what is written."""
    killed, waiting = Killed(), list(kills)
    with psycopg.connect(url, autocommit=True) as connection:
        while True:
            client, killed.starts = subprocess.Popen(command), killed.starts + 1
            while client.poll() is None:
                (written,) = connection.execute("SELECT count(*) FROM initio.scores").fetchone() or (0,)
                due = total * (1 + len(kills) - len(waiting)) / (len(kills) + 1)
                if waiting and written >= due:
                    if waiting[0] == "client":
                        client.kill()
                        killed.clients += 1
                        waiting.pop(0)
                        break
                    if _kill_worker(cluster, killed.workers):
                        killed.workers += 1
                        waiting.pop(0)
                time.sleep(LOOK)
            if client.wait() == 0:
                return killed
            if client.returncode != -signal.SIGKILL:
                raise SystemExit(f"the client ended with code {client.returncode}")


def _kill_worker(cluster: Any, turn: int) -> bool:
    """Kills one of those that live, each in its turn."""
    pids = [nanny.pid for nanny in cluster.workers.values() if nanny.pid and nanny.is_alive()]
    if not pids:
        return False
    with suppress(ProcessLookupError):
        os.kill(pids[turn % len(pids)], signal.SIGKILL)
        return True
    return False


def report(plain: Path, url: str) -> bool:
    """Prints what is lost, done twice or different, and says whether all is well."""
    with Store(plain, read_only=True) as expected, Store(url, read_only=True) as found:
        pairs = list(differences(expected, found))
        lost = sum(right is None for _, right in pairs)
        different = len(pairs) - lost
        with psycopg.connect(url) as connection:
            (attempts,) = connection.execute("SELECT count(*) FROM public.attempts").fetchone() or (0,)
        twice = attempts - len(found)
    print(f"{lost} scores lost, {twice} done twice, {different} bits different from one process with SQLite")
    return not (lost or twice or different)


if __name__ == "__main__":
    main()
