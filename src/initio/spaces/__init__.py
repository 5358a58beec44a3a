"""Search spaces: SPACES, the one list; reading an architecture in any of their notations, and building it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from initio import plugins
from initio.errors import InputError
from initio.networks.graphs import NetworkSettings
from initio.records import Architecture, from_json
from initio.spaces.base import Cell, Decision, Edge, GraphSpace, Size, Sizes, Space
from initio.spaces.custom import CustomSpace, space, space_of_modules
from initio.spaces.darts import DARTS
from initio.spaces.genotype import Genotype
from initio.spaces.mlp import mlp_space
from initio.spaces.nb1shot1 import NB1SHOT1_S1, NB1SHOT1_S2, NB1SHOT1_S3
from initio.spaces.nb101 import NB101
from initio.spaces.nb201 import NB201
from initio.spaces.published import ZOO
from initio.spaces.zoo import ZOO_SPACE

if TYPE_CHECKING:
    from torch import nn

MLP_DEPTH = 10  # of the space called plainly `mlp`, as in Eigen-NAS

SPACES: dict[str, GraphSpace] = {
    "nb201": NB201,
    "nb101": NB101,
    "nb1shot1-s1": NB1SHOT1_S1,
    "nb1shot1-s2": NB1SHOT1_S2,
    "nb1shot1-s3": NB1SHOT1_S3,
    "darts": DARTS,
    "zoo": ZOO_SPACE,
    "mlp": mlp_space(MLP_DEPTH),
}


def get_space(name: str) -> Space:
    """The space of this name; `mlp-7` is the `mlp` space of depth 7, `package.module:Name` one of your own.

    A space from outside is renamed: the name by which it was found, then a digest of its decisions. So an architecture
    knows where its space comes from, in another process too, and is refused when the decisions have changed since.

    >>> get_space("nb102")
    Traceback (most recent call last):
    initio.errors.InputError: there is no search space 'nb102': did you mean 'nb101'?
    """
    if name in SPACES:
        return SPACES[name]
    if match := re.fullmatch(r"mlp-([0-9]{1,4})", name):
        return mlp_space(int(match[1]))
    name, asked = _split(name)
    found = plugins.find("spaces", name, SPACES)
    if not isinstance(found, Space):
        raise InputError(f"{name} must be a space, as initio.space makes it, not {type(found).__name__}")
    if asked not in ("", f"-{found.digest}"):
        raise InputError(f"the decisions of {name} have changed since {name}{asked} was written")
    return replace(found, name=f"{name}-{found.digest}")


def of_depth(name: str, depth: int) -> str:
    """The name of the space of this depth.

    >>> of_depth("mlp", 3)
    'mlp-3'
    """
    if name != "mlp":
        raise InputError(f"depth is an option of mlp, not of {name}")
    return f"{name}-{depth}"


def spaces_that(fact: str) -> str:
    """The names of the spaces of which a fact is true, for sentences.

    >>> spaces_that("drops_paths")
    'nb201, darts or zoo'
    """
    *others, last = [name for name, space in SPACES.items() if getattr(space, fact)]
    return " or ".join([", ".join(others), last]) if others else last


def parse(text: str) -> Architecture:
    """An architecture in any known notation.

    - a published cell by name: `darts_v2`, `nasnet`
    - a NAS-Bench-201 string `|nor_conv_3x3~0|+...`
    - `ModelSpec(matrix=..., ops=...)` or JSON with `matrix` and `ops`: NAS-Bench-101
    - `Genotype(...)`: of `darts`, or of `zoo` where the cells lie outside that space
    - `mlp:relu,tanh;skips=1`, `nb1shot1-s1:...`, `package.module:Name:...`: the name of the space comes first
    - the JSON of an `Architecture`

    >>> parse("darts_v2").space, parse("nasnet").space
    ('darts', 'zoo')
    """
    text = text.strip()
    if not text:
        raise InputError("the architecture is empty")
    if text.startswith("{") and '"initio"' in text:
        arch = from_json(Architecture, text, where="the architecture")
        return get_space(arch.space).check(arch)
    if text in ZOO:
        text = str(ZOO[text])
    if named := _named(text):
        return named.parse(text)
    error = None
    for own in SPACES.values():
        if text.startswith(own.notations):
            try:
                return own.parse(text)
            except InputError as why:
                error = error or why
    if error:
        raise error
    shown = text if len(text) <= 60 else text[:57] + "..."
    raise InputError(
        f"{shown!r} is not an architecture: give an nb201 string, Genotype(...), ModelSpec(...), mlp:..., "
        f"or a published cell ({', '.join(ZOO)})"
    )


def _split(name: str) -> tuple[str, str]:
    """Takes the digest off the name of a space from outside: `package.module:Name-0f3a9c`."""
    match = re.search(r"-[0-9a-f]{6}$", name)
    if match is None:
        return name, ""
    return name[: match.start()], match[0]


def _named(text: str) -> Space | None:
    """The space whose name the text begins with: `mlp:...`, `package.module:Name-0f3a9c:...`."""
    first, *rest = text.split(":", 2)
    if first in SPACES or first.startswith("mlp-"):
        return get_space(first)
    if len(rest) == 2 and plugins.is_path(f"{first}:{_split(rest[0])[0]}"):
        return get_space(f"{first}:{rest[0]}")
    if rest and _split(first)[0] in plugins.announced("spaces"):
        return get_space(first)
    return None


def build(arch: Architecture | str, *, space: Space | None = None, seed: int = 0, **network: Any) -> nn.Module:
    """The network of an architecture, or of its text, as a plain PyTorch module.

    Args:
        arch: an architecture, or the text or name of one.
        space: its space, if that was made in Python and has no name by which it is found.
        seed: of the weights.
        network: the fields of `NetworkSettings`: channels, cells, classes, shape, norm, init, ...

    >>> model = build("darts_v2", channels=4, cells=3, shape=(1, 28, 28))
    >>> type(model.classifier).__name__
    'Linear'
    """
    if isinstance(arch, str):
        arch = parse(arch) if space is None else space.parse(arch)
    return (space or get_space(arch.space)).build(arch, NetworkSettings(**network), seed=seed)


__all__ = [
    "DARTS",
    "NB1SHOT1_S1",
    "NB1SHOT1_S2",
    "NB1SHOT1_S3",
    "NB101",
    "NB201",
    "SPACES",
    "ZOO",
    "ZOO_SPACE",
    "Cell",
    "CustomSpace",
    "Decision",
    "Edge",
    "Genotype",
    "GraphSpace",
    "NetworkSettings",
    "Size",
    "Sizes",
    "Space",
    "build",
    "get_space",
    "mlp_space",
    "of_depth",
    "parse",
    "space",
    "space_of_modules",
    "spaces_that",
]
