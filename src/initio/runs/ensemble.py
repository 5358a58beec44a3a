"""The verb: `initio.ensemble`. Several different cells from one shared network, trained and averaged."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np

from initio.analysis.ensembles import CorruptedErrors, judge_ensemble
from initio.autodiff.devices import find_device
from initio.autodiff.work import executor_for
from initio.data import Noise
from initio.data.draw import generator, whole
from initio.data.sources import load_parts, located, same_source
from initio.errors import InputError
from initio.records import Architecture
from initio.runs.evaluate import answers_kept_aside
from initio.runs.folders.base import new_folder, write_record
from initio.runs.folders.ensemble import (
    LEAST,
    POOLED,
    Choice,
    Ensemble,
    EnsembleFolder,
    EnsembleOutcome,
    EnsemblePlan,
    load_ensemble,
    normalising,
    raw_inputs,
)
from initio.runs.folders.model import TrainedModel, load_model
from initio.runs.folders.run import RunFolder
from initio.runs.rank import rank
from initio.runs.search import make_problem, make_search, search
from initio.runs.sharing import trained_weights
from initio.runs.train import check_training, train
from initio.scores.store import shipped
from initio.searches.driver import versions
from initio.searches.ensembles import (
    ArchitecturePosterior,
    Candidate,
    Estimates,
    foresight,
    nes_re,
    nes_rs,
    nesbs,
    prior_of,
    uniform,
)
from initio.spaces import Space, get_space
from initio.system.executors import Executor, Here, LostTasksError
from initio.system.files import whole_file
from initio.system.leases import leased
from initio.training.settings import MachineSettings

if TYPE_CHECKING:
    from initio.searches.oneshot import SharedTraining

OnEvent = Callable[[Any], None]
BATCH, LEAST_BATCH = 128, 16  # samples of the shared weights' updates: those of the paper, and the fewest
UPDATES = 30  # in an epoch of the shared weights, at least, unless batches would be too small
LEARNED = 0.7  # share of the data that the shared weights learn from
RANKED = 200  # random architectures whose training-free ranking is a prior
PASSES, CORRUPTED = 70_301, 70_302  # streams of dropped paths, and of the samples that are corrupted
MOST_CORRUPTED = 1000  # of these samples


def ensemble(
    space: str,
    data: str,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    workers: int = 1,
    cluster: str | None = None,
    on_event: OnEvent | None = None,
    **asked: Any,
) -> Ensemble:
    """Finds architectures that are good together, trains them, and measures their mean.

    Args:
        space: one with a supernet: nb201, darts and nb1shot1.
        data: digits, a file or a folder.
        folder: where everything is kept; by default a new one below `runs`. Nothing is written unless every stage can
            begin.
        resume: go on with the same ensemble if the folder holds one.
        workers: members that are trained at once; changes no result.
        cluster: in place of workers here, those of a Dask scheduler at tcp://host:port, which see the same folder, or
            local:8, eight processes.
        on_event: hears of each step, epoch and stage.
        asked: other fields of `EnsemblePlan`: size, method, sampling, seed and so on; all others are settings of the
            search. Those that the method would not look at are refused; None is as if it were not given.
    """
    own = {item.name for item in fields(EnsemblePlan)} - {"space", "data", "settings", "versions"}
    ours = {name: value for name, value in asked.items() if name in own and value is not None}
    if ours.get("shared"):
        ours["shared"] = str(_shared_run(Path(ours["shared"])))
    ours["device"] = str(find_device(ours.get("device", EnsemblePlan.device), measured=True))
    executor = executor_for(workers, cluster)
    plan = EnsemblePlan(
        space, located(data), settings={n: v for n, v in asked.items() if n not in own}, versions=versions(), **ours
    )
    for name, why in plan.useless().items():
        if name in ours:
            raise InputError(f"{name} would have no effect: {why}; leave it out")
    if plan.shared:
        _check_shared(plan)
    kept = EnsembleFolder(folder or new_folder("ensemble", space, seed=plan.seed))
    if not (resume and kept.started):
        _check_stages(plan)
    kept.begin(plan, resume=resume)
    return _EnsembleWork(kept, plan, executor, on_event or _unheard).run()


def resume_ensemble(
    folder: str | Path, *, workers: int = 1, cluster: str | None = None, on_event: OnEvent | None = None
) -> Ensemble:
    """Goes on with an interrupted ensemble; a finished one is read."""
    kept = EnsembleFolder.open(folder)
    return _EnsembleWork(kept, kept.plan(), executor_for(workers, cluster), on_event or _unheard).run()


def _shared_run(place: Path) -> Path:
    """A run, or that of an ensemble."""
    if EnsembleFolder.is_at(place):
        ensembles = EnsembleFolder(place)
        place = Path(ensembles.plan().shared or ensembles.search)
    return place.absolute()


def _check_stages(plan: EnsemblePlan) -> None:
    """Refuses what a stage would refuse, before anything is written."""
    home = get_space(plan.space)
    data, test, tested = load_parts(plan.data)
    if not plan.shared:
        _check_search(plan, home)
    if isinstance(data, Noise):
        raise InputError("noise has nothing to learn: take data with labels, as digits, a file or a folder")
    if test is None:
        raise InputError(f"{tested}: an ensemble is measured on what nobody has learned from")
    _check_size(plan)
    anyone = next(filter(home.connected, home.architectures()))
    check_training(
        anyone, data, plan.recipe, seed=plan.seed, channels=plan.channels, cells=plan.cells, **plan.changes()
    )


def _check_search(plan: EnsemblePlan, home: Space) -> None:
    """Refuses what the search for the posterior would refuse."""
    settings: dict[str, Any] = dict(plan.settings)
    batch, pixels = settings.pop("batch_size", BATCH), settings.pop("pixels", None)
    wanted = make_search("nesbs", home, settings)
    problem = make_problem(home, plan.data, batch_size=batch, pixels=pixels, size=wanted.network_size(home))
    wanted.check(problem)
    whole(plan.supernet_epochs, "number of epochs of the shared weights", 1)
    whole(batch, "batch size", 2)  # batch norm needs two
    whole(plan.seed, "seed", 0)


def _check_size(plan: EnsemblePlan) -> None:
    """Refuses more different networks than there are; trainings of one cell are no different networks."""
    if plan.method in ("deep", "droppath"):
        return
    space, different = get_space(plan.space), set[Architecture]()
    for arch in filter(space.connected, space.architectures()):
        different.add(space.canonical(arch))
        if len(different) == plan.size:
            return
    raise InputError(
        f"{plan.space} has {len(different):,} different networks: an ensemble cannot have {plan.size:,} of them"
    )


def _check_shared(plan: EnsemblePlan) -> None:
    """Refuses shared weights of something else."""
    if plan.settings:
        raise InputError(f"the shared network is trained already: leave out {', '.join(plan.settings)}")
    run = RunFolder.open(Path(plan.shared))
    if not run.started:
        raise InputError(f"{plan.shared!r} is no run of nesbs: it has no run.json")
    theirs = run.plan()
    if theirs.method != "nesbs" or not run.finished:
        raise InputError(f"{plan.shared!r} is no finished run of nesbs: its weights cannot be shared")
    if theirs.space != plan.space or not same_source(theirs.data, plan.data):
        raise InputError(f"{plan.shared!r} searched {theirs.space} on {theirs.data}: that is another problem")


@dataclass(frozen=True)
class _EnsembleWork:
    """The stages, one after the other; what is on disk is not done again."""

    kept: EnsembleFolder
    plan: EnsemblePlan
    executor: Executor
    tell: OnEvent

    def run(self) -> Ensemble:
        kept = self.kept
        if not kept.finished:
            with leased(kept.folder, self.tell):
                self._search()
                if not kept.choice_path.is_file():
                    self._choose()
                self._train()
                self._measure()
        return load_ensemble(kept.folder)

    @property
    def _run(self) -> RunFolder:
        """The run of `nesbs`, of this ensemble or of another."""
        return RunFolder(Path(self.plan.shared or self.kept.search))

    def _search(self) -> None:
        """The shared weights and the posterior."""
        if self._run.finished:
            return
        self.tell("stage 1 of 4: shared weights, then the posterior over architectures")
        plan = self.plan
        settings: dict[str, Any] = {"batch_size": self._batch(), **plan.settings}
        search(
            plan.space, "nesbs", plan.data, seed=plan.seed, epochs=plan.supernet_epochs, folder=self.kept.search,
            resume=True, device=plan.device, on_step=self.tell, on_progress=self.tell, **settings,
        )  # fmt: skip

    def _batch(self) -> int:
        """That of the paper, or one with which small data make enough updates in an epoch."""
        learned, _, _ = load_parts(self.plan.data)
        if isinstance(learned, Noise):  # which the search will refuse
            return BATCH
        largest = max(LEAST_BATCH, int(LEARNED * len(learned) / UPDATES))
        return min(BATCH, 1 << (largest.bit_length() - 1))

    def _choose(self) -> None:
        """The members, by their estimated loss."""
        plan, began = self.plan, time.perf_counter()
        self.tell(f"stage 2 of 4: {plan.size} members by {plan.method}")
        _, at = trained_weights(self._run, plan.device)
        prior = self._prior(at)
        posterior = ArchitecturePosterior(at.space, tuple(at.knows.values.tolist()), plan.temperature, prior)
        labels = np.concatenate([y.numpy() for _, y in at.examples.validate()])
        estimates = Estimates(at.space, partial(inherited, at), labels)
        mode = posterior.mode
        compared = self._compared(posterior, estimates)
        choice = Choice(
            members=compared[0].members,
            loss=compared[0].loss,
            delta=compared[0].delta,
            mode=mode,
            mode_loss=estimates.loss([mode]),
            marginals=tuple(tuple(row.tolist()) for row in posterior.marginals),
            entropies=tuple(posterior.entropies),
            compared=tuple(compared),
            networks=len(estimates.known),
            absent=tuple(sorted(set(range(at.examples.classes)) - set(labels.tolist()))),
            prior=prior,
            foresight=foresight(posterior, estimates),
            seconds=time.perf_counter() - began,
        )
        if choice.absent:
            self.tell(f"the part that chooses has no sample of the classes {choice.absent}, which count for nothing")
        _draw(posterior, self.kept.folder / "posterior.png")
        write_record(self.kept.choice_path, choice)

    def _prior(self, at: SharedTraining) -> tuple[float, ...]:
        """By a training-free ranking, of scores that come with Initio or of a measured pool; none where uniform.

        None for methods that do not choose by the posterior.
        """
        plan, name = self.plan, f"{at.space.name}-ranking"
        known = name in shipped()
        if plan.method in POOLED or plan.prior == "uniform" or (plan.prior == "auto" and not known):
            return ()
        if known:
            found = rank(name)
        else:
            found = rank(
                at.space, min(RANKED, at.space.count()), plan.data, seed=plan.seed, on_progress=self.tell,
                store=self.kept.folder / "scores.db", device=plan.device,
            )  # fmt: skip
        return prior_of(at.space, found.table.architectures, found.ranking.values)

    def _compared(self, posterior: ArchitecturePosterior, estimates: Estimates) -> list[Candidate]:
        """The ensembles that the method compares, the best first."""
        plan = self.plan
        if plan.method == "nesbs":
            rng = np.random.default_rng((plan.seed, 5))
            return nesbs(posterior, estimates, plan.size, plan.candidates, rng, plan.sampling, plan.delta_by)
        if plan.method in ("deep", "droppath"):
            networks = {"deep": plan.size, "droppath": 1}[plan.method]
            return [Candidate((posterior.mode,) * networks, estimates.loss([posterior.mode]))]
        choose = {"nes-rs": nes_rs, "nes-re": nes_re, "random": uniform}[plan.method]
        return choose(posterior.space, estimates, plan.size, plan.candidates, plan.seed)

    def _train(self) -> None:
        """The members, each in a folder of its own."""
        members = self.kept.choice().members
        self.tell(f"stage 3 of 4: training {len(members)} members")
        tasks = list(enumerate(members, start=1))
        work = partial(_train_member, self.kept, self.plan)
        if self.executor == Here():
            work = partial(work, on_event=self.tell)
        trained: list[int] = []

        def hear(number: int, _: object) -> None:
            trained.append(number)
            self.tell(f"{len(trained)} of {len(members)} members trained")

        try:
            self.executor.map(work, tasks, hear)
        except LostTasksError as error:
            lost = ", ".join(str(number + 1) for number in error.numbers)
            raise InputError(f"the workers that trained members {lost} died again and again: take 1 worker") from None

    def _measure(self) -> None:
        """Members and mean on what nobody has learned from."""
        self.tell("stage 4 of 4: members and their mean on what was kept aside")
        numbers = range(1, len(self.kept.choice().members) + 1)
        trained = {number: load_model(self.kept.member(number)) for number in numbers}
        left_out = {
            str(number): model.outcome.flag
            for number, model in trained.items()
            if model.outcome.flag.startswith("the training diverged")
        }
        good = {number: model for number, model in trained.items() if str(number) not in left_out}
        if len(good) < min(LEAST, len(trained)):
            raise InputError(
                f"{len(left_out)} of {len(trained)} members diverged, and {len(good)} make no ensemble: begin anew in "
                f"another folder by a recipe that takes smaller steps, as --recipe plain, "
                f"with --shared {quote(str(self._run.folder))}"
            )
        first = next(iter(good.values()))
        logits, labels = self._answers(list(good.values()))
        if self.plan.method == "droppath" and (logits == logits[0]).all():
            self.tell("every pass gave the same answer: this cell has no path that could be dropped")
        buffer = io.BytesIO()
        np.savez(buffer, logits=logits, labels=labels)
        with whole_file(self.kept.predictions_path) as temporary:
            temporary.write_bytes(buffer.getvalue())
        outcome = EnsembleOutcome(
            tuple(good), left_out, tuple(model.digest("best") for model in good.values()), first.plan.tested,
            judge_ensemble(logits, labels, first.plan.names), self._corrupted(list(good.values())),
        )  # fmt: skip
        write_record(self.kept.result_path, outcome)

    def _answers(self, models: list[TrainedModel]) -> tuple[np.ndarray, np.ndarray]:
        """Logits (n, m, classes), and the labels."""
        from initio.training.fit import layers_draw_from

        found, device = [], find_device(self.plan.device, measured=True)
        with layers_draw_from(int(generator(self.plan.seed, PASSES).integers(2**62)), device):
            for network in self.plan.networks(models):
                logits, labels = answers_kept_aside(models[0], network, device=str(device))
                found.append(logits)
        return np.stack(found), labels

    def _corrupted(self, models: list[TrainedModel]) -> tuple[CorruptedErrors, ...]:
        """Errors on images that are noisy, blurred or pale."""
        import torch

        from initio.networks.corruptions import corruptions
        from initio.training.fit import layers_draw_from

        if len(models[0].plan.network.shape) != 3:
            return ()
        x, y, bounds = raw_inputs(models[0], MOST_CORRUPTED, self.plan.seed, CORRUPTED)
        found, device = [], find_device(self.plan.device, measured=True)
        networks = [network.to(device) for network in normalising(models[0], self.plan.networks(models))]
        x, y = x.to(device), y.to(device)
        seed = int(generator(self.plan.seed, CORRUPTED, 1).integers(2**62))
        with layers_draw_from(seed, device), torch.inference_mode():
            for name, severity, changed in corruptions(x, bounds):
                shares = torch.stack([network(changed).softmax(1) for network in networks])
                together, singles = shares.mean(0).argmax(1) != y, shares.argmax(2) != y
                errors = [100 * float(wrong.double().mean()) for wrong in (together, singles)]
                found.append(CorruptedErrors(name, severity, *errors))
        return tuple(found)


def _train_member(
    kept: EnsembleFolder, plan: EnsemblePlan, task: tuple[int, Architecture], on_event: OnEvent | None = None
) -> int:
    """Its number."""
    number, arch = task
    settings: dict[str, Any] = {}
    if plan.epochs is not None:
        settings["epochs"] = plan.epochs
    if plan.method == "droppath":
        settings["drop_path"] = plan.drop_path
    train(
        arch, plan.data, plan.recipe, seed=plan.member_seed(number), channels=plan.channels, cells=plan.cells,
        folder=kept.member(number), resume=True, tensorboard=False, machine=MachineSettings(plan.device),
        on_event=on_event, **settings,
    )  # fmt: skip
    return number


def inherited(at: SharedTraining, arch: Architecture) -> np.ndarray:
    """Probabilities on the held-out part with the shared weights."""
    import torch

    from initio.networks.shared import Blend

    path = Blend.path(at.space, arch)
    at.network.eval()
    with torch.inference_mode():
        answers = (at.network(x.to(at.device), path).softmax(1) for x, _ in at.examples.validate())
        return np.concatenate([answer.double().cpu().numpy() for answer in answers])


def _draw(posterior: ArchitecturePosterior, path: Path) -> None:
    """A row a categorical, a column an option."""
    from initio.report.surfaces import save_shares

    decisions = posterior.space.relaxation
    rows = {
        f"{decision.name}\nentropy {entropy:.2f}": p
        for decision, p, entropy in zip(decisions, posterior.marginals, posterior.entropies, strict=True)
    }
    save_shares(rows, [decision.options for decision in decisions], path)


def _unheard(what: object) -> None:
    """Nobody listens."""
