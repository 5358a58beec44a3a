"""`initio show ARCH`."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from initio.analysis.topology import shapes
from initio.cli.units import print_json
from initio.records import Architecture
from initio.report.terminal import columns
from initio.runs.folders.named import Named, find_named
from initio.searches import SearchResult
from initio.searches.restarts import stability
from initio.spaces import NetworkSettings, get_space
from initio.spaces.base import Cell

if TYPE_CHECKING:
    from initio.networks.cost import NetworkCost


@dataclass(frozen=True)
class ShowCommand:
    """Draws an architecture.

    Args:
        architecture: in its space's own notation, a published cell by name (darts_v2), a JSON file, or a run folder; of
            a run it also says how and why the architecture was chosen, with restarts how often each choice came out.
        out: also write a picture: a file that ends in .svg, .pdf or .png.
        cost: also count parameters and FLOPs on 32x32 images, in the network of the space's paper (for a published
            cell, that of DARTS with 20 cells and 36 channels).
        json: print JSON instead of a drawing.
    """

    architecture: str
    out: str | None = None
    cost: bool = False
    json: bool = False

    def run(self) -> None:
        """Prints the drawing, then the notation."""
        from initio.report import draw_text, save_picture

        named = find_named(self.architecture)
        shown, result = named.architecture, named.result
        cells, facts = _describe(shown)
        if self.cost:
            facts |= _cost(shown, named.classes)
        if result is not None:
            facts |= _run_facts(result)
        if self.out:
            save_picture(cells, Path(self.out))
            facts["picture"] = self.out
        if self.json:
            facts.pop("FLOPs", None)  # as `flops`, a number
            print_json(facts | self._numbers(named))
            return
        print(draw_text(cells, width=shutil.get_terminal_size((100, 24)).columns))
        print(f"\n{columns(facts)}")

    def _numbers(self, named: Named) -> dict[str, Any]:
        """What the text says in words, for programs."""
        shown, result = named.architecture, named.result
        found: dict[str, Any] = {"architecture": shown}
        if self.cost:
            found |= vars(_counted(shown, named.classes))
        if result is not None:
            found |= {"cost": result.cost, "facts": result.facts, "settings": result.settings}
            if agreed := stability(result):
                found["stability"] = vars(agreed) | {"agreeing": dict(agreed.agreeing)}
        return found


def _describe(shown: Architecture) -> tuple[tuple[Cell, ...], dict[str, object]]:
    space = get_space(shown.space)
    facts: dict[str, object] = {"space": space.name, "notation": space.format(shown)}
    if (canonical := space.canonical(shown)) != shown:
        facts["same network as"] = get_space(canonical.space).format(canonical)
    if not space.connected(shown):
        facts["warning"] = "no path connects the input with the output"
    facts |= {f"{name}: width, depth": str(found) for name, found in shapes(space, shown).items()}
    return space.cells(shown), facts


def _run_facts(result: SearchResult) -> dict[str, object]:
    """How a run came to its choice, and with restarts how often each choice came out."""
    facts: dict[str, object] = {"method": result.method, "seed": result.seed}
    facts |= {"data": result.facts.data, "classes": result.facts.classes, **result.told()}
    del facts["chosen"]  # the notation
    facts["settings"] = ", ".join(f"{name} {value}" for name, value in result.settings.items())
    if found := stability(result):
        facts["restarts"] = str(found)
        facts |= {choice: f"{count} of {found.restarts}" for choice, count in found.agreeing}
    return facts


def _cost(shown: Architecture, classes: int) -> dict[str, object]:
    cost = _counted(shown, classes)
    return {"parameters": f"{cost.parameters:,}", "FLOPs": f"{cost.flops:,}", "layers": cost.layers}


def _counted(shown: Architecture, classes: int) -> NetworkCost:
    return get_space(shown.space).cost(shown, NetworkSettings(prune=False, classes=classes))
