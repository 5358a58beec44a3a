"""`initio metrics [NAME]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from initio.cli.units import print_json
from initio.report.terminal import columns

if TYPE_CHECKING:
    from initio.metrics import Metric


@dataclass(frozen=True)
class MetricsCommand:
    """Lists the metrics and explains them.

    Args:
        name: explain this one only, or several with commas between them. It may be the first word of the command.
        json: print JSON instead of text.
    """

    name: str | None = None
    json: bool = False

    FIRST: ClassVar[str] = "name"

    def run(self) -> None:
        """Prints a line a metric, or all there is to say about one."""
        from initio.metrics import METRICS, choose_metrics

        chosen = list(METRICS.values() if self.name is None else choose_metrics(self.name))
        if self.json:
            print_json([_facts(metric) for metric in chosen])
        elif self.name is None:
            _print_list(chosen)
        else:
            print("\n\n".join(map(_explained, chosen)))


def _print_list(metrics: list[Metric]) -> None:
    width, formula = (max(len(getattr(m, name)) for m in metrics) for name in ("name", "formula"))
    for m in metrics:
        arrow = ("↑" if m.higher_is_better else "↓") + "*" * bool(m.reversed_on)
        print(f"{m.name:<{width}} {arrow:<2}  {m.formula:<{formula}}  {m.source}")
    print("\n↑ larger is better, ↓ smaller is better, says its paper; * not so in some spaces (docs/metrics.md).")
    print("`initio metrics NAME` explains one.")


def _facts(metric: Metric) -> dict[str, object]:
    return {
        "name": metric.name,
        "formula": metric.formula,
        "about": metric.about,
        "source": metric.source,
        "better": "larger" if metric.higher_is_better else "smaller",
        "reversed_on": list(metric.reversed_on),
        "needs": sorted(metric.needs),
        "reproducible": metric.reproducible,
        "version": metric.version,
    }


def _explained(metric: Metric) -> str:
    facts = _facts(metric)
    facts["needs"] = ", ".join(sorted(metric.needs)) or "nothing"
    del facts["reversed_on"]
    if metric.reversed_on:
        facts["better"] = f"{facts['better']}, says its paper; the other way round on {', '.join(metric.reversed_on)}"
    facts["reproducible"] = "yes" if metric.reproducible else "no: measured, so it is left out of `all`"
    return columns(facts)
