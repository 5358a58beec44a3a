"""CIFAR's four layouts, and pickles that are read without unpickling."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from initio.data import Dataset, load
from initio.errors import InputError
from tests.data import formats
from tests.data.formats import images, labels, stored


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_cifar10_python(tmp_path: Path, protocol: int) -> None:
    x, y = images(12, 3, 32, 32), labels(12)
    formats.write_cifar10_python(tmp_path, x, y, protocol)
    train, test = load(str(tmp_path)), load(str(tmp_path), split="test")
    assert isinstance(train, Dataset)
    assert isinstance(test, Dataset)
    np.testing.assert_array_equal(stored(train), x[:10])
    np.testing.assert_array_equal(stored(test), x[10:])
    np.testing.assert_array_equal(train.labels, y[:10])
    np.testing.assert_array_equal(test.labels, y[10:])
    assert (train.name, train.classes, train.class_names) == ("cifar10", 10, tuple(formats.CIFAR10_NAMES))


def test_cifar10_binary_is_the_same_data(tmp_path: Path) -> None:
    x, y = images(12, 3, 32, 32), labels(12)
    formats.write_cifar10_python(tmp_path / "py", x, y)
    formats.write_cifar10_binary(tmp_path / "bin", x, y)
    for split in ("train", "test"):
        python, binary = load(str(tmp_path / "py"), split=split), load(str(tmp_path / "bin"), split=split)
        assert python.batch(2) == binary.batch(2)
        assert python.class_names == binary.class_names


@pytest.mark.parametrize("binary", [False, True])
def test_cifar100_takes_the_fine_labels(tmp_path: Path, binary: bool) -> None:
    x, y = images(9, 3, 32, 32), labels(9, 100)
    formats.write_cifar100(tmp_path, x[:6], y[:6], "train", binary)
    formats.write_cifar100(tmp_path, x[6:], y[6:], "test", binary)
    train, test = load(str(tmp_path)), load(str(tmp_path), split="test")
    assert isinstance(train, Dataset)
    assert isinstance(test, Dataset)
    np.testing.assert_array_equal(stored(test), x[6:])
    np.testing.assert_array_equal(train.labels, y[:6])
    np.testing.assert_array_equal(test.labels, y[6:])
    assert (train.name, train.classes, train.class_names) == ("cifar100", 100, ())


def damage_cifar(folder: Path, kind: str) -> None:
    batch, raw = folder / "data_batch_3", (folder / "data_batch_3").read_bytes()
    content = pickle.loads(raw)
    changes: dict[str, dict[str, object]] = {
        "range": {"labels": [1, 10]},
        "negative": {"labels": [-1, 1]},
        "huge": {"labels": [1, 2**70]},
        "texts": {"labels": ["1", "2"]},
        "count": {"labels": [1]},
        "shape": {"data": np.zeros((2, 3071), dtype=np.uint8)},
        "type": {"data": np.zeros((2, 3072))},
        "none": {"data": np.zeros((0, 3072), dtype=np.uint8), "labels": []},
    }
    if kind in changes:
        batch.write_bytes(pickle.dumps(content | changes[kind]))
    elif kind == "meta":
        (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": ["a"]}))
    elif kind == "missing":
        batch.unlink()
    else:
        batch.write_bytes(raw[: len(raw) // 2] if kind == "short" else b"")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("short", "data_batch_3 is damaged or no pickle"),
        ("empty", "data_batch_3 is damaged or no pickle"),
        ("missing", "looks like cifar10 but data_batch_3 is missing"),
        ("range", "label 10 of sample 1 in .*data_batch_3 is out of range: there are classes 0 to 9"),
        ("negative", "label -1 of sample 0 in .*data_batch_3 is out of range"),
        ("huge", r"label 1180\d+ of sample 1 in .*data_batch_3 is out of range"),
        ("texts", "data_batch_3 has no list of whole numbers 'labels'"),
        ("count", "data_batch_3 has 2 images but 1 labels"),
        ("shape", "data_batch_3 has no 'data' of n x 3072 bytes"),
        ("type", "data_batch_3 has no 'data' of n x 3072 bytes"),
        ("none", "and not empty"),
        ("meta", "batches.meta has 1 class names: cifar10 has 10 classes"),
    ],
)
def test_bad_cifar_python(tmp_path: Path, kind: str, text: str) -> None:
    formats.write_cifar10_python(tmp_path, images(12, 3, 32, 32), labels(12))
    damage_cifar(tmp_path, kind)
    with pytest.raises(InputError, match=text):
        load(str(tmp_path))


def test_bad_cifar_binary(tmp_path: Path) -> None:
    formats.write_cifar10_binary(tmp_path, images(12, 3, 32, 32), labels(12))
    path = tmp_path / "data_batch_2.bin"
    raw = path.read_bytes()
    path.write_bytes(raw[:-1])
    with pytest.raises(InputError, match=r"data_batch_2.bin is truncated .* 6145 bytes are no multiple of 3073"):
        load(str(tmp_path))
    path.write_bytes(raw[:3073] + b"\x0a" + raw[3074:])
    with pytest.raises(InputError, match=r"label 10 of sample 1 in .*data_batch_2.bin is out of range"):
        load(str(tmp_path))
    path.write_bytes(b"")
    with pytest.raises(InputError, match=r"data_batch_2.bin is truncated"):
        load(str(tmp_path))
