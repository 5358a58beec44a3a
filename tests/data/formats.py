"""Small data sets in every format that Initio reads, written by the formats' own rules."""

from __future__ import annotations

import gzip
import io
import pickle
from pathlib import Path

import numpy as np
from PIL import Image

from initio.data import Dataset

CIFAR10_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def images(n: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(256, size=(n, *shape), dtype=np.uint8)


def labels(n: int, classes: int = 10, seed: int = 0) -> np.ndarray:
    y = np.random.default_rng(seed + 1).integers(classes, size=n)
    y[-1] = classes - 1  # so that the number of classes can be seen
    return y


def write_npz(path: Path, **arrays: object) -> Path:
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


def idx_bytes(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return head + array.astype(np.uint8).tobytes()


def write_idx(folder: Path, x: np.ndarray, y: np.ndarray, part: str, zipped: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in ((f"{part}-images-idx3-ubyte", x), (f"{part}-labels-idx1-ubyte", y)):
        raw = idx_bytes(array)
        (folder / (name + ".gz" * zipped)).write_bytes(gzip.compress(raw) if zipped else raw)


def write_cifar10_python(folder: Path, x: np.ndarray, y: np.ndarray, protocol: int = 2) -> None:
    """x has 6k images: k for each of the five batches and for the test."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    for name, xs, ys in zip(names, np.split(x, 6), np.split(y, 6), strict=True):
        files = [f"{i}.png" for i in range(len(ys))]
        content = {
            "batch_label": name,
            "labels": ys.tolist(),
            "data": xs.reshape(len(xs), -1),
            "filenames": files,
        }
        (folder / name).write_bytes(pickle.dumps(content, protocol))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": CIFAR10_NAMES}, protocol))


def write_cifar10_binary(folder: Path, x: np.ndarray, y: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    for name, xs, ys in zip(names, np.split(x, 6), np.split(y, 6), strict=True):
        (folder / name).write_bytes(b"".join(bytes([k]) + image.tobytes() for image, k in zip(xs, ys, strict=True)))
    (folder / "batches.meta.txt").write_text("\n".join(CIFAR10_NAMES) + "\n\n")


def write_cifar100(folder: Path, x: np.ndarray, y: np.ndarray, part: str, binary: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if binary:
        rows = [bytes([k // 5, k]) + image.tobytes() for image, k in zip(x, y, strict=True)]
        (folder / f"{part}.bin").write_bytes(b"".join(rows))
    else:
        content = {
            "fine_labels": y.tolist(),
            "coarse_labels": (y // 5).tolist(),
            "data": x.reshape(len(x), -1),
        }
        (folder / part).write_bytes(pickle.dumps(content, 2))


def write_pictures(root: Path, x: np.ndarray, y: np.ndarray, names: list[str], ending: str = "png") -> None:
    """x is (n, height, width, 3)."""
    for i, (image, k) in enumerate(zip(x, y, strict=True)):
        path = root / names[k] / f"{i:03d}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)


def png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "png")
    return buffer.getvalue()


def python2_batch(x: np.ndarray) -> bytes:
    """The pickle of {"labels": [0, ...], "data": x} as Python 2 wrote the published files of CIFAR."""
    n, width = (b"M" + size.to_bytes(2, "little") for size in x.shape)
    raw = x.tobytes()
    return (
        b"\x80\x02}q\x01(U\x06labelsq\x04]q\x05(" + b"K\x00" * len(x) + b"eU\x04dataq\x06"
        b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\x09"
        b"(K\x01" + n + width + b"\x86cnumpy\ndtype\nq\x0aU\x02u1K\x00K\x01\x87Rq\x0b"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"T" + len(raw).to_bytes(4, "little") + raw + b"tbu."
    )


def stored(data: object) -> np.ndarray:
    assert isinstance(data, Dataset)
    return data.images if isinstance(data.images, np.ndarray) else np.stack([data.images[i] for i in range(len(data))])
