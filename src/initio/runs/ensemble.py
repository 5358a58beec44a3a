"""The verb: `initio.ensemble`. Several different cells from one shared network, trained and averaged.

| file               | what                                                                                      |
|--------------------|-------------------------------------------------------------------------------------------|
| `ensemble.json`    | all that the verb was asked, written first                                                |
| `search/`          | a run of `nesbs`: the shared network, and the posterior over architectures                |
| `posterior.png`    | the probability of each option                                                            |
| `choice.json`      | the posterior in numbers, the ensembles that were compared, and the members               |
| `members/1`, ...   | the trained members, each a folder of `initio train`                                      |
| `predictions.npz`  | logits of each member on what was kept aside, and the labels                              |
| `result.json`      | the members' weights and all numbers, written last                                        |

Each stage begins where the files say that the one before it ended: a run that was killed goes on to the same members.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain, count
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np

from initio.analysis.ensembles import EnsembleJudgement, judge_ensemble
from initio.data.sources import located
from initio.errors import InputError
from initio.executors import LostTasksError, executor_for
from initio.files import fresh_folder, locked, read_text, whole_file, write_text
from initio.records import Architecture, Scalar, from_json, to_json
from initio.runs.evaluate import answers_kept_aside
from initio.runs.folder import RunFolder
from initio.runs.models import TrainedModel, load_model
from initio.runs.search import search
from initio.runs.sharing import trained_weights
from initio.runs.train import train
from initio.searches.driver import versions
from initio.searches.ensembles import (
    ArchitecturePosterior,
    Candidate,
    DeltaBy,
    Estimates,
    Sampling,
    nes_rs,
    nesbs,
    uniform,
)
from initio.spaces import get_space

if TYPE_CHECKING:
    from torch import nn

    from initio.searches.oneshot import SharedTraining

Method = Literal["nesbs", "nes-rs", "random", "deep"]
OnEvent = Callable[[Any], None]
LEAST = 2  # members


@dataclass(frozen=True)
class EnsemblePlan:
    """What the verb was asked; the fields are its arguments.

    Args:
        space: one with a supernet.
        data: what to learn.
        size: members of the ensemble.
        method: who chooses them: nesbs samples the posterior, nes-rs adds greedily from a random pool, random takes the
            best of random ensembles, deep trains the posterior's mode so many times.
        sampling: of nesbs: svgd (SVGD-RD, with a δ) or mc (Monte Carlo).
        delta_by: how svgd finds its δ: the values of a grid in turn, or by Bayesian optimisation (bayes).
        candidates: ensembles that are compared, and for nes-rs the size of its pool.
        temperature: what α is divided by before it is sampled; more is flatter.
        seed: of everything; member k is trained with seed + k.
        supernet_epochs: of the shared weights.
        recipe: how members are trained, as for `initio train`.
        epochs: of each member; by default the recipe's.
        channels: width of the members; by default the recipe's.
        cells: their number of cells.
        settings: of the search, as `posterior`, `held_out` and `batch_size` of `initio search --method nesbs`.
    """

    space: str
    data: str
    size: int = 3
    method: Method = "nesbs"
    sampling: Sampling = "svgd"
    delta_by: DeltaBy = "grid"
    candidates: int = 50
    temperature: float = 1.0
    seed: int = 0
    supernet_epochs: int = 50
    recipe: str = "quick"
    epochs: int | None = None
    channels: int | None = None
    cells: int | None = None
    settings: dict[str, Scalar] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict, compare=False)

    kind: ClassVar[str] = "ensemble plan"

    def __post_init__(self) -> None:
        if self.size < LEAST:
            raise InputError(f"an ensemble has at least {LEAST} members, not {self.size}: `initio train` makes one")
        for name, kinds in (("method", Method), ("sampling", Sampling), ("delta_by", DeltaBy)):
            if getattr(self, name) not in get_args(kinds):
                raise InputError(f"{name} must be one of {', '.join(get_args(kinds))}, not {getattr(self, name)!r}")
        if self.candidates < 1:
            raise InputError(f"candidates must be at least 1, not {self.candidates}")
        if not 0 < self.temperature < float("inf"):
            raise InputError(f"the temperature must be positive, not {self.temperature}")


@dataclass(frozen=True)
class Choice:
    """The members, and what they were chosen from.

    Args:
        members: to train.
        loss: of these, estimated with inherited weights on the held-out part.
        delta: that they were drawn with, if they were by svgd.
        mode: the likeliest architecture of the posterior.
        mode_loss: its estimated loss, alone.
        marginals: the probability of each option, by categorical.
        entropies: of each categorical, as a share of a uniform one's.
        compared: all ensembles, the best first.
        networks: different ones whose predictions were needed.
        absent: classes without a sample in the part that chose.
    """

    members: tuple[Architecture, ...]
    loss: float
    delta: float | None
    mode: Architecture
    mode_loss: float
    marginals: tuple[tuple[float, ...], ...]
    entropies: tuple[float, ...]
    compared: tuple[Candidate, ...]
    networks: int
    absent: tuple[int, ...] = ()

    kind: ClassVar[str] = "choice of an ensemble"


@dataclass(frozen=True)
class EnsembleOutcome:
    """What came out.

    Args:
        members: numbers of the folders whose networks are averaged.
        left_out: why others are not.
        weights: SHA-256 of the members' weights.
        tested: a sentence on what was tested on.
        judgement: all numbers.
    """

    members: tuple[int, ...]
    left_out: dict[str, str]
    weights: tuple[str, ...]
    tested: str
    judgement: EnsembleJudgement

    kind: ClassVar[str] = "ensemble"


class EnsembleFolder:
    """Where an ensemble is made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan_path = folder / "ensemble.json"
        self.search = folder / "search"
        self.choice_path = folder / "choice.json"
        self.predictions_path = folder / "predictions.npz"
        self.result_path = folder / "result.json"

    @classmethod
    def open(cls, folder: str | Path) -> EnsembleFolder:
        """An existing one."""
        found = cls(Path(folder))
        if not found.plan_path.is_file():
            raise InputError(f"{str(folder)!r} is no ensemble: it has no ensemble.json")
        return found

    def locked(self) -> AbstractContextManager[None]:
        """Nobody else works on it inside the block."""
        return locked(self.plan_path, f"another process is working on {str(self.folder)!r}: wait for it")

    def member(self, number: int) -> Path:
        """The folder of a member, from 1."""
        return self.folder / "members" / str(number)

    def plan(self) -> EnsemblePlan:
        """What was asked."""
        return from_json(EnsemblePlan, read_text(self.plan_path), where=str(self.plan_path))

    def choice(self) -> Choice:
        """The members."""
        return from_json(Choice, read_text(self.choice_path), where=str(self.choice_path))

    def outcome(self) -> EnsembleOutcome:
        """What came out."""
        if not self.result_path.is_file():
            raise InputError(
                f"the ensemble {str(self.folder)!r} is not finished: "
                f"go on with `initio ensemble --resume {quote(str(self.folder))}`"
            )
        return from_json(EnsembleOutcome, read_text(self.result_path), where=str(self.result_path))


@dataclass(frozen=True)
class Ensemble:
    """A trained ensemble on disk."""

    folder: Path
    plan: EnsemblePlan
    choice: Choice
    outcome: EnsembleOutcome

    @property
    def members(self) -> list[TrainedModel]:
        """Its trained networks."""
        kept = EnsembleFolder(self.folder)
        return [load_model(kept.member(number)) for number in self.outcome.members]

    def build(self) -> nn.Module:
        """One module in evaluation mode, whose outputs are log probabilities."""
        from initio.networks.averaged import Averaged

        return Averaged([member.build() for member in self.members]).eval()

    def told(self) -> dict[str, str]:
        """What is worth saying, by its name."""
        home = get_space(self.plan.space)
        told = {f"member {number}": home.format(self.choice.members[number - 1]) for number in self.outcome.members}
        told |= {f"member {number}": f"left out: {why}" for number, why in self.outcome.left_out.items()}
        chosen = f"loss {self.choice.loss:.4f} estimated with shared weights; the posterior's mode alone "
        told["chosen"] = f"{chosen}{self.choice.mode_loss:.4f}"
        if self.choice.delta is not None:
            told["chosen"] += f"; δ {self.choice.delta:g}"
        entropy = sum(self.choice.entropies) / len(self.choice.entropies)
        told["posterior"] = f"entropy {entropy:.3f} of 1, mode {home.format(self.choice.mode)}"
        return told | {"tested on": self.outcome.tested} | self.outcome.judgement.told()

    def __str__(self) -> str:
        width = max(map(len, self.told()))
        return "\n".join(f"{name:<{width}}  {text}" for name, text in self.told().items())


def ensemble(
    space: str,
    data: str,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    workers: int = 1,
    on_event: OnEvent | None = None,
    **asked: Any,
) -> Ensemble:
    """Finds architectures that are good together, trains them, and measures their mean.

    Args:
        space: one with a supernet: nb201, darts and nb1shot1.
        data: digits, a file or a folder.
        folder: where everything is kept; by default a new one below `runs`.
        resume: go on with the same ensemble if the folder holds one.
        workers: members that are trained at once; changes no result.
        on_event: hears of each step, epoch and stage.
        asked: other fields of `EnsemblePlan`: size, method, sampling, seed and so on; all others are settings of the
            search.
    """
    own = {item.name for item in fields(EnsemblePlan)} - {"space", "data", "settings", "versions"}
    ours = {name: value for name, value in asked.items() if name in own}
    plan = EnsemblePlan(
        space, located(data), settings={n: v for n, v in asked.items() if n not in own}, versions=versions(), **ours
    )
    home = get_space(space)
    if home.count() < plan.size:
        raise InputError(
            f"{space} has {home.count():,} architectures: an ensemble cannot have {plan.size} different ones"
        )
    kept = EnsembleFolder(new_ensemble_folder(space, plan.seed) if folder is None else Path(folder))
    if resume and kept.plan_path.is_file():
        if kept.plan() != plan:
            raise InputError(f"{str(kept.folder)!r} was started with other settings: give another folder")
    else:
        fresh_folder(kept.folder, ", or resume the ensemble that is in it" * kept.plan_path.is_file())
        write_text(kept.plan_path, to_json(plan, indent=2) + "\n")
    return _EnsembleWork(kept, plan, workers, on_event or _unheard).run()


def resume_ensemble(folder: str | Path, *, workers: int = 1, on_event: OnEvent | None = None) -> Ensemble:
    """Goes on with an interrupted ensemble; a finished one is read."""
    kept = EnsembleFolder.open(folder)
    return _EnsembleWork(kept, kept.plan(), workers, on_event or _unheard).run()


def load_ensemble(folder: str | Path) -> Ensemble:
    """A finished ensemble: `initio.load_ensemble("e1").build()`."""
    kept = EnsembleFolder.open(folder)
    outcome = kept.outcome()
    return Ensemble(kept.folder, kept.plan(), kept.choice(), outcome)


def new_ensemble_folder(space: str, seed: int) -> Path:
    """The folder below `runs` of an ensemble for which none was named."""
    stem = Path("runs", f"ensemble-{space.rpartition(':')[2].lower()}-seed{seed}")
    numbered = (stem.with_name(f"{stem.name}-{number}") for number in count(2))
    return next(found for found in chain([stem], numbered) if not found.exists())


@dataclass(frozen=True)
class _EnsembleWork:
    """The stages, one after the other; what is on disk is not done again."""

    kept: EnsembleFolder
    plan: EnsemblePlan
    workers: int
    tell: OnEvent

    def run(self) -> Ensemble:
        kept = self.kept
        if not kept.result_path.is_file():
            with kept.locked():
                self._search()
                if not kept.choice_path.is_file():
                    self._choose()
                self._train()
                self._measure()
        return load_ensemble(kept.folder)

    def _search(self) -> None:
        """The shared weights and the posterior."""
        if RunFolder(self.kept.search).finished:
            return
        self.tell("stage 1 of 4: shared weights, then the posterior over architectures")
        plan = self.plan
        settings: dict[str, Any] = dict(plan.settings)
        search(
            plan.space, "nesbs", plan.data, seed=plan.seed, epochs=plan.supernet_epochs, folder=self.kept.search,
            resume=True, on_step=self.tell, on_progress=self.tell, **settings,
        )  # fmt: skip

    def _choose(self) -> None:
        """The members, by their estimated loss."""
        plan = self.plan
        self.tell(f"stage 2 of 4: {plan.size} members by {plan.method}")
        _, at = trained_weights(RunFolder(self.kept.search))
        posterior = ArchitecturePosterior(at.space, tuple(at.knows.values.tolist()), plan.temperature)
        labels = np.concatenate([y.numpy() for _, y in at.examples.validate()])
        estimates = Estimates(at.space, partial(_inherited, at), labels)
        mode, rng = posterior.mode, np.random.default_rng((plan.seed, 5))
        compared: list[Candidate]
        if plan.method == "nesbs":
            compared = nesbs(posterior, estimates, plan.size, plan.candidates, rng, plan.sampling, plan.delta_by)
        elif plan.method == "deep":
            compared = [Candidate((mode,) * plan.size, estimates.loss([mode]))]
        else:
            choose = {"nes-rs": nes_rs, "random": uniform}[plan.method]
            compared = choose(at.space, estimates, plan.size, plan.candidates, plan.seed)
        choice = Choice(
            compared[0].members, compared[0].loss, compared[0].delta, mode, estimates.loss([mode]),
            tuple(tuple(row.tolist()) for row in posterior.marginals), tuple(posterior.entropies), tuple(compared),
            len(estimates.known), tuple(sorted(set(range(at.examples.classes)) - set(labels.tolist()))),
        )  # fmt: skip
        if choice.absent:
            self.tell(f"the part that chooses has no sample of the classes {choice.absent}, which count for nothing")
        _draw(posterior, self.kept.folder / "posterior.png")
        write_text(self.kept.choice_path, to_json(choice, indent=2) + "\n")

    def _train(self) -> None:
        """The members, each in a folder of its own."""
        members = self.kept.choice().members
        self.tell(f"stage 3 of 4: training {len(members)} members")
        tasks = list(enumerate(members, start=1))
        work = partial(_train_member, self.kept, self.plan)
        if self.workers == 1:
            work = partial(work, on_event=self.tell)
        trained: list[int] = []

        def hear(number: int, _: object) -> None:
            trained.append(number)
            self.tell(f"{len(trained)} of {len(members)} members trained")

        try:
            executor_for(min(self.workers, len(tasks))).map(work, tasks, hear)
        except LostTasksError as error:
            lost = ", ".join(str(number + 1) for number in error.numbers)
            raise InputError(f"the workers that trained members {lost} died again and again: take 1 worker") from None

    def _measure(self) -> None:
        """Members and mean on what nobody has learned from."""
        self.tell("stage 4 of 4: members and their mean on what was kept aside")
        numbers = range(1, self.plan.size + 1)
        trained = {number: load_model(self.kept.member(number)) for number in numbers}
        left_out = {
            str(number): model.outcome.flag
            for number, model in trained.items()
            if model.outcome.flag.startswith("the training diverged")
        }
        good = {number: model for number, model in trained.items() if str(number) not in left_out}
        if len(good) < LEAST:
            raise InputError(
                f"{len(left_out)} of {len(trained)} members diverged, and {len(good)} make no ensemble: "
                f"take another recipe or a smaller learning rate"
            )
        answers = {number: answers_kept_aside(model) for number, model in good.items()}
        logits = np.stack([found for found, _ in answers.values()])
        first = next(iter(good))
        buffer = io.BytesIO()
        np.savez(buffer, logits=logits, labels=answers[first][1])
        with whole_file(self.kept.predictions_path) as temporary:
            temporary.write_bytes(buffer.getvalue())
        outcome = EnsembleOutcome(
            tuple(good), left_out, tuple(model.digest("best") for model in good.values()), good[first].plan.tested,
            judge_ensemble(logits, answers[first][1], good[first].plan.names),
        )  # fmt: skip
        write_text(self.kept.result_path, to_json(outcome, indent=2) + "\n")


def _train_member(
    kept: EnsembleFolder, plan: EnsemblePlan, task: tuple[int, Architecture], on_event: OnEvent | None = None
) -> int:
    """Its number."""
    number, arch = task
    settings: dict[str, Any] = {}
    if plan.epochs is not None:
        settings["epochs"] = plan.epochs
    train(
        arch, plan.data, plan.recipe, seed=plan.seed + number, channels=plan.channels, cells=plan.cells,
        folder=kept.member(number), resume=True, tensorboard=False, on_event=on_event, **settings,
    )  # fmt: skip
    return number


def _inherited(at: SharedTraining, arch: Architecture) -> np.ndarray:
    """Probabilities on the held-out part with the shared weights."""
    import torch

    from initio.networks.shared import Blend

    path = Blend.path(at.space, arch)
    at.network.eval()
    with torch.inference_mode():
        return np.concatenate([at.network(x, path).softmax(1).double().numpy() for x, _ in at.examples.validate()])


def _draw(posterior: ArchitecturePosterior, path: Path) -> None:
    """A row a categorical, a column an option."""
    from initio.report.surfaces import save_shares

    rows = {decision.name: p for decision, p in zip(posterior.space.relaxation, posterior.marginals, strict=True)}
    save_shares(rows, [decision.options for decision in posterior.space.relaxation], path)


def _unheard(what: object) -> None:
    """Nobody listens."""
