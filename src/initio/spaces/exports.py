"""An architecture as a file: FORMATS, the one list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from initio.errors import InputError, did_you_mean
from initio.networks.graphs import NetworkSettings
from initio.records import Architecture, to_json
from initio.spaces import GraphSpace, Space, get_space, parse
from initio.system.files import whole_file


def export(
    arch: Architecture | str,
    path: str | Path,
    format: str,
    *,
    weights: str | Path | None = None,
    seed: int = 0,
    **network: Any,
) -> None:
    """Writes what `exported` gives to a file, whole or not at all."""
    with whole_file(Path(path)) as temporary:
        temporary.write_bytes(exported(arch, format, weights=weights, seed=seed, **network))


def exported(
    arch: Architecture | str, format: str, *, weights: str | Path | None = None, seed: int = 0, **network: Any
) -> bytes:
    """The architecture in a format; all but those of `WITH_WEIGHTS` are UTF-8 text.

    Args:
        arch: an architecture, or the text or name of one.
        format: one of `FORMATS`.
        weights: a state dict of that network, as `torch.save(model.state_dict(), weights)` writes it.
        seed: of the weights where no file is given.
        network: the fields of `NetworkSettings`; by default the network is the published one.
    """
    if format not in FORMATS:
        raise InputError(f"there is no export format {format!r}: {did_you_mean(format, list(FORMATS))}")
    if weights is not None and format not in WITH_WEIGHTS:
        raise InputError(
            f"a file of format {format} holds no weights: load them in Python, or choose {' or '.join(WITH_WEIGHTS)}"
        )
    if isinstance(arch, str):
        arch = parse(arch)
    space = get_space(arch.space)
    settings = space.resolve(NetworkSettings(**network))
    if format in TEXTS:
        return TEXTS[format](space.check(arch), settings).encode()
    from initio.networks.export import traced
    from initio.networks.export import weights as files

    model = space.build(arch, settings, seed=seed)
    if weights is not None:
        files.load_weights(model, Path(weights))
    if format == "safetensors":
        return files.safetensors(model)
    write = {"onnx": traced.onnx, "torchscript": traced.torchscript}[format]
    return write(model.eval(), settings.shape)


def python_source(arch: Architecture, settings: NetworkSettings, home: Space | None = None, ending: str = "") -> str:
    """The network as one readable Python file that needs only torch; `ending` is what it has behind a trained network.

    >>> text = python_source(parse("mlp:relu,tanh"), NetworkSettings(channels=64, shape=(20,)))
    >>> print(text[text.index("    def forward") : text.index("if __name__")].rstrip())
        def forward(self, x: Tensor) -> Tensor:
            activation_1 = self.activation_1(self.layer_1(self.flatten(x)))
            activation_2 = self.activation_2(self.layer_2(activation_1))
            return self.classifier(activation_2)
    """
    from initio.networks.export.python import python_source as written

    space = home or get_space(arch.space)
    if not isinstance(space, GraphSpace):
        raise InputError(
            f"{space.name} has a builder of its own: the format python needs a space whose networks are graphs"
        )
    title = f"An architecture of {arch.space} as a PyTorch network:"
    return written(lambda size: space.network(arch, size), settings, title, space.format(arch), ending)


def ensemble_source(archs: Sequence[Architecture], settings: NetworkSettings, home: GraphSpace, ending: str) -> str:
    """Trained networks and their mean as one readable Python file that needs only torch, and the weights beside it."""
    from initio.networks.export.python import ensemble_source as written

    title = f"An ensemble of {len(archs)} architectures of {home.name} as one PyTorch network:"
    networks = [partial(home.network, arch) for arch in archs]
    return written(networks, settings, title, [home.format(arch) for arch in archs], ending)


TEXTS: dict[str, Callable[[Architecture, NetworkSettings], str]] = {
    "genotype": lambda arch, _: f"{get_space(arch.space).format(arch)}\n",
    "json": lambda arch, _: f"{to_json(arch)}\n",
    "python": python_source,
}
WITH_WEIGHTS = ("onnx", "torchscript", "safetensors")
FORMATS = (*TEXTS, *WITH_WEIGHTS)
