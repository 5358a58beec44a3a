"""ImageFolder trees, read when they are drawn."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from initio.data import Dataset, load
from initio.errors import InputError
from tests.data import formats
from tests.data.formats import images, stored


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
    with pytest.raises(InputError, match=r"\.png has (8x8|12x9) pixels and .*\.png has (8x8|12x9): state one size"):
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


def test_all_bad_pictures_are_named_at_once_and_can_be_left_out(tmp_path: Path) -> None:
    formats.write_pictures(tmp_path / "train", images(8, 8, 8, 3), np.arange(8) // 4, ["a", "b"])
    formats.write_pictures(tmp_path / "test", images(4, 8, 8, 3), np.arange(4) // 2, ["a", "b"])
    for bad in ("train/a/001.png", "train/b/006.png", "test/b/003.png"):
        (tmp_path / bad).write_bytes(b"damage")
    with pytest.raises(InputError, match=r"2 of 8 pictures cannot be read.*skip_bad.*a/001.png, .*b/006.png$"):
        load(str(tmp_path))
    train, test = (load(str(tmp_path), split=split, skip_bad=True) for split in ("train", "test"))
    assert isinstance(train, Dataset)
    assert isinstance(test, Dataset)
    assert train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert [Path(name).name for name in train.left_out] == ["001.png", "006.png"]
    assert (test.labels.tolist(), len(test.left_out)) == ([0, 0, 1], 1)
    assert (train.mean, train.std) == (test.mean, test.std)
    assert len(train.arrays()[0]) == 6
    for number in (4, 5, 7):
        (tmp_path / f"train/b/{number:03}.png").write_bytes(b"damage")
    with pytest.raises(InputError, match="no picture of the class 'b' in .*train can be read"):
        load(str(tmp_path), skip_bad=True)


def test_only_folders_of_pictures_can_leave_some_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="skip_bad is for folders of pictures"):
        load("digits", skip_bad=True)
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 4, 4)), y=[0, 1])
    with pytest.raises(InputError, match="skip_bad is for folders of pictures"):
        load(str(tmp_path / "a.npz"), skip_bad=True)
