"""Tables: rows found by architecture, columns by name, and clear sentences for everything else."""

import os
from pathlib import Path
from random import Random

import numpy as np
import pytest

from initio import InputError
from initio.spaces import NB101, NB201
from initio.tables import open_compact, open_table, split_target
from tests.tables.files import SHARED, encrypted, good_nb101, good_nb201, needs_data


def small_table(folder: Path, n: int = 50) -> Path:
    """A few rows in NAS-Bench-201's layout; the accuracy is the row's number."""
    rng = Random(0)
    ops = np.array([NB201.sample(rng).choices for _ in range(n)], dtype=np.int8)
    np.savez(folder / "small.npz", ops=ops, acc=np.arange(n, dtype=np.float32), seeds=np.zeros((n, 3)), names=["x"] * n)
    return folder / "small.npz"


def test_rows_are_all_members_of_the_classes(tmp_path: Path) -> None:
    table = open_compact(str(small_table(tmp_path)))
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
    table = open_compact(str(small_table(tmp_path)))
    assert (table.space, table.length, table.columns) == ("nb201", 50, ("acc",))
    assert table.column("acc").tolist() == list(range(50))
    with pytest.raises(InputError, match="small.npz has no column 'ac': did you mean 'acc'?"):
        table.column("ac")


def test_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_table(tmp_path)
    monkeypatch.delenv("INITIO_DATA", raising=False)
    with pytest.raises(InputError, match="there is no table 'small' here and INITIO_DATA names no folder"):
        open_compact("small")
    assert open_compact("small", tmp_path).path == path
    monkeypatch.setenv("INITIO_DATA", str(tmp_path))
    assert open_compact("small.npz").path == path
    with pytest.raises(InputError, match="there is no table 'smal' here and in"):
        open_compact("smal")


def test_files_that_are_damaged(tmp_path: Path) -> None:
    whole = small_table(tmp_path).read_bytes()
    for content, text in [
        (b"accuracy", "is not an .npz archive"),
        (whole[:300], "is not a readable .npz file"),
        (whole[:200] + b"x" * 60 + whole[260:], "cannot be read"),
        (encrypted(whole), "ops in .*is encrypted"),
        (whole.replace(b"acc.npy", b"\x1b[2J.n"), "."),
    ]:
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(InputError, match=text) as caught:
            open_compact(str(tmp_path / "bad.npz"))
        assert str(caught.value).isprintable()
    np.save(tmp_path / "plain.npy", np.zeros(3))
    with pytest.raises(InputError, match="is not an .npz archive"):
        open_compact(str(tmp_path / "plain.npy"))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(InputError, match="there is no table"):
        open_compact("pipe.npz", tmp_path)


N, TEXT = 50, np.array(["x"] * 50)
WRONG_NB201: list[tuple[dict[str, object], str]] = [
    ({"ops": None}, "is not a table of this benchmark: it has no array 'ops'"),
    ({"ops": np.zeros((N, 9), int)}, r"ops in .* should be whole numbers of shape \(50, 6\), not int64 of"),
    ({"ops": np.zeros((N, 6))}, r"ops in .* should be whole numbers of shape \(50, 6\), not float64"),
    ({"ops": np.zeros((0, 6), int)}, "ops in .* has no rows"),
    ({"ops": np.array(3)}, "ops in .* has no rows"),
    ({"ops": np.full((N, 6), 5)}, "ops in .* has numbers from 5 to 5, they should be 0 to 4"),
    ({"ops": np.full((N, 6), -1)}, "ops in .* has numbers from -1 to -1, they should be 0 to 4"),
    ({"ops": np.array([["x"] * 6] * N)}, "ops in .* should be whole numbers .* not <U1"),
    ({"val12_c10": np.zeros(N - 1)}, r"val12_c10 in .* should be numbers of shape \(50,\), not float64 of \(49,\)"),
    ({"val12_c10": np.zeros((N, 1))}, r"val12_c10 in .* should be numbers of shape \(50,\), not float64 of \(50, 1\)"),
    ({"val12_c10": TEXT}, r"val12_c10 in .* should be numbers of shape \(50,\), not <U1"),
    ({"val12_c10": np.zeros(N, complex)}, r"val12_c10 in .* should be numbers of shape \(50,\), not complex128"),
    ({"val12_c10": np.zeros(N, "M8[s]")}, r"val12_c10 in .* should be numbers of shape \(50,\), not datetime64"),
    ({"time200_c10": np.zeros(N, bool)}, r"time200_c10 in .* should be numbers of shape \(50,\), not bool"),
    ({"time200_c10": np.float64(1)}, r"time200_c10 in .* should be numbers of shape \(50,\), not float64 of \(\)"),
    ({"test_c10_nb201": np.zeros((2, N))}, r"test_c10_nb201 in .* should be numbers of shape \(50,\)"),
    ({"test_c10_nb201": np.array([{}] * N)}, "test_c10_nb201 in .* cannot be read: it holds Python objects"),
    ({"test_c10_nb201": None}, "has no test accuracies test_c10_nb201"),
]


@pytest.mark.parametrize(("change", "text"), WRONG_NB201)
def test_arrays_of_nb201_are_checked_when_it_is_opened(change: dict[str, object], text: str, tmp_path: Path) -> None:
    refused(tmp_path, "nb201", good_nb201(), change, text)


WRONG_NB101: list[tuple[dict[str, object], str]] = [
    ({"n_vertices": np.full(3, 9)}, "n_vertices in .* has numbers from 9 to 9, they should be 2 to 7"),
    ({"n_vertices": np.full((3, 1), 7)}, r"n_vertices in .* should be whole numbers of shape \(3,\)"),
    ({"n_vertices": np.full(3, 2), "adj_bits": np.full(3, 2)}, "row 0 of .* has more edges than its 2 vertices"),
    ({"adj_bits": np.full(3, 1 << 21)}, "adj_bits in .* they should be 0 to 2097151"),
    ({"adj_bits": np.full(3, 1.5)}, "adj_bits in .* should be whole numbers"),
    ({"ops": np.zeros((3, 6), int)}, r"ops in .* should be whole numbers of shape \(3, 5\)"),
    ({"ops": np.full((3, 5), 3)}, "ops in .* they should be -1 to 2"),
    ({"hash64": np.array([1, 3, 2], np.uint64)}, "hash64 in .* is not ascending"),
    ({"hash64": np.array([1, 2], np.uint64)}, r"hash64 in .* should be whole numbers of shape \(3,\)"),
    ({"hash64": np.array([-1, 2, 3])}, "hash64 in .* has numbers from -1 to 3"),
    ({"hash64": None}, "_hash64.npz is not a plain file"),
    ({"val_acc_108": np.ones(2)}, r"val_acc_108 in .* should be numbers of shape \(3,\)"),
    ({"train_time_108_s": None}, "has validation accuracies but no training times train_time_108_s"),
    ({"test_acc_108": np.ones((3, 3))}, r"test_acc_108 in .* should be numbers of shape \(3,\)"),
]


@pytest.mark.parametrize(("change", "text"), WRONG_NB101)
def test_arrays_of_nb101_are_checked_when_it_is_opened(change: dict[str, object], text: str, tmp_path: Path) -> None:
    refused(tmp_path, "nb101", good_nb101(), change, text)


def test_the_multi_fidelity_file_is_checked_too(tmp_path: Path) -> None:
    good = {name: values for name, values in good_nb101().items() if not name.startswith(("val", "train"))}
    np.savez(tmp_path / "table.npz", **good)  # type: ignore[arg-type]
    beside = tmp_path / "table_multifidelity_30k.npz"
    assert open_table("nb101", table=tmp_path / "table.npz").architectures == ()
    for arrays, text in [
        ({"row": np.array([0, 3])}, "row in .* they should be 0 to 2"),
        ({"row": np.array([0.5])}, "row in .* should be whole numbers"),
        ({"val_acc_4": np.ones(2)}, "has no array 'row'"),
        ({"row": np.array([0]), "val_acc_4": np.ones(2)}, r"val_acc_4 in .* should be numbers of shape \(1,\)"),
    ]:
        np.savez(beside, **arrays)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=text):
            open_table("nb101", table=tmp_path / "table.npz")
    np.savez(beside, row=np.array([2, 0]), val_acc_4=np.array([7.0, 8.0]), train_time_108_s=np.array([27.0, np.nan]))
    table = open_table("nb101", table=tmp_path / "table.npz")
    assert (len(table.architectures or ()), table.validation.epochs) == (1, (4,))  # a training without a time is none


def refused(folder: Path, name: str, good: dict[str, object], change: dict[str, object], text: str) -> None:
    np.savez(folder / "table.npz", **good)  # type: ignore[arg-type]
    assert open_table(name, table=folder / "table.npz").validation.epochs
    changed = {name: values for name, values in (good | change).items() if values is not None}
    np.savez(folder / "table.npz", **changed)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=text) as caught:
        open_table(name, table=folder / "table.npz")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["nb201_tss.npz", ":acc", "table:", ""])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(InputError, match="must be TABLE:COLUMN"):
        split_target(text)


@needs_data
def test_the_published_optimum_of_nb201() -> None:
    table = open_compact("nb201_tss.npz", SHARED)
    best = int(np.argmax(table.column("test_c10_nb201")))
    cell = NB201.architecture(*map(int, np.load(table.path)["ops"][best]))
    assert best in [number for number, _, _ in table.rows({NB201.canonical(cell)})]
    assert table.column("test_c10_nb201")[best] == pytest.approx(94.37, abs=0.01)


@needs_data
def test_nb101_rows_by_hash() -> None:
    table = open_compact("nb101.npz", SHARED)
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
