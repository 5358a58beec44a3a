"""`initio export RUN`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from initio.cli.units import tell
from initio.errors import InputError
from initio.runs.export import export
from initio.runs.folders.ensemble import EnsembleFolder
from initio.runs.folders.model import ModelFolder
from initio.runs.folders.named import find_named
from initio.spaces import get_space

OF_TRAINED = ("which", "preprocess", "licence")  # options for trained networks


@dataclass(frozen=True)
class ExportCommand:
    """Writes a trained network, or an architecture, to a file that other programs read.

    A trained network is exported with its weights, its preprocessing and a card; its size is its own.

    Args:
        architecture: the folder of a trained network; or a run folder, a notation, a published cell by name (darts_v2),
            or a file with one of these.
        format: genotype is the space's own notation, json Initio's record; python is one readable file that needs only
            torch; onnx and torchscript are the network itself; safetensors its weights.
        out: the file to write; without it, text goes to the terminal and a trained network into its folder.
        classes: number of outputs of the network; by default that of the data a run searched on, else 10.
        channels: width of the first stage; by default the space's published one.
        cells: cells in a stage (nb201, nb101) or in all (darts); by default the published number.
        shape: of one input, channels first.
        auxiliary: give the python file the auxiliary head (darts only).
        weights: a state dict of this network for onnx and torchscript; without it, the network is untrained.
        seed: of the untrained weights.
        which: the weights of the best epoch, or of the last (trained networks).
        preprocess: let onnx and torchscript files normalise their inputs themselves (trained networks).
        licence: for the card of a trained network.
        json: print what was written, or the text, as JSON.
    """

    architecture: str
    format: Literal["genotype", "json", "python", "onnx", "torchscript", "safetensors"] = "python"
    out: str | None = None
    classes: int | None = None
    channels: int | None = None
    cells: int | None = None
    shape: str = "3x32x32"
    auxiliary: bool = False
    weights: str | None = None
    seed: int = 0
    which: Literal["best", "last"] = "best"
    preprocess: bool = True
    licence: str | None = None
    json: bool = False

    def run(self) -> None:
        """Writes the file, or prints the text."""
        if EnsembleFolder.is_at(self.architecture):
            self._refuse("an architecture", "channels", "cells", "classes", "shape", "auxiliary", "weights", "seed")
            self._refuse("a single network", "which")
            self._trained("preprocess", "licence")
        elif ModelFolder.is_at(self.architecture) and self.format not in ("genotype", "json"):
            self._refuse("an architecture", "channels", "cells", "classes", "shape", "auxiliary", "weights", "seed")
            self._trained(*OF_TRAINED)
        else:
            self._refuse("a trained network", *OF_TRAINED)
            self._untrained()

    def _trained(self, *names: str) -> None:
        """A trained network or an ensemble, with these options."""
        path = export(self.architecture, self.out, self.format, **{name: getattr(self, name) for name in names})
        card = str(path.with_suffix(".card.md"))
        facts = {"format": self.format, "written": str(path), "card": card}
        tell(f"wrote {path} and its card {card}", facts, json=self.json)

    def _refuse(self, whose: str, *names: str) -> None:
        """Refuses options that would be without effect."""
        for name in names:
            if getattr(self, name) != getattr(ExportCommand, name):
                raise InputError(f"--{name} is an option for {whose}: leave it out")

    def _untrained(self) -> None:
        named = find_named(self.architecture)
        arch = named.architecture
        if self.auxiliary and (self.format != "python" or not get_space(arch.space).auxiliary_head):
            raise InputError("--auxiliary is for the python file of a darts cell: leave it out")
        size = {"channels": self.channels, "cells": self.cells, "classes": self.classes, "shape": _shape(self.shape)}
        if self.classes is None:
            size["classes"] = named.classes
        from initio.spaces.exports import WITH_WEIGHTS, exported

        options: dict[str, Any] = {"weights": self.weights, "seed": self.seed, "auxiliary": self.auxiliary, **size}
        if self.out:
            export(arch, self.out, self.format, **options)
            tell(f"wrote {self.out}", {"format": self.format, "written": self.out}, json=self.json)
        elif self.format in WITH_WEIGHTS:
            raise InputError(f"the format {self.format} is not text: name a file for it by --out")
        else:
            text = exported(arch, self.format, **options).decode()
            tell(text.removesuffix("\n"), {"format": self.format, "text": text}, json=self.json)


def _shape(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[0-9]{1,6}(x[0-9]{1,6})*", text):
        raise InputError(f"--shape must look like 3x32x32, not {text!r}")
    return tuple(map(int, text.split("x")))
