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

import torch
from torch import Tensor, nn

from initio.files import whole_file

DIGEST = 32  # bytes


class UnusableError(Exception):
    """Why a checkpoint cannot be used."""


@dataclass(frozen=True)
class Checkpoint:
    """A training between two epochs; every random number of an epoch comes from (seed, epoch), so there is no more."""

    identity: str  # of the training: a checkpoint of another one is not used
    epoch: int  # epochs done
    seconds: float
    network: dict[str, Tensor]
    momentum: list[Tensor | None]  # in the order of the parameters

    @classmethod
    def of(
        cls, network: nn.Module, optimizer: torch.optim.Optimizer, identity: str, epoch: int, seconds: float
    ) -> Checkpoint:
        """The state of a training."""
        momentum = [optimizer.state[p].get("momentum_buffer") for p in network.parameters()]
        return cls(identity, epoch, seconds, network.state_dict(), momentum)

    @torch.no_grad()
    def restore(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Puts the state back; nothing is changed if it does not fit."""
        parameters, known = list(network.parameters()), network.state_dict()
        if not (
            self.network.keys() == known.keys()
            and all(_alike(self.network[name], value) for name, value in known.items())
            and len(self.momentum) == len(parameters)
            and all(saved is None or _alike(saved, p) for saved, p in zip(self.momentum, parameters, strict=True))
        ):
            raise UnusableError("its network has other parameters")
        network.load_state_dict(self.network)
        for p, saved in zip(parameters, self.momentum, strict=True):
            if saved is not None:
                optimizer.state[p]["momentum_buffer"] = torch.empty_like(p).copy_(saved)


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a whole file, or nothing."""
    buffer = io.BytesIO()
    torch.save({field.name: getattr(checkpoint, field.name) for field in fields(checkpoint)}, buffer)
    content = buffer.getvalue()
    with whole_file(path) as temporary:
        temporary.write_bytes(hashlib.sha256(content).digest() + content)


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
        raise UnusableError("it is of another training")
    return Checkpoint(**content)


def _well_formed(content: object) -> bool:
    return (
        isinstance(content, dict)
        and content.keys() == {field.name for field in fields(Checkpoint)}
        and isinstance(content["identity"], str)
        and type(content["epoch"]) is int
        and isinstance(content["seconds"], float)
        and isinstance(content["network"], dict)
        and isinstance(content["momentum"], list)
    )


def _alike(saved: object, value: object) -> bool:
    return (
        isinstance(saved, Tensor)
        and isinstance(value, Tensor)
        and saved.shape == value.shape
        and saved.dtype == value.dtype
    )
