"""NAS-Bench-301 by a surrogate: a small network that predicts the training of any `darts` architecture.

The weights are those of YAHPO Gym's surrogate. It ranks as the official one does (Spearman 0.90), its level is about
1.3 points too high. What it predicts is a validation accuracy: it knows no test accuracy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from initio.errors import InputError
from initio.files import read_text
from initio.records import Architecture, Observation, Query
from initio.spaces import DARTS
from initio.spaces.darts import CELLS, EDGES, NODES, OPS, PER_CELL, SOURCES
from initio.tables.base import Benchmark, Report, Validation
from initio.tables.compact import load_arrays

EPOCHS = tuple(range(1, 99))
PREFIX = "NetworkSelectorDatasetInfo_COLON_darts_COLON_"
PARTS = ("wide", "deep", "deeper")
SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
DIGITS = 6  # of a percent: a matrix product's last bits depend on how many architectures are asked for at once
BATCH = 4096


def code_names() -> list[str]:
    """The surrogate's 34 categorical inputs, in order.

    >>> code_names()[0], code_names()[28], len(code_names())
    ('edge_normal_0', 'inputs_node_normal_3', 34)
    """
    edges = [f"edge_{cell}_{k}" for cell in CELLS for k in range(len(EDGES))]
    return edges + [f"inputs_node_{cell}_{node + 2}" for cell in CELLS for node in range(1, NODES)]


@dataclass(frozen=True, eq=False)
class Surrogate:
    """y = wide(x) + deep(x) + deeper(x), x = [34 embeddings, epoch · epoch_scale], SELU between layers, s = sigmoid(y).

    Accuracy = 100 s_0, seconds = (s_1 − 0.01) · runtime_scale + runtime_shift.
    """

    path: Path  # of the weights; the codes are in ..._encoding.json beside it

    @cached_property
    def weights(self) -> dict[str, np.ndarray]:
        """All arrays, in double precision."""
        return {name: values.astype(np.float64) for name, values in load_arrays(self.path).items()}

    @cached_property
    def codes(self) -> dict[str, dict[str, int]]:
        """The number of each value of each categorical input."""
        path = self.path.with_name(f"{self.path.stem}_encoding.json")
        if not path.is_file():
            raise InputError(f"the surrogate's codes are read from {path}, which is not there")
        try:
            found = json.loads(read_text(path))
            return {name: {str(k): int(v) for k, v in found[PREFIX + name].items()} for name in code_names()}
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise InputError(f"{path} does not hold the codes of the surrogate: {error}") from None

    def predict(self, archs: Sequence[Architecture], epochs: int) -> tuple[np.ndarray, np.ndarray]:
        """Accuracies in percent and seconds, for many architectures at once."""
        codes = self.encode(archs)
        parts = [self._predict(codes[start : start + BATCH], epochs) for start in range(0, len(codes), BATCH)]
        both = np.concatenate([np.zeros((0, 2)), *parts]).round(DIGITS)
        return both[:, 0], both[:, 1]

    def _predict(self, codes: np.ndarray, epochs: int) -> np.ndarray:
        w, layers = self.weights, self._layers
        embedded = [w[f"embed_{k:02}"][codes[:, k]] for k in range(codes.shape[1])]
        x = np.concatenate([*embedded, np.full((len(codes), 1), epochs * w["epoch_scale"])], 1)
        s = 1 / (1 + np.exp(-sum(self._branch(layers[part], x) for part in PARTS)))
        return np.stack([100 * s[:, 0], (s[:, 1] - 0.01) * w["runtime_scale"] + w["runtime_shift"]], 1)

    def _branch(self, layers: list[str], x: np.ndarray) -> np.ndarray:
        for layer in layers[:-1]:
            x = _selu(x @ self.weights[f"{layer}.weight"].T + self.weights[f"{layer}.bias"])
        out: np.ndarray = x @ self.weights[f"{layers[-1]}.weight"].T + self.weights[f"{layers[-1]}.bias"]
        return out

    @cached_property
    def _layers(self) -> dict[str, list[str]]:
        """The names of each branch's layers, in order."""
        names = sorted(name.removesuffix(".weight") for name in self.weights if name.endswith(".weight"))
        layers = {part: [name for name in names if re.match(rf"{part}\.", name)] for part in PARTS}
        others = {f"embed_{k:02}" for k in range(len(code_names()))} | {"epoch_scale", "runtime_scale", "runtime_shift"}
        if not all(layers.values()) or not others <= set(self.weights):
            raise InputError(f"{self.path} does not hold the weights of the surrogate")
        return layers

    def encode(self, archs: Sequence[Architecture]) -> np.ndarray:
        """(n, 34) codes; an edge that is not there is 0."""
        choices = np.array([DARTS.check(arch).choices for arch in archs], dtype=np.int64).reshape(-1, 2 * PER_CELL)
        names = code_names()
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
        value, seconds = self.surrogate.predict([query.architecture], self.epochs_of(query))
        return Observation(float(value[0]), float(seconds[0]))


@dataclass(frozen=True, eq=False)
class SurrogateReport(Report):
    """The surrogate's own prediction at 98 epochs: it has no test accuracy."""

    surrogate: Surrogate
    columns: tuple[str, ...] = ("surrogate",)

    def __call__(self, arch: Architecture) -> dict[str, float]:
        """The predicted validation accuracy of the full training."""
        return {"surrogate": float(self.surrogate.predict([arch], EPOCHS[-1])[0][0])}

    def regret(self, arch: Architecture, epochs: int | None = None) -> None:
        """Nobody knows the best of 10^18 architectures."""
        return

    def rank(self, arch: Architecture, epochs: int | None = None) -> None:
        """Nor its rank."""
        return

    def optimum(self) -> dict[str, float]:
        """Not known."""
        return {}


def nb301(path: Path) -> Benchmark:
    """The surrogate's weights are read when they are first needed."""
    surrogate = Surrogate(path)
    return Benchmark("nb301", DARTS, SurrogateValidation(surrogate), SurrogateReport(surrogate))
