"""Published tables of trained architectures, and benchmarks that answer a search's queries from them."""

from initio.benchmarks.base import Benchmark, Report, Validation
from initio.benchmarks.catalogue import BENCHMARKS, open_benchmark
from initio.benchmarks.tables import Table, open_table, split_target

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
