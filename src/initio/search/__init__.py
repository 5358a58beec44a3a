"""Searches: SEARCHES, the one list."""

from initio.search.base import Limits, Problem, Search
from initio.search.eigen_darts import EigenDarts
from initio.search.lambda_min import LambdaMin
from initio.search.literal import LiteralNasi
from initio.search.nasi import Nasi

SEARCHES: dict[str, type[Search]] = {
    "nasi": Nasi,
    "nasi-literal": LiteralNasi,
    "lambda-min": LambdaMin,
    "eigen-darts": EigenDarts,
}

__all__ = ["SEARCHES", "EigenDarts", "LambdaMin", "Limits", "LiteralNasi", "Nasi", "Problem", "Search"]
