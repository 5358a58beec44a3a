"""Searches: SEARCHES, the one list."""

from initio.search.base import Limits, Problem, Search
from initio.search.nasi import Nasi

SEARCHES: dict[str, type[Search]] = {
    "nasi": Nasi,
}

__all__ = ["SEARCHES", "Limits", "Nasi", "Problem", "Search"]
