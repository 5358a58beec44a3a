"""The verb: `initio.train`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from initio.data import Dataset, Noise
from initio.data.sources import load_parts, located
from initio.errors import InputError
from initio.records import Architecture, decode, encode
from initio.runs.folders.base import new_folder, write_record
from initio.runs.folders.model import WHICH, ModelFolder, TrainedModel, TrainOutcome, TrainPlan
from initio.runs.folders.named import find_named
from initio.searches.driver import versions
from initio.searches.result import SearchResult
from initio.spaces import GraphSpace, NetworkSettings, Space, get_space, spaces_that
from initio.system.clock import Deadline
from initio.system.files import write_text
from initio.system.leases import leased

if TYPE_CHECKING:
    from torch import nn

    from initio.records import Observation
    from initio.training import TrainedEpoch, TrainingSettings
    from initio.training.machine import PlainMachine
    from initio.training.settings import MachineSettings

LEAST_SIDE = 4  # pixels: cells halve an image twice
MOST_NAMED = 10  # files in a note
OnEvent = Callable[[Any], None]  # hears TrainingProgress, TrainedEpoch and sentences


def train(
    architecture: Architecture | SearchResult | str,
    data: Dataset | str | None = None,
    recipe: TrainingSettings | str = "quick",
    *,
    seed: int = 0,
    channels: int | None = None,
    cells: int | None = None,
    machine: MachineSettings | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    skip_bad: bool = False,
    tensorboard: bool = True,
    deadline: Deadline | None = None,
    on_event: OnEvent | None = None,
    **settings: Any,
) -> TrainedModel:
    """Trains the network of an architecture and keeps it in a folder.

    Args:
        architecture: an architecture, its text or name, a file or a run folder with one, or what a search returned.
        data: what to learn; by default what the run has searched on.
        recipe: how: a name of `initio.training.RECIPES`, or settings.
        seed: of the weights, the split, the order of samples and augmentation.
        channels: width of the network; by default what the recipe trains: the published one, or for `quick` a thin one.
        cells: its number of cells.
        machine: device, precision, processes; by default one process on the fastest device.
        folder: where everything is kept; by default a new one below `runs`.
        resume: go on with the same training if the folder holds one.
        skip_bad: leave out pictures of a folder that cannot be read; each is read once to find out.
        tensorboard: write curves for TensorBoard, if it is installed.
        deadline: begin no epoch that would not end before it.
        on_event: hears of each update, of each epoch, and sentences.
        settings: fields of the recipe.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     trained = train("mlp:relu,tanh", "digits", folder=f"{folder}/t", epochs=2, tensorboard=False)
    >>> trained.outcome.accuracy > 80  # chance is 10
    True
    """
    from initio.training.examples import examples_of
    from initio.training.recipes import make_recipe
    from initio.training.settings import MachineSettings

    named = find_named(architecture)
    arch, home, searched = named.architecture, named.space, named.searched
    if isinstance(recipe, str):
        recipe = make_recipe(recipe, **settings)
    else:
        recipe = replace(recipe, **settings)
    machine = machine or MachineSettings()
    learned, tested = _data(data if data is not None else searched, skip_bad)
    network = _network(home, arch, recipe, learned, channels, cells)
    _check(home, arch, learned, network)
    for note in _notes(home, recipe, learned, network):
        (on_event or _unheard)(note)
    name = learned.name
    if isinstance(data or searched, str):
        name = located(str(data or searched))
    plan = TrainPlan(
        architecture=arch,
        data=name,
        recipe=recipe.name,
        settings=asdict(recipe),
        network=network,
        seed=seed,
        machine=asdict(machine),
        fingerprint=examples_of(learned, recipe, seed, workers=machine.workers).fingerprint,
        tested=tested,
        source=str(named.place.absolute()) if named.place else None,
        searched=searched,
        scale=learned.scale,
        mean=learned.mean,
        std=learned.std,
        class_names=learned.class_names,
        skip_bad=skip_bad,
        versions=versions(),
    )
    kept = ModelFolder(folder or new_folder("train", arch.space, seed=seed))
    kept.begin(plan, resume=resume)
    return _TrainWork(kept.folder, plan, learned, home, machine, tensorboard, on_event, deadline).run()


def check_training(
    architecture: Architecture,
    data: Dataset,
    recipe: str,
    *,
    seed: int = 0,
    channels: int | None = None,
    cells: int | None = None,
    **settings: Any,
) -> None:
    """Refuses what `train` would refuse, and writes nothing; the arguments are its own."""
    from initio.training.examples import examples_of
    from initio.training.recipes import make_recipe

    home, how = get_space(architecture.space), make_recipe(recipe, **settings)
    _check(home, architecture, data, _network(home, architecture, how, data, channels, cells))
    examples_of(data, how, seed)


def resume_training(
    folder: str | Path,
    *,
    on_event: OnEvent | None = None,
    tensorboard: bool = True,
    deadline: Deadline | None = None,
) -> TrainedModel:
    """Goes on with an interrupted training, with the arguments it was started with; a finished one is read."""
    from initio.training.settings import MachineSettings

    kept = ModelFolder.open(folder)
    plan = kept.plan()
    learned, _ = _data(plan.data, plan.skip_bad)
    machine = decode(MachineSettings, plan.machine)
    home = get_space(plan.architecture.space)
    return _TrainWork(kept.folder, plan, learned, home, machine, tensorboard, on_event, deadline).run()


@dataclass(frozen=True)
class _TrainWork:
    """A training that was checked. It can be pickled, so that every process of several runs it."""

    folder: Path
    plan: TrainPlan
    data: Dataset
    home: Space
    machine: MachineSettings
    tensorboard: bool
    on_event: OnEvent | None
    deadline: Deadline | None = None

    def run(self) -> TrainedModel:
        from initio.training.machine import run_on

        kept = ModelFolder(self.folder)
        if not kept.finished:
            with leased(self.folder, self._tell):
                run_on(self.machine, self)
        return TrainedModel(self.folder, self.plan, kept.result(), kept.epochs(), self.home)

    def __call__(self, machine: PlainMachine) -> None:
        """The part of one process."""
        from initio.training.examples import examples_of
        from initio.training.fit import fit
        from initio.training.machine import laid_out

        plan, kept = self.plan, ModelFolder(self.folder)
        recipe = plan.how
        examples = examples_of(self.data, recipe, plan.seed, workers=self.machine.workers)
        if examples.fingerprint != plan.fingerprint:
            raise InputError(f"{plan.data!r} has changed since the training began: bring the data back, or start anew")
        network = laid_out(self.home.build(plan.architecture, plan.network, seed=plan.seed))
        keeper, first = _Keeper(kept, self._tell, self.tensorboard), machine.rank == 0

        def look(history: Sequence[TrainedEpoch]) -> str:
            if first:
                keeper.know(history)
            return self._in_time(history)

        seen = fit(
            network,
            examples,
            recipe,
            seed=plan.seed,
            checkpoint=kept.checkpoint_path,
            identity=_identity(plan),
            insist=True,
            machine=machine,
            on_progress=self._tell,
            on_epoch=(_deaf, keeper.hear)[first],
            on_note=(None, self._tell)[first],
            enough=look,
        )
        if first:
            used = self.home.build(plan.architecture, plan.used)
            keeper.finish(seen, sum(p.numel() for p in used.parameters()))

    def _in_time(self, history: Sequence[TrainedEpoch]) -> str:
        """Why there is no time for another epoch, if there is none."""
        if self.deadline is None or self.deadline.left > history[-1].seconds / len(history):
            return ""
        return "there was no time for another epoch"

    def _tell(self, what: object) -> None:
        if self.on_event is not None:
            self.on_event(what)


def _deaf(epoch: TrainedEpoch, model: nn.Module) -> None:
    """What a process does about an epoch that another one writes down."""


@dataclass(frozen=True)
class _Keeper:
    """Writes what each epoch came to: its weights before the checkpoint says that it is done, its line after that.

    So a line never goes again: what it tells has not to be done anew.
    """

    kept: ModelFolder
    tell: OnEvent
    tensorboard: bool

    def know(self, history: Sequence[TrainedEpoch]) -> None:
        """The epochs so far, those of a checkpoint too, whatever the file of their lines has gone through."""
        if self.kept.epochs() != tuple(history):
            lines = (json.dumps(encode(seen), allow_nan=False) for seen in history)
            write_text(self.kept.epochs_path, "".join(f"{line}\n" for line in lines))

    def hear(self, epoch: TrainedEpoch, model: nn.Module) -> None:
        """An epoch: its weights."""
        values = [seen.validation for seen in self.kept.epochs() if seen.epoch < epoch.epoch]
        self.kept.save_weights("last", model)
        if epoch.validation is None or epoch.validation > max((v for v in values if v is not None), default=-1.0):
            self.kept.save_weights("best", model)
        if self.tensorboard:
            _log(self.kept.folder / "tensorboard", epoch)
        self.tell(epoch)

    def finish(self, seen: Observation, parameters: int) -> None:
        """What came out; the checkpoint has served."""
        epochs, flag, ended = self.kept.epochs(), "", seen.flag
        known = [epoch for epoch in epochs if epoch.validation is not None]
        best = max(known, key=lambda epoch: epoch.validation or 0.0, default=None)  # the first of the best
        found: dict[str, Any] = {"accuracy": None, "epoch": None, "last": seen.value}
        if seen.value is None:
            flag, ended = seen.flag, ""
        elif best is not None:
            found |= {"accuracy": best.validation, "epoch": best.epoch}
        weights = {str(which): self.kept.digest(which) for which in WHICH if self.kept.weights_path(which).is_file()}
        outcome = TrainOutcome(
            **found,
            epochs=len(epochs),
            seconds=seen.seconds,
            ended=ended,
            flag=flag,
            weights=weights,
            parameters=parameters,
        )
        write_record(self.kept.result_path, outcome)
        self.kept.checkpoint_path.unlink(missing_ok=True)


def _log(folder: Path, epoch: TrainedEpoch) -> None:
    """An epoch for TensorBoard; a training that goes on overwrites what came after its checkpoint."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return
    with SummaryWriter(str(folder), purge_step=epoch.epoch) as writer:
        for name, value in vars(epoch).items():
            if name != "epoch" and value is not None:
                writer.add_scalar(name, value, epoch.epoch)


# --- what the arguments mean ----------------------------------------------------------------------------------------


def _data(given: Dataset | str | None, skip_bad: bool) -> tuple[Dataset, str]:
    """What to learn from, and a sentence on what remains to test on."""
    if given is None:
        raise InputError("say what to train on: --data digits, a file or a folder")
    if isinstance(given, Dataset):
        return given, ""
    data, _, tested = load_parts(given, skip_bad=skip_bad)
    if isinstance(data, Noise):
        raise InputError("noise has nothing to learn: train on data with labels, as digits, a file or a folder")
    return data, tested


def _network(
    home: Space,
    arch: Architecture,
    recipe: TrainingSettings,
    data: Dataset,
    channels: int | None,
    cells: int | None,
) -> NetworkSettings:
    """The size that is asked for, or that the recipe trains; drop-path and auxiliary head where the space has them.

    A recipe with a limit on multiply-adds has the published width, or the largest below it that keeps the limit.
    """
    size = home.sizes.published if recipe.published else home.sizes.training
    extras: dict[str, Any] = {}
    if home.auxiliary_head:
        extras["auxiliary"] = recipe.head and recipe.auxiliary > 0
    if home.drops_paths:
        extras["drop_path"] = recipe.drop_path
    elif recipe.drop_path and not recipe.published:
        raise InputError(f"drop_path is an option of {spaces_that('drops_paths')}, not of {home.name}: leave it out")
    if not recipe.published:
        channels, cells = (size.channels if channels is None else channels), (size.cells if cells is None else cells)
    network = home.resolve(NetworkSettings(channels, cells, data.classes, data.shape, **extras))
    if recipe.most_multiply_adds is not None and channels is None and network.channels is not None:
        while network.channels > 1 and home.cost(arch, _plain(network)).flops > recipe.most_multiply_adds:
            network = replace(network, channels=network.channels - 1)
    return network


def _plain(network: NetworkSettings) -> NetworkSettings:
    """What is left once it is trained."""
    return replace(network, auxiliary=False, drop_path=0.0)


def _notes(home: Space, recipe: TrainingSettings, data: Dataset, network: NetworkSettings) -> Iterator[str]:
    """What the user should know before the training begins."""
    if data.left_out:
        names = ", ".join(data.left_out[:MOST_NAMED]) + ", ..." * (len(data.left_out) > MOST_NAMED)
        yield f"{len(data.left_out):,} pictures cannot be read and are left out: {names}"
    absent = {
        "an auxiliary head": recipe.head and not home.auxiliary_head,
        "dropped paths": recipe.drop_path and not home.drops_paths,
    }
    if names := " and ".join(name for name, missing in absent.items() if missing):
        yield f"networks of {home.name} are trained without {names}"


def _unheard(note: str) -> None:
    """Nobody listens."""


def _check(home: Space, arch: Architecture, data: Dataset, network: NetworkSettings) -> None:
    """Refuses what cannot be trained before anything is written."""
    home.check(arch)
    if isinstance(home, GraphSpace) and home.images and min(data.shape[1:]) < LEAST_SIDE:
        raise InputError(
            f"images of {data.shape[1]}x{data.shape[2]} pixels are too small for the cells of {home.name}, "
            f"which halve them twice: take larger ones, or an mlp"
        )
    home.build(arch, network)


def _identity(plan: TrainPlan) -> str:
    """All that decides the weights, as JSON."""
    decides = ("architecture", "settings", "network", "seed", "fingerprint")
    found = {name: encode(getattr(plan, name)) for name in decides}
    return json.dumps(found | {"torch": version("torch")})
