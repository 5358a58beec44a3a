"""What `initio report` shows: a page made from what run folders, trained networks and stores of scores hold.

A `Subject` is what one page is about. `SECTIONS` is the one list: each function makes a section of what a subject has,
or None where it has nothing of the kind. So a new kind of run adds a field to `Subject`, a function, and a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate
from pathlib import Path
from random import Random
from shlex import quote
from typing import Any

import numpy as np

from initio.analysis.correlation import spearman
from initio.errors import InputError
from initio.records import Architecture, Query
from initio.report import Cell, is_drawable
from initio.report.page import (
    CellPictures,
    Column,
    DataTable,
    FactList,
    LineChart,
    Listing,
    Page,
    PageBlock,
    Part,
    PointChart,
    Prose,
    Section,
    Value,
)
from initio.runs.evaluate import ModelEvaluation, load_evaluation
from initio.runs.folder import RunFolder, RunPlan, option_words
from initio.runs.models import ModelFolder, TrainedModel, TrainPlan, load_model
from initio.scores.read import read_all, read_table
from initio.scores.store import Store, find_store
from initio.scores.table import ScoreTable
from initio.searches import SearchResult, SearchStep, Trained
from initio.spaces import Space, get_space
from initio.tables import Table, open_table

MOST_POINTS = 20_000  # of a chart; of more, a sample is shown
LISTABLE = 100_000  # a space of at most so many choices is shown as written, not by its networks


@dataclass(frozen=True)
class Subject:
    """What a page is about; a field is None or empty where the subject has nothing of the kind.

    Args:
        title: how people call it: the name of its folder or of its store.
        space: the name of the space; `home` is the space itself, if it is known here.
        result: of a finished search.
        plan: what the search was asked.
        clock: seconds of work after each of its steps.
        model: a trained network.
        evaluation: what `initio evaluate` measured of it.
        scores: of a pool, one row for each architecture as written.
        published: a benchmark's numbers in the order of the scores, by name.
    """

    title: str
    space: str
    home: Space | None = None
    result: SearchResult | None = None
    plan: RunPlan | None = None
    clock: Sequence[float] = ()
    model: TrainedModel | None = None
    evaluation: ModelEvaluation | None = None
    scores: ScoreTable | None = None
    published: Mapping[str, np.ndarray] = field(default_factory=dict)

    def notation(self, arch: Architecture) -> str:
        """As its space writes it; as numbers where the space is not known here."""
        return f"{arch.space} {arch.choices}" if self.home is None else self.home.format(arch)

    def cells(self, arch: Architecture) -> tuple[Cell, ...]:
        """To draw; none where they cannot be."""
        found = () if self.home is None else self.home.cells(arch)
        return found if is_drawable(found) else ()

    @property
    def chosen(self) -> tuple[Architecture, ...]:
        """What it speaks for."""
        if self.result is not None:
            return self.result.chosen
        return () if self.model is None else (self.model.plan.architecture,)


# --- reading --------------------------------------------------------------------------------------------------------


def read_folder(folder: str | Path) -> Subject:
    """What a run or a training has left in its folder."""
    path = Path(folder)
    if not path.is_dir():
        raise InputError(f"{str(path)!r} is not a folder: give that of a run or of a trained network")
    if ModelFolder(path).plan_path.is_file():
        model = load_model(path)
        space = model.plan.architecture.space
        tested = load_evaluation(path)
        return Subject(path.resolve().name, space, _known(space), model=model, evaluation=tested)
    run = RunFolder.open(path)
    result = run.result()
    home = _known(result.space)
    plan = None
    if run.plan_path.is_file():
        plan = run.plan()
    clock = tuple(run.clock())
    return Subject(path.resolve().name, result.space, home, result, plan, clock, scores=_pool(path / "scores.db", home))


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
    return Subject(Path(name).name.partition(".")[0], space, home, scores=scores, published=published)


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


# --- sections: what a subject holds, or None ------------------------------------------------------------------------


def cells_section(subject: Subject) -> Section | None:
    """The chosen cells, with their notation."""
    blocks: list[PageBlock] = []
    for number, arch in enumerate(subject.chosen, start=1):
        title = f"Member {number}" * (len(subject.chosen) > 1)
        if cells := subject.cells(arch):
            blocks.append(CellPictures(cells, title))
        blocks.append(Listing(subject.notation(arch)))
    if subject.result is not None and subject.home is not None:
        told = subject.result.told()
        blocks.append(FactList({name: text for name, text in told.items() if name not in ("chosen", "why")}))
    return _section("The chosen cell" + "s" * (len(subject.chosen) > 1), blocks)


def progress_section(subject: Subject) -> Section | None:
    """What the search measured, step by step; a chart for each kind of step that has numbers."""
    if subject.result is None:
        return None
    kinds: dict[type[SearchStep], list[SearchStep]] = {}
    for step in subject.result.steps:
        kinds.setdefault(type(step), []).append(step)
    blocks = [_steps_chart(subject, kind.kind(), steps) for kind, steps in kinds.items()]
    return _section("The search", [block for block in blocks if block is not None])


def _steps_chart(subject: Subject, kind: str, steps: Sequence[SearchStep]) -> PageBlock | None:
    """Points for steps of an architecture, a table for others."""
    names = [item.name for item in fields(steps[0]) if _told(item.name, steps)]
    values = {name: [getattr(step, name) for step in steps] for name in names}
    columns: dict[str, Column] = {"step": range(1, len(steps) + 1)}
    columns |= {name: column for name, column in values.items() if _is_numeric(column) and name != "number"}
    archs = values.get("architecture")
    if archs is None or len(columns) < 2:
        return DataTable(f"{kind}-steps.csv", {name: list(map(_plain, column)) for name, column in values.items()})
    best = subject.chosen[0]
    return PointChart(
        f"{kind.capitalize()} steps",
        columns,
        "step",
        "value" if "value" in columns else list(columns)[1],
        [subject.notation(arch) for arch in archs],
        [subject.cells(arch) for arch in archs],
        {row: "chosen" for row, arch in enumerate(archs) if arch == best},
    )


def _told(name: str, steps: Sequence[SearchStep]) -> bool:
    """Whether a field says something: not the number of a restart where there is none, nor a flag that nobody has."""
    return any(getattr(step, name) not in (None, "") for step in steps)


def _is_numeric(column: Sequence[Any]) -> bool:
    numbers = [value for value in column if value is not None]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in numbers)


def _plain(value: Any) -> Value:
    return value if isinstance(value, str | int | float | None) else str(value)


def scores_section(subject: Subject) -> Section | None:
    """A point for every scored architecture, metrics and published accuracies as axes."""
    if subject.scores is None or not subject.scores.metrics:
        return None
    table, archs = subject.scores, subject.scores.architectures
    columns: dict[str, Column] = {name: table[name].tolist() for name in table.metrics}
    columns |= {name: values.tolist() for name, values in subject.published.items()}
    columns |= _trained_values(subject, archs)
    x, y = _axes(subject, list(columns))
    canonical = {subject.home.canonical(arch): "chosen" for arch in subject.chosen} if subject.home else {}
    marked = {row: canonical[same] for row, arch in enumerate(archs) if (same := _same(subject, arch)) in canonical}
    chart = PointChart(
        f"{subject.space} scores", columns, x, y,
        [subject.notation(arch) for arch in archs], [subject.cells(arch) for arch in archs], marked,
    )  # fmt: skip
    return Section("Scores", [chart, *_rankings(subject)])


def _axes(subject: Subject, columns: Sequence[str]) -> tuple[str, str]:
    """What to look at first: the metric that ranks best against an accuracy, or the first two columns."""
    if subject.scores is None or not subject.published:
        return columns[0], columns[-1]
    accuracy = _tested(subject)
    agreement = {
        name: _rank_agreement(subject.scores[name], subject.published[accuracy]) for name in subject.scores.metrics
    }
    return max(agreement, key=lambda name: abs(agreement[name] or 0.0)), accuracy


def _tested(subject: Subject) -> str:
    """The first published accuracy on a test set, or any."""
    return next((name for name in subject.published if name.startswith("test")), next(iter(subject.published)))


def _same(subject: Subject, arch: Architecture) -> Architecture:
    return arch if subject.home is None else subject.home.canonical(arch)


def _trained_values(subject: Subject, archs: Sequence[Architecture]) -> dict[str, Column]:
    """What the trainings of a search came to, beside the scores of the same networks."""
    if subject.result is None or subject.home is None:
        return {}
    values = {
        subject.home.canonical(step.architecture): step.value
        for step in subject.result.steps
        if isinstance(step, Trained)
    }
    if not values:
        return {}
    return {"trained accuracy": [values.get(_same(subject, arch)) for arch in archs]}


def _rankings(subject: Subject) -> list[PageBlock]:
    """How each metric ranks the published accuracies."""
    if subject.scores is None or not subject.published:
        return []
    metrics = subject.scores.metrics
    columns: dict[str, Column] = {"metric": list(metrics)}
    for name, values in subject.published.items():
        columns[name] = [_rank_agreement(subject.scores[metric], values) for metric in metrics]
    columns["networks without a value"] = [subject.scores.undefined(metric) for metric in metrics]
    told = Prose("Spearman's rank correlation of each metric with the published accuracies.")
    return [told, DataTable(f"{subject.space}-correlations.csv", columns, shown=len(metrics))]


def _rank_agreement(scores: np.ndarray, accuracies: np.ndarray) -> float | None:
    both = ~(np.isnan(scores) | np.isnan(accuracies))
    rho = spearman(scores[both], accuracies[both])
    return None if rho is None else round(rho, 4)


def cost_section(subject: Subject) -> Section | None:
    """What it cost to get there: the best so far against trainings, and seconds of work against steps."""
    if subject.result is None:
        return None
    return _section("What it cost", [*best_so_far({"best so far": subject}), *work({"work": subject})])


def best_so_far(subjects: Mapping[str, Subject]) -> list[PageBlock]:
    """The best validation accuracy against the seconds of its trainings, for searches that train."""
    lines: dict[str, tuple[Column, Column]] = {}
    for name, subject in subjects.items():
        steps = [step for step in _steps(subject) if isinstance(step, Trained)]
        if any(step.value is not None for step in steps):
            best = [max(steps[:end], key=_strength) for end in range(1, len(steps) + 1)]
            lines[name] = list(accumulate(step.seconds for step in steps)), [step.value for step in best]
    if not lines:
        return []
    chart = LineChart("Best so far", "seconds of training", "validation accuracy, %", lines, steps=True)
    return [chart]


def _strength(step: Trained) -> tuple[float, float]:
    return step.strength


def work(subjects: Mapping[str, Subject]) -> list[PageBlock]:
    """Seconds of work after each step, where a run kept its clock."""
    lines: dict[str, tuple[Column, Column]] = {
        name: (range(1, len(subject.clock) + 1), list(subject.clock))
        for name, subject in subjects.items()
        if len(subject.clock) > 1
    }
    return [LineChart("Time", "step", "seconds of work", lines)] if lines else []


def _steps(subject: Subject) -> Sequence[SearchStep]:
    return () if subject.result is None else subject.result.steps


def training_section(subject: Subject) -> Section | None:
    """The curves of a training, and what came out."""
    if subject.model is None:
        return None
    blocks: list[PageBlock] = [FactList(subject.model.told())]
    return Section("The training", [*blocks, *training_curves({"": subject}), _epochs(subject.model)])


def training_curves(subjects: Mapping[str, Subject]) -> list[PageBlock]:
    """Loss, accuracy and learning rate by epoch."""
    panels = {
        "Loss": {"training": "loss", "validation": "validation_loss"},
        "Accuracy, %": {"training": "accuracy", "validation": "validation"},
        "Learning rate": {"learning rate": "lr"},
    }
    blocks: list[PageBlock] = []
    for title, names in panels.items():
        lines: dict[str, tuple[Column, Column]] = {}
        for owner, subject in subjects.items():
            epochs = () if subject.model is None else subject.model.epochs
            for label, name in names.items():
                values = [getattr(epoch, name) for epoch in epochs]
                if any(value is not None for value in values):
                    lines[f"{owner} {label}".strip()] = [epoch.epoch for epoch in epochs], values
        if lines:
            blocks.append(LineChart(title, "epoch", title.lower(), lines))
    return blocks


def _epochs(model: TrainedModel) -> DataTable:
    columns = {item.name: [getattr(epoch, item.name) for epoch in model.epochs] for item in fields(model.epochs[0])}
    return DataTable("epochs.csv", columns, shown=5)


def evaluation_section(subject: Subject) -> Section | None:
    """How the trained network does on what nobody has learned from, class by class."""
    if subject.evaluation is None:
        return None
    classes = subject.evaluation.judgement.classes
    columns = {item.name: [getattr(seen, item.name) for seen in classes] for item in fields(classes[0])}
    return Section("The test", [FactList(subject.evaluation.told()), DataTable("classes.csv", columns)])


def settings_section(subject: Subject) -> Section | None:
    """All that is needed to do it again."""
    blocks: list[PageBlock] = []
    if subject.plan is not None:
        blocks += [Listing(subject.plan.command()), _facts(subject.plan.settings, subject.plan.versions)]
    elif subject.result is not None:
        blocks.append(_facts({"seed": subject.result.seed}, subject.result.settings, subject.result.versions))
    if subject.model is not None:
        plan = subject.model.plan
        blocks += [Listing(train_command(subject, plan)), _facts(plan.settings, plan.machine, plan.versions)]
    if subject.scores is not None:
        made = {subject.scores.origin(metric) for metric in subject.scores.metrics}
        for origin in sorted(made, key=lambda origin: (origin.counted, origin.settings)):
            metrics = ", ".join(name for name in subject.scores.metrics if subject.scores.origin(name) == origin)
            drawn = f", measured on {origin.source}, {len(origin.draws)} times" * bool(origin.source)
            blocks += [Prose(f"{metrics}{drawn}:"), _facts(dict(origin.settings))]
    return _section("To do it again", blocks)


def train_command(subject: Subject, plan: TrainPlan) -> str:
    """The training as it is typed, but for the machine."""
    size = {"channels": plan.network.channels, "cells": plan.network.cells}
    given = {"data": plan.data, "recipe": plan.recipe, "seed": plan.seed, **size, **plan.settings}
    known = {name: value for name, value in given.items() if value is not None}
    notation = subject.notation(plan.architecture)
    word = quote(notation)
    if not set('"$`\\!') & set(notation):
        word = f'"{notation}"'  # which leaves the quotes of a genotype as they are
    return f"initio train {word} {option_words(known)}"


def _facts(*groups: Mapping[str, object]) -> FactList:
    return FactList({name: str(value) for group in groups for name, value in group.items()})


def _section(title: str, blocks: Sequence[PageBlock]) -> Section | None:
    return Section(title, blocks) if blocks else None


SECTIONS: tuple[Callable[[Subject], Section | None], ...] = (
    cells_section,
    progress_section,
    scores_section,
    cost_section,
    training_section,
    evaluation_section,
    settings_section,
)


# --- sentences ------------------------------------------------------------------------------------------------------


def summary(subject: Subject) -> str:
    """The subject in two sentences."""
    if subject.result is not None:
        return _search_summary(subject.result)
    if subject.model is not None:
        return _training_summary(subject.model, subject.evaluation)
    return _scores_summary(subject)


def _search_summary(result: SearchResult) -> str:
    facts, cost = result.facts, result.cost
    trained = cost.queries + cost.trainings
    parts = [f"{result.method} chose this architecture of {result.space}"]
    if facts.parameters is not None:
        parts.append(f", {facts.parameters:,} parameters,")
    parts.append(f" from {facts.data or 'its data'} in {cost.seconds:,.0f} seconds")
    parts.append(f" and {trained} short trainings" * bool(trained))
    return "".join(parts) + ". " + _sentence(result.why)


def _training_summary(model: TrainedModel, tested: ModelEvaluation | None) -> str:
    plan, out = model.plan, model.outcome
    reached = out.flag or "no accuracy was measured"
    if out.accuracy is not None:
        reached = f"{out.accuracy:.2f} % of what was held out is right after epoch {out.epoch}"
    size = f"{out.parameters:,} parameters of {plan.architecture.space}"
    first = _sentence(f"{size}, trained on {plan.data} by {plan.recipe}: {reached}")
    if tested is not None:
        return f"{first} On {tested.tested}, {tested.accuracy:.2f} % are right."
    return f"{first} Left to test it on: {plan.tested}." if plan.tested else first


def _scores_summary(subject: Subject) -> str:
    assert subject.scores is not None
    table = subject.scores
    networks = len({_same(subject, arch) for arch in table.architectures})
    sources = " and ".join(
        dict.fromkeys(table.origin(name).source for name in table.metrics if table.origin(name).source)
    )
    first = f"{len(table):,} architectures of {subject.space}, scored by {len(table.metrics)} metrics"
    first += f" on {sources}" * bool(sources)
    second = (
        f"They are {networks:,} different networks, and a score belongs to every architecture with the same network"
    )
    if subject.published:
        best, accuracy = _axes(subject, ())
        rho = _rank_agreement(table[best], subject.published[accuracy]) or 0.0
        second = f"Of the metrics, {best} ranks the {accuracy} best, with a Spearman correlation of {rho:.2f}"
    return f"{first}. {second}."


def _sentence(text: str) -> str:
    """The text with a capital letter and a full stop."""
    return text[:1].upper() + text[1:] + "." * bool(text and not text.endswith("."))


# --- the verb -------------------------------------------------------------------------------------------------------


def report(subjects: Sequence[Subject]) -> Page:
    """One page about one or several subjects."""
    if not subjects:
        raise InputError("there is nothing to report: name a run, a trained network or a store")
    parts = [Part(subject.title, sections(subject)) for subject in subjects]
    if len(subjects) == 1:
        return Page(subjects[0].title, summary(subjects[0]), parts)
    return Page(" and ".join(part.title for part in parts), " ".join(map(summary, subjects)), parts)


def sections(subject: Subject) -> list[Section]:
    """Those that have something to show."""
    return [section for make in SECTIONS if (section := make(subject)) is not None]


def write_report(runs: str | Path | Iterable[str | Path], out: str | Path) -> None:
    """Writes the page of one or several runs and trained networks: `initio.write_report("runs/a", "a.html")`."""
    folders = [runs] if isinstance(runs, str | Path) else list(runs)
    report([read_folder(folder) for folder in folders]).write(Path(out))
