"""MNIST's idx files, plain or gzipped: two zeros, the type, the number of axes, their lengths, the values."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from pathlib import Path

import numpy as np

from initio.data.arrays import LabelledArrays, dataset, labelled
from initio.data.dataset import Dataset
from initio.errors import InputError

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
FILE_NAME = re.compile(r"(?:.*[-_.])?(train|t10k|test)[-_.](images|labels)[-_.]idx[1-4][-_.]ubyte(?:\.gz)?")

PARTS = {"train": "train", "t10k": "test", "test": "test"}  # by what a file is called

Files = dict[tuple[str, str], Path]  # (split, "images" or "labels") -> the file


def idx_files(folder: Path) -> Files:
    """The idx files of a folder; a file and its gzipped copy count as one."""
    found: Files = {}
    for path in sorted(folder.iterdir()):
        match = FILE_NAME.fullmatch(path.name)
        if match is None or not path.is_file():
            continue
        key = (PARTS[match[1]], match[2])
        if key in found and path.name.removesuffix(".gz") != found[key].name.removesuffix(".gz"):
            raise InputError(f"{folder} holds both {found[key].name} and {path.name}: give a folder with one data set")
        found.setdefault(key, path)
    return found


def read_idx_folder(folder: Path, split: str, files: Files) -> Dataset:
    """A data set from `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, and the same of `t10k`."""
    parts: dict[str, LabelledArrays] = {}
    for which in ("train", "test"):
        images, labels = files.get((which, "images")), files.get((which, "labels"))
        if images and labels:
            parts[which] = labelled(read_idx(images), read_idx(labels), str(labels))
        elif images:
            raise InputError(f"{images} has no file with the labels beside it")
        elif labels:
            raise InputError(f"{labels} has no file with the images beside it")
    place = folder.resolve()
    if place.name == "raw":  # as torchvision unpacks it: MNIST/raw
        place = place.parent
    return dataset(place.name, split, parts)


def read_idx(path: Path) -> np.ndarray:
    """The array of one idx file."""
    raw = _bytes(path)
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in TYPES or not 1 <= raw[3] <= 4:
        raise InputError(f"{path} is not an idx file: its first four bytes are {raw[:4].hex(' ') or 'missing'}")
    dtype, header = np.dtype(TYPES[raw[2]]), 4 + 4 * raw[3]
    if len(raw) < header:
        raise InputError(f"{path} is truncated: it ends within its header")
    shape = tuple(int.from_bytes(raw[i : i + 4], "big") for i in range(4, header, 4))
    expected, there = math.prod(shape) * dtype.itemsize, len(raw) - header
    if there != expected:
        what = "truncated" if there < expected else "too long"
        raise InputError(f"{path} is {what}: shape {shape} needs {expected} bytes, there are {there}")
    return np.frombuffer(raw, dtype, offset=header).reshape(shape).astype(dtype.newbyteorder("="))


def _bytes(path: Path) -> bytes:
    raw = path.read_bytes()
    if path.suffix != ".gz":
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path} is truncated or not gzip: {error}") from None
