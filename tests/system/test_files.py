"""Files that are whole or not there."""

import errno
import os
import signal
from pathlib import Path

import pytest

from initio.errors import InputError
from initio.system import files
from initio.system.files import add_line, fresh_folder, is_abandoned, read_text, whole_file, whole_lines, write_text


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail() -> None:
        with whole_file(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "text"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it is a folder"):
        write_text(tmp_path, "text")
    with pytest.raises(InputError, match="it is not a plain file"):
        write_text(Path(os.devnull), "text")
    with pytest.raises(InputError, match="does not exist"):
        write_text(tmp_path / "no" / "file", "text")


def test_the_umask_counts(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_text(tmp_path / "mine", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o600


def test_half_a_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    assert whole_lines(path) == []
    add_line(path, "ünö")
    with path.open("ab") as file:
        file.write(b"tor")
    assert whole_lines(path) == ["ünö".encode()]
    add_line(path, "two")
    assert whole_lines(path) == ["ünö".encode(), b"two"]


def test_what_a_killed_process_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    if (child := os.fork()) == 0:
        with whole_file(tmp_path / "a.txt") as temporary:
            temporary.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".a-")
    assert is_abandoned(left)
    fresh_folder(tmp_path)  # nothing but that is in it
    write_text(tmp_path / "b.txt", "another file")
    assert left.exists()
    write_text(tmp_path / "a.txt", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt"]
    with pytest.raises(InputError, match="is not empty: give another folder, or resume"):
        fresh_folder(tmp_path, ", or resume")


def test_what_someone_is_writing_is_left_alone(tmp_path: Path) -> None:
    with whole_file(tmp_path / "a.txt") as first:
        assert not is_abandoned(first)
        write_text(tmp_path / "a.txt", "second")
        assert first.exists()
        with pytest.raises(InputError, match="is not empty"):
            fresh_folder(tmp_path)
        first.write_text("first")
    assert (tmp_path / "a.txt").read_text() == "first"


def another_machine(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary file of another machine, which is writing to it."""
    with monkeypatch.context() as there:
        there.setattr(files, "_ours", lambda: "beef")
        with files._temporary(path) as temporary:
            return temporary


def test_what_another_machine_is_writing_is_left_alone_though_no_lock_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an NFS that keeps locks to each machine; what nobody has written to for long is removed."""
    theirs = another_machine(tmp_path / "a.txt", monkeypatch)
    assert not is_abandoned(theirs)
    write_text(tmp_path / "a.txt", "ours")
    assert theirs.exists()
    os.utime(theirs, (0, 0))
    assert is_abandoned(theirs)
    write_text(tmp_path / "a.txt", "ours")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_without_locks_can_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with whole_file(tmp_path / "a.txt") as first:
        assert not is_abandoned(first)
        write_text(tmp_path / "a.txt", "second")
        first.write_text("first")
    assert (tmp_path / "a.txt").read_text() == "first"


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        add_line(Path("/dev/full"), "text")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with a name")
def test_nobody_waits_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(InputError, match="is no plain file"):
            read_text(path)
