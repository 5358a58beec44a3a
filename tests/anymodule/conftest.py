"""Adds up what the cases of this folder reported, also from several workers, and prints one line."""

from __future__ import annotations

from collections import Counter
from typing import Any

KINDS = ("right", "flagged", "refused", "wrong")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """`N right, N flagged, N refused, N wrong`."""
    total: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                total.update({kind: count for kind, count in report.user_properties if kind in KINDS})
    if total:
        terminalreporter.write_line("any module: " + ", ".join(f"{total[kind]} {kind}" for kind in KINDS))
