"""Files that are whole or not there."""

import os
from pathlib import Path

import pytest

from initio.errors import InputError
from initio.files import add_line, whole_file, whole_lines, write_text


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
