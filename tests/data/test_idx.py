"""idx files read back what was written, and are refused by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from initio.data import load
from initio.errors import InputError
from tests.data import formats
from tests.data.formats import images, labels, stored


@pytest.mark.parametrize("zipped", [False, True])
def test_idx(tmp_path: Path, zipped: bool) -> None:
    x, y = images(9, 7, 5), labels(9)
    formats.write_idx(tmp_path / "mnist", x[:6], y[:6], "train", zipped)
    formats.write_idx(tmp_path / "mnist", x[6:], y[6:], "t10k", zipped)
    train, test = load(str(tmp_path / "mnist")), load(str(tmp_path / "mnist"), split="test")
    np.testing.assert_array_equal(stored(train), x[:6, None])
    np.testing.assert_array_equal(stored(test), x[6:, None])
    assert (train.name, train.classes, test.classes, train.shape) == ("mnist", 10, 10, (1, 7, 5))
    assert test.mean == train.mean


def test_idx_types_are_big_endian(tmp_path: Path) -> None:
    x = np.array([[[1.5, -2.0]], [[1e10, 0.0]]])
    formats.write_idx(tmp_path, images(2, 1, 2), labels(2, 2), "train")
    head = bytes([0, 0, 0x0E, 3]) + b"".join(n.to_bytes(4, "big") for n in x.shape)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(head + x.astype(">f8").tobytes())
    np.testing.assert_array_equal(stored(load(str(tmp_path))), x[:, None].astype(np.float32))


def damage_idx(folder: Path, kind: str) -> None:
    path = folder / "train-images-idx3-ubyte"
    raw = path.read_bytes()
    if kind == "gzip":
        (folder / "train-images-idx3-ubyte.gz").write_bytes(raw)
        path.unlink()
    elif kind == "two":
        (folder / "emnist-train-images-idx3-ubyte").write_bytes(raw)
    elif kind == "lonely":
        path.unlink()
    elif kind == "count":
        formats.write_idx(folder / "x", images(5, 7, 5), labels(5), "train")
        shutil.copy(folder / "x" / "train-labels-idx1-ubyte", folder)
    else:
        changed = {
            "short": raw[:-1],
            "long": raw + b"0",
            "magic": b"\1" + raw[1:],
            "empty": b"",
            "head": raw[:9],
        }
        path.write_bytes(changed[kind])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("short", r"images-idx3-ubyte is truncated: shape \(6, 7, 5\) needs 210 bytes, there are 209"),
        ("long", "images-idx3-ubyte is too long"),
        ("magic", "is not an idx file: its first four bytes are 01 00 08 03"),
        ("empty", "is not an idx file: its first four bytes are missing"),
        ("head", "is truncated: it ends within its header"),
        ("gzip", r"ubyte.gz is truncated or not gzip"),
        ("two", "holds both"),
        ("lonely", "train-labels-idx1-ubyte has no file with the images beside it"),
        ("count", "labels-idx1-ubyte has 6 images but 5 labels"),
    ],
)
def test_bad_idx(tmp_path: Path, kind: str, text: str) -> None:
    formats.write_idx(tmp_path, images(6, 7, 5), labels(6), "train")
    damage_idx(tmp_path, kind)
    with pytest.raises(InputError, match=text):
        load(str(tmp_path))
