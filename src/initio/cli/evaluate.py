"""`initio evaluate TRAINED`."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from initio.cli.progress import Reporter
from initio.cli.units import number
from initio.records import to_json
from initio.report.cells import printable
from initio.report.terminal import columns

if TYPE_CHECKING:
    from initio.analysis.classification import Judgement

MOST_ROWS = 20  # of the table; the classes that fare worst


@dataclass(frozen=True)
class EvaluateCommand:
    """Measures a trained network on data that neither its search nor its training has seen.

    Prints accuracy with its interval, calibration and a table of the classes; JSON and pictures (confusion matrix,
    calibration, worst mistakes) go into the network's folder.

    Args:
        trained: the folder that `initio train` made.
        data: other data than what was kept aside of the training's own; classes are matched by name.
        worst: how many of the surest mistakes to keep and to draw.
        out: folder of the JSON and the pictures; by default the trained network's, for other data one in it.
        json: print the whole evaluation as JSON instead of tables.
    """

    trained: str
    data: str | None = None
    which: Literal["best", "last"] = "best"
    worst: int = 25
    device: str = "auto"
    workers: int = 1
    out: str | None = None
    json: bool = False

    VERB: ClassVar[tuple[str, ...]] = ("initio.runs.evaluate:evaluate",)

    def run(self) -> None:
        """Evaluates with progress on stderr, then prints."""
        from initio.runs.evaluate import evaluate

        with Reporter() as told:
            seen = evaluate(
                self.trained,
                self.data,
                which=self.which,
                worst=self.worst,
                device=self.device,
                workers=self.workers,
                folder=self.out,
                on_progress=lambda done, total: told.show("evaluating", done, total),
            )
        if self.json:
            print(to_json(seen, indent=2))
            return
        facts = seen.told()
        if seen.judgement.mistakes:
            worst = seen.judgement.mistakes[0]
            names = [report.name for report in seen.judgement.classes]
            facts["worst"] = (
                f"{seen.places[0]}: {names[worst.label]}, taken for {names[worst.answer]} "
                f"with {100 * worst.confidence:.0f} %"
            )
        print(columns({name: printable(text) for name, text in facts.items()}))
        print()
        _print_classes(seen.judgement)
        print(f"\nevaluation.json and pictures in {seen.folder}")


def _print_classes(judgement: Judgement) -> None:
    """A row a class; of many classes those that fare worst."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = judgement.classes
    title = ""
    if len(shown) > MOST_ROWS:
        known = sorted((report for report in shown if report.f1 is not None), key=lambda report: report.f1 or 0.0)
        title, shown = f"the {MOST_ROWS} classes of {len(shown)} with the smallest F1", tuple(known[:MOST_ROWS])
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("class")
    for name in ("samples", "recall %", "95 % interval", "precision %", "F1 %"):
        table.add_column(name, justify="right")
    table.add_column("taken for")
    for report in shown:
        interval = f"{number(report.low, 1)} to {number(report.high, 1)}"
        table.add_row(
            Text(printable(report.name)),
            f"{report.samples:,}",
            number(report.recall, 1),
            interval,
            number(report.precision, 1),
            number(report.f1, 1),
            Text(printable(report.confused or "")),
        )
    Console(highlight=False, width=shutil.get_terminal_size((100, 24)).columns).print(table)
