"""Files that are whole or not there: written to a temporary name beside the target, then renamed."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from platform import node
from secrets import token_hex

from initio.errors import InputError

try:  # not every system has them: there, nothing is locked and no memory is known
    import fcntl
    import resource
except ImportError:
    fcntl = resource = None  # type: ignore[assignment, unused-ignore]
TEMPORARY = re.compile(r"\..+-([0-9a-f]{4})[0-9a-f]{12}(\..*)?")  # whose, and which
DAY = 86_400.0  # seconds


def cache_folder(name: str) -> Path:
    """Where what can be made again is kept: in `$INITIO_CACHE`, or `initio` in `$XDG_CACHE_HOME` or `~/.cache`."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "initio"
    return Path(os.environ.get("INITIO_CACHE") or usual) / name


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path that becomes `path` when the block ends, and disappears when it fails.

    A link stays a link: what it points to is replaced.
    """
    if not path.parent.is_dir():
        raise InputError(f"cannot write {str(path)!r}: the folder {str(path.parent)!r} does not exist")
    if path.is_dir():
        raise InputError(f"cannot write {str(path)!r}: it is a folder")
    if path.exists() and not path.is_file():
        raise InputError(f"cannot write {str(path)!r}: it is not a plain file")
    target = path.resolve()
    for abandoned in target.parent.glob(f"{_start(target)}*"):
        if is_abandoned(abandoned):
            abandoned.unlink(missing_ok=True)
    with _temporary(target) as temporary, naming(path):
        try:
            yield temporary
            temporary.replace(target)
        except BaseException:
            with suppress(FileNotFoundError):
                temporary.unlink()
            raise


def is_abandoned(path: Path) -> bool:
    """Whether it is a temporary file of `whole_file` whose process was killed.

    Of this machine's files a lock says so. A shared folder (NFS) may keep the locks of another machine to itself, so
    what another one made is left alone until nobody has written to it for a day.
    """
    made = TEMPORARY.fullmatch(path.name)
    if fcntl is None or made is None:
        return False
    try:
        if made[1] != _ours():
            return time.time() - path.stat().st_mtime > DAY
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return True
    except OSError:  # someone is writing to it, it is gone, or there are no locks
        return False


@cache
def this_machine() -> str:
    """This machine since it was started, or a container on it: where locks and process numbers have one meaning."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux
        return f"{node()} {uuid.getnode():x}"


def _ours() -> str:
    """What names of this machine's temporary files begin their token with."""
    return hashlib.sha256(this_machine().encode()).hexdigest()[:4]


def _start(target: Path) -> str:
    return f".{target.stem[:100]}-"


@contextmanager
def _temporary(target: Path) -> Iterator[Path]:
    """A new empty file beside the target, locked: a process that is killed loses its locks, whatever else it leaves."""
    while True:
        path = target.with_name(f"{_start(target)}{_ours()}{token_hex(6)}{target.suffix}")
        with path.open("xb") as file:
            if fcntl is not None:
                with suppress(OSError):  # a folder without locks, where nothing is ever taken for abandoned
                    fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists():  # nobody took it for abandoned before it was locked
                yield path
                return


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the system inside the block say of which file they speak."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def fresh_folder(folder: Path, go_on: str = "") -> None:
    """Makes the folder, or takes an empty one; what a killed process left half-written does not count.

    A folder with anything else in it is refused with a sentence that ends in `go_on`.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{str(folder)!r} is a file: give another folder")
    if folder.exists() and not all(map(is_abandoned, folder.iterdir())):
        raise InputError(f"{str(folder)!r} is not empty: give another folder{go_on}")
    folder.mkdir(parents=True, exist_ok=True)


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file; none if it is not there. A last one that a crash left half-written is cut off."""
    if not path.is_file():
        return []
    content = path.read_bytes()
    whole, _, torn = content.rpartition(b"\n")
    if torn:
        os.truncate(path, len(content) - len(torn))
    return whole.splitlines()


def add_line(path: Path, line: str) -> None:
    """Adds a line; it is on disk when this returns."""
    with naming(path), path.open("ab") as file:
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """Writes a whole file, or nothing."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_text(path: Path) -> str:
    """The text of a file, or an `InputError` when it is something else: nobody waits for who writes into a pipe."""
    if path.is_fifo() or path.is_socket() or path.is_char_device():
        raise InputError(f"{str(path)!r} is no plain file")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{str(path)!r} is not a text file") from None


def peak_bytes() -> int | None:
    """The most memory this process ever held; None where the system does not say."""
    usage = getattr(resource, "getrusage", None)
    if usage is None:
        return None
    peak: int = usage(resource.RUSAGE_SELF).ru_maxrss
    return peak * {"darwin": 1}.get(sys.platform, 1024)
