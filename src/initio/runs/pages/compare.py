"""Runs and trained networks side by side: what they chose, what it cost, and which settings differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from initio.errors import InputError
from initio.report.page import CellPictures, Column, DataTable, Page, PageBlock, Part, Prose, Section
from initio.runs.pages.sections import best_so_far, training_curves, work
from initio.runs.pages.subjects import Subject

PLURALS = {
    "search": "searches",
    "trained network": "trained networks",
    "solved task": "solved tasks",
    "ensemble": "ensembles",
    "landscape": "landscapes",
    "study of convergence": "studies of convergence",
}
Rows = dict[str, list[str]]  # what is compared, and what each subject has to say about it


def named(subjects: Sequence[Subject]) -> dict[str, Subject]:
    """Each by its title; those that are called alike are numbered."""
    if len(subjects) < 2:
        raise InputError("a comparison needs two folders of runs or trained networks")
    alike = Counter(subject.title for subject in subjects)
    seen: Counter[str] = Counter()
    names: dict[str, Subject] = {}
    for subject in subjects:
        seen[subject.title] += 1
        number = f" ({seen[subject.title]})" * (alike[subject.title] > 1)
        names[subject.title + number] = subject
    return names


def compared(subjects: Sequence[Subject]) -> Rows:
    """The facts of all, in one order; a dash where a subject has none of the kind."""
    return _rows([_facts(subject) for subject in subjects])


def differing(subjects: Sequence[Subject]) -> Rows:
    """The settings that are not the same for all."""
    return {name: row for name, row in _rows([_settings(subject) for subject in subjects]).items() if len(set(row)) > 1}


def _rows(columns: Sequence[Mapping[str, str]]) -> Rows:
    names = dict.fromkeys(name for column in columns for name in column)
    return {name: [column.get(name, "–") for column in columns] for name in names}


def _facts(subject: Subject) -> dict[str, str]:
    facts = {"space": subject.space}
    if (result := subject.result) is not None:
        facts |= {"method": result.method, "data": result.facts.data or "–", "seed": str(result.seed)}
        if result.facts.parameters is not None:
            facts |= {"parameters": f"{result.facts.parameters:,}", "FLOPs": f"{result.facts.flops:,}"}
        cost = result.cost
        facts |= {"scorings": f"{cost.scorings:,}", "trainings": f"{cost.queries + cost.trainings:,}"}
        facts |= {"seconds": f"{cost.seconds:,.1f}", "why": result.why}
    if (model := subject.model) is not None:
        plan, out = model.plan, model.outcome
        facts |= {"method": f"training, {plan.recipe}", "data": plan.data, "seed": str(plan.seed)}
        facts |= {"parameters": f"{out.parameters:,}", "epochs": str(out.epochs), "seconds": f"{out.seconds:,.1f}"}
        facts["validation accuracy"] = out.flag
        if out.accuracy is not None:
            facts["validation accuracy"] = f"{out.accuracy:.2f} % in epoch {out.epoch}"
    if (solution := subject.solution) is not None:
        facts |= {"kept": solution.kept, "held-out accuracy": str(solution.score)}
        facts["seconds"] = f"{solution.seconds:,.1f}"
    if (ensemble := subject.ensemble) is not None:
        facts |= {"members": str(len(ensemble.outcome.members)), **ensemble.outcome.judgement.told()}
    if subject.around is not None:
        facts |= subject.around.result.told()
    if (study := subject.convergence) is not None:
        areas = [f"{one.name} at {one.lr:g}: {_percent(one.area)}" for one in study.curves]
        facts |= {"data": study.plan.data, "seed": str(study.plan.seed), "mean accuracy": "; ".join(areas)}
    if subject.evaluation is not None:
        facts["test accuracy"] = f"{subject.evaluation.accuracy:.2f} % of {subject.evaluation.tested}"
    return facts | {"chosen": "; ".join(map(subject.notation, subject.chosen))}


def _percent(value: float | None) -> str:
    return "diverged" if value is None else f"{value:.2f} %"


def _settings(subject: Subject) -> dict[str, str]:
    settings: dict[str, object] = {}
    if subject.plan is not None:
        settings = {**subject.plan.arguments(), **subject.plan.versions}
    elif subject.result is not None:
        settings = {**subject.result.settings, **subject.result.versions}
    if subject.model is not None:
        plan = subject.model.plan
        settings |= {**plan.settings, **plan.machine, **plan.versions}
    return {name: str(value) for name, value in settings.items() if value is not None}


def distance(subjects: Sequence[Subject]) -> str:
    """How far the choices are apart, in one sentence."""
    if not all(subject.chosen for subject in subjects):
        return "They are of different kinds."
    first, *others = (subject.chosen[0] for subject in subjects)
    home = subjects[0].home
    if home is None or any(arch.space != first.space for arch in others):
        return "They are of different spaces."
    if all(arch == first for arch in others):
        return "They chose the same architecture."
    if all(home.canonical(arch) == home.canonical(first) for arch in others):
        return "They chose architectures with the same network."
    apart = max(sum(a != b for a, b in zip(first.choices, arch.choices, strict=True)) for arch in others)
    return f"Their choices differ in {apart} of {len(first.choices)} decisions."


def comparison(subjects: Sequence[Subject]) -> Page:
    """The page of `initio compare`."""
    names = named(subjects)
    cells = [CellPictures(found, name) for name, s in names.items() for a in s.chosen[:1] if (found := s.cells(a))]
    sections: list[tuple[str, Sequence[PageBlock]]] = [
        ("Side by side", [_table("comparison.csv", list(names), compared(subjects))]),
        ("Cells", cells),
        ("What it cost", [*best_so_far(names), *work(names)]),
        ("Training", training_curves({name: s.model for name, s in names.items() if s.model is not None})),
        ("Settings that differ", _difference(list(names), differing(subjects))),
    ]
    title = " beside ".join(names)
    shown = [Section(title, blocks) for title, blocks in sections if blocks]
    return Page(title, f"{_kinds(subjects)} {distance(subjects)}", [Part("", shown)])


def _kinds(subjects: Sequence[Subject]) -> str:
    counts = Counter(subject.sort for subject in subjects)
    parts = [f"{count} {PLURALS[sort] if count > 1 else sort}" for sort, count in counts.items()]
    return f"{' and '.join(parts)} side by side.".capitalize()


def _difference(names: Sequence[str], rows: Rows) -> list[PageBlock]:
    if not rows:
        return [Prose("None: all settings are the same.")]
    return [_table("settings.csv", names, rows)]


def _table(file: str, names: Sequence[str], rows: Rows) -> DataTable:
    columns: dict[str, Column] = {"": list(rows)}
    columns |= {name: [row[place] for row in rows.values()] for place, name in enumerate(names)}
    return DataTable(file, columns, shown=len(rows))
