"""Searches: SEARCHES, the one list. Nothing of a search is imported before it is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from initio.errors import InputError
from initio.plugins import find
from initio.searches.base import Search, SearchStep
from initio.searches.driver import drive
from initio.searches.limits import Limits
from initio.searches.problem import Budget, Problem
from initio.searches.queries import Answer, Proposals, QuerySearch, Trained
from initio.searches.restarts import Finalist, Reference, Restarts
from initio.searches.result import SearchResult

METHODS = "initio.searches.methods"
SEARCHES: dict[str, str] = {  # name -> module:Class, as a search of the user's own is named
    "votes": f"{METHODS}.votes:VotingSearch",
    "nasi-fit": f"{METHODS}.nasi_fit:NasiFit",
    "nasi": f"{METHODS}.nasi:Nasi",
    "lambda-min": f"{METHODS}.lambda_min:LambdaMin",
    "eigen-darts": f"{METHODS}.eigen_darts:EigenDarts",
    "robust": f"{METHODS}.robust:Robust",
    "robot": f"{METHODS}.robot:Robot",
    "hnas": f"{METHODS}.hnas:Hnas",
    "random": f"{METHODS}.random_search:RandomSearch",
    "rea": f"{METHODS}.evolution:RegularisedEvolution",
    "reinforce": f"{METHODS}.reinforce:Reinforce",
    "bohb": f"{METHODS}.bohb:Bohb",
    "zero-cost": f"{METHODS}.ranking:ZeroCost",
    "naswot": f"{METHODS}.ranking:Naswot",
    "knas": f"{METHODS}.ranking:Knas",
    "eigen-nas": f"{METHODS}.ranking:EigenNas",
    "te-nas": f"{METHODS}.te_nas:TeNas",
    "rsps": f"{METHODS}.rsps:Rsps",
    "enas": f"{METHODS}.enas:Enas",
    "darts": f"{METHODS}.darts:Darts",
    "darts-2nd": f"{METHODS}.darts:Darts2nd",
    "gdas": f"{METHODS}.gdas:Gdas",
    "snas": f"{METHODS}.snas:Snas",
    "pc-darts": f"{METHODS}.pc_darts:PcDarts",
    "p-darts": f"{METHODS}.p_darts:PDarts",
    "sdarts-rs": f"{METHODS}.sdarts:SdartsRs",
    "sdarts-adv": f"{METHODS}.sdarts:SdartsAdv",
    "drnas": f"{METHODS}.drnas:DrNas",
    "nesbs": f"{METHODS}.nesbs:Nesbs",
}
RENAMED = {"nasi-literal": "nasi"}


def find_search(name: str) -> type[Search[Any]]:
    """The class of a search: one of SEARCHES, of an installed package (`initio.searches`), or `package.module:Name`."""
    if name in RENAMED:
        raise InputError(f"the search {name!r} is called {RENAMED[name]!r} now")
    found: type[Search[Any]] = find("searches", name, SEARCHES)
    return found


def name_today(method: str, settings: Mapping[str, object]) -> str:
    """What the search of a kept run is called now: `nasi` was the fit, known by its `ridge`, beside `nasi-literal`."""
    if method == "nasi" and "ridge" in settings:
        return "nasi-fit"
    return RENAMED.get(method, method)


def steps_of(name: str) -> tuple[type[SearchStep], ...]:
    """The kinds of steps that runs of a search have, those of its restarts included."""
    return (*find_search(name).step_types, Finalist, Reference)


__all__ = [
    "SEARCHES",
    "Answer",
    "Budget",
    "Limits",
    "Problem",
    "Proposals",
    "QuerySearch",
    "Restarts",
    "Search",
    "SearchResult",
    "SearchStep",
    "Trained",
    "drive",
    "find_search",
    "name_today",
    "steps_of",
]
