"""Published benchmarks of trained architectures: tables that answer a search's queries, and surrogates that do."""

from initio.tables.base import Report, Table, Validation
from initio.tables.catalogue import TABLES, open_compact, open_table, space_of, table_of
from initio.tables.compact import CompactTable, split_target

__all__ = [
    "TABLES",
    "CompactTable",
    "Report",
    "Table",
    "Validation",
    "open_compact",
    "open_table",
    "space_of",
    "split_target",
    "table_of",
]
