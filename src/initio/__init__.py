"""Initio finds good neural networks before any training.

`initio.search` chooses an architecture, `initio.build` makes the network of one, `initio.score` measures any model at
initialisation. The public names below are imported when they are first used, so `import initio` costs next to nothing.

>>> import initio
>>> arch = initio.parse("|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|nor_conv_1x1~1|avg_pool_3x3~2|")
>>> model = initio.build(arch, channels=8, cells=1, classes=10, seed=0)
>>> sum(p.numel() for p in model.parameters())
32402
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from initio.records import Architecture

if TYPE_CHECKING:
    from initio.data import Dataset as Dataset
    from initio.data import load as load_data  # noqa: F401
    from initio.data import noise as noise
    from initio.errors import InputError as InputError
    from initio.records import Batch as Batch
    from initio.records import Evaluation as Evaluation
    from initio.records import from_json as from_json
    from initio.records import to_json as to_json
    from initio.runs.attack import attack as attack
    from initio.runs.convergence import convergence as convergence
    from initio.runs.ensemble import ensemble as ensemble
    from initio.runs.evaluate import ModelEvaluation as ModelEvaluation
    from initio.runs.evaluate import evaluate as evaluate
    from initio.runs.explain import Explanation as Explanation
    from initio.runs.explain import explain as explain
    from initio.runs.export import export as export
    from initio.runs.folders.ensemble import Ensemble as Ensemble
    from initio.runs.folders.ensemble import load_ensemble as load_ensemble
    from initio.runs.folders.model import TrainedModel as TrainedModel
    from initio.runs.folders.model import load_model as load_model
    from initio.runs.folders.run import load_run as load  # noqa: F401
    from initio.runs.folders.solution import SolveResult as SolveResult
    from initio.runs.landscape import landscape as landscape
    from initio.runs.optimise import optimise as optimise
    from initio.runs.pages.report import write_report as write_report
    from initio.runs.rank import rank as rank
    from initio.runs.search import search as search
    from initio.runs.solve import solve as solve
    from initio.runs.train import train as train
    from initio.scores.model import score as score
    from initio.scores.table import ScoreTable as ScoreTable
    from initio.searches import Limits as Limits
    from initio.searches import Problem as Problem
    from initio.searches import QuerySearch as QuerySearch
    from initio.searches import Search as Search
    from initio.searches import SearchResult as SearchResult
    from initio.searches import SearchStep as SearchStep
    from initio.searches import Trained as Trained
    from initio.spaces import SPACES as SPACES
    from initio.spaces import ZOO as ZOO
    from initio.spaces import NetworkSettings as NetworkSettings
    from initio.spaces import build as build
    from initio.spaces import get_space as get_space
    from initio.spaces import parse as parse
    from initio.spaces import space as space
    from initio.spaces import space_of_modules as space_of_modules

_HOME = {  # public name -> module and name there
    "InputError": "initio.errors:InputError",
    "Architecture": "initio.records:Architecture",
    "Batch": "initio.records:Batch",
    "Evaluation": "initio.records:Evaluation",
    "to_json": "initio.records:to_json",
    "from_json": "initio.records:from_json",
    "SPACES": "initio.spaces:SPACES",
    "ZOO": "initio.spaces:ZOO",
    "NetworkSettings": "initio.spaces:NetworkSettings",
    "get_space": "initio.spaces:get_space",
    "parse": "initio.spaces:parse",
    "space": "initio.spaces:space",
    "space_of_modules": "initio.spaces:space_of_modules",
    "build": "initio.spaces:build",
    "convergence": "initio.runs.convergence:convergence",
    "explain": "initio.runs.explain:explain",
    "Explanation": "initio.runs.explain:Explanation",
    "landscape": "initio.runs.landscape:landscape",
    "optimise": "initio.runs.optimise:optimise",
    "rank": "initio.runs.rank:rank",
    "search": "initio.runs.search:search",
    "solve": "initio.runs.solve:solve",
    "SolveResult": "initio.runs.folders.solution:SolveResult",
    "train": "initio.runs.train:train",
    "attack": "initio.runs.attack:attack",
    "ensemble": "initio.runs.ensemble:ensemble",
    "Ensemble": "initio.runs.folders.ensemble:Ensemble",
    "load_ensemble": "initio.runs.folders.ensemble:load_ensemble",
    "evaluate": "initio.runs.evaluate:evaluate",
    "ModelEvaluation": "initio.runs.evaluate:ModelEvaluation",
    "export": "initio.runs.export:export",
    "write_report": "initio.runs.pages.report:write_report",
    "TrainedModel": "initio.runs.folders.model:TrainedModel",
    "load_model": "initio.runs.folders.model:load_model",
    "Search": "initio.searches:Search",
    "QuerySearch": "initio.searches:QuerySearch",
    "SearchStep": "initio.searches:SearchStep",
    "SearchResult": "initio.searches:SearchResult",
    "Trained": "initio.searches:Trained",
    "Problem": "initio.searches:Problem",
    "Limits": "initio.searches:Limits",
    "Dataset": "initio.data:Dataset",
    "load_data": "initio.data:load",
    "noise": "initio.data:noise",
    "load": "initio.runs.folders.run:load_run",
    "score": "initio.scores.model:score",
    "ScoreTable": "initio.scores.table:ScoreTable",
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


def _picture(arch: Architecture) -> str | None:
    """The cells of an architecture, for notebooks."""
    from initio.errors import InputError
    from initio.report import svg_text
    from initio.spaces import get_space

    try:
        return svg_text(get_space(arch.space).cells(arch))
    except InputError:  # its space goes by no name, or its cells are too large to draw: the plain text will do
        return None


Architecture._repr_svg_ = _picture
