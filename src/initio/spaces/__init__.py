"""Search spaces: SPACES, the one list; and reading an architecture in any of their notations."""

from __future__ import annotations

import re

from initio.errors import InputError, did_you_mean
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
from initio.spaces.zoo import ZOO

MLP_DEPTH = 10  # of the space called plainly `mlp`, as in Eigen-NAS

SPACES: dict[str, GraphSpace] = {
    "nb201": NB201,
    "nb101": NB101,
    "nb1shot1-s1": NB1SHOT1_S1,
    "nb1shot1-s2": NB1SHOT1_S2,
    "nb1shot1-s3": NB1SHOT1_S3,
    "darts": DARTS,
    "mlp": mlp_space(MLP_DEPTH),
}


def get_space(name: str) -> GraphSpace:
    """The space of this name; `mlp-7` is the `mlp` space of depth 7.

    >>> get_space("nb102")
    Traceback (most recent call last):
    initio.errors.InputError: there is no search space 'nb102': did you mean 'nb101'?
    """
    if name in SPACES:
        return SPACES[name]
    if match := re.fullmatch(r"mlp-([0-9]{1,4})", name):
        return mlp_space(int(match[1]))
    raise InputError(f"there is no search space {name!r}: {did_you_mean(name, list(SPACES))}")


def parse(text: str) -> Architecture | Genotype:
    """An architecture in any known notation, or a published cell by name.

    - a name of the zoo: `darts_v2`, `nasnet`; it gives an `Architecture` when the cell lies in the `darts` space, else
      its `Genotype`
    - a NAS-Bench-201 string `|nor_conv_3x3~0|+...`
    - `ModelSpec(matrix=..., ops=...)` or JSON with `matrix` and `ops`: NAS-Bench-101
    - `Genotype(...)`: DARTS; a `Genotype` where the cell lies outside the space
    - `mlp:relu,tanh;skips=1` and `nb1shot1-s1:...`
    - the JSON of an `Architecture`

    >>> parse("darts_v2").space
    'darts'
    """
    text = text.strip()
    if not text:
        raise InputError("the architecture is empty")
    if text in ZOO:
        return _zoo(ZOO[text])
    if text.startswith("{") and '"initio"' in text:
        arch = from_json(Architecture, text, where="the architecture")
        return get_space(arch.space).check(arch)
    if text.startswith(DARTS.notations):
        return _zoo(Genotype.parse(text))
    return _space_by_notation(text).parse(text)


def _zoo(genotype: Genotype) -> Architecture | Genotype:
    try:
        return DARTS.from_genotype(genotype)
    except InputError:
        return genotype


def _space_by_notation(text: str) -> GraphSpace:
    prefix = text.partition(":")[0]
    if prefix in SPACES or prefix.startswith("mlp-"):
        return get_space(prefix)
    for own in SPACES.values():
        if text.startswith(own.notations):
            return own
    shown = text if len(text) <= 60 else text[:57] + "..."
    raise InputError(
        f"{shown!r} is not an architecture: give an nb201 string, Genotype(...), ModelSpec(...), mlp:..., "
        f"or a published cell ({', '.join(ZOO)})"
    )


__all__ = [
    "DARTS",
    "NB1SHOT1_S1",
    "NB1SHOT1_S2",
    "NB1SHOT1_S3",
    "NB101",
    "NB201",
    "SPACES",
    "ZOO",
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
    "get_space",
    "mlp_space",
    "parse",
    "space",
    "space_of_modules",
]
