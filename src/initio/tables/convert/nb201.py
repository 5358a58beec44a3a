"""NAS-Bench-201's `.pth` and NATS-Bench's topology folder -> the columns of `nb201_tss.npz`.

Both hold, for each architecture and each training schedule (12 or 200 epochs), the results of every (data set, seed):
`eval_acc1es["x-valid@199"]` is the accuracy on a part of the data after the last epoch, `train_times[e]` the seconds of
epoch e. What one architecture's trainings with several seeds give is averaged.
"""

from __future__ import annotations

import bz2
import io
import math
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from initio.data.pickles import read_plain, read_torch
from initio.errors import InputError
from initio.spaces import NB201

ENDING = "pickle.pbz2"
LARGEST = 1e30  # beyond any accuracy, time or count, and within float32
SCHEDULES = {"less": 12, "12": 12, "full": 200, "200": 200}  # NAS-Bench-201's and NATS-Bench's names for them
# Column: the trainings it comes from, and the part of the data that is evaluated. CIFAR-10's validation accuracy is of
# networks trained on half of the training data, its test accuracy of those trained on all of it.
PARTS = {
    "val_c10": ("cifar10-valid", "x-valid"),
    "test_c10valid": ("cifar10-valid", "ori-test"),
    "test_c10": ("cifar10", "ori-test"),
    "val_c100": ("cifar100", "x-valid"),
    "test_c100": ("cifar100", "x-test"),
    "val_in16": ("ImageNet16-120", "x-valid"),
    "test_in16": ("ImageNet16-120", "x-test"),
}
TRAINED = {"c10": "cifar10-valid", "c100": "cifar100", "in16": "ImageNet16-120"}  # of which times are counted


def nb201_file(path: Path) -> dict[str, np.ndarray]:
    """The table of NAS-Bench-201-v1_*.pth."""
    return _whole(read_torch(path), "nb201", str(path))


def nats_file(path: Path) -> dict[str, np.ndarray]:
    """The table of NATS-tss-v1_0-*.pickle.pbz2."""
    return _whole(_read_bz2(path), "nats", str(path))


def nats_folder(folder: Path) -> dict[str, np.ndarray]:
    """The table of NATS-tss-v1_0-*-simple, one architecture in memory at a time."""
    meta = folder / f"meta.{ENDING}"
    if not meta.is_file():
        raise InputError(f"{str(folder)!r} is not a folder of NATS-Bench: it has no {meta.name}")
    texts = _texts(_read_bz2(meta), str(meta))

    def results() -> Iterable[tuple[int, Any]]:
        for index in range(len(texts)):
            names = [folder / f"{number}.{ENDING}" for number in (f"{index:06d}", str(index))]
            if path := next((name for name in names if name.is_file()), None):
                yield index, _read_bz2(path)

    return _arrays(texts, results(), "nats", str(folder))


def _whole(data: Any, version: str, where: str) -> dict[str, np.ndarray]:
    texts = _texts(data, where)
    results = data.get("arch2infos")
    if not isinstance(results, dict) or not all(type(index) is int for index in results):
        raise InputError(f"{where} has no results: 'arch2infos' should be there, by the number of the architecture")
    return _arrays(texts, results.items(), version, where)


def _texts(data: Any, where: str) -> list[str]:
    if isinstance(data, dict):
        texts = data.get("meta_archs")
        if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts):
            return texts
    raise InputError(f"{where} is not a file of NAS-Bench-201: it has no list of cells, 'meta_archs'")


def _arrays(texts: list[str], results: Iterable[tuple[int, Any]], version: str, where: str) -> dict[str, np.ndarray]:
    """A row for each cell, NaN where it has no training; columns that nobody has are left out."""
    try:
        ops = np.array([NB201.parse(text).choices for text in texts], dtype=np.int8)
    except InputError as error:
        raise InputError(f"{where} does not list cells of nb201: {error}") from None
    columns: dict[str, np.ndarray] = {}
    for index, result in results:
        if not 0 <= index < len(texts):
            raise InputError(f"{where} has results of architecture {index}, its cells are 0 to {len(texts) - 1}")
        try:
            values = _row(result, version)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"{where}: the results of architecture {index} are not as published: {error}") from None
        for name, value in values.items():
            columns.setdefault(name, np.full(len(texts), np.nan, np.float32))[index] = value
    if not columns:
        raise InputError(f"{where} has no results of any architecture")
    return {"ops": ops} | dict(sorted(columns.items()))


def _row(result: Any, version: str) -> dict[str, float]:
    """The values of one architecture, by column."""
    values: dict[str, float] = {}
    for schedule, trainings in _mapping(result).items():
        epochs = SCHEDULES.get(str(schedule))
        if epochs is None:
            continue
        by_data = _by_data(_mapping(trainings)["all_results"])
        for name, (data, part) in PARTS.items():
            column = name.replace("_", "12_") if epochs == 12 else f"{name}_{version}"
            _put(values, column, by_data.get(data, []), partial(_accuracy, part))
        if epochs == 200:
            for d, data in TRAINED.items():
                runs = by_data.get(data, [])
                _put(values, f"time200_{d}", runs, _seconds)
                _put(values, f"params_{d}", runs, lambda run: _number(run["params"]))
                _put(values, f"flops_{d}", runs, lambda run: _number(run["flop"]))
    return values


def _put(values: dict[str, float], name: str, runs: list[Any], of_run: Callable[[Any], float | None]) -> None:
    """The mean over the runs that have it."""
    found = [value for run in runs if (value := of_run(run)) is not None]
    if found:
        values[name] = math.fsum(found) / len(found)


def _by_data(results: Any) -> dict[str, list[Any]]:
    """Runs by data set, in the order of their seeds."""
    runs: dict[str, list[Any]] = {}
    for data, seed in sorted(_mapping(results)):
        runs.setdefault(data, []).append(_mapping(results[data, seed]))
    return runs


def _accuracy(part: str, run: Any) -> float | None:
    """In percent, after the last epoch; None if that part was not evaluated."""
    accuracies, last = _mapping(run["eval_acc1es"]), f"{part}@{int(run['epochs']) - 1}"
    return _number(accuracies[last]) if last in accuracies else None


def _seconds(run: Any) -> float | None:
    """Of training alone, all epochs together."""
    times = run.get("train_times")
    return math.fsum(map(_number, _mapping(times).values())) if times else None


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
        raise ValueError(f"a {type(value).__name__} in place of a number")
    return float(value)


def _mapping(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"a {type(value).__name__} in place of a dictionary")
    return value


def _read_bz2(path: Path) -> Any:
    try:
        with io.BufferedReader(bz2.BZ2File(path), 1 << 20) as file:
            return read_plain(file, str(path))
    except (OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
