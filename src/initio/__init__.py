"""Initio finds good neural networks before any training.

The public names below are imported when they are first used, so `import initio` costs nothing.

>>> import initio
>>> arch = initio.parse("|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|nor_conv_1x1~1|avg_pool_3x3~2|")
>>> model = initio.build(arch, channels=8, cells=1, classes=10, seed=0)
>>> sum(p.numel() for p in model.parameters())
32402
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from initio.data import Dataset as Dataset
    from initio.data import load as load_data  # noqa: F401
    from initio.data import noise as noise
    from initio.errors import InputError as InputError
    from initio.records import Architecture as Architecture
    from initio.records import Batch as Batch
    from initio.records import Evaluation as Evaluation
    from initio.records import SearchResult as SearchResult
    from initio.records import from_json as from_json
    from initio.records import to_json as to_json
    from initio.runs.api import optimise as optimise
    from initio.runs.folder import load as load
    from initio.scores.model import score as score
    from initio.spaces import SPACES as SPACES
    from initio.spaces import ZOO as ZOO
    from initio.spaces import NetworkSettings as NetworkSettings
    from initio.spaces import build as build
    from initio.spaces import get_space as get_space
    from initio.spaces import parse as parse
    from initio.spaces import space as space
    from initio.spaces import space_of_modules as space_of_modules
    from initio.spaces.exports import export as export

_HOME = {  # public name -> module and name there
    "InputError": "initio.errors:InputError",
    "Architecture": "initio.records:Architecture",
    "Batch": "initio.records:Batch",
    "Evaluation": "initio.records:Evaluation",
    "SearchResult": "initio.records:SearchResult",
    "to_json": "initio.records:to_json",
    "from_json": "initio.records:from_json",
    "SPACES": "initio.spaces:SPACES",
    "ZOO": "initio.spaces:ZOO",
    "NetworkSettings": "initio.spaces:NetworkSettings",
    "get_space": "initio.spaces:get_space",
    "parse": "initio.spaces:parse",
    "space": "initio.spaces:space",
    "space_of_modules": "initio.spaces:space_of_modules",
    "export": "initio.spaces.exports:export",
    "build": "initio.spaces:build",
    "optimise": "initio.runs.api:optimise",
    "Dataset": "initio.data:Dataset",
    "load_data": "initio.data:load",
    "noise": "initio.data:noise",
    "load": "initio.runs.folder:load",
    "score": "initio.scores.model:score",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("initio")
    if name not in _HOME:
        raise AttributeError(f"module 'initio' has no attribute {name!r}")
    module, _, attribute = _HOME[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
