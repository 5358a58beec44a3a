"""Records are read with their checks, and NAS-Bench-101's become a table."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from initio import InputError
from initio.records import Query
from initio.spaces import NB101
from initio.tables import open_compact, open_table
from initio.tables.convert import convert
from initio.tables.convert.nb101 import nb101_arrays
from initio.tables.convert.tfrecord import POLYNOMIAL, crc32c, is_tfrecord, records
from studies.check_networks import from_bits
from tests.tables.files import SHARED, cells101, framed, needs_data, record101, tfrecord


def slow_crc32c(text: bytes) -> int:
    """Bit by bit."""
    crc = 0xFFFFFFFF
    for byte in text:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_many_checksums_at_once(texts: list[bytes]) -> None:
    assert crc32c(texts).tolist() == [slow_crc32c(text) for text in texts]


def test_published_checksums() -> None:
    """RFC 3720, appendix B.4."""
    texts = [bytes(32), b"\xff" * 32, bytes(range(32)), bytes(range(31, -1, -1))]
    assert crc32c(texts).tolist() == [0x8A9136AA, 0x62A8AB43, 0x46DD794E, 0x113FDB5C]


def test_records_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [b"x" * n for n in (0, 5, 300, 1, 70)]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(map(framed, texts)))
    assert is_tfrecord(path.read_bytes()[:12])
    assert list(records(path)) == texts
    monkeypatch.setattr("initio.tables.convert.tfrecord.BLOCK", 300)  # several blocks
    assert list(records(path)) == texts


def test_every_damage_is_noticed(tmp_path: Path) -> None:
    whole = b"".join(map(framed, (b"first", b"second")))
    path = tmp_path / "a.tfrecord"
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(InputError, match="a.tfrecord"):
            list(records(path))
    for end in set(range(1, len(whole))) - {len(framed(b"first"))}:
        path.write_bytes(whole[:end])
        with pytest.raises(InputError, match="ends in the middle of record [01]$"):
            list(records(path))


def test_a_wrong_checksum_names_its_record(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(framed(b"first") + framed(b"second")[:-1] + b"?")
    with pytest.raises(InputError, match=r"record 1 of .*a.tfrecord is damaged: its checksum is wrong"):
        list(records(path))
    path.write_bytes(struct.pack("<QI", 1 << 40, 0))
    with pytest.raises(InputError, match=f"it claims {1 << 40} bytes"):
        list(records(path))


def test_the_table(tmp_path: Path) -> None:
    cells = cells101(5)
    done = convert(tfrecord(tmp_path / "nasbench.tfrecord", cells), tmp_path / "own.npz")
    assert (done.kind, done.length) == ("NAS-Bench-101", 5)
    table = open_compact("own", tmp_path)
    assert table.columns == (
        *("n_vertices", "params", "test_acc_108"),
        *("train_time_108_s", "train_time_4_s", "val_acc_108", "val_acc_4"),
    )
    assert table.column("val_acc_4") == pytest.approx([1, 2, 3, 4, 5], rel=1e-6)  # of the first trial
    assert table.column("test_acc_108") == pytest.approx([1.9, 2.9, 3.9, 4.9, 5.9], rel=1e-6)  # of all three
    assert table.column("train_time_108_s").tolist() == [1080.0] * 5
    assert table.column("params").tolist() == [1004, 1003, 1002, 1001, 1000]
    arrays = np.load(tmp_path / "own.npz")
    for i, arch in enumerate(cells):
        cell = from_bits(arrays["n_vertices"][i], arrays["adj_bits"][i], arrays["ops"][i])
        assert cell == NB101.pruned(arch)
        assert int(arrays["hash64"][i]) == int(NB101.graph_hash(arch)[:16], 16)
    assert [row[0] for row in table.rows(set(cells))] == [0, 1, 2, 3, 4]


def test_a_converted_table_is_a_benchmark(tmp_path: Path) -> None:
    cells = cells101(6)
    convert(tfrecord(tmp_path / "nasbench.tfrecord", cells), tmp_path / "own.npz")
    benchmark = open_table("nb101", table=tmp_path / "own.npz")
    assert benchmark.validation.epochs == (4, 108)
    assert benchmark.validation(Query(cells[2], 4)).value == pytest.approx(3)
    assert benchmark.validation(Query(cells[2])).seconds == 1080
    assert [NB101.canonical(arch) for arch in benchmark.architectures or ()] == [NB101.canonical(c) for c in cells]
    assert [benchmark.report.rank(arch) for arch in cells] == [6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({0: "12"}, "its hash is not 32 hexadecimal digits"),
        ({0: "0" * 32}, "its hash is not that of its cell"),
        ({0: 3}, "is not one of NAS-Bench-101"),
        ({1: "108"}, "its training has '108' epochs"),
        ({2: "012"}, "its matrix is not one of 0 and 1"),
        ({2: "1111", 3: "input,output"}, "entries below the diagonal"),
        ({3: "input,conv9x9,output"}, "its operations do not fit its matrix"),
        ({3: None}, "is not one of NAS-Bench-101"),
        ({4: "?"}, "is not one of NAS-Bench-101"),
        ({4: ""}, "its message lacks field 2"),
        ({4: "CgU="}, "its message is cut"),
        ({4: "Ew=="}, "unknown kind 3"),
    ],
)
def test_records_of_something_else(change: dict[int, object], text: str, tmp_path: Path) -> None:
    first, second = cells101(2)
    fields = json.loads(record101(second, 108, 0.9, 0.9, 1.0, 1000))
    for place, value in change.items():
        fields[place] = value
    good = framed(record101(first, 108, 0.9, 0.9, 1.0, 1000))
    path = tmp_path / "a.tfrecord"
    path.write_bytes(good + framed(json.dumps(fields).encode()))
    with pytest.raises(InputError, match=f"^record 1 of .*{text}"):
        nb101_arrays(path)


def test_values_that_are_no_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(framed(record101(cells101(1)[0], 108, float("nan"), 0.9, 1.0, 1000)))
    with pytest.raises(InputError, match="an accuracy or a time is not a number"):
        nb101_arrays(path)
    for record in (b"{}", b"[1, 2]", b"\xff", b"[" * 5_000):
        path.write_bytes(framed(record))
        with pytest.raises(InputError, match="record 0 of .* is not one of NAS-Bench-101"):
            nb101_arrays(path)


@needs_data
def test_rows_of_the_real_table_survive_the_round_trip(tmp_path: Path) -> None:
    with np.load(SHARED / "nb101.npz") as table, np.load(SHARED / "nb101_hash64.npz") as beside:
        names, picked = table.files, np.arange(0, 423_624, 20_000)
        real = {name: table[name][picked] for name in names} | {"hash64": beside["hash64"][picked]}
    path = tmp_path / "a.tfrecord"
    with path.open("wb") as file:
        for n, bits, ops, test, params in zip(*(real[name] for name in names), strict=True):
            arch = NB101.from_matrix(*from_bits(n, bits, ops))
            file.write(framed(record101(arch, 108, 0.5, float(test) / 100, 1.0, int(params))))
    found = nb101_arrays(path)
    for name, values in real.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6)
