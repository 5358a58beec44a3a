"""`initio explain ARCH`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from initio.cli.progress import Reporter
from initio.cli.units import tell_record
from initio.report.terminal import brief, columns

if TYPE_CHECKING:
    from initio.runs.explain import Change, Explanation, MetricPlace

BAR = 20  # letters
SHOWN = 8  # changes of either kind


@dataclass(frozen=True)
class ExplainCommand:
    """Explains an architecture: what it is, where it stands among others, what each decision does to that.

    Args:
        architecture: a run folder, a notation, a published cell by name (darts_v2), or a file with one of these.
        changes: say what each single change of a decision would do; --no-changes is much faster where it is measured.
        json: print the same as JSON.
    """

    architecture: str
    measure: bool = False
    pool: int = 24
    data: str | None = None
    batch_size: int = 32
    changes: bool = True
    seed: int = 0
    workers: int = 1
    cluster: str | None = None
    device: str = "cpu"
    store: str | None = None
    json: bool = False

    VERB: ClassVar[tuple[str, ...]] = ("initio.runs.explain:explain",)

    def run(self) -> None:
        """Prints one page."""
        from initio.runs.explain import explain

        with Reporter() as reporter:
            asked = {name: value for name, value in vars(self).items() if name not in ("architecture", "json")}
            found = explain(self.architecture, **asked, on_progress=reporter.scoring)
        tell_record(page(found), found, json=self.json)


def page(found: Explanation) -> str:
    """The explanation for a terminal."""
    from initio.report import draw_text
    from initio.runs.explain import shown
    from initio.spaces import get_space

    space = get_space(found.architecture.space)
    facts = {"architecture": found.notation, "space": f"{space.name}: {space.title}"}
    if found.nearest is not None:
        facts["nearest published"] = str(found.nearest)
    facts |= {f"{cell.name}: width, depth": shown(cell) for cell in found.cells}
    facts["published network"] = f"{found.parameters:,} parameters, {found.flops:,} FLOPs"
    if found.method is not None:
        facts["chosen by"] = f"{found.method}: {found.why}"
    lines = [draw_text(space.cells(found.architecture), width=shutil.get_terminal_size((100, 24)).columns), ""]
    lines += [columns(facts), "", f"Compared with {found.others}:", ""]
    lines += _places("metric", found.metrics)
    if found.bounds:
        lines += ["", *_places("bound of HNAS", found.bounds)]
    if found.ranking is not None:
        at = found.ranking
        lines += ["", f"Training-free ranking: place {at.place} of {at.among}, better than {at.percentile:.0f} %"]
        lines += [f"(by {', '.join(at.members)}; what decided most is {at.decided})"]
    if found.changes:
        lines += ["", f"Of each decision the change that would rank best (the {SHOWN} best):", *_changes(found.changes)]
        lines += ["", f"and the one that would rank worst (the {SHOWN} worst):", *_changes(found.worst)]
    return "\n".join([*lines, *("", *found.notes)[: 2 * len(found.notes)]])


def _places(title: str, rows: Sequence[MetricPlace]) -> list[str]:
    width = max(map(len, [title, *(row.metric for row in rows)]))
    lines = [f"{title:<{width}}    {'value':>11}  better than"]
    for row in rows:
        arrow = "↓↑"[row.higher_is_better]
        lines.append(f"{row.metric:<{width}} {arrow}  {brief(row.value):>11}  {_bar(row)}".rstrip())
    return lines


def _bar(row: MetricPlace) -> str:
    if row.percentile is None:
        return row.flag
    filled = round(BAR * row.percentile / 100)
    return f"{'█' * filled}{'·' * (BAR - filled)} {row.percentile:3.0f} %  {row.flag}"


def _changes(changes: Sequence[Change]) -> list[str]:
    few = changes[:SHOWN]
    texts = [f"{one.decision}: {one.now} → {one.option}" for one in few]
    shapes = [f"({one.shape})" * bool(one.shape) for one in few]
    width, beside = (max(map(len, words)) for words in (texts, shapes))
    moves = [f"{one.gain:+4.0f} points, to {one.percentile:.0f} %  {one.because}" for one in few]
    rows = zip(texts, shapes, moves, strict=True)
    return [f"  {text:<{width}}  {cell:<{beside}}  {move}".rstrip() for text, cell, move in rows]
