"""Small files in the layouts of the published benchmarks, and the folder of real tables."""

import base64
import bz2
import json
import os
import pickle
import struct
from collections import OrderedDict
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from initio.records import Architecture
from initio.spaces import NB101, NB201
from initio.spaces.modelspec import OPS
from initio.tables.convert.tfrecord import masked_crc32c
from initio.tables.nb301 import PARTS, PREFIX, code_words

SHARED = Path(os.environ.get("INITIO_DATA") or Path(__file__).parents[3] / "shared" / "data")
needs_data = pytest.mark.skipif(not (SHARED / "nb201_tss.npz").is_file(), reason=f"no benchmark tables in {SHARED}")

CELLS = [
    "|avg_pool_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|nor_conv_1x1~0|skip_connect~1|skip_connect~2|",
    "|nor_conv_3x3~0|+|nor_conv_3x3~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_3x3~1|skip_connect~2|",
    "|none~0|+|none~0|none~1|+|none~0|none~1|skip_connect~2|",
]
SETS = {
    "cifar10-valid": ("x-valid", "ori-test"),
    "cifar10": ("ori-test",),
    "cifar100": ("x-valid", "x-test", "ori-test"),
    "ImageNet16-120": ("x-valid", "x-test", "ori-test"),
}


class Runs:
    """A class that only its own program knows."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {os.environ['INITIO_TEST_WITNESS']}",)


def accuracy(index: int, data: str, part: str, epochs: int, seed: int) -> float:
    """Different for every training and part of the data."""
    return 10 * index + list(SETS).index(data) + len(part) / 10 + epochs / 1000 + seed / 1e6


def training(index: int, data: str, epochs: int, seed: int) -> dict[str, Any]:
    """The results of one training, as published."""
    names = [(part, e) for part in SETS[data] for e in range(epochs)]
    return {
        "name": "infer.tiny",
        "net_state_dict": None,
        "train_acc1es": dict.fromkeys(range(epochs), 50.0),
        "train_times": OrderedDict((e, np.float64(2.0 + index)) for e in range(epochs)),
        "arch_config": {"channel": 16, "num_cells": 5, "arch_str": CELLS[index], "class_num": 10},
        "params": 0.5 + index,
        "flop": np.float32(100 + index),
        "seed": seed,
        "epochs": epochs,
        "latency": [0.01],
        "eval_names": list(SETS[data]),
        "eval_acc1es": {f"{p}@{e}": accuracy(index, data, p, epochs, seed) - (epochs - 1 - e) for p, e in names},
        "eval_times": {f"{p}@{e}": 0.5 for p, e in names},
        "eval_losses": {f"{p}@{e}": 1.0 for p, e in names},
    }


def trainings(index: int, epochs: int, seeds: tuple[int, ...]) -> dict[str, Any]:
    """All trainings of an architecture with one schedule."""
    return {
        "arch_index": index,
        "arch_str": CELLS[index],
        "all_results": {(data, seed): training(index, data, epochs, seed) for data in SETS for seed in seeds},
        "dataset_seed": {data: list(seeds) for data in SETS},
        "clear_net_done": True,
    }


def results(index: int, names: tuple[str, str] = ("less", "full")) -> dict[str, Any]:
    """Both schedules; 12 epochs were trained once, 200 several times."""
    return {names[0]: trainings(index, 12, (777,)), names[1]: trainings(index, 200, (777, 888))}


def nb201(names: tuple[str, str] = ("less", "full")) -> dict[str, Any]:
    """The object that NAS-Bench-201's file holds; the last cell was never trained."""
    return {
        "meta_archs": CELLS,
        "arch2infos": OrderedDict((index, results(index, names)) for index in (0, 1)),
        "evaluated_indexes": {0, 1},
    }


def write_bz2(path: Path, value: Any) -> None:
    with bz2.open(path, "wb") as file:
        pickle.dump(value, file, protocol=4)


def nats_folder(folder: Path) -> Path:
    """The simple folder of NATS-Bench; the last cell has no file."""
    folder.mkdir()
    write_bz2(folder / "meta.pickle.pbz2", {"meta_archs": CELLS, "evaluated_indexes": {0, 1}})
    for index in (0, 1):
        write_bz2(folder / f"{index:06d}.pickle.pbz2", results(index, ("12", "200")))
    return folder


def cells101(n: int, seed: int = 0) -> list[Architecture]:
    """Different cells of nb101, in the order of their hashes."""
    rng = Random(seed)
    found: dict[str, Architecture] = {}
    while len(found) < n:
        arch = NB101.sample(rng)
        found.setdefault(NB101.graph_hash(arch), arch)
    return [found[name] for name in sorted(found)]


def _double(number: int, value: float) -> bytes:
    return bytes([number << 3 | 1]) + struct.pack("<d", value)


def _bytes(number: int, value: bytes) -> bytes:
    assert len(value) < 128
    return bytes([number << 3 | 2, len(value)]) + value


def _whole(number: int, value: int) -> bytes:
    out = bytes([number << 3])
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def metrics(validation: float, test: float, seconds: float, params: int) -> bytes:
    """ModelMetrics: evaluations before, in the middle of and after a training, then the parameters."""
    final = b"".join(_double(n, v) for n, v in enumerate((108.0, seconds, 1.0, validation, test), start=1))
    other = b"".join(_double(n, 0.1) for n in range(1, 6)) + _bytes(6, b"model.ckpt")
    return _bytes(1, other) + _bytes(1, other) + _bytes(1, final) + _whole(2, params) + _double(3, 2 * seconds)


def record101(arch: Architecture, epochs: int, *values: Any) -> bytes:
    """One training as JSON."""
    matrix, ops = NB101.pruned(arch)
    names = ["input", *(OPS[op] for op in ops), "output"]
    bits = "".join(str(entry) for row in matrix for entry in row)
    message = base64.b64encode(metrics(*values)).decode()
    return json.dumps([NB101.graph_hash(arch), epochs, bits, ",".join(names), message]).encode()


def framed(record: bytes) -> bytes:
    """A record with its length and checks."""
    length = struct.pack("<Q", len(record))
    checks = [struct.pack("<I", int(check)) for check in masked_crc32c([length, record])]
    return length + checks[0] + record + checks[1]


def tfrecord(path: Path, cells: list[Architecture], epochs: tuple[int, ...] = (4, 108), trials: int = 3) -> Path:
    """Cell i's validation accuracy is (i + 1) % in trial 0, one less per mille in the next; its test one more."""
    with path.open("wb") as file:
        for trial in range(trials):
            for e in epochs:
                for i, arch in enumerate(reversed(cells)):
                    value = (len(cells) - i) / 100 - trial / 1000
                    file.write(framed(record101(arch, e, value, value + 0.01, 10.0 * e + trial, 1000 + i)))
    return path


def encrypted(archive: bytes) -> bytes:
    """The archive with the flag of encryption on every member."""
    raw = bytearray(archive)
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = -1
        while (start := archive.find(mark, start + 1)) >= 0:
            raw[start + place] |= 1
    return bytes(raw)


# --- compact tables ---------------------------------------------------------------------


def good_nb201() -> dict[str, object]:
    """What `open_table` needs of NAS-Bench-201."""
    rng, n = Random(0), 50
    ops = {"ops": np.array([NB201.sample(rng).choices for _ in range(n)], dtype=np.int8)}
    return {**ops, **{name: np.ones(n) for name in ("val12_c10", "time200_c10", "test_c10_nb201")}}


def good_nb101() -> dict[str, object]:
    """What it needs of NAS-Bench-101."""
    columns = {name: np.ones(3) for name in ("val_acc_108", "train_time_108_s", "test_acc_108")}
    whole = {"n_vertices": np.full(3, 7), "adj_bits": np.full(3, 1), "ops": np.zeros((3, 5), int)}
    return {**whole, "hash64": np.array([1, 2, 3], np.uint64), **columns}


def small_surrogate(path: Path) -> Path:
    """A surrogate of two numbers an input and one layer a branch, with its codes beside it."""
    rng = np.random.default_rng(0)
    words = code_words()
    codes = {PREFIX + name: {word: place for place, word in enumerate(known)} for name, known in words.items()}
    path.with_name(f"{path.stem}_encoding.json").write_text(json.dumps(codes))
    arrays: dict[str, Any] = {"epoch_scale": 0.01, "runtime_scale": 9.0, "runtime_shift": 1.0}
    arrays |= {f"embed_{k:02}": rng.standard_normal((len(known), 2)) for k, known in enumerate(words.values())}
    for part in PARTS:
        arrays |= {f"{part}.0.weight": rng.standard_normal((2, 2 * len(words) + 1)), f"{part}.0.bias": np.zeros(2)}
    np.savez(path, **arrays)
    return path
