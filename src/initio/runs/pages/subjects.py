"""What a report can be about: a run, a trained network, a solved task, an ensemble, a study or a store of scores.

`READERS` is the one list: a kind of folder is known by a file, and its reader makes a `Subject` of what is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from initio.errors import InputError
from initio.records import Architecture, Query
from initio.report import Cell, is_drawable
from initio.runs.evaluate import ModelEvaluation, load_evaluation
from initio.runs.folders.ensemble import Ensemble, load_ensemble
from initio.runs.folders.model import ModelFolder, TrainedModel, load_model
from initio.runs.folders.run import RunFolder, RunPlan
from initio.runs.folders.solution import SolveFolder, SolvePlan, SolveResult
from initio.scores.read import read_all, read_table
from initio.scores.store import Store, find_store
from initio.scores.table import ScoreTable
from initio.searches import SearchResult
from initio.spaces import Space, get_space, parse
from initio.tables import Table, open_table

if TYPE_CHECKING:
    from initio.runs.convergence import ConvergenceResult
    from initio.runs.landscape import LandscapeResult

MOST_POINTS = 20_000  # of a chart; of more, a sample is shown
LISTABLE = 100_000  # a space of at most so many choices is shown as written, not by its networks


@dataclass(frozen=True)
class Surroundings:
    """What was measured around a trained network: numbers, and the surfaces on the grid at × at."""

    result: LandscapeResult
    at: np.ndarray
    loss: np.ndarray
    variance: np.ndarray


@dataclass(frozen=True)
class Subject:
    """What a page is about; a field is None or empty where the subject has nothing of the kind.

    Args:
        title: how people call it: the name of its folder or of its store.
        sort: what kind of thing it is.
        space: the name of the space; `home` is the space itself, if it is known here.
        shown: the architectures that it speaks for, by their names; the name of the only one is empty.
        result: of a finished search.
        plan: what the search was asked.
        clock: seconds of work after each of its steps.
        model: a trained network.
        networks: several of them by name, where a run has trained several.
        evaluation: what `initio evaluate` measured of the network.
        scores: of a pool, one row for each architecture as written.
        published: a benchmark's numbers in the order of the scores, by name.
        task: what `initio solve` was asked.
        solution: what came out of it.
        ensemble: a trained ensemble.
        convergence: how fast variants of a cell learned.
        around: the loss around a trained network.
    """

    title: str
    sort: str
    space: str
    home: Space | None = None
    shown: Mapping[str, Architecture] = field(default_factory=dict)
    result: SearchResult | None = None
    plan: RunPlan | None = None
    clock: Sequence[float] = ()
    model: TrainedModel | None = None
    networks: Mapping[str, TrainedModel] = field(default_factory=dict)
    evaluation: ModelEvaluation | None = None
    scores: ScoreTable | None = None
    published: Mapping[str, np.ndarray] = field(default_factory=dict)
    task: SolvePlan | None = None
    solution: SolveResult | None = None
    ensemble: Ensemble | None = None
    convergence: ConvergenceResult | None = None
    around: Surroundings | None = None

    def notation(self, arch: Architecture) -> str:
        """As its space writes it; as numbers where the space is not known here."""
        return f"{arch.space} {arch.choices}" if self.home is None else self.home.format(arch)

    def cells(self, arch: Architecture) -> tuple[Cell, ...]:
        """To draw; none where they cannot be."""
        found = () if self.home is None else self.home.cells(arch)
        return found if is_drawable(found) else ()

    def same(self, arch: Architecture) -> Architecture:
        """The representative of those with the same network; itself where the space is not known here."""
        return arch if self.home is None else self.home.canonical(arch)

    @property
    def chosen(self) -> tuple[Architecture, ...]:
        """What it speaks for."""
        return tuple(self.shown.values())


# --- folders --------------------------------------------------------------------------------------------------------


def read_folder(folder: str | Path) -> Subject:
    """What has been left in a folder."""
    path = Path(folder)
    if not path.is_dir():
        raise InputError(f"{str(path)!r} is not a folder: give that of a run or of a trained network")
    read = next((reader for file, reader in READERS.items() if (path / file).is_file()), _search)
    return replace(read(path), title=path.resolve().name)


def _search(path: Path) -> Subject:
    run = RunFolder.open(path)
    result = run.result()
    home = _known(result.space)
    plan = None
    if run.started:
        plan = run.plan()
    return Subject(
        "", "search", result.space, home, _named(result.chosen), result, plan, tuple(run.clock()),
        scores=_pool(path / "scores.db", home),
    )  # fmt: skip


def _named(chosen: Sequence[Architecture]) -> dict[str, Architecture]:
    """One without a name, several as members."""
    if len(chosen) == 1:
        return {"": chosen[0]}
    return {f"Member {number}": arch for number, arch in enumerate(chosen, start=1)}


def _model(path: Path) -> Subject:
    model = load_model(path)
    arch = model.plan.architecture
    home = _known(arch.space)
    return Subject("", "trained network", arch.space, home, {"": arch}, model=model, evaluation=load_evaluation(path))


def _solve(path: Path) -> Subject:
    """The search with what was trained after it."""
    run = SolveFolder.open(path)
    solution = run.result()
    networks = {name: load_model(path / name) for name in solution.parameters}
    return replace(
        _search(path / "search"), sort="solved task", task=run.plan(), solution=solution, networks=networks,
        evaluation=load_evaluation(path / solution.kept),
    )  # fmt: skip


def _ensemble(path: Path) -> Subject:
    """The search of the shared network, with the members."""
    found = load_ensemble(path)
    members = dict(zip(found.outcome.members, found.members, strict=True))
    return replace(
        _search(found.searched), sort="ensemble", ensemble=found,
        shown={f"Member {number}": found.choice.members[number - 1] for number in found.outcome.members},
        networks={f"member {number}": model for number, model in members.items()},
    )  # fmt: skip


def _landscape(path: Path) -> Subject:
    """The surfaces, with the training if it is still there."""
    from initio.runs.landscape import load_landscape, surfaces_of

    result = load_landscape(path)
    places = (path / "training", Path(result.plan.trained))
    kept = next((place for place in places if ModelFolder.is_at(place)), None)
    around = Surroundings(result, *surfaces_of(path))
    if kept is not None:
        return replace(_model(kept), sort="landscape", around=around)
    arch = parse(result.notation)
    return Subject("", "landscape", arch.space, _known(arch.space), {"": arch}, around=around)


def _convergence(path: Path) -> Subject:
    from initio.runs.convergence import load_convergence

    found = load_convergence(path)
    plan, space = found.plan, found.plan.architecture.space
    shown = dict(zip(plan.names, plan.variants, strict=True))
    return Subject("", "study of convergence", space, _known(space), shown, convergence=found)


READERS: dict[str, Callable[[Path], Subject]] = {
    "train.json": _model,
    "solve.json": _solve,
    "ensemble.json": _ensemble,
    "study/plan.json": _landscape,
    "plan.json": _convergence,
}


def _known(space: str) -> Space | None:
    """The space of this name; a user's own may not be there where its run is looked at."""
    try:
        return get_space(space)
    except InputError:
        return None


def _pool(path: Path, home: Space | None) -> ScoreTable | None:
    if home is None or not path.is_file():
        return None
    with Store(path, read_only=True) as store:
        return read_table(store, home)


# --- stores ---------------------------------------------------------------------------------------------------------


def read_store(
    name: str,
    *,
    space: str | None = None,
    where: Mapping[str, str] | None = None,
    data: str | None = None,
    table: str | None = None,
) -> Subject:
    """The scores of a store, for every architecture of a space that can be listed, beside published accuracies.

    Args:
        name: a file, or the name of scores that come with Initio.
        space: whose scores, if the store has those of several.
        where: which scores, if the store has several kinds.
        data: folder with a benchmark's files; without it and `table`, there are no accuracies.
        table: the benchmark; by default the one that is called as the space is.
    """
    with Store(find_store(name), read_only=True) as store:
        spaces = sorted(store.spaces())
        if space is None and len(spaces) != 1:
            held = ", ".join(spaces) or "no space"
            raise InputError(f"{name!r} has scores of {held}: choose one with --space")
        space = space or spaces[0]
        home = _known(space)
        if home is None:
            scores = read_all(store, space, where=where)
        else:
            scores = read_table(store, home, pool=_listed(home), where=where)
    if len(scores) > MOST_POINTS:
        scores = scores.subset(sorted(Random("report").sample(range(len(scores)), MOST_POINTS)))
    published = {}
    if data is not None or table is not None:
        published = _published(open_table(table or space, data), scores.architectures)
    return Subject(Path(name).name.partition(".")[0], "store", space, home, scores=scores, published=published)


def _listed(home: Space) -> tuple[Architecture, ...]:
    """All architectures of a small space, those with the same network beside each other."""
    if home.count() > LISTABLE:
        return ()
    return tuple(sorted(home.architectures(), key=home.canonical))


def _published(table: Table, architectures: Sequence[Architecture]) -> dict[str, np.ndarray]:
    """Validation accuracy, then what the table reports; NaN where it has nothing."""
    found: dict[str, np.ndarray] = {}
    for row, arch in enumerate(architectures):
        if arch in table.validation:
            numbers = {"validation": table.validation(Query(arch)).value}
            numbers |= {f"test {column}": value for column, value in table.report(arch).items()}
            for name, value in numbers.items():
                found.setdefault(name, np.full(len(architectures), np.nan))[row] = np.nan if value is None else value
    if not found:
        raise InputError(f"the table {table.name} has none of the architectures that were scored")
    return {f"{name} accuracy": values for name, values in found.items()}
