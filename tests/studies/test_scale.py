"""The measurement of scale measures what it says, at a size that takes seconds."""

from pathlib import Path

import pytest

from initio.scores.store import Store
from studies.scale import ROWS, memory, one_store


def test_all_rows_are_written_known_read_exported_and_copied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one_store(str(tmp_path / "scores.db"), 2 * ROWS)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["insert", "resume", "query", "export", "copy"]
    assert all(f"{2 * ROWS} rows" in line for line in lines)
    with Store(tmp_path / "scores.db", read_only=True) as store:
        assert len(store) == 2 * ROWS


def test_memory_is_told_after_each_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    memory(10)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [str(number) for number in range(1, 11)]
    assert lines[-1].startswith("from the first tenth to the last: ")
