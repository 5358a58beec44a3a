"""Searches: SEARCHES, the one list."""

from initio.search.base import Limits, Problem, Search
from initio.search.literal import LiteralNasi
from initio.search.nasi import Nasi

SEARCHES: dict[str, type[Search]] = {
    "nasi": Nasi,
    "nasi-literal": LiteralNasi,
}

__all__ = ["SEARCHES", "Limits", "LiteralNasi", "Nasi", "Problem", "Search"]
