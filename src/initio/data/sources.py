"""One text names any data: `load`."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from initio import plugins
from initio.data.arrays import NoPartError, wanted
from initio.data.cifar import find_layout, read_cifar
from initio.data.dataset import Dataset
from initio.data.digits import read_digits
from initio.data.draw import TEST, generator
from initio.data.gaussian import Noise
from initio.data.hub import read_hub
from initio.data.idx import idx_files, read_idx_folder
from initio.data.npz import read_npz
from initio.data.pictures import SUFFIXES, class_folders, read_image_folder
from initio.data.resize import Pixels, height_and_width
from initio.data.split import stratified
from initio.errors import InputError, did_you_mean

Data = Dataset | Noise

TEST_SHARE = 0.2  # of data that have no test part
DATA_FOLDER = "INITIO_DATA"  # the environment variable that names the folder of data and tables
DEBIAN_FOLDER = Path("/usr/share/datasets")
DEBIAN_NAMES = {"fashion-mnist": ", Debian's package dataset-fashion-mnist brings it", "mnist": ""}
ARCHIVES = {  # the folders that the published archives unpack to
    "cifar10": ("cifar-10-batches-py", "cifar-10-batches-bin"),
    "cifar100": ("cifar-100-python", "cifar-100-binary"),
    "mnist": ("MNIST/raw",),
    "fashion-mnist": ("FashionMNIST/raw",),
}


def load(spec: str, *, split: str = "train", pixels: Pixels | None = None, skip_bad: bool = False) -> Data:
    """The data that `spec` names; `pixels`, or `@16` or `@16x24` at the end of `spec`, resizes what is drawn.

    `skip_bad` leaves out pictures of a folder that cannot be read.

    >>> load("noise:3x16x16:100").batch(8, seed=0).x.shape
    (8, 3, 16, 16)
    >>> load("digits", split="test")
    Dataset(name='digits', classes=10, split='test', mean=(0.3...,), std=(0.3...,), pixels=None)
    >>> load("digtis")
    Traceback (most recent call last):
    initio.errors.InputError: no file or folder 'digtis' and no data of that name...: did you mean 'digits'?
    """
    wanted(split, {"train": 0, "test": 0}, spec)
    try:
        name, asked = _split_size(spec)
        data = _load(name, split, skip_bad)
        if pixels is not None:
            asked = height_and_width(pixels)
        if asked is not None:
            data = data.resized(asked)
        return data
    except OSError as error:
        raise InputError(f"{spec} cannot be read: {error.strerror or error}") from None
    except MemoryError:
        raise InputError(f"{spec} does not fit into memory") from None


def load_parts(spec: str, *, pixels: Pixels | None = None, skip_bad: bool = False) -> tuple[Data, Dataset | None, str]:
    """What may be learned from, what it is tested on in the end, and a sentence on where that comes from.

    Data without a test part give a fifth of each class, always the same; noise has nothing to test.
    """
    data = load(spec, pixels=pixels, skip_bad=skip_bad)
    if isinstance(data, Noise):
        return data, None, "noise has no test part"
    try:
        test = load(spec, split="test", pixels=pixels, skip_bad=skip_bad)
        assert isinstance(test, Dataset)
        return data, test, f"the test part of {data.name}"
    except NoPartError:
        rest, held_out = stratified(data.labels, TEST_SHARE, generator(0, TEST))
        said = f"{len(held_out):,} samples of {data.name}, held out because it has no test part"
        if not len(held_out):
            return data, None, f"{data.name} has neither a test part nor enough samples to hold some out"
        return data.chosen(rest), data.chosen(held_out, "test"), said


def has_size(spec: str) -> bool:
    """Whether the name itself says how large its images are.

    >>> [has_size(spec) for spec in ("digits@16", "digits", "a@b/digits.npz")]
    [True, False, False]
    """
    return _split_size(spec)[1] is not None


def same_source(spec: str, other: str) -> bool:
    """Whether two located names mean the same data, at whatever size.

    >>> same_source("digits@16", "digits"), same_source("digits", "noise")
    (True, False)
    """
    return _split_size(spec)[0] == _split_size(other)[0]


def located(spec: str) -> str:
    """The same data by an absolute path, where it is one: it means them from every folder.

    >>> located("noise:3x16x16")
    'noise:3x16x16'
    """
    name, _ = _split_size(spec)
    if name.partition(":")[0] in ("noise", "hf") or name == "digits" or _is_own(name):
        return spec
    return str(_find(name).absolute()) + spec[len(name) :]


def data_in(folder: str | None, name: str) -> str:
    """Named data as `load` finds them, in a folder first if there is one."""
    found: list[Path] = []
    if folder is not None and Path(folder).is_dir():
        found = _in_folder(name, Path(folder))
    return str(next(iter(found), name))


def _split_size(spec: str) -> tuple[str, tuple[int, int] | None]:
    """Takes `@16` off the end, unless a file is called that."""
    match = re.fullmatch(r"(.+)@(\d{1,5})(?:x(\d{1,5}))?", spec, flags=re.ASCII | re.DOTALL)
    if match is None or Path(spec).exists():
        return spec, None
    return match[1], height_and_width((int(match[2]), int(match[3] or match[2])))


def _load(name: str, split: str, skip_bad: bool) -> Data:
    if skip_bad and not (Path(name).is_dir() and class_folders(Path(name))):
        raise InputError(f"skip_bad is for folders of pictures, which {name} is not: leave it out")
    if name == "noise" or name.startswith("noise:"):
        return _noise(name)
    if name == "digits":
        return read_digits(split)
    if name.startswith("hf:"):
        return read_hub(name.removeprefix("hf:"), split)
    if _is_own(name):
        return _own(name, split)
    path = _find(name)
    if path.is_dir():
        return _read_folder(path, split, skip_bad)
    if path.suffix.lower() != ".npz":
        raise InputError(f"{path} is not a kind of data file that Initio reads: give an .npz file or a folder")
    return read_npz(path, split)


def _noise(name: str) -> Noise:
    match = re.fullmatch(r"noise(?::(\d{1,9}(?:x\d{1,9})*)(?::(\d{1,9}))?)?", name, flags=re.ASCII)
    if match is None:
        raise InputError(f"{name} is not understood: write noise, noise:3x16x16 or noise:3x16x16:100 (shape, classes)")
    noise = Noise()
    if match[1]:
        noise = replace(noise, shape=tuple(int(n) for n in match[1].split("x")))
    if match[2]:
        noise = replace(noise, classes=int(match[2]))
    return noise


def _is_own(name: str) -> bool:
    """Whether a data source of the user's own is meant; a file or folder of that name comes first."""
    if not name or Path(name).exists():
        return False
    return plugins.is_path(name) or name in plugins.announced("data")


def _own(name: str, split: str) -> Data:
    """A source is a function of the split, `train` or `test`."""
    source = plugins.find("data", name, {})
    if not callable(source):
        raise InputError(f"the data source {name!r} must be a function of the split, not a {type(source).__name__}")
    data = source(split)
    if not isinstance(data, Dataset | Noise):
        raise InputError(f"the data source {name!r} must give a Dataset or Noise, not a {type(data).__name__}")
    return data


def _read_folder(folder: Path, split: str, skip_bad: bool = False) -> Dataset:
    if layout := find_layout(folder):
        return read_cifar(folder, split, layout)
    if files := idx_files(folder):
        return read_idx_folder(folder, split, files)
    if class_folders(folder):
        return read_image_folder(folder, split, skip_bad=skip_bad)
    if any(path.suffix.lower() in SUFFIXES for path in folder.iterdir()):
        raise InputError(
            f"{folder} holds images but no class folders: put the images of each class into its own folder"
        )
    raise InputError(
        f"{folder} holds no data: neither CIFAR's files, nor idx files, nor a folder of images for each class"
    )


def _find(name: str) -> Path:
    """A path as given, else the name in the data folder, else in Debian's."""
    path = Path(name)
    if name and path.exists():
        return path
    root = os.environ.get(DATA_FOLDER, "")
    if root and name and (found := _in_folder(name, Path(root))):
        return found[0]
    if name in DEBIAN_NAMES:
        if (DEBIAN_FOLDER / name).is_dir():
            return DEBIAN_FOLDER / name
        brings = DEBIAN_NAMES[name]
        raise InputError(f"{name} is not in {DEBIAN_FOLDER}{brings}: give the folder that holds its idx files")
    raise InputError(_not_found(name, root))


def _in_folder(name: str, root: Path) -> list[Path]:
    """What `name` can mean there: itself, an archive's folder, or a file whose name begins with it.

    `cifar10` finds cifar10_sub10k.npz but not cifar100.npz.
    """
    exact = [root / name, root / f"{name}.npz", *(root / folder for folder in ARCHIVES.get(name, ()))]
    begins = [p for p in _loadable(root) if re.match(rf"{re.escape(name)}[-_.]", p.name)]
    return [path for path in exact if path.exists()] + begins


def _loadable(root: Path) -> list[Path]:
    if not root.is_dir():
        raise InputError(f"the folder {root} that {DATA_FOLDER} names does not exist")
    return sorted(p for p in root.iterdir() if not p.name.startswith(".") and (p.is_dir() or p.suffix == ".npz"))


def _not_found(name: str, root: str) -> str:
    start = f"no file or folder {name!r} and no data of that name"
    found: list[str] = []
    if root:
        found = [path.name for path in _loadable(Path(root))]
        listed = ", ".join(found[:12] + ["..."] * (len(found) > 12)) or "nothing"
        start += f" in {root} ({DATA_FOLDER}), which holds {listed}"
    elif name in ARCHIVES:
        return f"{start}: set {DATA_FOLDER} to the folder that holds it, or give its path"
    hint = did_you_mean(name, ["noise", "digits", *sorted(ARCHIVES), *found, *plugins.announced("data")])
    if not hint.startswith("did"):
        hint = "give noise, digits, hf:NAME, module:NAME, or the path of an .npz file or of a folder"
    return f"{start}: {hint}"
