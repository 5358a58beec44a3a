"""Searches: SEARCHES and QUERY_SEARCHES, the two lists."""

from initio.search.base import Limits, Problem, Search
from initio.search.bohb import Bohb
from initio.search.eigen_darts import EigenDarts
from initio.search.evolution import RegularisedEvolution
from initio.search.hnas import Hnas
from initio.search.lambda_min import LambdaMin
from initio.search.literal import LiteralNasi
from initio.search.nasi import Nasi
from initio.search.queries import Budget, QuerySearch, Task, run_queries
from initio.search.random_search import RandomSearch
from initio.search.ranking import EigenNas, Knas, Naswot, ZeroCost
from initio.search.reinforce import Reinforce
from initio.search.robust import Robust
from initio.search.scores import Scores
from initio.search.te_nas import TeNas

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
    "Scores",
    "Search",
    "Task",
    "TeNas",
    "ZeroCost",
    "run_queries",
]
