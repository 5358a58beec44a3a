"""The folder of an ensemble.

| file               | what                                                                                      |
|--------------------|-------------------------------------------------------------------------------------------|
| `ensemble.json`    | all that the verb was asked, written first                                                |
| `search/`          | a run of `nesbs`: the shared network, and the posterior over architectures                |
| `posterior.png`    | the probability of each option, and the entropy of each decision                          |
| `choice.json`      | the posterior in numbers, the ensembles that were compared, and the members               |
| `members/1`, ...   | the trained members, each a folder of `initio train`                                      |
| `predictions.npz`  | logits of each member on what was kept aside, and the labels                              |
| `result.json`      | the members' weights and all numbers, written last                                        |

Each stage begins where the files say that the one before it ended: a run that was killed goes on to the same members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np

from initio.analysis.ensembles import CorruptedErrors, EnsembleJudgement, by_corruption
from initio.data.draw import generator
from initio.errors import InputError
from initio.records import Architecture, Scalar, later
from initio.runs.evaluate import kept_aside
from initio.runs.folders.base import Folder, read_record
from initio.runs.folders.model import TrainedModel, load_model
from initio.runs.folders.run import option_words
from initio.searches.ensembles import Candidate, DeltaBy, Sampling
from initio.spaces import get_space, spaces_that

if TYPE_CHECKING:
    from torch import Tensor, nn

    from initio.networks.attacks import Bounds

Method = Literal["nesbs", "nes-rs", "nes-re", "random", "deep", "droppath"]
Prior = Literal["auto", "uniform", "ranking"]
POOLED = ("nes-rs", "nes-re", "random")  # methods that choose from random pools, not from the posterior
LEAST = 2  # members
MEMBERS = 70_303  # stream of their seeds


@dataclass(frozen=True)
class EnsemblePlan:
    """What the verb was asked; the fields are its arguments.

    Args:
        space: one with a supernet.
        data: what to learn.
        size: members of the ensemble.
        method: who chooses them: nesbs samples the posterior, nes-rs adds greedily from a random pool and nes-re from
            one that evolves, random takes the best of random ensembles, deep trains the posterior's mode so many
            times, droppath trains it once and lets it answer so many times with paths dropped at random.
        prior: what is taken to be likely before the data speak: all architectures the same (uniform), or those that the
            training-free ranking prefers; by default auto, the latter where scores of the space come with Initio.
        sampling: of nesbs: by default svgd (SVGD-RD, with a δ), which keeps members apart; mc (Monte Carlo) leaves that
            to chance.
        delta_by: how svgd finds its δ: by default the values of a grid in turn, or by Bayesian optimisation (bayes).
        candidates: ensembles that are compared, and for nes-rs and nes-re the size of their pools; 50.
        temperature: what α is divided by before the posterior is sampled; more is flatter; 1.
        seed: of everything.
        supernet_epochs: of the shared weights; 50.
        recipe: how members are trained, as for `initio train`.
        epochs: of each member; by default the recipe's.
        channels: width of the members; by default the recipe's.
        cells: their number of cells.
        drop_path: of droppath: the probability of dropping a path; 0.01.
        shared: folder of another ensemble, or of a finished run of nesbs on the same data, whose weights and posterior
            are taken.
        device: what computes: cpu, cuda, cuda:1, or auto, a GPU where there is one.
        settings: of the search, as `posterior`, `held_out` and `batch_size` of `initio search --method nesbs`.
    """

    space: str
    data: str
    size: int = 3
    method: Method = "nesbs"
    prior: Prior = "auto"
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
    drop_path: float = 0.01
    shared: str = ""
    device: str = later("cpu")
    settings: dict[str, Scalar] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict, compare=False)

    kind: ClassVar[str] = "ensemble plan"

    def __post_init__(self) -> None:
        if self.size < LEAST:
            raise InputError(f"an ensemble has at least {LEAST} members, not {self.size}: `initio train` makes one")
        for name, kinds in (("method", Method), ("prior", Prior), ("sampling", Sampling), ("delta_by", DeltaBy)):
            if getattr(self, name) not in get_args(kinds):
                raise InputError(f"{name} must be one of {', '.join(get_args(kinds))}, not {getattr(self, name)!r}")
        if self.candidates < 1:
            raise InputError(f"candidates must be at least 1, not {self.candidates}")
        if not 0 < self.temperature < float("inf"):
            raise InputError(f"the temperature must be positive, not {self.temperature}")
        if not 0 < self.drop_path < 1:
            raise InputError(f"the probability of dropping a path must be between 0 and 1, not {self.drop_path}")
        if self.method == "droppath" and not get_space(self.space).drops_paths:
            able = spaces_that("drops_paths")
            raise InputError(f"droppath needs networks that can drop paths: take {able}, not {self.space}")

    def useless(self) -> dict[str, str]:
        """Why some fields are without effect beside the others; a uniform prior is what pools are drawn by."""
        found: dict[str, str] = {}
        if self.method in POOLED:
            why = f"{self.method} draws from a random pool, not from the posterior"
            found["temperature"] = why
            if self.prior == "ranking":
                found["prior"] = why
        if self.method != "nesbs":
            found |= dict.fromkeys(("sampling", "delta_by"), f"{self.method} samples no ensembles by δ or at random")
        elif self.sampling == "mc":
            found["delta_by"] = "Monte Carlo has no δ"
        if self.method in ("deep", "droppath"):
            found["candidates"] = f"{self.method} compares no ensembles"
        if self.method != "droppath":
            found["drop_path"] = f"{self.method} drops no paths"
        if self.shared:
            found["supernet_epochs"] = "the shared network is trained already"
        return found

    def changes(self) -> dict[str, Scalar]:
        """Of the recipe, for each member."""
        found: dict[str, Scalar] = {}
        if self.epochs is not None:
            found["epochs"] = self.epochs
        if self.method == "droppath":
            found["drop_path"] = self.drop_path
        return found

    def command(self) -> str:
        """The same for the command line."""
        unasked = {"space", "settings", "versions", *self.useless()}
        own = {name: value for name, value in vars(self).items() if name not in unasked}
        asked = {name: value for name, value in (own | self.settings).items() if value not in (None, "")}
        return f"initio ensemble {quote(self.space)} {option_words(asked)}"

    def member_seed(self, number: int) -> int:
        """With which a member is trained; no other ensemble's members have it."""
        return int(generator(self.seed, MEMBERS, number).integers(2**31))

    def networks(self, members: Sequence[TrainedModel]) -> list[nn.Module]:
        """Whose probabilities are averaged: the members; of droppath one that answers at random, several times."""
        if self.method == "droppath":
            [member] = members
            return [member.build(drop_path=self.drop_path)] * self.size
        return [member.build() for member in members]


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
        prior: log π of each option, all categoricals in a row; none where it is uniform.
        foresight: Spearman of the posterior's log p and the estimated losses of the networks that were asked, turned;
            None where these are few. It says how much the posterior has learned.
        seconds: that the choice took, once the shared network was there.
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
    prior: tuple[float, ...] = ()
    foresight: float | None = None
    seconds: float = field(default=0.0, compare=False)

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
        corrupted: errors on the same inputs with noise, blur or little contrast; of images.
    """

    members: tuple[int, ...]
    left_out: dict[str, str]
    weights: tuple[str, ...]
    tested: str
    judgement: EnsembleJudgement
    corrupted: tuple[CorruptedErrors, ...] = ()

    kind: ClassVar[str] = "ensemble"


class EnsembleFolder(Folder[EnsemblePlan, EnsembleOutcome]):
    """Where an ensemble is made."""

    kind = "ensemble"
    verb = "ensemble"
    plan_name = "ensemble.json"
    plan_type = EnsemblePlan
    result_type = EnsembleOutcome

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder)
        self.search = self.folder / "search"
        self.choice_path = self.folder / "choice.json"
        self.predictions_path = self.folder / "predictions.npz"

    def member(self, number: int) -> Path:
        """The folder of a member, from 1."""
        return self.folder / "members" / str(number)

    def choice(self) -> Choice:
        """The members."""
        return read_record(Choice, self.choice_path)


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

    @property
    def searched(self) -> Path:
        """The folder of the run of `nesbs`, its own or a shared one."""
        return Path(self.plan.shared or self.folder / "search")

    @property
    def voices(self) -> list[str]:
        """Names of those whose probabilities are averaged: the members' numbers, or the passes of droppath."""
        if self.plan.method == "droppath":
            return [f"pass {number}" for number in range(1, self.plan.size + 1)]
        return [str(number) for number in self.outcome.members]

    def build(self) -> nn.Module:
        """One module in evaluation mode, whose outputs are log probabilities."""
        from initio.networks.averaged import Averaged

        return Averaged(self.plan.networks(self.members)).eval()

    def fixed(self, what: str) -> Ensemble:
        """This ensemble, unless it answers at random, which cannot be attacked or exported."""
        if self.plan.method == "droppath":
            raise InputError(
                f"droppath answers at random, so it cannot be {what}: "
                f"take its one network, {quote(str(self.folder / 'members' / '1'))}"
            )
        return self

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
        if self.choice.foresight is not None:
            told["posterior"] += (
                f"; likelier networks err less by Spearman {self.choice.foresight:.2f} of {self.choice.networks}"
            )
        told |= {"tested on": self.outcome.tested} | self.outcome.judgement.told()
        if self.outcome.corrupted:
            parts = by_corruption(self.outcome.corrupted)
            told["corrupted"] = "; ".join(f"{name} {error:.2f} % (ATE {ate:.2f} %)" for name, error, ate in parts)
        return told

    def __str__(self) -> str:
        width = max(map(len, self.told()))
        return "\n".join(f"{name:<{width}}  {text}" for name, text in self.told().items())


def load_ensemble(folder: str | Path) -> Ensemble:
    """A finished ensemble: `initio.load_ensemble("e1").build()`."""
    kept = EnsembleFolder.open(folder)
    outcome = kept.result()
    return Ensemble(kept.folder, kept.plan(), kept.choice(), outcome)


def raw_inputs(member: TrainedModel, samples: int, seed: int, stream: int) -> tuple[Tensor, Tensor, Bounds]:
    """Some inputs that were kept aside, before their normalisation; their labels, and between what values they are.

    Args:
        member: the network, whose data these are.
        samples: how many at most, drawn by the seed.
        seed: of the draw.
        stream: what they are for.
    """
    import torch

    from initio.networks.attacks import Bounds

    test = kept_aside(member)
    picked = np.sort(generator(seed, stream).permutation(len(test))[:samples])
    values = np.stack([np.asarray(test.images[int(number)]) for number in picked]).astype(np.float32) / test.scale
    bounds = Bounds()
    if test.scale == 1:
        bounds = Bounds(float(values.min()), float(values.max()))
    assert member.plan.network.shape == values.shape[1:]
    return torch.from_numpy(values), torch.from_numpy(test.labels[picked].astype(np.int64)), bounds


def normalising(member: TrainedModel, networks: Sequence[nn.Module]) -> list[nn.Module]:
    """The networks, each with the normalisation that its inputs had when it learned."""
    from initio.networks.attacks import Normalised

    plan = member.plan
    return [
        Normalised(network, plan.mean, plan.std, len(plan.network.shape)).eval().requires_grad_(False)
        for network in networks
    ]
