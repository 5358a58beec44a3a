"""Whatever a file holds, it loads or is refused with an `InputError`."""

from __future__ import annotations

import functools
import gzip
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from initio.data import load
from initio.data.pickles import read_pickle, read_plain
from initio.errors import InputError
from initio.records import Batch
from tests.data import formats
from tests.data.formats import images, labels

Write = Callable[[Path], tuple[str, Path]]  # writes a valid data set; its name for `load`, the file to damage


def npz(root: Path) -> tuple[str, Path]:
    path = root / "toy.npz"
    np.savez(path, x=images(3, 4, 4, 3), y=labels(3, 3), class_names=np.array(["a", "b", "c"]))
    return str(path), path


def npz_compressed(root: Path) -> tuple[str, Path]:
    path = formats.write_npz(root / "toy.npz", x=images(3, 4, 4, 3) / 255.0, y=labels(3, 3))
    return str(path), path


def idx(root: Path) -> tuple[str, Path]:
    formats.write_idx(root, images(3, 4, 4), labels(3), "train")
    return str(root), root / "train-images-idx3-ubyte"


def idx_labels(root: Path) -> tuple[str, Path]:
    formats.write_idx(root, images(3, 4, 4), labels(3), "train")
    return str(root), root / "train-labels-idx1-ubyte"


def idx_zipped(root: Path) -> tuple[str, Path]:
    formats.write_idx(root, images(3, 4, 4), labels(3), "train", zipped=True)
    return str(root), root / "train-images-idx3-ubyte.gz"


def cifar_python(root: Path) -> tuple[str, Path]:
    formats.write_cifar100(root, images(2, 3, 32, 32), labels(2, 100), "train", binary=False)
    return str(root), root / "train"


def cifar_meta(root: Path) -> tuple[str, Path]:
    formats.write_cifar10_python(root, images(6, 3, 32, 32), labels(6))
    return str(root), root / "batches.meta"


def cifar_binary(root: Path) -> tuple[str, Path]:
    formats.write_cifar100(root, images(2, 3, 32, 32), labels(2, 100), "train", binary=True)
    return str(root), root / "train.bin"


def picture(ending: str) -> Write:
    def write(root: Path) -> tuple[str, Path]:
        formats.write_pictures(root, images(2, 8, 8, 3), np.array([0, 1]), ["a", "b"], ending)
        return str(root), root / "b" / f"001.{ending}"

    return write


WRITERS: dict[str, Write] = {
    write.__name__: write
    for write in (npz, npz_compressed, idx, idx_labels, idx_zipped, cifar_python, cifar_meta, cifar_binary)
} | {ending: picture(ending) for ending in ("png", "jpg", "bmp", "gif", "webp", "tif", "ppm")}


@st.composite
def damaged(draw: st.DrawFn, valid: bytes) -> bytes:
    """A valid file cut short, with changed bytes mostly in its head or tail, or mere random bytes."""
    kind = draw(st.sampled_from(["cut", "change", "random"]))
    if kind == "cut":
        return valid[: draw(st.integers(0, len(valid)))]
    if kind == "random":
        return draw(st.binary(max_size=64))
    raw = bytearray(valid)
    last = len(raw) - 1
    anywhere = st.one_of(st.integers(0, last), st.integers(0, min(200, last)), st.integers(max(0, last - 200), last))
    for place, value in draw(st.lists(st.tuples(anywhere, st.integers(0, 255)), min_size=1, max_size=4)):
        raw[place] = value
    return bytes(raw)


def refusal(call: Callable[[], object]) -> str:
    """The sentence of its `InputError`, "" if there is none; any other error fails the test."""
    try:
        call()
    except InputError as error:
        return str(error) or "an empty sentence\n"
    return ""


def loads_or_is_refused(name: str) -> None:
    drawn: list[Batch] = []
    sentence = refusal(lambda: drawn.append(load(name).batch(1, seed=0)))
    assert "\n" not in sentence
    assert sentence or np.isfinite(drawn[0].x).all()


@pytest.mark.parametrize("format_name", WRITERS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files(tmp_path: Path, format_name: str, data: st.DataObject) -> None:
    name, path = WRITERS[format_name](tmp_path)
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    loads_or_is_refused(name)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_inside_gzip(tmp_path: Path, data: st.DataObject) -> None:
    name, path = idx_zipped(tmp_path)
    path.write_bytes(gzip.compress(data.draw(damaged(gzip.decompress(path.read_bytes())))))
    loads_or_is_refused(name)


PICKLES = [
    pickle.dumps({"data": np.arange(6, dtype=np.uint8).reshape(2, 3), "labels": [0, 300, -5], "t": "ü"}, protocol)
    for protocol in range(6)
]


PLAIN = [
    pickle.dumps({"all": OrderedDict({("c10", 7): [1, np.float64(2.5), {3}]}), "t": None}, protocol)
    for protocol in range(6)
]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PICKLES).flatmap(damaged))
def test_damaged_pickles(raw: bytes) -> None:
    assert "\n" not in refusal(lambda: read_pickle(raw, "file"))


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PLAIN).flatmap(damaged))
def test_damaged_pickles_of_results(raw: bytes) -> None:
    assert "\n" not in refusal(lambda: read_plain(io.BytesIO(raw), "file"))


leaf = st.integers(-(2**70), 2**70) | st.text(max_size=9) | st.binary(max_size=300) | st.booleans() | st.none()
keyed = functools.partial(st.dictionaries, st.text(max_size=3), max_size=3)
plain = st.recursive(leaf, lambda x: st.lists(x, max_size=4) | st.tuples(x, x) | keyed(x), max_leaves=12)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(max_size=5), plain, max_size=4), st.integers(2, 5))
def test_pickles_of_plain_data_read_as_python_reads_them(content: dict[str, object], protocol: int) -> None:
    assert read_pickle(pickle.dumps(content, protocol), "file") == content


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40) | st.from_regex(r"(noise|digits)(:[0-9x]{0,6}){0,3}(@[0-9x]{0,6})?", fullmatch=True))
def test_names(spec: str) -> None:
    assert "\n" not in refusal(lambda: load(spec))
