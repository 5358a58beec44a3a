""".npz archives read back what was written, and are refused by name."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from initio.data import Dataset, load
from initio.errors import InputError
from tests.data import formats
from tests.data.formats import images, labels, stored


@pytest.mark.parametrize(
    "keys", [("x_train", "y_train"), ("x", "y"), ("images", "labels"), ("train_images", "train_labels")]
)
def test_npz_keys(tmp_path: Path, keys: tuple[str, str]) -> None:
    x, y = images(6, 3, 8, 8), labels(6)
    data = load(str(formats.write_npz(tmp_path / "toy.npz", **{keys[0]: x, keys[1]: y})))
    assert isinstance(data, Dataset)
    np.testing.assert_array_equal(stored(data), x)
    np.testing.assert_array_equal(data.labels, y)
    assert (data.name, data.classes, data.split) == ("toy", 10, "train")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ((6, 8, 8, 3), (3, 8, 8)),
        ((6, 3, 8, 8), (3, 8, 8)),
        ((6, 8, 8, 1), (1, 8, 8)),
        ((6, 3, 2, 2), (3, 2, 2)),
        ((6, 12, 20, 20), (12, 20, 20)),
        ((6, 20, 20, 12), (12, 20, 20)),
        ((6, 3, 3, 3), (3, 3, 3)),
        ((6, 8, 9), (1, 8, 9)),
        ((6, 17), (17,)),
    ],
)
def test_npz_axes(tmp_path: Path, written: tuple[int, ...], read: tuple[int, ...]) -> None:
    data = load(str(formats.write_npz(tmp_path / "toy.npz", x=images(*written), y=labels(6))))
    assert data.shape == data.batch(3).shape == read


def test_npz_channels_last_is_the_same_data(tmp_path: Path) -> None:
    x, y = images(6, 3, 8, 8), labels(6)
    first = load(str(formats.write_npz(tmp_path / "toy.npz", x=x, y=y))).batch(6)
    last = load(str(formats.write_npz(tmp_path / "toy.npz", x=np.moveaxis(x, 1, -1), y=y[:, None]))).batch(6)
    assert first == last


def test_npz_scale_does_not_matter(tmp_path: Path) -> None:
    """0..255, 0..1 and anything in between are the same once they are normalised."""
    x, y = images(9, 3, 8, 8), labels(9)
    drawn = [
        load(str(formats.write_npz(tmp_path / "toy.npz", x=version, y=y))).batch(9).x
        for version in (x, x.astype(np.int64), x / 255.0, (x / 255.0).astype(np.float16))
    ]
    np.testing.assert_allclose(drawn[1], drawn[0], atol=1e-5)
    np.testing.assert_allclose(drawn[2], drawn[0], atol=1e-5)
    np.testing.assert_allclose(drawn[3], drawn[0], atol=1e-2)


def test_npz_both_parts_and_class_names(tmp_path: Path) -> None:
    x, y = images(9, 3, 8, 8), labels(9, 2)
    arrays = {"x_train": x[:6], "y_train": y[:6], "x_test": x[6:], "y_test": y[6:]}
    path = str(formats.write_npz(tmp_path / "toy.npz", **arrays, class_names=np.array(["a", "b", "c"])))
    test = load(path, split="test")
    assert (test.classes, test.class_names, test.split) == (3, ("a", "b", "c"), "test")
    np.testing.assert_array_equal(stored(test), x[6:])
    assert test.mean == load(path).mean


def test_the_number_of_classes_is_that_of_both_parts(tmp_path: Path) -> None:
    arrays = {"x_train": images(2, 4), "y_train": [0, 1], "x_test": images(2, 4), "y_test": [0, 4]}
    path = str(formats.write_npz(tmp_path / "toy.npz", **arrays))
    assert load(path).classes == load(path, split="test").classes == 5


X = images(4, 3, 8, 8)
BAD_NPZ: list[tuple[dict[str, object], str]] = [
    ({"a": X}, "holds a: it needs x_train and y_train"),
    ({"x": X, "y": [0, 1, 2]}, r"toy.npz \(x, y\) has 4 images but 3 labels"),
    ({"x": X, "y": [0, 1, -1, 2]}, r"label -1 of sample 2 in .*toy.npz \(x, y\) is out of range"),
    ({"x": X, "y": [0, 1, 2, 3], "class_names": ["a", "b"]}, "label 2 of sample 2 .* classes 0 to 1"),
    ({"x": X, "y": np.array([0, 2**63 + 1, 0, 0], dtype=np.uint64)}, "label 9223372036854775809 of sample 1"),
    ({"x": X, "y": [0.0, 1.5, 0.0, 0.0]}, "label 1.5 of sample 1 in .* is not a whole number"),
    ({"x": X, "y": [0.0, np.nan, 0.0, 0.0]}, "label nan of sample 1"),
    ({"x": X, "y": ["a", "b", "c", "d"]}, "labels in .* must be one whole number a sample"),
    ({"x": X, "y": np.eye(4)}, "labels in .* must be one whole number a sample"),
    ({"x": X[:0], "y": np.zeros(0)}, "and not empty"),
    ({"x": X[:, 0, 0, 0], "y": [0, 1, 2, 3]}, r"have shape \(4,\): they must be"),
    ({"x": X.astype(complex), "y": [0, 1, 2, 3]}, "must be numbers, not complex128"),
    ({"x": np.where(X[2, 1, 0, 0] == X, np.nan, 1.0)[2:3], "y": [0]}, "sample 0 in .* not a finite number"),
    ({"x": np.array([[1.0], [np.inf]]), "y": [0, 1]}, "sample 1 in .* not a finite number"),
    ({"x": np.array([[1.0], [1e300]]), "y": [0, 1]}, "sample 1 in .* not a finite number"),
    ({"x": np.array([[1], [None]], dtype=object), "y": [0, 1]}, "x in .* cannot be read: it holds Python"),
    ({"x": X, "y": [0, 1, 2, 3], "class_names": np.eye(2)}, "class_names in .* must be a list of texts"),
    ({"x": X, "y": [0, 1, 0, 1], "class_names": np.array([b"\xff", b"b"])}, "class_names in .* not UTF-8"),
    (
        {"x_train": X, "y_train": [0, 1, 2, 3], "x_test": X[:, :, :4], "y_test": [0, 1, 2, 3]},
        r"has images of shape \(3, 4, 8\), the training part of \(3, 8, 8\)",
    ),
]


@pytest.mark.parametrize(("arrays", "text"), BAD_NPZ)
def test_bad_npz(tmp_path: Path, arrays: dict[str, object], text: str) -> None:
    path = formats.write_npz(tmp_path / "toy.npz", **arrays)
    with pytest.raises(InputError, match=text):
        load(str(path), split="test" if "x_test" in arrays else "train")


def test_bad_npz_files(tmp_path: Path) -> None:
    path = formats.write_npz(tmp_path / "toy.npz", x=X, y=[0, 1, 2, 3])
    with pytest.raises(InputError, match="has no test part, only train"):
        load(str(path), split="test")
    with pytest.raises(InputError, match="the split must be 'train' or 'test', not 'valid'"):
        load(str(path), split="valid")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match=r"toy.npz is not a readable .npz file"):
        load(str(path))
    np.save(tmp_path / "one.npy", X)
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with pytest.raises(InputError, match=r"one.npz is not an \.npz archive: save it by numpy.savez"):
        load(str(tmp_path / "one.npz"))
    (tmp_path / "code.npz").write_bytes(pickle.dumps(os.getcwd))
    with pytest.raises(InputError, match=r"code.npz is not an \.npz archive"):
        load(str(tmp_path / "code.npz"))
    np.savez(tmp_path / "objects.npz", x=np.array([os.getcwd]), y=[0])
    with pytest.raises(InputError, match="x in .*objects.npz cannot be read: it holds Python objects"):
        load(str(tmp_path / "objects.npz"))
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(InputError, match="pipe.npz is not a plain file"):
        load(str(tmp_path / "pipe.npz"))
