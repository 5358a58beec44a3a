"""A PostgreSQL server of one's own, as Debian's package has it: an ordinary user's, in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

USER, PASSWORD = "initio", "p%ss word"  # of the server's owner; a password that an address must spell with care
ORDINARY = ("postgres", "nobody")


def postgres_programs() -> Path | None:
    """The folder of the newest server that is installed."""
    beside = shutil.which("postgres")
    found = [Path(beside).parent] if beside else []
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -float(path.parent.name))
    return next((path for path in found if (path / "initdb").is_file()), None)


@dataclass(frozen=True)
class PostgresServer:
    """A server that runs."""

    folder: Path
    port: int
    durable: bool
    process: subprocess.Popen[bytes]

    def url(self, database: str = "postgres", password: str = PASSWORD) -> str:
        """The address of one of its databases."""
        return f"postgresql://{USER}:{quote(password)}@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        """A new database, and its address."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {database}".encode())
        return self.url(database)

    def stop(self) -> None:
        """At once; whoever is connected is cut off."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)

    def again(self) -> AbstractContextManager[PostgresServer]:
        """Starts a server that was stopped."""
        return _running(self.folder, self.port, self.durable)


@contextmanager
def postgres_server(*, durable: bool = True) -> Iterator[PostgresServer]:
    """Runs a server that listens on this machine alone; without `durable` it does not wait for the disk."""
    with tempfile.TemporaryDirectory(prefix="initio-postgres-", ignore_cleanup_errors=True) as temporary:
        folder, password = Path(temporary), Path(temporary, "password")
        password.write_text(PASSWORD)
        if (who := _ordinary()) is not None:
            for path in (folder, password):
                shutil.chown(path, who, who)
        login = ["-U", USER, "-A", "scram-sha-256", "--pwfile", str(password)]
        subprocess.run(
            [_program("initdb"), "-D", str(folder / "data"), *login, "-E", "UTF8", "--locale", "C", "--no-sync"],
            check=True, capture_output=True, cwd=folder, **_as_ordinary(),
        )  # fmt: skip
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with _running(folder, port, durable) as server:
            yield server


@contextmanager
def _running(folder: Path, port: int, durable: bool) -> Iterator[PostgresServer]:
    settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": folder}
    if not durable:
        settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
    command = [_program("postgres"), "-D", str(folder / "data")]
    command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **_as_ordinary())
    server = PostgresServer(folder, port, durable, process)
    try:
        _wait(server)
        yield server
    finally:
        if process.poll() is None:
            server.stop()


def _program(name: str) -> str:
    programs = postgres_programs()
    if programs is None:
        raise FileNotFoundError("PostgreSQL is not installed (on Debian: apt-get install postgresql)")
    return str(programs / name)


def _ordinary() -> str | None:
    """Who runs the server where we are root, as which it refuses to run."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ORDINARY if name in known)


def _as_ordinary() -> dict[str, Any]:
    who = _ordinary()
    return {} if who is None else {"user": who, "group": who, "extra_groups": []}


def _wait(server: PostgresServer, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            psycopg.connect(server.url(), connect_timeout=2).close()
            return
        except psycopg.OperationalError:
            if server.process.poll() is not None or time.monotonic() > deadline:
                log = (server.folder / "log").read_text(errors="replace")
                raise RuntimeError(f"PostgreSQL did not start: {log[-500:]}") from None
            time.sleep(0.1)
