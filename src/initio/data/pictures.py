"""Image files: one picture as an array, and ImageFolder trees, whose pictures are read when drawn."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from initio.data import statistics
from initio.data.arrays import wanted
from initio.data.dataset import Dataset, LazyImages
from initio.data.draw import INPUTS, generator
from initio.errors import InputError, first_line

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # none that starts another program, as EPS would
EIGHT_BIT = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"}
SAMPLE = 4096  # pictures that the normalisation of a large tree is measured on
MOST_NAMED = 10  # pictures in an error
TEST_FOLDERS = ("test", "val", "valid", "validation")


@dataclass(frozen=True)
class PictureFiles:
    """Pictures in files, as `Images`."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> np.ndarray:
        return read_picture(self.paths[index])

    def where(self, index: int) -> str:
        """The file."""
        return str(self.paths[index])

    def chosen(self, numbers: np.ndarray) -> PictureFiles:
        """Some of the files."""
        return PictureFiles(tuple(self.paths[number] for number in numbers.tolist()))


def read_picture(path: Path) -> np.ndarray:
    """One picture as uint8 (3, height, width); grey becomes three equal channels, transparency is dropped."""
    from PIL import Image

    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path, formats=FORMATS) as image:
            return rgb(image)  # without Pillow's warnings: a picture is read, or refused by one sentence
    except Exception as error:  # Pillow's decoders raise whatever a damaged file leads them to
        reason = first_line(error)
        if "cannot identify" in reason:  # Pillow's own sentence repeats the path
            reason = "its format is not recognised"
        raise InputError(f"{path} is not a readable image: {reason}") from None


def rgb(image: Image) -> np.ndarray:
    """A Pillow image as uint8 (3, height, width)."""
    if image.mode not in EIGHT_BIT:
        raise ValueError(f"its pixels are of type {image.mode}, not 8 bits a channel")
    if image.mode in ("P", "PA", "LA"):
        image = image.convert("RGBA")  # a palette may hold transparency
    return np.moveaxis(np.asarray(image.convert("RGB"), dtype=np.uint8), -1, 0)


def class_folders(folder: Path) -> list[Path]:
    """The visible folders in a folder, by name."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def read_image_folder(root: Path, split: str, *, skip_bad: bool = False) -> Dataset:
    """root/class/*.png, or root/train/class/*.png with root/test (or val); classes are numbered by name.

    With `skip_bad` every picture is read once, and those that cannot be read are left out.
    """
    roots = {"train": root}
    if (root / "train").is_dir() and class_folders(root / "train"):
        roots = {"train": root / "train"}
        for name in TEST_FOLDERS:
            if (root / name).is_dir():
                roots.setdefault("test", root / name)
    folder = wanted(split, roots, str(root))
    class_names = tuple(path.name for path in class_folders(roots["train"]))
    train, labels = _tree(roots["train"], class_names)
    parts, left_out = {"train": (train, labels)}, dict[str, tuple[str, ...]]()
    if split == "test":
        parts["test"] = _tree(folder, class_names)
    if skip_bad:
        for part, (images, numbers) in parts.items():
            bad = unreadable(images, range(len(images)))
            kept = np.setdiff1d(np.arange(len(images)), list(bad))
            missing = set(numbers.tolist()) - set(numbers[kept].tolist())
            if missing:
                raise InputError(f"no picture of the class {class_names[min(missing)]!r} in {roots[part]} can be read")
            parts[part], left_out[part] = (images.chosen(kept), numbers[kept]), tuple(map(images.where, bad))
    mean, std = sampled_statistics(parts["train"][0])
    images, labels = parts[split]
    return Dataset(
        root.resolve().name, images, labels, len(class_names), class_names, split, mean, std,
        left_out=left_out.get(split, ()),
    )  # fmt: skip


def unreadable(images: LazyImages, numbers: Iterable[int]) -> dict[int, str]:
    """Those that cannot be read, each with the sentence on why."""
    bad = {}
    for number in numbers:
        try:
            images[number]
        except InputError as error:
            bad[number] = str(error)
    return bad


def sampled_statistics(images: LazyImages) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std of each channel; of more than SAMPLE pictures, over a fixed random SAMPLE of them.

    All that cannot be read are named at once.
    """
    numbers = list(range(len(images)))
    if len(images) > SAMPLE:
        numbers = generator(0, INPUTS).permutation(len(images))[:SAMPLE].tolist()
    try:
        return statistics.of_bytes(images[i].reshape(3, -1) for i in numbers)
    except InputError:
        bad = unreadable(images, numbers)
    if len(bad) == 1:
        raise InputError(*bad.values())
    named = ", ".join(map(images.where, sorted(bad)[:MOST_NAMED])) + ", ..." * (len(bad) > MOST_NAMED)
    raise InputError(
        f"{len(bad):,} of {len(numbers):,} pictures cannot be read: remove them or leave them out (skip_bad): {named}"
    )


def _tree(folder: Path, class_names: tuple[str, ...]) -> tuple[PictureFiles, np.ndarray]:
    paths, labels = list[Path](), list[int]()
    for class_folder in class_folders(folder):
        if class_folder.name not in class_names:
            raise InputError(f"{class_folder} is a class that the training part does not have")
        found = sorted(p for p in class_folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
        if not found:
            endings = ", ".join(sorted(SUFFIXES))
            raise InputError(f"{class_folder} holds no images: each class folder needs at least one of {endings}")
        paths += found
        labels += [class_names.index(class_folder.name)] * len(found)
    if not paths:
        raise InputError(f"{folder} holds no class folders with images")
    return PictureFiles(tuple(paths)), np.array(labels, dtype=np.int64)
