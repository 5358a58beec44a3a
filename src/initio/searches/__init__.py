"""Searches: SEARCHES and QUERY_SEARCHES, the two lists."""

from initio.scores.table import ScoreTable
from initio.searches.base import Limits, Problem, Search
from initio.searches.methods.bohb import Bohb
from initio.searches.methods.eigen_darts import EigenDarts
from initio.searches.methods.evolution import RegularisedEvolution
from initio.searches.methods.hnas import Hnas
from initio.searches.methods.lambda_min import LambdaMin
from initio.searches.methods.literal import LiteralNasi
from initio.searches.methods.nasi import Nasi
from initio.searches.methods.random_search import RandomSearch
from initio.searches.methods.ranking import EigenNas, Knas, Naswot, ZeroCost
from initio.searches.methods.reinforce import Reinforce
from initio.searches.methods.robust import Robust
from initio.searches.methods.te_nas import TeNas
from initio.searches.queries import Budget, QuerySearch, Task, run_queries

SEARCHES: dict[str, type[Search]] = {  # that train nothing
    "nasi": Nasi,
    "nasi-literal": LiteralNasi,
    "lambda-min": LambdaMin,
    "eigen-darts": EigenDarts,
}

QUERY_SEARCHES: dict[str, type[QuerySearch]] = {  # that learn from trainings
    "robust": Robust,
    "hnas": Hnas,
    "random": RandomSearch,
    "rea": RegularisedEvolution,
    "reinforce": Reinforce,
    "bohb": Bohb,
    "zero-cost": ZeroCost,
    "naswot": Naswot,
    "knas": Knas,
    "eigen-nas": EigenNas,
    "te-nas": TeNas,
}

UNSCORED = frozenset({"random", "rea", "reinforce", "bohb", "te-nas"})  # that need no scores of a pool

__all__ = [
    "QUERY_SEARCHES",
    "SEARCHES",
    "UNSCORED",
    "Bohb",
    "Budget",
    "EigenDarts",
    "EigenNas",
    "Hnas",
    "Knas",
    "LambdaMin",
    "Limits",
    "LiteralNasi",
    "Nasi",
    "Naswot",
    "Problem",
    "QuerySearch",
    "RandomSearch",
    "RegularisedEvolution",
    "Reinforce",
    "Robust",
    "ScoreTable",
    "Search",
    "Task",
    "TeNas",
    "ZeroCost",
    "run_queries",
]
