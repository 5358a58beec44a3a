"""Published tables of trained architectures, and benchmarks that answer a search's queries from them."""

from initio.tables.base import Benchmark, Report, Validation
from initio.tables.catalogue import BENCHMARKS, open_benchmark
from initio.tables.compact import Table, open_table, split_target

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "Report",
    "Table",
    "Validation",
    "open_benchmark",
    "open_table",
    "split_target",
]
