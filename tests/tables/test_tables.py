"""Tables: rows found by architecture, columns by name, and clear sentences for everything else."""

import os
from pathlib import Path
from random import Random

import numpy as np
import pytest

from initio import InputError
from initio.spaces import NB101, NB201
from initio.tables import open_table, split_target

SHARED = Path(os.environ.get("INITIO_DATA") or Path(__file__).parents[3] / "shared" / "data")
needs_data = pytest.mark.skipif(not (SHARED / "nb201_tss.npz").is_file(), reason=f"no benchmark tables in {SHARED}")


def small_table(folder: Path, n: int = 50) -> Path:
    """A few rows in NAS-Bench-201's layout; the accuracy is the row's number."""
    rng = Random(0)
    ops = np.array([NB201.sample(rng).choices for _ in range(n)], dtype=np.int8)
    np.savez(folder / "small.npz", ops=ops, acc=np.arange(n, dtype=np.float32), seeds=np.zeros((n, 3)), names=["x"] * n)
    return folder / "small.npz"


def test_rows_are_all_members_of_the_classes(tmp_path: Path) -> None:
    table = open_table(str(small_table(tmp_path)))
    ops = np.load(table.path)["ops"]
    wanted = {NB201.canonical(NB201.architecture(*map(int, ops[i]))) for i in (3, 7)}
    rows = list(table.rows(wanted))
    assert {3, 7} <= {number for number, _, _ in rows}
    for number, written, representative in rows:
        assert written.choices == tuple(ops[number])
        assert representative == NB201.canonical(written)
        assert representative in wanted
    expected = [i for i in range(50) if NB201.canonical(NB201.architecture(*map(int, ops[i]))) in wanted]
    assert [row[0] for row in rows] == expected


def test_columns(tmp_path: Path) -> None:
    table = open_table(str(small_table(tmp_path)))
    assert (table.space, table.length, table.columns) == ("nb201", 50, ("acc",))
    assert table.column("acc").tolist() == list(range(50))
    with pytest.raises(InputError, match="small.npz has no column 'ac': did you mean 'acc'?"):
        table.column("ac")


def test_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_table(tmp_path)
    monkeypatch.delenv("INITIO_DATA", raising=False)
    with pytest.raises(InputError, match="there is no table 'small' here and INITIO_DATA names no folder"):
        open_table("small")
    assert open_table("small", tmp_path).path == path
    monkeypatch.setenv("INITIO_DATA", str(tmp_path))
    assert open_table("small.npz").path == path
    with pytest.raises(InputError, match="there is no table 'smal' here and in"):
        open_table("smal")


def test_what_is_no_table(tmp_path: Path) -> None:
    cases = {
        "text.npz": (b"accuracy", "cannot be read"),
        "cut.npz": (small_table(tmp_path).read_bytes()[:300], "cannot be read"),
    }
    whole = bytearray(small_table(tmp_path).read_bytes())
    whole[200:260] = b"x" * 60
    cases["scratched.npz"] = (bytes(whole), "cannot be read")
    for name, (content, text) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=text):
            open_table(str(tmp_path / name))
    np.save(tmp_path / "plain.npy", np.zeros(3))
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    np.savez(tmp_path / "wide.npz", ops=np.zeros((3, 9)))
    for name, text in [("plain.npy", "is not an .npz"), ("other.npz", "no array 'ops'"), ("wide.npz", "has shape")]:
        with pytest.raises(InputError, match=text):
            open_table(str(tmp_path / name))


@pytest.mark.parametrize("text", ["nb201_tss.npz", ":acc", "table:", ""])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(InputError, match="must be TABLE:COLUMN"):
        split_target(text)


@needs_data
def test_the_published_optimum_of_nb201() -> None:
    table = open_table("nb201_tss.npz", SHARED)
    best = int(np.argmax(table.column("test_c10_nb201")))
    cell = NB201.architecture(*map(int, np.load(table.path)["ops"][best]))
    assert best in [number for number, _, _ in table.rows({NB201.canonical(cell)})]
    assert table.column("test_c10_nb201")[best] == pytest.approx(94.37, abs=0.01)


@needs_data
def test_nb101_rows_by_hash() -> None:
    table = open_table("nb101.npz", SHARED)
    rng = Random(0)
    archs = {NB101.canonical(NB101.sample(rng)) for _ in range(20)}
    rows = list(table.rows(archs))
    assert {written for _, written, _ in rows} == archs
    from initio.networks.cost import count
    from initio.spaces import NetworkSettings

    settings = NetworkSettings(prune=False)
    params = table.column("params")
    for number, written, _ in rows:
        assert params[number] == count(NB101.network(written, settings), settings).parameters
