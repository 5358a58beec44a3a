"""Two processes of Lightning Fabric on the CPU train the network that one process trains: loss curves side by side.

Without batch norm, two parts of a batch have the gradient of the whole, so the curves are equal up to rounding. With
it, each process normalises by its own part, so they are close. Augmentation is off: processes draw their own.

python -m studies.two_processes
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import initio
from initio.training import MachineSettings

NETWORKS = {  # name, architecture, its size, and how far the losses may be apart
    "mlp, without batch norm": ("mlp:relu,tanh", {"channels": 64}, 1e-5),
    "cell of nb201, with batch norm": (
        "|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|nor_conv_1x1~1|avg_pool_3x3~2|",
        {"channels": 8, "cells": 1},
        0.15,
    ),
}


def curves(arch: str, size: dict[str, int], epochs: int) -> list[initio.TrainedModel]:
    """The same training in one process and in two."""
    trained = []
    with TemporaryDirectory() as folder:
        for processes in (1, 2):
            trained.append(
                initio.train(
                    arch,
                    "digits",
                    folder=Path(folder, str(processes)),
                    machine=MachineSettings(device="cpu", processes=processes),
                    epochs=epochs,
                    augment="none",
                    tensorboard=False,
                    **size,
                )
            )
    return trained


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    failed = 0
    for name, (arch, size, allowed) in NETWORKS.items():
        one, two = (trained.epochs for trained in curves(arch, size, options.epochs))
        print(f"{name}\n{'epoch':>7} {'loss, one':>10} {'loss, two':>10} {'valid., one':>12} {'valid., two':>12}")
        for a, b in zip(one, two, strict=True):
            print(f"{a.epoch:7} {a.loss:10.5f} {b.loss:10.5f} {a.validation:12.2f} {b.validation:12.2f}")
        apart = max(abs(a.loss - b.loss) / one[0].loss for a, b in zip(one, two, strict=True))
        verdict = {True: "ok", False: "TOO FAR APART"}[apart <= allowed]
        print(f"apart by {apart:.1e} of the first loss at most, allowed {allowed:g}: {verdict}\n", flush=True)
        failed += apart > allowed
    return failed


if __name__ == "__main__":
    sys.exit(main())
