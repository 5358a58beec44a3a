"""Every format reads back what was written, and names what is wrong with it."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from initio.data import Dataset, load
from initio.data import sources as sources_module
from initio.data.pickles import read_pickle
from initio.errors import InputError
from tests.data import formats
from tests.data.formats import images, labels


def stored(data: object) -> np.ndarray:
    assert isinstance(data, Dataset)
    return (
        data.images
        if isinstance(data.images, np.ndarray)
        else np.stack([data.images[i] for i in range(len(data))])
    )


# --- digits ---


def test_digits_are_those_of_scikit_learn_in_two_disjoint_parts() -> None:
    from sklearn.datasets import load_digits

    train, test = load("digits"), load("digits", split="test")
    assert (len(stored(train)), len(stored(test)), train.shape, train.classes) == (1437, 360, (1, 8, 8), 10)
    both = np.concatenate([stored(train), stored(test)])
    assert both.min() == 0
    assert both.max() == 1
    ours = sorted(image.tobytes() for image in both)
    assert ours == sorted((image / 16).astype(np.float32).tobytes() for image in load_digits().images)
    assert set(np.unique(load("digits", split="test").batch(360).y)) == set(range(10))


# --- npz ---


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
    first = load(str(formats.write_npz(tmp_path / "a" if False else tmp_path / "toy.npz", x=x, y=y))).batch(6)
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
    ({"x": X, "y": [0, 1, 2, 3], "class_names": ["a", "b"]}, "label 2 of sample 2 .* there are classes 0 to 1"),
    ({"x": X, "y": np.array([0, 2**63 + 1, 0, 0], dtype=np.uint64)}, "label 9223372036854775809 of sample 1"),
    ({"x": X, "y": [0.0, 1.5, 0.0, 0.0]}, "label 1.5 of sample 1 in .* is not a whole number"),
    ({"x": X, "y": [0.0, np.nan, 0.0, 0.0]}, "label nan of sample 1"),
    ({"x": X, "y": ["a", "b", "c", "d"]}, "labels in .* must be one whole number a sample"),
    ({"x": X, "y": np.eye(4)}, "labels in .* must be one whole number a sample"),
    ({"x": X[:0], "y": np.zeros(0)}, "and not empty"),
    ({"x": X[:, 0, 0, 0], "y": [0, 1, 2, 3]}, r"have shape \(4,\): they must be"),
    ({"x": X.astype(complex), "y": [0, 1, 2, 3]}, "must be numbers, not complex128"),
    ({"x": np.where(X == X[2, 1, 0, 0], np.nan, 1.0)[2:3], "y": [0]}, "sample 0 in .* not a finite number"),
    ({"x": np.array([[1.0], [np.inf]]), "y": [0, 1]}, "sample 1 in .* not a finite number"),
    ({"x": np.array([[1.0], [1e300]]), "y": [0, 1]}, "sample 1 in .* not a finite number"),
    ({"x": np.array([[1], [None]], dtype=object), "y": [0, 1]}, "x in .*toy.npz cannot be read: it holds Python objects"),
    ({"x": X, "y": [0, 1, 2, 3], "class_names": np.eye(2)}, "class_names in .* must be a list of texts"),
    ({"x": X, "y": [0, 1, 0, 1], "class_names": np.array([b"\xff", b"b"])}, "class_names in .* not UTF-8"),
    (
        {"x_train": X, "y_train": [0, 1, 2, 3], "x_test": X[:, :, :4], "y_test": [0, 1, 2, 3]},
        r"has images of shape \(3, 4, 8\), the training part of \(3, 8, 8\)",
    ),
]  # fmt: skip


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
    with pytest.raises(InputError, match="not an .npz archive but a single array"):
        load(str(tmp_path / "one.npz"))
    (tmp_path / "code.npz").write_bytes(pickle.dumps(os.getcwd))
    with pytest.raises(InputError, match="holds Python objects"):
        load(str(tmp_path / "code.npz"))


# --- idx ---


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


# --- CIFAR ---


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_cifar10_python(tmp_path: Path, protocol: int) -> None:
    x, y = images(12, 3, 32, 32), labels(12)
    formats.write_cifar10_python(tmp_path, x, y, protocol)
    train, test = load(str(tmp_path)), load(str(tmp_path), split="test")
    np.testing.assert_array_equal(stored(train), x[:10])
    np.testing.assert_array_equal(stored(test), x[10:])
    np.testing.assert_array_equal(test.batch(2).y, y[10:][np.argsort(np.argsort(test.batch(2).y, kind="stable")) * 0 + _order(test, x[10:])])  # fmt: skip # noqa: E501
    assert (train.name, train.classes, train.class_names) == ("cifar10", 10, tuple(formats.CIFAR10_NAMES))


def _order(data: object, x: np.ndarray) -> list[int]:
    """Which of the images x each sample of the first batch is."""
    assert isinstance(data, Dataset)
    drawn, (everything, _) = data.batch(len(data)).x, data.arrays()
    return [int(np.flatnonzero((everything == row).all(axis=(1, 2, 3)))[0]) for row in drawn]


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


def test_a_pickle_of_python_2_reads_as_python_reads_it() -> None:
    x = images(2, 5)
    raw = formats.python2_array(x)
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
    with pytest.raises(InputError, match="^file (refers to|is damaged or no pickle of plain arrays)"):
        read_pickle(pickle.dumps(content, protocol), "file")
    assert not list(tmp_path.iterdir())


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
    with pytest.raises(
        InputError, match="data_batch_2.bin is truncated .* 6145 bytes are no multiple of 3073"
    ):
        load(str(tmp_path))
    path.write_bytes(raw[:3073] + b"\x0a" + raw[3074:])
    with pytest.raises(InputError, match="label 10 of sample 1 in .*data_batch_2.bin is out of range"):
        load(str(tmp_path))
    path.write_bytes(b"")
    with pytest.raises(InputError, match="data_batch_2.bin is truncated"):
        load(str(tmp_path))


# --- pictures ---


def test_image_folder(tmp_path: Path) -> None:
    x, y = images(6, 8, 8, 3), np.array([1, 0, 1, 0, 2, 2])
    formats.write_pictures(tmp_path, x, y, ["cat", "dog", "owl"])
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    (tmp_path / ".cache").mkdir()
    data = load(str(tmp_path))
    assert isinstance(data, Dataset)
    order = np.argsort(y, kind="stable")
    np.testing.assert_array_equal(stored(data), np.moveaxis(x[order], -1, 1))
    np.testing.assert_array_equal(data.labels, y[order])
    assert (data.class_names, data.classes, data.shape) == (("cat", "dog", "owl"), 3, (3, 8, 8))
    np.testing.assert_allclose(data.mean, x.mean(axis=(0, 1, 2)) / 255, rtol=1e-12)
    np.testing.assert_allclose(data.std, x.std(axis=(0, 1, 2)) / 255, rtol=1e-12)
    assert data.batch(4, seed=1) == data.batch(4, seed=1)


def test_image_folder_equals_the_same_arrays(tmp_path: Path) -> None:
    x, y = images(6, 8, 8, 3), np.array([0, 0, 1, 1, 2, 2])
    formats.write_pictures(tmp_path / "toy", x, y, ["a", "b", "c"])
    formats.write_npz(tmp_path / "toy.npz", x=x, y=y)
    for name in ("", "@4"):
        assert load(str(tmp_path / "toy") + name).batch(5) == load(str(tmp_path / "toy.npz") + name).batch(5)


@pytest.mark.parametrize("test", ["test", "val"])
def test_image_folder_with_two_parts(tmp_path: Path, test: str) -> None:
    x = images(6, 8, 8, 3)
    formats.write_pictures(tmp_path / "train", x[:4], np.array([0, 0, 1, 1]), ["a", "b"])
    formats.write_pictures(tmp_path / test, x[4:], np.array([1, 1]), ["a", "b"])
    data = load(str(tmp_path), split="test")
    assert (data.classes, data.batch(2).y.tolist()) == (2, [1, 1])
    np.testing.assert_array_equal(stored(data), np.moveaxis(x[4:], -1, 1))
    assert data.mean == load(str(tmp_path)).mean


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
def test_pictures_of_any_kind_have_three_channels(tmp_path: Path, mode: str) -> None:
    ending = "jpg" if mode == "CMYK" else "png"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.fromarray(images(1, 8, 8, 3)[0]).convert(mode).save(tmp_path / name / f"x.{ending}")
    assert load(str(tmp_path)).batch(2).shape == (3, 8, 8)


def test_a_palette_with_transparency_gives_no_warning(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    image = Image.fromarray(images(1, 8, 8, 3)[0]).convert("P")
    image.save(tmp_path / "a" / "x.png", transparency=bytes(range(256)))
    assert load(str(tmp_path)).batch(1).shape == (3, 8, 8)


def test_pictures_are_read_when_they_are_drawn(tmp_path: Path) -> None:
    """A corrupt picture that comes after loading is named by the draw."""
    formats.write_pictures(tmp_path, images(6, 8, 8, 3), np.array([0, 0, 0, 1, 1, 1]), ["a", "b"])
    data = load(str(tmp_path))
    (tmp_path / "b" / "004.png").write_bytes(b"damage")
    with pytest.raises(InputError, match=r"b/004.png is not a readable image: its format is not recognised"):
        data.batch(6)


def test_a_large_tree_is_measured_on_a_fixed_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from initio.data import pictures

    formats.write_pictures(tmp_path, images(20, 4, 4, 3), np.arange(20) % 2, ["a", "b"])
    whole = load(str(tmp_path))
    monkeypatch.setattr(pictures, "SAMPLE", 5)
    part = load(str(tmp_path))
    assert part.mean != whole.mean
    assert part.mean == load(str(tmp_path)).mean


def test_pictures_of_several_sizes_need_one_size(tmp_path: Path) -> None:
    formats.write_pictures(tmp_path, images(2, 8, 8, 3), np.array([0, 0]), ["a"])
    formats.write_pictures(tmp_path, images(2, 12, 9, 3), np.array([0, 0]), ["b"])
    with pytest.raises(
        InputError, match=r"\.png has (8x8|12x9) pixels and .*\.png has (8x8|12x9): state one size"
    ):
        load(str(tmp_path)).batch(4)
    assert load(f"{tmp_path}@6").batch(4).shape == (3, 6, 6)
    assert load(f"{tmp_path}@6x5").batch(4).shape == (3, 6, 5)
    assert load(str(tmp_path), pixels=6).batch(4) == load(f"{tmp_path}@6").batch(4)


def damage_pictures(root: Path, kind: str) -> None:
    path = root / "b" / "002.png"
    if kind == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "deep":
        Image.fromarray(np.zeros((8, 8), dtype=np.uint16)).save(path)
    elif kind == "script":
        path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n")
    elif kind == "no class":
        (root / "c").mkdir()
    elif kind == "flat":
        path.rename(root / "x.png")
        shutil.rmtree(root / "a")
        shutil.rmtree(root / "b")
    else:
        shutil.rmtree(root)
        root.mkdir()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("cut", r"b/002.png is not a readable image"),
        ("empty", r"b/002.png is not a readable image: its format is not recognised"),
        ("deep", r"b/002.png is not a readable image: its pixels are of type I;16, not 8 bits"),
        ("script", r"b/002.png is not a readable image"),
        ("no class", r"c holds no images: each class folder needs at least one"),
        ("flat", "holds images but no class folders"),
        ("nothing", "holds no data: neither CIFAR's files, nor idx files, nor"),
    ],
)
def test_bad_pictures(tmp_path: Path, kind: str, text: str) -> None:
    root = tmp_path / "photos"
    formats.write_pictures(root, images(4, 8, 8, 3), np.array([0, 0, 1, 1]), ["a", "b"])
    damage_pictures(root, kind)
    with pytest.raises(InputError, match=text):
        load(str(root))


def test_bad_test_pictures(tmp_path: Path) -> None:
    formats.write_pictures(tmp_path / "train", images(2, 8, 8, 3), np.array([0, 1]), ["a", "b"])
    with pytest.raises(InputError, match="has no test part, only train"):
        load(str(tmp_path), split="test")
    (tmp_path / "test").mkdir()
    with pytest.raises(InputError, match="test holds no class folders with images"):
        load(str(tmp_path), split="test")
    formats.write_pictures(tmp_path / "test", images(1, 8, 8, 3), np.array([0]), ["c"])
    with pytest.raises(InputError, match="test/c is a class that the training part does not have"):
        load(str(tmp_path), split="test")


# --- the hub ---


class ClassLabel:
    def __init__(self, names: list[str]) -> None:
        self.names = names


class Rows:
    """What `datasets.Dataset` offers, as far as Initio asks."""

    def __init__(self, x: np.ndarray, y: list[int], names: list[str]) -> None:
        self.x, self.y = x, y
        image = type("Image", (), {})()
        self.features = {"id": object(), "img": image, "label": ClassLabel(names)}

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, key: int | str) -> object:
        return self.y if key == "label" else {"img": Image.fromarray(self.x[key]), "label": self.y[int(key)]}


def fake_hub(monkeypatch: pytest.MonkeyPatch, answer: Callable[..., object]) -> None:
    module = types.ModuleType("datasets")
    module.load_dataset = answer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)


def test_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = images(6, 8, 8, 3), [0, 0, 1, 1, 2, 2]
    asked: list[tuple[str, str | None]] = []

    def answer(name: str, config: str | None) -> object:
        asked.append((name, config))
        return {"train": Rows(x, y, ["a", "b", "c"]), "validation": Rows(x[:2], y[:2], ["a", "b", "c"])}

    fake_hub(monkeypatch, answer)
    data = load("hf:owner/toy:plain")
    formats.write_npz(tmp_path / "toy.npz", x=x, y=y)
    arrays = load(str(tmp_path / "toy.npz"))
    assert asked == [("owner/toy", "plain")]
    assert (data.name, data.class_names, data.mean) == ("hf:owner/toy:plain", ("a", "b", "c"), arrays.mean)
    assert data.batch(4).fingerprint == arrays.batch(4).fingerprint
    assert len(load("hf:toy", split="test").batch(2)) == 2
    assert asked[-1] == ("toy", None)


def test_bad_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        InputError, match=r"hf:cifar10 needs the package datasets: install Initio .* initio\[hf\]"
    ):
        load("hf:cifar10")

    def fails(name: str, config: str | None) -> object:
        raise ConnectionError("no network\nsecond line")

    fake_hub(monkeypatch, fails)
    with pytest.raises(InputError, match="^hf:toy cannot be loaded: no network$"):
        load("hf:toy")
    with pytest.raises(InputError, match="hf: needs the name of a data set"):
        load("hf:")
    x = images(2, 8, 8, 3)
    fake_hub(monkeypatch, lambda *_: {"train": Rows(x, [0, -1], ["a", "b"])})
    with pytest.raises(InputError, match="label -1 of sample 1 in hf:toy is out of range"):
        load("hf:toy")
    with pytest.raises(InputError, match="hf:toy has no test part, only train"):
        load("hf:toy", split="test")
    rows = Rows(x, [0, 1], ["a", "b"])
    del rows.features["img"]
    fake_hub(monkeypatch, lambda *_: {"train": rows})
    with pytest.raises(InputError, match="hf:toy has no column of type Image: its columns are id, label"):
        load("hf:toy")
    fake_hub(monkeypatch, lambda *_: {"other": rows})
    with pytest.raises(InputError, match="hf:toy has no train part"):
        load("hf:toy")


# --- names ---


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An INITIO_DATA folder, seen from an empty working folder."""
    (tmp_path / "here").mkdir()
    (tmp_path / "shelf").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("INITIO_DATA", str(tmp_path / "shelf"))
    return tmp_path / "shelf"


def test_names_are_looked_up_in_the_data_folder(shelf: Path) -> None:
    formats.write_npz(shelf / "cifar100_sub10k.npz", x=images(3, 3, 8, 8), y=labels(3, 100))
    with pytest.raises(
        InputError, match=r"'cifar10' and no data .* \(INITIO_DATA\), which holds cifar100_sub10k.npz"
    ):
        load("cifar10")
    formats.write_npz(shelf / "cifar10_sub10k.npz", x=images(3, 3, 8, 8), y=labels(3, 10))
    assert (load("cifar10").name, load("cifar10").classes) == ("cifar10_sub10k", 10)
    assert load("cifar100").classes == 100
    assert load("cifar10_sub10k@4").shape == (3, 4, 4)
    formats.write_cifar10_python(shelf / "cifar-10-batches-py", images(12, 3, 32, 32), labels(12))
    assert load("cifar10").name == "cifar10"  # the published archive comes before a file that begins so
    formats.write_npz(Path("cifar10"), x=images(3, 3, 8, 8), y=labels(3))
    Path("cifar10.npz").rename("cifar10")
    with pytest.raises(InputError, match="cifar10 is not a kind of data file"):  # and a path comes before all
        load("cifar10")


def test_mnist_is_found_in_debians_folder(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources_module, "DEBIAN_FOLDER", tmp_path / "datasets")
    with pytest.raises(InputError, match="Debian's package dataset-fashion-mnist brings it: give the folder"):
        load("fashion-mnist")
    with pytest.raises(InputError, match="mnist is not in .*: give the folder that holds its idx files"):
        load("mnist")
    formats.write_idx(
        tmp_path / "datasets" / "fashion-mnist", images(3, 4, 4), labels(3), "train", zipped=True
    )
    assert load("fashion-mnist").name == "fashion-mnist"
    formats.write_idx(shelf / "FashionMNIST" / "raw", images(3, 5, 5), labels(3), "train")
    assert (load("fashion-mnist").name, load("fashion-mnist").shape) == ("FashionMNIST", (1, 5, 5))


def test_unknown_names(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"which holds nothing: did you mean 'digits'\?"):
        load("digts")
    monkeypatch.setenv("INITIO_DATA", str(shelf / "gone"))
    with pytest.raises(InputError, match="gone that INITIO_DATA names does not exist"):
        load("cifar10")
    monkeypatch.delenv("INITIO_DATA")
    with pytest.raises(InputError, match="set INITIO_DATA to the folder that holds it, or give its path"):
        load("cifar10")
    with pytest.raises(
        InputError, match="no file or folder 'photos' .*: give noise, digits, hf:NAME, or the path"
    ):
        load("photos")
    with pytest.raises(InputError, match="no file or folder ''"):
        load("")
    Path("x.txt").write_text("x")
    with pytest.raises(InputError, match="x.txt is not a kind of data file that Initio reads"):
        load("x.txt")
    with pytest.raises(InputError, match="cannot be read: File name too long"):
        load("x" * 5000)


def test_a_path_that_ends_like_a_size_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "photos@2"
    formats.write_pictures(path, images(2, 8, 8, 3), np.array([0, 1]), ["a", "b"])
    assert load(str(path)).shape == (3, 8, 8)
    assert load(f"{path}@4").shape == (3, 4, 4)


# --- the project's own copies ---


def data_folder() -> Path:
    return Path(os.environ.get("INITIO_DATA") or Path(__file__).parents[3] / "shared" / "data")


@pytest.mark.skipif(
    not (data_folder() / "cifar10_sub10k.npz").exists(), reason="no shared data: set INITIO_DATA"
)
def test_real_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INITIO_DATA", str(data_folder()))
    cifar = load("cifar10")
    # The whole training set's published statistics; this is a balanced fifth of it.
    np.testing.assert_allclose(cifar.mean, (0.4914, 0.4822, 0.4465), atol=2e-3)
    np.testing.assert_allclose(cifar.std, (0.2470, 0.2435, 0.2616), atol=2e-3)
    assert cifar.class_names[:2] == ("airplane", "automobile")
    assert load("cifar100", split="test").classes == 100
    partial = load("imagenet16_120")
    assert (partial.name, partial.classes, partial.shape) == ("imagenet16_120_partial", 120, (3, 16, 16))
