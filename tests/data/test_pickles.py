"""Pickles give plain data, and nothing else happens."""

import functools
import io
import os
import pickle
import tracemalloc
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from initio import InputError
from initio.data.pickles import LeftOut, read_pickle, read_plain, read_torch
from tests.data import formats
from tests.data.formats import images
from tests.tables.files import Runs, encrypted

PLAIN = {
    "name": "infer.tiny",
    ("cifar10", 777): [1, 2.5, None, True, (3,)],
    "seen": {1, 2},
    "ordered": OrderedDict([(1, "a")]),
    "bytes": b"\x00\xff",
}


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_reads_back(protocol: int) -> None:
    assert read_plain(io.BytesIO(pickle.dumps(PLAIN, protocol)), "x") == PLAIN


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("value", [np.float64(1.5), np.float32(2.5), np.int64(-3), np.bool_(True), np.float16(0.5)])
def test_numbers_of_numpy_become_numbers(value: np.generic, protocol: int) -> None:
    found = read_plain(io.BytesIO(pickle.dumps([value], protocol)), "x")
    assert found == [value.item()]
    assert type(found[0]) is type(value.item())


@pytest.fixture
def witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that appears when a malicious pickle is executed."""
    monkeypatch.setenv("INITIO_TEST_WITNESS", str(tmp_path / "executed"))
    return tmp_path / "executed"


@pytest.mark.parametrize("protocol", range(6))
def test_what_would_run_is_refused(protocol: int, witness: Path) -> None:
    raw = pickle.dumps({"epochs": Runs()}, protocol)
    with pytest.raises(InputError, match="x refers to posix.system: refused"):
        read_plain(io.BytesIO(raw), "x")
    assert not witness.exists()
    pickle.loads(raw)
    assert witness.exists(), "the pickle is not malicious: the test shows nothing"


@pytest.mark.parametrize("name", ["eval", "exec", "getattr", "__import__", "open"])
def test_builtins_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"refers to builtins.{name}: refused"):
        read_plain(io.BytesIO(f"cbuiltins\n{name}\n(S'1'\ntR.".encode()), "x")


@pytest.mark.parametrize(
    "raw",
    [
        b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n(tR.",  # a dotted name
        b"\x80\x04\x8c\x0btorch._utils\x8c\x1c_rebuild_tensor.__globals__.a\x93.",
        b"ccollections\nOrderedDict.fromkeys\n(tR.",
    ],
)
def test_no_way_around_by_attributes(raw: bytes) -> None:
    with pytest.raises(InputError):
        read_plain(io.BytesIO(raw), "x")


def test_a_name_cannot_be_tampered_with() -> None:
    """BUILD with (None, {...}) sets attributes: here the maker of an OrderedDict, to another stand-in."""
    tampered = b"\x80\x02ccollections\nOrderedDict\nN}U\x04makecnumpy\ndtype\ns\x86b."
    with pytest.raises(InputError, match="it attaches values to something else"):
        read_plain(io.BytesIO(tampered), "x")
    assert read_plain(io.BytesIO(pickle.dumps(OrderedDict(a=1))), "x") == {"a": 1}


def test_damage_gets_a_sentence() -> None:
    raw = pickle.dumps(PLAIN)
    for end in range(len(raw)):
        with pytest.raises(InputError, match="x is damaged or no pickle of plain data"):
            read_plain(io.BytesIO(raw[:end]), "x")


@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_torch(zipped: bool, tmp_path: Path, witness: Path) -> None:
    state = torch.nn.Linear(2, 2).state_dict()  # an OrderedDict with an attribute
    state["p"] = torch.nn.Parameter(torch.zeros(1))
    torch.save({"weights": state, "epochs": 12}, tmp_path / "a.pth", _use_new_zipfile_serialization=zipped)
    found = read_torch(tmp_path / "a.pth")
    assert found["epochs"] == 12
    assert list(found["weights"]) == ["weight", "bias", "p"]
    assert all(isinstance(value, LeftOut) for value in found["weights"].values())

    torch.save({"epochs": Runs()}, tmp_path / "b.pth", _use_new_zipfile_serialization=zipped)
    with pytest.raises(InputError, match="refers to posix.system: refused"):
        read_torch(tmp_path / "b.pth")
    assert not witness.exists()

    whole = (tmp_path / "a.pth").read_bytes()
    for end in (5, 60, 200):
        (tmp_path / "c.pth").write_bytes(whole[:end])
        with pytest.raises(InputError, match=r"c\.pth"):
            read_torch(tmp_path / "c.pth")


def test_what_torch_did_not_save(tmp_path: Path) -> None:
    (tmp_path / "a.pth").write_bytes(pickle.dumps({"meta_archs": []}))
    with zipfile.ZipFile(tmp_path / "b.pth", "w") as archive:
        archive.writestr("x.txt", "x")
    for name in ("a.pth", "b.pth"):
        with pytest.raises(InputError, match="is not a file that torch saved"):
            read_torch(tmp_path / name)


def test_a_file_that_claims_much_takes_little() -> None:
    """Python's reader would set aside 64 GB for the memo, and a text of 2^62 characters."""
    for raw in (b"Nr\xff\xff\xff\xff.", b"\x8e" + (2**62).to_bytes(8, "little") + b"x.", b"\x8a\xffx."):
        tracemalloc.start()
        with suppress(InputError):
            read_plain(io.BytesIO(raw), "x")
        assert tracemalloc.get_traced_memory()[1] < 10**6
        tracemalloc.stop()


def test_keys_are_hashed_without_recursion() -> None:
    """A tuple in a tuple in a tuple, 200,000 times, as a key would end Python."""
    raw = b"\x80\x04})" + b"\x85" * 200_000 + b"Ns."
    with pytest.raises(InputError, match="a tuple where another value belongs"):
        read_plain(io.BytesIO(raw), "x")


def test_archives_that_zipfile_does_not_open(tmp_path: Path) -> None:
    torch.save({"epochs": 12}, tmp_path / "a.pth")
    whole = (tmp_path / "a.pth").read_bytes()
    with zipfile.ZipFile(tmp_path / "named.pth", "w") as archive:
        archive.writestr("\u00fc/data.pkl", pickle.dumps(1))
    wrong = (tmp_path / "named.pth").read_bytes().replace("\u00fc".encode(), b"\xff\xfe")
    for content, text in [(encrypted(whole), "is encrypted"), (wrong, "codec can't decode")]:
        (tmp_path / "b.pth").write_bytes(content)
        with pytest.raises(InputError, match=f"b.pth cannot be read: .*{text}"):
            read_torch(tmp_path / "b.pth")


def test_a_pickle_of_python_2_reads_as_python_reads_it() -> None:
    x = images(2, 5)
    raw = formats.python2_batch(x)
    ours = read_pickle(raw, "old")
    np.testing.assert_array_equal(ours["data"], x)
    np.testing.assert_array_equal(pickle.loads(raw, encoding="latin1")["data"], x)  # the oracle
    assert ours["labels"] == [0, 0]


@pytest.mark.parametrize("dtype", ["u1", "<i8", ">i4", "<f4", "<f8", "i1"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("protocol", range(6))
def test_pickled_arrays_of_any_type(dtype: str, order: str, protocol: int) -> None:
    x = np.array(images(4, 6), dtype=dtype, order=order)  # type: ignore[call-overload]
    read = read_pickle(pickle.dumps({"x": x}, protocol), "file")["x"]
    np.testing.assert_array_equal(read, x)
    assert read.dtype == x.dtype


class Evil:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return Path.touch, (Path("touched"),)  # type: ignore[return-value]


@pytest.mark.parametrize(
    "content",
    [
        {"data": Evil()},
        {"data": np.array([Evil()], dtype=object)},
        {"data": os.system},
        {"data": np.load},
        {"data": np.zeros(2, dtype=[("a", "i4")])},
        {"data": np.zeros(2, dtype="datetime64[s]")},
        {"data": np.zeros(2, dtype=complex)},
        {("a", "tuple"): 1},
        [1, 2],
        Evil(),
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_is_more_than_arrays_is_refused_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: object, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^file (refers to|is damaged or no pickle of plain data)"):
        read_pickle(pickle.dumps(content, protocol), "file")
    assert not list(tmp_path.iterdir())


leaf = st.integers(-(2**70), 2**70) | st.text(max_size=9) | st.binary(max_size=300) | st.booleans() | st.none()
keyed = functools.partial(st.dictionaries, st.text(max_size=3), max_size=3)
plain = st.recursive(leaf, lambda x: st.lists(x, max_size=4) | st.tuples(x, x) | keyed(x), max_leaves=12)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(max_size=5), plain, max_size=4), st.integers(2, 5))
def test_pickles_of_plain_data_read_as_python_reads_them(content: dict[str, object], protocol: int) -> None:
    assert read_pickle(pickle.dumps(content, protocol), "file") == content
