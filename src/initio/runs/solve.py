"""The verb: `initio.solve`, from data to a trained, evaluated and exported network in a given time.

Stage after stage writes what it found into the run's folder; a run that was killed goes on from there, and the time
that it had used counts.
"""

from __future__ import annotations

import math
import time
from bisect import bisect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from shlex import quote
from typing import TYPE_CHECKING, Any

from initio.autodiff.devices import can_measure, find_device
from initio.data import Dataset
from initio.data.look import DataReport, look
from initio.data.sources import has_size, located
from initio.errors import InputError
from initio.records import Architecture
from initio.runs.budget import Ending, Ticking
from initio.runs.evaluate import evaluate
from initio.runs.export import export
from initio.runs.folders.base import unused, write_record
from initio.runs.folders.model import ModelFolder, TrainedModel
from initio.runs.folders.solution import NAMES, Design, HeldOutScore, SolveFolder, SolvePlan, SolveResult
from initio.runs.search import make_limits, search
from initio.runs.train import LEAST_SIDE, resume_training, train
from initio.searches import Limits, SearchResult, find_search
from initio.searches.driver import versions
from initio.spaces import GraphSpace, NetworkSettings, Space, get_space, parse
from initio.system.clock import Deadline
from initio.system.files import write_text
from initio.system.leases import leased

if TYPE_CHECKING:
    from initio.training.machine import PlainMachine

IMAGES, FEATURES = "nb201", "mlp-3"  # the spaces for images and for all else
RESNET = parse("|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|skip_connect~2|")
SIZES = ((8, 1), (12, 1), (16, 1), (16, 2), (24, 2), (32, 2), (32, 3), (48, 3), (64, 4))  # channels and cells of nb201
WIDEST = 256  # channels of a ResNet
GROWTH = (1, 2, 4)  # of the width for training, in other spaces
EPOCHS = 25  # that a network should have time for, before a larger one is taken
MOST_EPOCHS = 200
FEWEST_EPOCHS = 3  # for which the data are cut
SEARCHED = 16  # pixels of the images that are searched on, if they have as many
PHOTO, LARGE_PHOTO, HOUR = 32, 64, 3600.0  # pixels of larger images as they are learned; the second from an hour on
LINEAR = 0.03  # share of the budget for the linear classifier
ENDING = Ending(share=0.1, least=10.0, most=0.4)  # of the budget, for evaluation and export
SEARCH = 0.4  # share of a contender's time in which its cell is searched
MARGIN = 0.75  # of the epochs that the measured speed allows: others use the machine too
HYBRID = 6.0  # epochs that must fit into the time of a search for one that trains
SHORT = 180.0  # seconds of a search, below which networks of one cell a stage are scored instead of deep ones
VOTES, VOTE = "votes", 0.5  # the search without training, and seconds in which one network is measured at the latest
FEWEST_VOTES, MOST_VOTES = 20, 100  # random networks that are measured first
ONNX = 10.0  # seconds that must be left to begin with it
VALIDATION = 0.1

OnEvent = Callable[[Any], None]


def solve(
    data: str,
    budget: float = 1200.0,
    *,
    limits: Limits | Mapping[str, Any] | None = None,
    space: str | None = None,
    method: str | None = None,
    recipe: str = "quick",
    baseline: bool = True,
    skip_bad: bool = False,
    seed: int = 0,
    device: str = "auto",
    folder: str | Path | None = None,
    resume: bool = False,
    began: float | None = None,
    on_event: OnEvent | None = None,
) -> SolveResult:
    """From data to a trained, evaluated and exported network, in a given time.

    Args:
        data: digits, a file or a folder; `photos@64` says how large images are learned.
        budget: seconds for everything; kept within a tenth.
        limits: on the network that is built.
        space: where to search; by default nb201 for images, mlp-3 for all else.
        method: how to search; by default the robust hybrid with short trainings where time allows, else votes.
        recipe: whose settings are trained with; the number of epochs follows from the time.
        baseline: give half of the time to a ResNet of the same size, and keep the better one by validation accuracy.
        skip_bad: leave out pictures of a folder that cannot be read, instead of naming them and stopping.
        seed: of everything.
        device: what computes: cpu, cuda, cuda:1, mps, or auto, a GPU where there is one.
        folder: of the run; by default a new one below `runs`.
        resume: go on with the run in the folder, if there is one.
        began: when the time began, by `time.perf_counter`; by default now.
        on_event: hears sentences, and how far every stage is.
    """
    began = time.perf_counter() if began is None else began
    if not isinstance(limits, Limits):
        limits = make_limits(limits or {})
    if not (isinstance(budget, int | float) and math.isfinite(budget) and budget > 0):
        raise InputError(f"the budget must be a positive number of seconds, not {budget!r}")
    plan = SolvePlan(
        located(data), float(budget), limits, space, method, recipe, baseline, skip_bad, seed, str(find_device(device)),
        versions(),
    )  # fmt: skip
    run = SolveFolder(folder or new_solve_folder(data))
    work = _Solving(run, plan, began, on_event)
    if not (resume and run.started):
        work.check()
    run.begin(plan, resume=resume)
    return work.run()


def resume_solve(folder: str | Path, *, began: float | None = None, on_event: OnEvent | None = None) -> SolveResult:
    """Goes on with an interrupted run; a finished one is read."""
    began, run = time.perf_counter() if began is None else began, SolveFolder.open(folder)
    return _Solving(run, run.plan(), began, on_event).run()


@dataclass(frozen=True)
class _Solving:
    """A run that is under way."""

    kept: SolveFolder
    plan: SolvePlan
    began: float
    on_event: OnEvent | None
    loaded: dict[str, tuple[DataReport, Dataset, Dataset]] = field(default_factory=dict, repr=False)

    def check(self) -> None:
        """Refuses what cannot be solved before anything is written."""
        from initio.training.recipes import make_recipe

        make_recipe(self.plan.recipe)
        if self.plan.space is not None:
            get_space(self.plan.space)
        self.look(self.plan.data)

    def run(self) -> SolveResult:
        """All stages; a finished run is read."""
        if self.kept.finished:
            return self.kept.result()
        with leased(self.kept.folder, self.hear):
            used = self.kept.used()
            deadline = Deadline.after(self.plan.budget, used + time.perf_counter() - self.began)
            ticking = Ticking(self.kept.tick, self.began - used, self.on_event)
            return replace(self, on_event=ticking)._stages(deadline)

    def hear(self, what: object) -> None:
        """Passes on what happens."""
        if self.on_event is not None:
            self.on_event(what)

    def look(self, spec: str) -> tuple[DataReport, Dataset, Dataset]:
        """What was seen of the data, what is learned, what is kept aside; read once."""
        if spec not in self.loaded:
            self.loaded[spec] = look(spec, skip_bad=self.plan.skip_bad)
        return self.loaded[spec]

    @property
    def _measures_on(self) -> str:
        """Where the search computes: on the CPU where the device cannot measure."""
        return self.plan.device if can_measure(self.plan.device) else "cpu"

    @property
    def _machine(self) -> PlainMachine:
        """Where networks are trained."""
        from initio.training.machine import PlainMachine

        return PlainMachine(find_device(self.plan.device))

    def _stages(self, deadline: Deadline) -> SolveResult:
        kept = self.kept
        report = kept.stage("data", DataReport, lambda: self.look(self.plan.data)[0])
        for sentence in report.told():
            self.hear(sentence)
        linear = kept.stage("linear", HeldOutScore, lambda: self._linear(report))
        self.hear(f"linear classifier: {linear}")
        trained = deadline.sooner(ENDING.seconds(self.plan.budget, self.began))
        design = kept.stage("design", Design, lambda: self._design(report, trained))
        self.hear(design.why)
        chosen = self._search(design, report)
        network = self._network(design, report)
        until = trained.sooner(design.seconds - design.half)
        if design.compared and trained.share(0.5).at > until.at:  # the search took longer than its share
            until = trained.share(0.5)
        contenders = {"found": self._train("found", chosen.best, design, network, until)}
        if design.compared:
            network = self._resnet(contenders["found"], design)
            contenders["resnet"] = self._train("resnet", RESNET, design, network, trained)
        return self._end(report, linear, design, chosen, contenders, deadline)

    # --- before anything is searched ----------------------------------------------------------------------------------

    def _spec(self, report: DataReport, pixels: int | None) -> str:
        """The data's name, with a size where one is needed."""
        if pixels is None or report.side is None or has_size(self.plan.data):
            return self.plan.data
        return f"{self.plan.data}@{pixels}"

    def _linear(self, report: DataReport) -> HeldOutScore:
        """On the images as they are if they are small, else on small copies of them."""
        from initio.analysis.classification import judge
        from initio.analysis.linear_classifier import linear_logits

        pixels = None if report.small(PHOTO) else SEARCHED
        _, learned, test = self.look(self._spec(report, pixels))
        (x, y), (x_test, y_test) = learned.arrays(), test.arrays()
        seconds = LINEAR * self.plan.budget
        logits, n = linear_logits(x, y, x_test, learned.classes, seconds=seconds, seed=self.plan.seed)
        seen = judge(logits, y_test, tuple(map(str, range(learned.classes))))
        return HeldOutScore(seen.accuracy, seen.low, seen.high, f"logistic regression on {n:,} samples")

    def _design(self, report: DataReport, trained: Deadline) -> Design:
        """Space, input size, and the largest network that has time for a good number of epochs."""
        pixels = None
        largest = (PHOTO, LARGE_PHOTO)[self.plan.budget >= HOUR]
        if report.side is not None and not report.small(largest):
            pixels = min(largest, max(LEAST_SIDE, report.side))
        images = report.side is not None and (pixels or report.side) >= LEAST_SIDE
        space = get_space(self.plan.space or (FEATURES, IMAGES)[images])
        compared = self.plan.baseline and images
        seconds = max(0.0, trained.left)
        search, training = (share * seconds / (1 + compared) for share in (SEARCH, 1 - SEARCH))
        (channels, cells), epoch, n = self._size(space, self._spec(report, pixels), training)
        samples = None
        if FEWEST_EPOCHS * epoch > training:
            samples = min(n, max(20 * report.classes, int(n * training / (FEWEST_EPOCHS * epoch))))
        method, how = self.plan.method, "as asked for"
        if method is None:
            method, how = "robust", "metrics and short trainings"
            if search < HYBRID * epoch * (samples or n) / n:
                method, how = VOTES, "metrics at initialisation alone, since there is no time for short trainings"
        size = f"{channels} channels" + f" and {cells} cells a stage" * images
        why = f"searching {space.name} by {how}, for a network of {size}: an epoch takes about {epoch:.1f} s here"
        if samples is not None:
            why += f", so {samples:,} of {n:,} samples are learned from"
        return Design(space.name, method, pixels, channels, cells, epoch, samples, seconds, compared, why)

    def _size(self, space: Space, spec: str, training: float) -> tuple[tuple[int, int], float, int]:
        """Channels and cells, seconds of an epoch, and the number of samples in it."""
        from initio.training.examples import examples_of
        from initio.training.machine import laid_out
        from initio.training.pace import pace
        from initio.training.recipes import make_recipe

        _, learned, _ = self.look(spec)
        recipe = make_recipe(self.plan.recipe, validation=VALIDATION)
        examples = examples_of(learned, recipe, self.plan.seed)
        arch, sizes = _typical(space)
        networks = [space.resolve(NetworkSettings(*size, learned.classes, learned.shape)) for size in sizes]
        costs = [space.cost(arch, network) for network in networks]
        allowed = [place for place, cost in enumerate(costs) if self.plan.limits.excess(cost) <= 1] or [0]
        first = allowed[0]
        measured = pace(laid_out(space.build(arch, networks[first])), examples, recipe, self._machine)
        epochs = [measured * cost.flops / costs[first].flops for cost in costs]
        chosen = max((place for place in allowed if EPOCHS * epochs[place] <= training), default=first)
        return sizes[chosen], epochs[chosen], len(examples)

    # --- search and trainings -----------------------------------------------------------------------------------------

    def _network(self, design: Design, report: DataReport) -> NetworkSettings:
        """The one that is built."""
        _, learned, _ = self.look(self._spec(report, design.pixels))
        return NetworkSettings(design.channels, design.cells, learned.classes, learned.shape)

    def _search(self, design: Design, report: DataReport) -> SearchResult:
        """The cell: in its share of the time, on small copies of the images."""
        share = max(1.0, SEARCH * design.half)
        asked: dict[str, Any] = {"method": design.method}
        if find_search(design.method).trains:
            asked["budget"] = share
        elif design.method == VOTES:
            first = min(max(FEWEST_VOTES, round(share / VOTE)), MOST_VOTES)
            asked |= {"first": first, "each": first // 4, "workers": 1}
        if design.space == IMAGES and SEARCH * design.half < SHORT:
            asked["cells"] = 1
        data = self.look(self.plan.data)[1]
        if report.side is not None:
            data = data.resized(min(SEARCHED, design.pixels or report.side))
        return search(
            design.space,
            data=data,
            seed=self.plan.seed,
            device=self._measures_on,
            limits=self.plan.limits,
            target=self._network(design, report),
            folder=self.kept.folder / "search",
            resume=True,
            on_step=self.hear,
            on_progress=self.hear,
            **asked,
        )

    def _train(
        self, name: str, arch: Architecture, design: Design, network: NetworkSettings, until: Deadline
    ) -> TrainedModel:
        """A network for as many epochs as its time allows."""
        folder = self.kept.folder / name
        if ModelFolder.is_at(folder):
            return resume_training(folder, on_event=self.hear, tensorboard=False, deadline=until)
        from initio.training.examples import examples_of
        from initio.training.machine import laid_out
        from initio.training.pace import pace
        from initio.training.recipes import make_recipe
        from initio.training.settings import MachineSettings

        space, spec = get_space(arch.space), self._spec(self.look(self.plan.data)[0], design.pixels)
        recipe = make_recipe(self.plan.recipe, validation=VALIDATION, samples=design.samples)
        examples = examples_of(self.look(spec)[1], recipe, self.plan.seed)
        epoch = pace(laid_out(space.build(arch, space.resolve(network))), examples, recipe, self._machine)
        epochs = max(1, min(MOST_EPOCHS, math.floor(MARGIN * until.left / epoch)))
        if recipe.warmup >= epochs:
            recipe = replace(recipe, warmup=0)
        self.hear(f"training the {NAMES[name]} for {epochs} epochs of about {epoch:.1f} s")
        return train(
            arch,
            spec,
            replace(recipe, epochs=epochs),
            seed=self.plan.seed,
            channels=network.channels,
            cells=network.cells,
            machine=MachineSettings(self.plan.device),
            folder=folder,
            resume=True,
            skip_bad=self.plan.skip_bad,
            tensorboard=False,
            deadline=until,
            on_event=self.hear,
        )

    def _resnet(self, found: TrainedModel, design: Design) -> NetworkSettings:
        """The ResNet whose number of parameters is nearest to that of the found network, within the limits."""
        space, shape = get_space(IMAGES), found.plan.network.shape
        cells = design.cells if design.space == IMAGES else 1
        wanted = found.outcome.parameters

        def network(width: int) -> NetworkSettings:
            return NetworkSettings(width, cells, found.plan.network.classes, shape)

        def too_large(width: int) -> bool:
            cost = space.cost(RESNET, network(width))
            return cost.parameters > wanted or self.plan.limits.excess(cost) > 1

        narrower = max(1, bisect(range(1, WIDEST), False, key=too_large))
        near = [network(width) for width in (narrower, narrower + 1)]
        allowed = [size for size in near if self.plan.limits.excess(space.cost(RESNET, size)) <= 1] or near[:1]
        return min(allowed, key=lambda size: abs(space.cost(RESNET, size).parameters - wanted))

    # --- the end ------------------------------------------------------------------------------------------------------

    def _end(
        self,
        report: DataReport,
        linear: HeldOutScore,
        design: Design,
        chosen: SearchResult,
        contenders: dict[str, TrainedModel],
        deadline: Deadline,
    ) -> SolveResult:
        """Evaluates the networks, exports the better one, and writes the page."""
        notes = [
            f"the {NAMES[name]} has no accuracy: {model.outcome.flag}"
            for name, model in contenders.items()
            if model.outcome.accuracy is None
        ]
        learned_something = [name for name, model in contenders.items() if model.outcome.accuracy is not None]
        if not learned_something:
            raise InputError(f"nothing was learned: {'; '.join(notes)}")
        best = max(learned_something, key=lambda name: contenders[name].outcome.accuracy or 0.0)  # the first of equals
        scores = dict[str, HeldOutScore]()
        for name in learned_something:
            out = contenders[name].outcome
            self.hear(f"evaluating the {NAMES[name]}")
            seen = evaluate(contenders[name], device=self.plan.device, save=name == best).judgement
            learned = f"{out.epochs} epochs in {out.seconds:.0f} s, validation {out.accuracy:.2f} %"
            scores[name] = HeldOutScore(seen.accuracy, seen.low, seen.high, learned)
            if out.ended:
                planned = contenders[name].plan.how.epochs
                notes.append(f"the {NAMES[name]} was trained for {out.epochs} of {planned} epochs: {out.ended}")
        files = self._export(best, contenders[best], deadline, notes)
        space = get_space(design.space)
        solution = SolveResult(
            folder=str(self.kept.folder),
            report=report,
            design=design,
            architecture=space.format(chosen.best),
            reason=chosen.why,
            parameters={name: model.outcome.parameters for name, model in contenders.items()},
            scores=scores | {"linear": linear},
            kept=best,
            files=files,
            seconds=self.plan.budget - deadline.left,
            notes=tuple(notes),
        )
        write_text(self.kept.folder / "README.md", solution.markdown())
        write_record(self.kept.result_path, solution)
        return solution

    def _export(self, name: str, model: TrainedModel, deadline: Deadline, notes: list[str]) -> tuple[str, ...]:
        """A Python file with its weights, and ONNX where it is installed and there is time."""
        self.hear(f"exporting the {NAMES[name]}")
        paths = []
        if isinstance(model.space, GraphSpace):
            paths.append(export(model, format="python"))
        later = f"`initio export {quote(str(model.folder))} --format onnx` makes it"
        if deadline.left < ONNX:
            notes.append(f"no ONNX file, for want of time: {later}")
        else:
            try:
                paths.append(export(model, format="onnx"))
            except InputError as error:
                notes.append(f"no ONNX file: {error}")
        return tuple(str(path.relative_to(self.kept.folder)) for path in paths)


def _typical(space: Space) -> tuple[Architecture, list[tuple[int, int]]]:
    """An architecture whose speed stands for that of others, and the sizes that come into question, smallest first."""
    if space.name == IMAGES:
        return RESNET, list(SIZES)
    rng, size = Random("typical"), space.sizes.training
    channels, cells = size.channels or 1, size.cells or 1
    return space.sample(rng), [(factor * channels, cells) for factor in GROWTH]


def new_solve_folder(data: str) -> Path:
    """The folder below `runs` of a run for which none was named."""
    return unused(f"solve-{Path(data).stem or 'data'}")
