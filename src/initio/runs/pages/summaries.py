"""What a page says first of a subject, in two sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from initio.runs.evaluate import ModelEvaluation
from initio.runs.folders.model import TrainedModel
from initio.runs.folders.solution import NAMES, SolveResult
from initio.runs.pages.sections import axes, rank_agreement, sentence
from initio.runs.pages.subjects import Subject, Surroundings
from initio.searches import SearchResult

if TYPE_CHECKING:
    from initio.runs.convergence import ConvergenceResult
    from initio.runs.folders.ensemble import Ensemble


def summary(subject: Subject) -> str:
    """The subject in two sentences."""
    told: dict[Callable[[Any], str], object] = {
        _solution_summary: subject.solution,
        _ensemble_summary: subject.ensemble,
        _convergence_summary: subject.convergence,
        _landscape_summary: subject.around,
        _search_summary: subject.result,
    }
    for tell, what in told.items():
        if what is not None:
            return tell(what)
    if subject.model is not None:
        return _training_summary(subject.model, subject.evaluation)
    return _scores_summary(subject)


def _solution_summary(found: SolveResult) -> str:
    first = f"The {NAMES[found.kept]} answers {found.score.accuracy:.2f} % of what was kept aside rightly"
    return f"{first}, after {found.seconds:,.0f} seconds in all. " + " ".join(map(sentence, found.verdicts()))


def _ensemble_summary(found: Ensemble) -> str:
    seen = found.outcome.judgement
    first = f"{len(found.outcome.members)} networks of {found.plan.space}, chosen by {found.plan.method}, err on "
    second = f"alone they err on {seen.ate:.2f} % on average, and no member answers {seen.oracle:.2f} % rightly"
    return f"{first}{seen.error:.2f} % of {found.outcome.tested} together. {sentence(second)}"


def _convergence_summary(found: ConvergenceResult) -> str:
    done = [one for one in found.curves if one.area is not None]
    epochs = max((len(one.accuracies) for one in found.curves), default=0)
    first = f"{len(found.plan.variants)} cells, trained alike for {epochs} epochs with each of {len(found.plan.rates)} "
    first += "learning rates" if len(found.plan.rates) > 1 else "learning rate"
    if not done:
        return f"{first}. All of them diverged."
    fastest = max(done, key=lambda one: one.area or 0.0)
    second = f"{fastest.name} ({fastest.width:g}c wide, {fastest.depth} deep) learned fastest, at {fastest.lr:g}"
    return f"{first}. {second}; {len(found.curves) - len(done)} diverged."


def _landscape_summary(around: Surroundings) -> str:
    numbers = around.result.numbers
    first = "The loss around the trained weights"
    if numbers.center is None or numbers.sharpness is None:
        return f"{first} is not finite. {numbers.undefined} points of the grid have no value."
    second = "The surface is near-convex everywhere on the grid"
    if numbers.convex_radius is not None:
        second = f"It is near-convex up to a distance of {numbers.convex_radius:.2f}"
    return (
        f"{first} is {numbers.center:.3f} at the centre, and {numbers.sharpness:.3f} more at half the span. {second}."
    )


def _search_summary(result: SearchResult) -> str:
    facts, cost = result.facts, result.cost
    trained = cost.queries + cost.trainings
    parts = [f"{result.method} chose this architecture of {result.space}"]
    if facts.parameters is not None:
        parts.append(f", {facts.parameters:,} parameters,")
    parts.append(f" from {facts.data or 'its data'} in {cost.seconds:,.0f} seconds")
    parts.append(f" and {trained} short trainings" * bool(trained))
    return "".join(parts) + ". " + sentence(result.why)


def _training_summary(model: TrainedModel, tested: ModelEvaluation | None) -> str:
    plan, out = model.plan, model.outcome
    reached = out.flag or "no accuracy was measured"
    if out.accuracy is not None:
        reached = f"{out.accuracy:.2f} % of what was held out is right after epoch {out.epoch}"
    size = f"{out.parameters:,} parameters of {plan.architecture.space}"
    first = sentence(f"{size}, trained on {plan.data} by {plan.recipe}: {reached}")
    if tested is not None:
        return f"{first} On {tested.tested}, {tested.accuracy:.2f} % are right."
    return f"{first} Left to test it on: {plan.tested}." if plan.tested else first


def _scores_summary(subject: Subject) -> str:
    assert subject.scores is not None
    table = subject.scores
    networks = len({subject.same(arch) for arch in table.architectures})
    sources = " and ".join(
        dict.fromkeys(table.origin(name).source for name in table.metrics if table.origin(name).source)
    )
    first = f"{len(table):,} architectures of {subject.space}, scored by {len(table.metrics)} metrics"
    first += f" on {sources}" * bool(sources)
    second = (
        f"They are {networks:,} different networks, and a score belongs to every architecture with the same network"
    )
    if subject.published:
        best, accuracy = axes(subject, ())
        rho = rank_agreement(table[best], subject.published[accuracy]) or 0.0
        second = f"Of the metrics, {best} ranks the {accuracy} best, with a Spearman correlation of {rho:.2f}"
    return f"{first}. {second}."
