"""Published tables of trained architectures."""

from initio.benchmarks.tables import Table, open_table, split_target

__all__ = ["Table", "open_table", "split_target"]
