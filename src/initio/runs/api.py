"""Shortcuts over the spaces, for users: an architecture knows its space by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from initio.records import Architecture
from initio.spaces import DARTS, Genotype, NetworkSettings, get_space, parse

if TYPE_CHECKING:
    from torch import nn


def build(arch: Architecture | Genotype | str, *, seed: int = 0, **settings: Any) -> nn.Module:
    """The network of an architecture, or of its text, as a plain PyTorch module.

    Args:
        arch: an architecture, a published cell, or the text or name of one.
        seed: of the weights.
        settings: the fields of `NetworkSettings`: channels, cells, classes, shape, norm, init, ...

    >>> model = build("darts_v2", channels=4, cells=3, shape=(1, 28, 28))
    >>> type(model.classifier).__name__
    'Linear'
    """
    arch = parse(arch) if isinstance(arch, str) else arch
    options = NetworkSettings(**settings)
    if isinstance(arch, Genotype):
        from initio.networks.build import build as build_graph

        return build_graph(arch.network(options, *DARTS.size(options)), options, seed=seed)
    return get_space(arch.space).build(arch, options, seed=seed)
