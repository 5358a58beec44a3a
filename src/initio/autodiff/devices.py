"""Devices by name: what computes, and whether it is here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from initio.errors import InputError

if TYPE_CHECKING:
    import torch

NAMES = re.compile(r"auto|cpu|mps|cuda(:\d{1,3})?")
MEASURED_ON = ("cpu", "cuda")  # devices that have float64, in which sums and kernels are kept


def available() -> list[str]:
    """The kinds of devices of this machine, the fastest first."""
    import torch

    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    return [name for name, there in found.items() if there]


def check_name(name: str) -> None:
    """An `InputError` for what is no device anywhere.

    >>> check_name("gpu")
    Traceback (most recent call last):
    initio.errors.InputError: a device is auto, cpu, cuda, cuda:0, cuda:1, ... or mps, not 'gpu'
    """
    if not NAMES.fullmatch(name):
        raise InputError(f"a device is auto, cpu, cuda, cuda:0, cuda:1, ... or mps, not {name!r}")


def check_device(name: str) -> None:
    """An `InputError` for what is no device, or is not here."""
    check_name(name)
    kind, _, number = name.partition(":")
    if kind not in ("auto", "cpu") and kind not in (known := available()):
        raise InputError(f"there is no device {name!r} here: take {' or '.join(known)}")
    if number:
        import torch

        if int(number) >= (count := torch.cuda.device_count()):
            raise InputError(f"there is no device {name!r} here: the last of {count} is cuda:{count - 1}")


def apart(name: str) -> dict[str, str]:
    """What a key says of the device that made a value: nothing of the CPU, else its kind, which rounds otherwise.

    >>> apart("cpu"), apart("cuda:1")
    ({}, {'device': 'cuda'})
    """
    kind = name.partition(":")[0]
    return {"device": kind} if kind != "cpu" else {}


def can_measure(name: str) -> bool:
    """Whether this kind of device has float64.

    >>> can_measure("cuda:1"), can_measure("mps")
    (True, False)
    """
    return name.partition(":")[0] in MEASURED_ON


def find_device(name: str, *, measured: bool = False) -> torch.device:
    """The device; `auto` is the fastest that there is, among those that can measure if that is `measured`."""
    import torch

    check_device(name)
    if name == "auto":
        name = next(kind for kind in available() if not measured or can_measure(kind))
    if measured:
        check_measures(name)
    return torch.device(name)


def check_measures(name: str) -> None:
    """An `InputError` for a device that has no float64."""
    if not can_measure(name):
        raise InputError(f"{name} has no float64, in which sums and kernels are kept: measure on cpu or cuda")
