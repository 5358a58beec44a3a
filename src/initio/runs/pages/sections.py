"""The sections of a page, made of what folders and stores hold.

`SECTIONS` is the one list: each function makes a section of what a `Subject` has, or None where it has nothing of the
kind. So a new kind of run adds a reader in `subjects.py`, a function here, and a line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from initio.analysis.correlation import spearman
from initio.records import Architecture
from initio.report.page import (
    CellPictures,
    Column,
    DataTable,
    FactList,
    LineChart,
    Listing,
    PageBlock,
    PointChart,
    Prose,
    Section,
    SurfaceChart,
    Value,
)
from initio.runs.folders.model import TrainedModel, TrainPlan
from initio.runs.folders.run import option_words, typed
from initio.runs.folders.solution import NAMES
from initio.runs.pages.subjects import Subject, Surroundings
from initio.searches import SearchStep, Trained

if TYPE_CHECKING:
    from initio.runs.convergence import ConvergenceCurve


def cells_section(subject: Subject) -> Section | None:
    """The chosen cells, with their notation."""
    blocks: list[PageBlock] = []
    for name, arch in subject.shown.items():
        if cells := subject.cells(arch):
            blocks.append(CellPictures(cells, name))
        blocks.append(Listing(subject.notation(arch)))
    if subject.result is not None and subject.home is not None and subject.ensemble is None:
        told = subject.result.told()
        blocks.append(FactList({name: text for name, text in told.items() if name not in ("chosen", "why")}))
    return _section("The cell" + "s" * (len(subject.shown) > 1), blocks)


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
    x, y = axes(subject, list(columns))
    canonical = {subject.home.canonical(arch): "chosen" for arch in subject.chosen} if subject.home else {}
    marked = {row: canonical[same] for row, arch in enumerate(archs) if (same := subject.same(arch)) in canonical}
    chart = PointChart(
        f"{subject.space} scores", columns, x, y,
        [subject.notation(arch) for arch in archs], [subject.cells(arch) for arch in archs], marked,
    )  # fmt: skip
    return Section("Scores", [chart, *_rankings(subject)])


def axes(subject: Subject, columns: Sequence[str]) -> tuple[str, str]:
    """What to look at first: the metric that ranks best against an accuracy, or the first two columns."""
    if subject.scores is None or not subject.published:
        return columns[0], columns[-1]
    accuracy = _tested(subject)
    agreement = {
        name: rank_agreement(subject.scores[name], subject.published[accuracy]) for name in subject.scores.metrics
    }
    return max(agreement, key=lambda name: abs(agreement[name] or 0.0)), accuracy


def _tested(subject: Subject) -> str:
    """The first published accuracy on a test set, or any."""
    return next((name for name in subject.published if name.startswith("test")), next(iter(subject.published)))


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
    return {"trained accuracy": [values.get(subject.same(arch)) for arch in archs]}


def _rankings(subject: Subject) -> list[PageBlock]:
    """How each metric ranks the published accuracies."""
    if subject.scores is None or not subject.published:
        return []
    metrics = subject.scores.metrics
    columns: dict[str, Column] = {"metric": list(metrics)}
    for name, values in subject.published.items():
        columns[name] = [rank_agreement(subject.scores[metric], values) for metric in metrics]
    columns["networks without a value"] = [subject.scores.undefined(metric) for metric in metrics]
    told = Prose("Spearman's rank correlation of each metric with the published accuracies.")
    return [told, DataTable(f"{subject.space}-correlations.csv", columns, shown=len(metrics))]


def rank_agreement(scores: np.ndarray, accuracies: np.ndarray) -> float | None:
    """Spearman, where both are known."""
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
    """The curves of a training, and what came out; of several, their curves side by side."""
    if subject.model is not None:
        told = FactList(subject.model.told())
        return Section("The training", [told, *training_curves({"": subject.model}), _epochs(subject.model)])
    return _section("The trainings", training_curves(subject.networks))


def training_curves(models: Mapping[str, TrainedModel]) -> list[PageBlock]:
    """Loss, accuracy and learning rate by epoch."""
    panels = {
        "Loss": {"training": "loss", "validation": "validation_loss"},
        "Accuracy, %": {"training": "accuracy", "validation": "validation"},
        "Learning rate": {"learning rate": "lr"},
    }
    blocks: list[PageBlock] = []
    for title, names in panels.items():
        lines: dict[str, tuple[Column, Column]] = {}
        for owner, model in models.items():
            for label, name in names.items():
                values = [getattr(epoch, name) for epoch in model.epochs]
                if any(value is not None for value in values):
                    lines[f"{owner} {label}".strip()] = [epoch.epoch for epoch in model.epochs], values
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


def solution_section(subject: Subject) -> Section | None:
    """What `initio solve` came to, beside what it was compared with."""
    if subject.solution is None:
        return None
    found = subject.solution
    scores = list(found.scores.values())
    columns: dict[str, Column] = {
        "network": [NAMES[name] for name in found.scores],
        "accuracy, %": [one.accuracy for one in scores],
        "from": [one.low for one in scores],
        "to": [one.high for one in scores],
        "parameters": [found.parameters.get(name) for name in found.scores],
        "learned": [one.learned for one in scores],
    }
    told = {name: text for name, text in found.told().items() if name in ("verdict", "kept", "time") or "note" in name}
    seen = Prose(" ".join(sentence(text) for text in (*found.report.told(), found.design.why)))
    return Section("The answer", [DataTable("held-out.csv", columns), FactList(told), seen])


def ensemble_section(subject: Subject) -> Section | None:
    """Members and their mean, the posterior they were drawn from, and the ensembles that they were compared with."""
    if subject.ensemble is None:
        return None
    found = subject.ensemble
    outcome, choice = found.outcome, found.choice
    members: dict[str, Column] = {
        "member": [*found.voices, "mean of all"],
        "error, %": [*outcome.judgement.singles, outcome.judgement.error],
    }
    blocks: list[PageBlock] = [DataTable("members.csv", members, shown=len(found.voices) + 1)]
    blocks.append(FactList({name: text for name, text in found.told().items() if not name.startswith("member ")}))
    if subject.home is not None and len(choice.marginals) == len(subject.home.relaxation):
        blocks += [Prose("The probability of each option:"), _posterior(subject, choice.marginals)]
    compared: dict[str, Column] = {
        "estimated loss": [one.loss for one in choice.compared],
        "members": [", ".join(map(subject.notation, one.members)) for one in choice.compared],
    }
    blocks.append(DataTable("compared.csv", compared, shown=5))
    return Section("The ensemble", blocks)


def _posterior(subject: Subject, marginals: Sequence[Sequence[float]]) -> DataTable:
    assert subject.home is not None
    rows = [
        (decision.name, option, share)
        for decision, shares in zip(subject.home.relaxation, marginals, strict=True)
        for option, share in zip(decision.options, shares, strict=True)
    ]
    columns = dict(zip(("decision", "option", "probability"), zip(*rows, strict=True), strict=True))
    return DataTable("posterior.csv", columns, shown=max(map(len, marginals)))


def convergence_section(subject: Subject) -> Section | None:
    """How fast variants of a cell learn: test accuracy for each learning rate, and a row for each training."""
    if subject.convergence is None:
        return None
    curves = subject.convergence.curves
    blocks: list[PageBlock] = []
    for rate in subject.convergence.plan.rates:
        lines: dict[str, tuple[Column, Column]] = {
            f"{one.name} ({one.width:g}c, {one.depth})": (range(1, len(one.accuracies) + 1), one.accuracies)
            for one in curves
            if one.lr == rate
        }
        blocks.append(LineChart(f"Learning rate {rate:g}", "epoch", "test accuracy, %", lines))
    return Section("Convergence", [*blocks, DataTable("convergence.csv", _trainings(curves), shown=len(curves))])


def _trainings(curves: Sequence[ConvergenceCurve]) -> dict[str, Column]:
    columns = {
        name: [getattr(one, name) for one in curves] for name in ("lr", "name", "width", "depth", "area", "flag")
    }
    ends = {"last test loss": "losses", "last test accuracy": "accuracies", "last train loss": "train_losses"}
    return columns | {
        label: [next(reversed(getattr(one, name)), None) for one in curves] for label, name in ends.items()
    }


def landscape_section(subject: Subject) -> Section | None:
    """Loss and gradient deviation around a trained network, on the line to another, and the numbers beside."""
    if subject.around is None:
        return None
    around, found = subject.around, subject.around.result
    blocks: list[PageBlock] = [FactList({name: text for name, text in found.told().items() if name != "network"})]
    for name, unit, values in (("Loss", "loss", around.loss), ("Gradient deviation", "√g", np.sqrt(around.variance))):
        blocks.append(SurfaceChart(name, unit, around.at.tolist(), values.tolist()))
    if found.line:
        line: Column = found.line
        title = "The line between two solutions"
        blocks.append(LineChart(title, "from one, 0, to the other, 1", "loss", {"loss": (found.places, line)}))
    return Section("The landscape", [*blocks, DataTable("landscape.csv", _points(around), shown=5)])


def _points(around: Surroundings) -> dict[str, Column]:
    a, b = np.meshgrid(around.at, around.at, indexing="ij")
    columns = {"a": a, "b": b, "loss": around.loss, "gradient variance": around.variance}
    return {name: [_finite(value) for value in grid.ravel().tolist()] for name, grid in columns.items()}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def settings_section(subject: Subject) -> Section | None:
    """All that is needed to do it again."""
    blocks: list[PageBlock] = []
    if subject.task is not None:
        blocks.append(Listing(subject.task.command()))
    if subject.ensemble is not None:
        blocks.append(Listing(subject.ensemble.plan.command()))
    if subject.convergence is not None:
        study = subject.convergence.plan
        blocks += [Listing(study.command(subject.notation(study.architecture))), _facts(study.settings)]
    if subject.around is not None:
        blocks.append(Listing(subject.around.result.plan.command()))
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
    return f"initio train {typed(subject.notation(plan.architecture))} {option_words(known)}"


def _facts(*groups: Mapping[str, object]) -> FactList:
    return FactList({name: str(value) for group in groups for name, value in group.items()})


def _section(title: str, blocks: Sequence[PageBlock]) -> Section | None:
    return Section(title, blocks) if blocks else None


SECTIONS: tuple[Callable[[Subject], Section | None], ...] = (
    solution_section,
    ensemble_section,
    cells_section,
    convergence_section,
    landscape_section,
    progress_section,
    scores_section,
    cost_section,
    training_section,
    evaluation_section,
    settings_section,
)


def sections(subject: Subject) -> list[Section]:
    """Those that have something to show."""
    return [section for make in SECTIONS if (section := make(subject)) is not None]


def sentence(text: str) -> str:
    """The text with a capital letter and a full stop."""
    return text[:1].upper() + text[1:] + "." * bool(text and not text.endswith("."))
