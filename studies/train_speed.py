"""What `initio.train` adds to a bare loop of the same network: time of a step, peak memory, waiting for JPEG files.

The bare loop does the same arithmetic and nothing else: takes a batch, crops and flips it, forward, backward, clips,
updates. Steps of both take turns in one process and are timed in processor seconds; the medians are compared. Peak
memory is that of two processes of their own, each of which reads the data and trains. One thread.

python -m studies.train_speed
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

import initio
from initio.system.files import peak_bytes
from initio.training import MachineSettings, TrainingSettings
from initio.training.augment import crop_flip
from initio.training.examples import examples_of
from initio.training.fit import fit
from initio.training.machine import laid_out

MOST_TIME, MOST_MEMORY, MOST_WAITING = 1.03, 1.10, 0.05
SIZE = {"channels": 8, "cells": 5}
SAMPLES = 10_000
PICTURES, SIDE, STORED = 1_400, 64, 96


def build() -> nn.Module:
    return laid_out(initio.build("darts_v2", **SIZE, seed=0))


def bare(x: Tensor, y: Tensor, settings: TrainingSettings, network: nn.Module, steps: int) -> Iterator[float]:
    """The losses of a loop that anyone would write."""
    optimizer = torch.optim.SGD(
        network.parameters(), settings.lr, settings.momentum, weight_decay=settings.weight_decay, nesterov=True
    )
    rng = np.random.default_rng(0)
    order = torch.from_numpy(rng.permutation(len(x)))
    network.train()
    for step in range(steps):
        numbers = order[step * settings.batch_size :][: settings.batch_size]
        loss = functional.cross_entropy(network(crop_flip(x[numbers], rng)), y[numbers])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), settings.clip or 5.0)
        optimizer.step()
        yield loss.item()


def step_times(steps: int) -> tuple[float, float]:
    """Medians of a bare step and of one of ours: behind each of ours, a bare one is made."""
    settings = TrainingSettings(epochs=1, validation=0, augment="crop-flip")
    data = noise_images(settings.batch_size * steps)
    x, y = map(torch.from_numpy, data.arrays())
    loop = bare(x, y, settings, build(), steps)
    times = list[float]()

    def hear(what: object) -> None:
        times.append(time.process_time())
        next(loop)
        times.append(time.process_time())

    fit(build(), examples_of(data, settings, 0), settings, on_progress=hear)
    taken = np.diff(times[1:])[2:]  # ours, bare, ours, ..., without the first, in which torch prepares itself
    return median(taken[1::2].tolist()), median(taken[::2].tolist())


def noise_images(n: int) -> initio.Dataset:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(256, size=(n, 3, 32, 32), dtype=np.uint8), np.arange(n) % 10
    return initio.Dataset("images", images, labels, 10, mean=(0.5,) * 3, std=(0.25,) * 3)


# --- memory -----------------------------------------------------------------------------------------------------------


def peak(how: str, data: Path) -> int:
    """Bytes of a process that trains 20 steps."""
    done = subprocess.run(
        [sys.executable, "-m", "studies.train_speed", "--memory-of", how, "--data", str(data)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(json.loads(done.stdout.splitlines()[-1]))


def train_alone(how: str, path: str) -> None:
    """The part of one such process."""
    torch.set_num_threads(1)
    settings = TrainingSettings(epochs=1, validation=0, augment="crop-flip")
    if how == "bare":
        with np.load(path) as arrays:
            stored, labels = arrays["x_train"], torch.from_numpy(arrays["y_train"])
        x = torch.from_numpy(stored).float().div_(255).sub_(0.5).div_(0.25)
        for _ in bare(x, labels, settings, build(), 20):
            pass
    else:
        with TemporaryDirectory() as folder, suppress(EnoughError):
            initio.train("darts_v2", path, settings, folder=f"{folder}/t", on_event=_Stop(20), **SIZE)
    print(peak_bytes())


class EnoughError(Exception):
    """Ends a training."""


class _Stop:
    """Ends a training after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self, what: object) -> None:
        self.left -= 1
        if not self.left:
            raise EnoughError


def memory() -> tuple[int, int]:
    """Peaks of the bare loop and of ours on the same arrays."""
    with TemporaryDirectory() as folder:
        path, data = Path(folder, "images.npz"), noise_images(SAMPLES)
        np.savez(path, x_train=data.images, y_train=data.labels, x_test=data.images[:500], y_test=data.labels[:500])
        return peak("bare", path), peak("ours", path)


# --- JPEG files -------------------------------------------------------------------------------------------------------


def waiting(workers: int) -> list[float]:
    """The share of each epoch in which nothing was computed, on a folder that is read as it is learned."""
    rng = np.random.default_rng(0)
    with TemporaryDirectory() as folder:
        for number in range(PICTURES):
            home = Path(folder, "photos", f"class{number % 4}")
            home.mkdir(parents=True, exist_ok=True)
            coarse = rng.integers(256, size=(12, 12, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((STORED, STORED)).save(home / f"{number}.jpg", quality=90)
        trained = initio.train(
            "darts_v2",
            f"{folder}/photos@{SIDE}",
            folder=f"{folder}/t",
            machine=MachineSettings(device="cpu", workers=workers),
            epochs=2,
            tensorboard=False,
            **SIZE,
        )
        return [epoch.waited for epoch in trained.epochs]


def told(what: str, value: float, most: float) -> bool:
    """Prints a line; whether the value is too large."""
    verdict = {False: "ok", True: "TOO MUCH"}[value > most]
    print(f"{what}: {value:.3f}, allowed {most:g}: {verdict}", flush=True)
    return value > most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--workers", type=int, default=1, help="that read JPEG files")
    parser.add_argument("--memory-of", choices=["bare", "ours"], help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        train_alone(options.memory_of, options.data)
        return 0
    torch.set_num_threads(1)
    failed = 0
    one, other = step_times(options.steps)
    failed += told(f"a step: bare {1e3 * one:.1f} ms, ours {1e3 * other:.1f} ms", other / one, MOST_TIME)
    low, high = memory()
    failed += told(f"peak memory: bare {low / 1e6:.0f} MB, ours {high / 1e6:.0f} MB", high / low, MOST_MEMORY)
    shares = waiting(options.workers)
    return failed + told(f"share of an epoch that waits for {PICTURES:,} JPEG files", max(shares), MOST_WAITING)


if __name__ == "__main__":
    sys.exit(main())
