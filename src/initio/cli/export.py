"""`initio export RUN`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from initio.errors import InputError
from initio.runs.folder import classes_of, find_architecture


@dataclass(frozen=True)
class ExportCommand:
    """Writes an architecture to a file that other programs read.

    Args:
        architecture: a run folder, a notation, a published cell by name (darts_v2), or a file with one of these.
        format: genotype is the space's own notation, json Initio's record; python is one readable file that needs only
            torch; onnx and torchscript are the network itself.
        out: the file to write; text goes to the terminal without it.
        classes: number of outputs of the network; by default that of the data a run searched on, else 10.
        channels: width of the first stage; by default the space's published one.
        cells: cells in a stage (nb201, nb101) or in all (darts); by default the published number.
        shape: of one input, channels first.
        auxiliary: give the python file the auxiliary head (darts only).
        weights: a state dict of this network for onnx and torchscript; without it, the network is untrained.
        seed: of the untrained weights.
    """

    architecture: str
    format: Literal["genotype", "json", "python", "onnx", "torchscript"] = "python"
    out: str | None = None
    classes: int | None = None
    channels: int | None = None
    cells: int | None = None
    shape: str = "3x32x32"
    auxiliary: bool = False
    weights: str | None = None
    seed: int = 0

    def run(self) -> None:
        """Writes the file, or prints the text."""
        arch, result = find_architecture(self.architecture)
        if self.auxiliary and (self.format != "python" or arch.space not in ("darts", "zoo")):
            raise InputError("--auxiliary is for the python file of a darts cell: leave it out")
        size = {"channels": self.channels, "cells": self.cells, "classes": self.classes, "shape": _shape(self.shape)}
        if self.classes is None:
            size["classes"] = classes_of(result)
        from initio.spaces.exports import WITH_WEIGHTS, export, exported

        options: dict[str, Any] = {"weights": self.weights, "seed": self.seed, "auxiliary": self.auxiliary, **size}
        if self.out:
            export(arch, self.out, self.format, **options)
            print(f"wrote {self.out}")
        elif self.format in WITH_WEIGHTS:
            raise InputError(f"the format {self.format} is not text: name a file for it by --out")
        else:
            print(exported(arch, self.format, **options).decode(), end="")


def _shape(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[0-9]{1,6}(x[0-9]{1,6})*", text):
        raise InputError(f"--shape must look like 3x32x32, not {text!r}")
    return tuple(map(int, text.split("x")))
