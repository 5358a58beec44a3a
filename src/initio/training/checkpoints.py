"""A training on disk after each of its epochs, in a file that cannot run code.

A file is the SHA-256 of the rest, then what `torch.save` makes of plain tensors and numbers. Damage is found by the
sum before anything is parsed; and the parser is torch's `weights_only` one, which builds tensors and calls nothing.
A checkpoint saves work and holds nothing else, so one that cannot be used is left aside with a sentence, and the
training starts over to the same value.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from initio.errors import InputError
from initio.system.files import whole_file

DIGEST = 32  # bytes


class UnusableError(Exception):
    """Why a checkpoint cannot be used."""


@dataclass(frozen=True)
class Checkpoint:
    """A training between two epochs; every random number of an epoch comes from (seed, epoch), so there is no more."""

    identity: str  # of the training: a checkpoint of another one is not used
    seconds: float
    history: list[dict[str, Any]]  # the epochs done, each as JSON values
    network: dict[str, Tensor]
    momentum: list[Tensor | None]  # in the order of the parameters
    average: dict[str, Tensor]  # of the weights; empty where there is none

    @classmethod
    def of(
        cls,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        average: nn.Module | None,
        identity: str,
        history: list[dict[str, Any]],
        seconds: float,
    ) -> Checkpoint:
        """The state of a training."""
        momentum = [optimizer.state[p].get("momentum_buffer") for p in network.parameters()]
        averaged = {} if average is None else average.state_dict()
        return cls(identity, seconds, history, network.state_dict(), momentum, averaged)

    @torch.no_grad()
    def restore(self, network: nn.Module, optimizer: torch.optim.Optimizer, average: nn.Module | None) -> None:
        """Puts the state back; nothing is changed if it does not fit."""
        parameters = list(network.parameters())
        averaged = {} if average is None else average.state_dict()
        if not (
            _all_alike(self.network, network.state_dict())
            and _all_alike(self.average, averaged)
            and len(self.momentum) == len(parameters)
            and all(saved is None or _alike(saved, p) for saved, p in zip(self.momentum, parameters, strict=True))
        ):
            raise UnusableError("its network has other parameters")
        network.load_state_dict(self.network)
        if average is not None:
            average.load_state_dict(self.average)
        for p, saved in zip(parameters, self.momentum, strict=True):
            if saved is not None:
                optimizer.state[p]["momentum_buffer"] = torch.empty_like(p).copy_(saved)


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a whole file, or nothing: where there is no room, the one before stays as it is."""
    buffer = io.BytesIO()
    torch.save({field.name: getattr(checkpoint, field.name) for field in fields(checkpoint)}, buffer)
    content = buffer.getvalue()
    try:
        with whole_file(path) as temporary:
            temporary.write_bytes(hashlib.sha256(content).digest() + content)
    except OSError as error:
        why = error.strerror or error
        raise InputError(
            f"the checkpoint {str(path)!r} of {len(content):,} bytes cannot be written: {why}; the one before is intact"
        ) from None


def load(path: Path, identity: str) -> Checkpoint:
    """The checkpoint of the training `identity`, or an `UnusableError` with the reason."""
    raw = path.read_bytes()
    if hashlib.sha256(raw[DIGEST:]).digest() != raw[:DIGEST]:
        raise UnusableError("it is damaged or not a checkpoint")
    try:
        content = torch.load(io.BytesIO(raw[DIGEST:]), map_location="cpu", weights_only=True)
    except Exception:  # whoever made a file with the right sum can let torch's reader fail in any way
        raise UnusableError("it holds more than plain tensors and numbers, or is not a checkpoint") from None
    if not _well_formed(content):
        raise UnusableError("it is not a checkpoint of this version")
    if content["identity"] != identity:
        raise UnusableError("it is of another training: another architecture, data, recipe, seed or torch")
    return Checkpoint(**content)


def _well_formed(content: object) -> bool:
    return (
        isinstance(content, dict)
        and content.keys() == {field.name for field in fields(Checkpoint)}
        and isinstance(content["identity"], str)
        and isinstance(content["history"], list)
        and isinstance(content["seconds"], float)
        and isinstance(content["network"], dict)
        and isinstance(content["momentum"], list)
        and isinstance(content["average"], dict)
    )


def _all_alike(saved: dict[str, Tensor], known: dict[str, Tensor]) -> bool:
    return saved.keys() == known.keys() and all(_alike(saved[name], value) for name, value in known.items())


def _alike(saved: object, value: object) -> bool:
    return (
        isinstance(saved, Tensor)
        and isinstance(value, Tensor)
        and saved.shape == value.shape
        and saved.dtype == value.dtype
    )
