"""NAS-Bench-301 by a surrogate: a small network that predicts the training of any `darts` architecture.

The weights are those of YAHPO Gym's surrogate. It ranks as the official one does (Spearman 0.90), its level is about
1.3 points too high. What it predicts is a validation accuracy: it knows no test accuracy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from initio.errors import InputError
from initio.records import Architecture, Observation, Query
from initio.spaces import DARTS, GraphSpace
from initio.spaces.darts import CELLS, EDGES, NODES, OPS, PER_CELL, SOURCES
from initio.system.files import read_text
from initio.tables.base import Report, Table, Validation
from initio.tables.compact import Arrays, CompactTable, Row, Rows

EPOCHS = tuple(range(1, 99))
PREFIX = "NetworkSelectorDatasetInfo_COLON_darts_COLON_"
PARTS = ("wide", "deep", "deeper")
SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
DIGITS = 6  # of a percent: a matrix product's last bits depend on how many architectures are asked for at once
BATCH = 4096
MOST_CODES = 1000  # of one input; the published ones have up to 11


def code_words() -> dict[str, tuple[str, ...]]:
    """The surrogate's 34 categorical inputs in order, and what an architecture can say for each.

    >>> words = code_words()
    >>> len(words), words["inputs_node_normal_3"]
    (34, ('0_1', '0_2', '1_2'))
    """
    edges = {f"edge_{cell}_{k}": OPS for cell in CELLS for k in range(len(EDGES))}
    return edges | {
        f"inputs_node_{cell}_{node + 2}": tuple(f"{a}_{b}" for a, b in SOURCES[node])
        for cell in CELLS
        for node in range(1, NODES)
    }


@dataclass(frozen=True, eq=False)
class Surrogate:
    """y = wide(x) + deep(x) + deeper(x), x = [34 embeddings, epoch · epoch_scale], SELU between layers, s = sigmoid(y).

    Accuracy = 100 s_0, seconds = (s_1 − 0.01) · runtime_scale + runtime_shift.
    """

    path: Path  # of the weights; the codes are in ..._encoding.json beside it

    @cached_property
    def weights(self) -> dict[str, np.ndarray]:
        """All arrays, in double precision; each layer takes in what the one before it gives out."""
        arrays = Arrays.read(self.path)
        weights = {name: arrays.finite(name) for name in ("epoch_scale", "runtime_scale", "runtime_shift")}
        inputs = 1  # the epoch
        for k, codes in enumerate(self.codes.values()):
            name = f"embed_{k:02}"
            weights[name] = arrays.finite(name, None, None)
            if len(weights[name]) <= max(codes.values()):
                raise InputError(f"{name} in {self.path} has {len(weights[name])} rows, its codes need more")
            inputs += weights[name].shape[1]
        for layers in _layers(arrays).values():
            width = inputs
            for layer in layers:
                weights[f"{layer}.weight"] = arrays.finite(f"{layer}.weight", None, width)
                width = len(weights[f"{layer}.weight"])
                weights[f"{layer}.bias"] = arrays.finite(f"{layer}.bias", width)
            arrays.finite(f"{layers[-1]}.bias", 2)
        return weights

    @cached_property
    def codes(self) -> dict[str, dict[str, int]]:
        """The number of each value of each categorical input."""
        path = self.path.with_name(f"{self.path.stem}_encoding.json")
        if not path.is_file():
            raise InputError(f"the surrogate's codes are read from {path}, which is not there")
        try:
            found = json.loads(read_text(path))
            codes = {
                name: {word: int(found[PREFIX + name][word]) for word in words} for name, words in code_words().items()
            }
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise InputError(f"{path} does not hold the codes of the surrogate: {error}") from None
        every = [code for known in codes.values() for code in known.values()]
        if not 0 <= min(every) <= max(every) < MOST_CODES:
            raise InputError(f"{path} does not hold the codes of the surrogate: one is below 0 or above {MOST_CODES}")
        return codes

    def predict(self, archs: Sequence[Architecture], epochs: int) -> tuple[np.ndarray, np.ndarray]:
        """Accuracies in percent and seconds, for many architectures at once."""
        codes = self.encode(archs)
        parts = [self._predict(codes[start : start + BATCH], epochs) for start in range(0, len(codes), BATCH)]
        both = np.concatenate([np.zeros((0, 2)), *parts]).round(DIGITS)
        return both[:, 0], both[:, 1]

    def _predict(self, codes: np.ndarray, epochs: int) -> np.ndarray:
        w, layers = self.weights, _layers(self.weights)
        embedded = [w[f"embed_{k:02}"][codes[:, k]] for k in range(codes.shape[1])]
        x = np.concatenate([*embedded, np.full((len(codes), 1), epochs * w["epoch_scale"])], 1)
        s = 1 / (1 + np.exp(-sum(self._branch(layers[part], x) for part in PARTS)))
        return np.stack([100 * s[:, 0], (s[:, 1] - 0.01) * w["runtime_scale"] + w["runtime_shift"]], 1)

    def _branch(self, layers: list[str], x: np.ndarray) -> np.ndarray:
        for layer in layers[:-1]:
            x = _selu(x @ self.weights[f"{layer}.weight"].T + self.weights[f"{layer}.bias"])
        out: np.ndarray = x @ self.weights[f"{layers[-1]}.weight"].T + self.weights[f"{layers[-1]}.bias"]
        return out

    def encode(self, archs: Sequence[Architecture]) -> np.ndarray:
        """(n, 34) codes; an edge that is not there is 0."""
        choices = np.array([DARTS.check(arch).choices for arch in archs], dtype=np.int64).reshape(-1, 2 * PER_CELL)
        names = list(self.codes)
        codes = np.zeros((len(choices), len(names)), np.int64)
        every = np.arange(len(choices))
        for place, cell in enumerate(CELLS):
            for node in range(NODES):
                start = place * PER_CELL + 3 * node
                pairs = np.array(SOURCES[node])[choices[:, start]]
                first_edge = place * len(EDGES) + EDGES.index((0, node))
                for k in (0, 1):
                    op = [self.codes[names[first_edge]][name] for name in OPS]
                    codes[every, first_edge + pairs[:, k]] = np.array(op)[choices[:, start + 1 + k]]
                if node:
                    name = f"inputs_node_{cell}_{node + 2}"
                    of_pair = np.array([self.codes[name][f"{a}_{b}"] for a, b in SOURCES[node]])
                    codes[:, names.index(name)] = of_pair[choices[:, start]]
        return codes


def _layers(names: Iterable[str]) -> dict[str, list[str]]:
    """The names of each branch's layers, in order."""
    found = sorted(name.removesuffix(".weight") for name in names if name.endswith(".weight"))
    layers = {part: [name for name in found if re.match(rf"{part}\.", name)] for part in PARTS}
    if not all(layers.values()):
        raise InputError(f"the surrogate's weights lack a branch: there should be {', '.join(PARTS)}")
    return layers


def _selu(x: np.ndarray) -> np.ndarray:
    return SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(np.minimum(x, 0)))


@dataclass(frozen=True, eq=False)
class SurrogateValidation(Validation):
    """Any `darts` architecture at 1 to 98 epochs."""

    surrogate: Surrogate
    default_epochs: int = EPOCHS[-1]
    epochs: tuple[int, ...] = EPOCHS

    @property
    def architectures(self) -> None:
        """There are 10^18."""
        return

    def __call__(self, query: Query) -> Observation:
        """The prediction."""
        value, seconds = self.surrogate.predict([query.architecture], self.length(query.epochs))
        return Observation(float(value[0]), float(seconds[0]))


@dataclass(frozen=True, eq=False)
class SurrogateReport(Report):
    """The surrogate's own prediction at 98 epochs: it has no test accuracy."""

    surrogate: Surrogate
    columns: tuple[str, ...] = ("surrogate",)

    def __call__(self, arch: Architecture) -> dict[str, float]:
        """The predicted validation accuracy of the full training."""
        return {"surrogate": float(self.surrogate.predict([arch], EPOCHS[-1])[0][0])}

    def regret(self, arch: Architecture) -> None:
        """Nobody knows the best of 10^18 architectures."""
        return

    def rank(self, arch: Architecture) -> None:
        """Nor its rank."""
        return


@dataclass(frozen=True, eq=False)
class SurrogateRows(Rows):
    """A row for each architecture of a list, as written: the surrogate has none of its own."""

    architectures: tuple[Architecture, ...]
    space: GraphSpace = DARTS

    def __len__(self) -> int:
        return len(self.architectures)

    @cached_property
    def _row(self) -> dict[Architecture, int]:
        return {arch: row for row, arch in enumerate(self.architectures)}

    def find(self, arch: Architecture) -> int | None:
        """Its place in the list."""
        return self._row.get(DARTS.check(arch))

    def members(self, wanted: np.ndarray) -> tuple[tuple[Architecture, ...], np.ndarray]:
        """The rows as they are."""
        rows = np.flatnonzero(wanted)
        return tuple(self.architectures[row] for row in rows), rows

    def matching(self, representatives: Collection[Architecture]) -> Iterator[Row]:
        """All members of the classes that the list has."""
        known = set(representatives)
        for number, arch in enumerate(self.architectures):
            if (same := DARTS.canonical(arch)) in known:
                yield number, arch, same


def predicted(path: Path, architectures: Iterable[Architecture]) -> CompactTable:
    """The surrogate's predictions for these architectures as a table of one column, `surrogate`."""
    rows = SurrogateRows(tuple(architectures))
    accuracies, _ = Surrogate(path).predict(rows.architectures, EPOCHS[-1])
    return CompactTable(Arrays(path, {"surrogate": accuracies}), rows)


def open_nb301(path: Path, epochs: int | None = None) -> Table:
    """The surrogate's weights are read and checked when they are first needed."""
    surrogate = Surrogate(path)
    validation = SurrogateValidation(surrogate)
    validation = replace(validation, default_epochs=validation.length(epochs))
    return Table("nb301", DARTS, validation, SurrogateReport(surrogate))
