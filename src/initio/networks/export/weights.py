"""Weights in files that cannot run code: those of `torch.save(model.state_dict(), path)`, and safetensors."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from initio.errors import InputError


def torch_file(model: nn.Module) -> bytes:
    """What `torch.load(path, weights_only=True)` reads."""
    buffer = io.BytesIO()
    torch.save(_state(model), buffer)
    return buffer.getvalue()


def safetensors(model: nn.Module, facts: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file, `facts` in its head."""
    try:
        from safetensors.torch import save
    except ImportError:
        raise InputError("the format safetensors needs its package: pip install 'initio[export]'") from None
    return save(_state(model), metadata=dict(facts or {}))


def _state(model: nn.Module) -> dict[str, Tensor]:
    """Tensors in their usual order in memory, each with memory of its own."""
    usual = torch.contiguous_format
    return {name: value.detach().cpu().clone(memory_format=usual) for name, value in model.state_dict().items()}


def load_weights(model: nn.Module, path: Path) -> None:
    """Loads a state dict into the model; nothing in the file is executed."""
    model.load_state_dict(_fitting(read_weights(path), model, str(path)))


def read_weights(path: Path) -> Mapping[str, Tensor]:
    """The tensors of a file by name."""
    if not path.is_file():
        raise InputError(f"the file of weights {str(path)!r} does not exist")
    try:
        with warnings.catch_warnings():  # what torch cannot read, it refuses
            warnings.filterwarnings("ignore", "Detected pickle protocol", UserWarning)
            damaged = _damaged(path)
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # torch's reader executes nothing, and fails in any way
        damaged, content = False, None
    if damaged:
        raise InputError(f"the file of weights {str(path)!r} is damaged: take a copy of it, or train anew")
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise InputError(f"{str(path)!r} is not a state dict: write it by torch.save(model.state_dict(), path)")
    return content


def _damaged(path: Path) -> bool:
    """Whether a file as torch.save writes it, a zip of members as they are, has other bytes than were written.

    torch does not compare the sums that it writes. A file of another kind has none.
    """
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            return False
        return archive.testzip() is not None


def _fitting(given: Mapping[str, Tensor], model: nn.Module, where: str) -> Mapping[str, Tensor]:
    """The same state dict, or an `InputError` with the first thing that does not fit."""
    wanted = model.state_dict()
    for name, value in wanted.items():
        if name not in given:
            raise InputError(f"the weights {where!r} are of another network: they lack {name!r}")
        if given[name].shape != value.shape:
            have, want = (_shape(tensor) for tensor in (given[name], value))
            raise InputError(f"the weights {where!r} are of another network: {name!r} is {have}, it should be {want}")
    if unknown := [name for name in given if name not in wanted]:
        raise InputError(f"the weights {where!r} are of another network: it has no {unknown[0]!r}")
    return given


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"
