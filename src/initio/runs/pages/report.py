"""What `initio report` shows: one page about runs, trained networks and stores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from initio.errors import InputError
from initio.report.page import (
    Page,
    Part,
)
from initio.runs.pages.sections import sections
from initio.runs.pages.subjects import Subject, read_folder
from initio.runs.pages.summaries import summary

if TYPE_CHECKING:
    pass


def report(subjects: Sequence[Subject]) -> Page:
    """One page about one or several subjects."""
    if not subjects:
        raise InputError("there is nothing to report: name a run, a trained network or a store")
    parts = [Part(subject.title, sections(subject)) for subject in subjects]
    if len(subjects) == 1:
        return Page(subjects[0].title, summary(subjects[0]), parts)
    return Page(" and ".join(part.title for part in parts), " ".join(map(summary, subjects)), parts)


def write_report(runs: str | Path | Iterable[str | Path], out: str | Path) -> None:
    """Writes the page of one or several runs and trained networks: `initio.write_report("runs/a", "a.html")`."""
    folders = [runs] if isinstance(runs, str | Path) else list(runs)
    report([read_folder(folder) for folder in folders]).write(Path(out))
