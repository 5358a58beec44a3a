"""What a name means, and what is said when it means nothing."""

from __future__ import annotations

import os
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from initio import plugins
from initio.data import load
from initio.data import sources as sources_module
from initio.errors import InputError
from tests.data import formats
from tests.data.formats import images, labels


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
    with pytest.raises(InputError, match=r"'cifar10' and no data .* \(INITIO_DATA\), which holds cifar100_sub10k.npz"):
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


def test_mnist_is_found_in_debians_folder(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources_module, "DEBIAN_FOLDER", tmp_path / "datasets")
    with pytest.raises(InputError, match="Debian's package dataset-fashion-mnist brings it: give the folder"):
        load("fashion-mnist")
    with pytest.raises(InputError, match=r"mnist is not in .*: give the folder that holds its idx files"):
        load("mnist")
    formats.write_idx(tmp_path / "datasets" / "fashion-mnist", images(3, 4, 4), labels(3), "train", zipped=True)
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
    with pytest.raises(InputError, match=r"folder 'photos' .*: give noise, digits, hf:NAME, module:NAME, or the path"):
        load("photos")
    with pytest.raises(InputError, match="no file or folder ''"):
        load("")
    Path("x.txt").write_text("x")
    with pytest.raises(InputError, match=r"x.txt is not a kind of data file that Initio reads"):
        load("x.txt")
    with pytest.raises(InputError, match="cannot be read: File name too long"):
        load("x" * 5000)


def test_a_path_that_ends_like_a_size_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "photos@2"
    formats.write_pictures(path, images(2, 8, 8, 3), np.array([0, 1]), ["a", "b"])
    assert load(str(path)).shape == (3, 8, 8)
    assert load(f"{path}@4").shape == (3, 4, 4)


OWN = """
import numpy as np
from initio.data import from_arrays

def mine(split):
    return from_arrays("mine", split, (np.zeros((4, 6, 6), np.uint8), np.arange(4)))

def wrong(split):
    return 3

constant = 3
"""


def test_a_source_of_your_own(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("own_source_of_a_test.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    data = load("own_source_of_a_test:mine@3")
    assert (data.name, data.shape, data.classes) == ("mine", (1, 3, 3), 4)
    assert sources_module.located("own_source_of_a_test:mine") == "own_source_of_a_test:mine"
    for name, text in [
        ("mine", "the split must be"),
        ("wrong", "must give a Dataset or Noise, not a int"),
        ("constant", "must be a function of the split, not a int"),
        ("none", "the data source 'own_source_of_a_test:none' cannot be imported: AttributeError"),
    ]:
        with pytest.raises(InputError, match=text):
            load(f"own_source_of_a_test:{name}", split={"mine": "valid"}.get(name, "train"))
    with pytest.raises(InputError, match="mine has no test part, only train"):
        load("own_source_of_a_test:mine", split="test")
    with pytest.raises(InputError, match="cannot be imported: ModuleNotFoundError"):
        load("no_such_module_of_mine:data")


def test_a_source_that_a_package_announces(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("bars", "examples.own_data:bars", "initio.data")
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point] * (group == "initio.data"))
    assert load("bars").name == "bars"
    with pytest.raises(InputError, match="did you mean 'bars'"):
        load("barss")
    formats.write_npz(Path("bars"), x=images(3, 3, 8, 8), y=labels(3))
    Path("bars.npz").rename("bars")
    with pytest.raises(InputError, match="bars is not a kind of data file"):  # a path comes first
        load("bars")


def data_folder() -> Path:
    return Path(os.environ.get("INITIO_DATA") or Path(__file__).parents[3] / "shared" / "data")


@pytest.mark.skipif(not (data_folder() / "cifar10_sub10k.npz").exists(), reason="no shared data: set INITIO_DATA")
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
