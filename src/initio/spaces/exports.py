"""An architecture as a file: FORMATS, the one list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from initio.errors import InputError, did_you_mean
from initio.files import whole_file
from initio.networks.graphs import Graph, NetworkSettings
from initio.records import Architecture, to_json
from initio.spaces import get_space, graph_space

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Subject:
    """What is exported: an architecture, the size of its network, and where its weights come from."""

    architecture: Architecture
    settings: NetworkSettings  # channels and cells are given
    weights: Path | None = None
    seed: int = 0

    @property
    def notation(self) -> str:
        """The architecture in its space's own notation."""
        return get_space(self.architecture.space).format(self.architecture)

    def graph(self, settings: NetworkSettings) -> Graph:
        """The network of that size as data."""
        return graph_space(self.architecture.space).network(self.architecture, settings)

    def network(self) -> nn.Module:
        """The network in evaluation mode, with the weights of the file or with those of the seed."""
        from initio.networks.export.weights import load_weights

        model = get_space(self.architecture.space).build(self.architecture, self.settings, seed=self.seed)
        if self.weights is not None:
            load_weights(model, self.weights)
        return model.eval()


def export(
    arch: Architecture,
    path: str | Path,
    format: str,
    settings: NetworkSettings | None = None,
    *,
    weights: str | Path | None = None,
    seed: int = 0,
) -> None:
    """Writes what `exported` gives to a file, whole or not at all."""
    with whole_file(Path(path)) as temporary:
        temporary.write_bytes(exported(arch, format, settings, weights=weights, seed=seed))


def exported(
    arch: Architecture,
    format: str,
    settings: NetworkSettings | None = None,
    *,
    weights: str | Path | None = None,
    seed: int = 0,
) -> bytes:
    """The architecture in a format; all but those of `WITH_WEIGHTS` are UTF-8 text.

    Args:
        arch: an architecture.
        format: one of `FORMATS`.
        settings: of the network around the architecture; by default the published one.
        weights: a state dict of that network, as `torch.save(model.state_dict(), weights)` writes it.
        seed: of the weights where no file is given.
    """
    if format not in FORMATS:
        raise InputError(f"there is no export format {format!r}: {did_you_mean(format, list(FORMATS))}")
    if weights is not None and format not in WITH_WEIGHTS:
        raise InputError(
            f"a file of format {format} holds no weights: load them in Python, or choose {' or '.join(WITH_WEIGHTS)}"
        )
    settings = _resolved(arch, settings or NetworkSettings())
    if weights is not None:
        weights = Path(weights)
    return FORMATS[format](Subject(arch, settings, weights, seed))


def python_source(arch: Architecture, settings: NetworkSettings | None = None) -> str:
    """The network as one readable Python file that needs only torch.

    >>> from initio.spaces import parse
    >>> text = python_source(parse("mlp:relu,tanh"), NetworkSettings(channels=64, shape=(20,)))
    >>> print(text[text.index("    def forward") : text.index("if __name__")].rstrip())
        def forward(self, x: Tensor) -> Tensor:
            x = self.flatten(x)
            x = self.layer_1(x)
            x = self.activation_1(x)
            x = self.layer_2(x)
            x = self.activation_2(x)
            return self.classifier(x)
    """
    from initio.networks.export.python import python_source as source

    subject = Subject(arch, _resolved(arch, settings or NetworkSettings()))
    title = f"An architecture of {arch.space} as a PyTorch network:"
    return source(subject.graph, subject.settings, title, subject.notation)


def _resolved(arch: Architecture, settings: NetworkSettings) -> NetworkSettings:
    space = get_space(arch.space)
    space.check(arch)
    return space.resolve(settings)


# --- formats ---------------------------------------------------------------------------------------------------------


def _genotype(subject: Subject) -> bytes:
    return f"{subject.notation}\n".encode()


def _json(subject: Subject) -> bytes:
    return f"{to_json(subject.architecture)}\n".encode()


def _python(subject: Subject) -> bytes:
    return python_source(subject.architecture, subject.settings).encode()


def _torchscript(subject: Subject) -> bytes:
    from initio.networks.export.traced import torchscript

    return torchscript(subject.network(), subject.settings.shape)


def _onnx(subject: Subject) -> bytes:
    from initio.networks.export.traced import check_onnx, onnx

    check_onnx()
    return onnx(subject.network(), subject.settings.shape)


FORMATS: dict[str, Callable[[Subject], bytes]] = {
    "genotype": _genotype,
    "json": _json,
    "python": _python,
    "onnx": _onnx,
    "torchscript": _torchscript,
}
WITH_WEIGHTS = ("onnx", "torchscript")

__all__ = ["FORMATS", "WITH_WEIGHTS", "Subject", "export", "exported", "python_source"]
