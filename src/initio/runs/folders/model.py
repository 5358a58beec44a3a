"""The folder of a trained network.

| file             | what                                                                                        |
|------------------|---------------------------------------------------------------------------------------------|
| `train.json`     | all that the verb was asked, written first: enough to train again                           |
| `checkpoint.pt`  | the state after the last epoch: network, momentum, average, epochs so far; made to go on    |
| `epochs.jsonl`   | one line an epoch: losses, accuracies, learning rate, seconds, share of waiting             |
| `best.pt`        | the weights after the best epoch, a state dict of the network that `TrainedModel.build` makes |
| `last.pt`        | the same after the last epoch                                                               |
| `trained.json`   | what came out, written last                                                                 |
| `evaluation.json`, pictures | what `initio evaluate` measured on data that nobody has learned from             |
| `tensorboard/`   | the curves for TensorBoard, where it is installed                                           |

No file can run code: weights are plain tensors, read by torch's reader that builds tensors and calls nothing.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from initio.errors import InputError
from initio.records import Architecture, Scalar, decode
from initio.report.terminal import columns
from initio.runs.folders.base import Folder, read_lines
from initio.spaces import NetworkSettings, Space, get_space
from initio.system.files import whole_file

if TYPE_CHECKING:
    from torch import nn

    from initio.networks.export.inputs import Preprocessing
    from initio.training import TrainedEpoch, TrainingSettings

Which = Literal["best", "last"]
WHICH: tuple[Which, ...] = ("best", "last")
HEAD = "auxiliary."  # how the parameters of the auxiliary head begin, which speaks while training only


@dataclass(frozen=True)
class TrainPlan:
    """What was asked, with every default as it was then."""

    architecture: Architecture
    data: str
    recipe: str
    settings: dict[str, Scalar]  # of the recipe, all of them
    network: NetworkSettings  # as it is trained; its shape and classes are the data's
    seed: int
    machine: dict[str, Scalar] = field(compare=False)
    fingerprint: str = ""  # of what is learned and held out
    tested: str = ""  # a sentence on what remains to test on
    source: str | None = None  # the run that chose the architecture
    searched: str | None = None  # the data that it looked at
    scale: float = 1.0  # what stored values are divided by, before the mean is taken off
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    class_names: tuple[str, ...] = ()
    skip_bad: bool = False  # pictures that cannot be read are left out
    versions: dict[str, str] = field(default_factory=dict, compare=False)

    kind: ClassVar[str] = "training plan"

    @property
    def how(self) -> TrainingSettings:
        """The recipe with its settings."""
        from initio.training.recipes import make_recipe

        return make_recipe(self.recipe, **self.settings)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the classes; their numbers where the data name none."""
        return self.class_names or tuple(map(str, range(self.network.classes)))

    @property
    def used(self) -> NetworkSettings:
        """The network without what is for training only."""
        return replace(self.network, auxiliary=False, drop_path=0.0)


@dataclass(frozen=True)
class TrainOutcome:
    """What a training came to; accuracies are in percent, on what was held out of the training part."""

    accuracy: float | None  # of the best epoch; None with a flag
    epoch: int | None  # the best one, from 1
    last: float | None
    epochs: int  # done
    seconds: float = field(compare=False)
    ended: str = ""  # why before the last epoch
    flag: str = ""  # why there is no accuracy
    weights: dict[str, str] = field(default_factory=dict)  # SHA-256 of the weights, by file
    parameters: int = 0  # of the network that is kept

    kind: ClassVar[str] = "trained network"


class ModelFolder(Folder[TrainPlan, TrainOutcome]):
    """A folder that a training writes to, one epoch at a time."""

    kind = "training"
    verb = "train"
    plan_name = "train.json"
    result_name = "trained.json"
    plan_type = TrainPlan
    result_type = TrainOutcome

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder)
        self.checkpoint_path = self.folder / "checkpoint.pt"
        self.epochs_path = self.folder / "epochs.jsonl"

    def epochs(self) -> tuple[TrainedEpoch, ...]:
        """The epochs so far."""
        from initio.training import TrainedEpoch

        return tuple(read_lines(self.epochs_path, partial(decode, TrainedEpoch)))

    def weights_path(self, which: Which) -> Path:
        """Where a state dict is."""
        return self.folder / f"{which}.pt"

    def digest(self, which: Which) -> str:
        """The SHA-256 of weights: names, shapes and bytes, in the order of the network."""
        from initio.networks.export.weights import read_weights

        found = hashlib.sha256()
        for name, value in read_weights(self.weights_path(which)).items():
            found.update(f"{name} {tuple(value.shape)} {value.dtype}\n".encode())
            found.update(value.contiguous().numpy().tobytes())
        return found.hexdigest()

    def save_weights(self, which: Which, model: nn.Module) -> None:
        """Writes what is kept of a network, whole or not at all."""
        import torch

        state = {
            name: value.detach().cpu().contiguous()
            for name, value in model.state_dict().items()
            if not name.startswith(HEAD)
        }
        buffer, path = io.BytesIO(), self.weights_path(which)
        torch.save(state, buffer)
        try:
            with whole_file(path) as temporary:
                temporary.write_bytes(buffer.getvalue())
        except OSError as error:
            why = error.strerror or error
            raise InputError(f"the weights {str(path)!r} cannot be written: {why}; what was there is intact") from None


@dataclass(frozen=True)
class TrainedModel:
    """A trained network on disk: what was asked, what came out, and the network itself.

    Args:
        folder: where everything is.
        plan: what was asked.
        outcome: what came out.
        epochs: what each epoch came to.
        home: the architecture's space.
    """

    folder: Path
    plan: TrainPlan
    outcome: TrainOutcome
    epochs: tuple[TrainedEpoch, ...] = field(repr=False)
    home: Space | None = field(default=None, repr=False, compare=False)

    @property
    def space(self) -> Space:
        """The architecture's."""
        return self.home or get_space(self.plan.architecture.space)

    @property
    def preprocessing(self) -> Preprocessing:
        """From stored values to what the network reads."""
        from initio.networks.export.inputs import Preprocessing

        plan = self.plan
        return Preprocessing(plan.network.shape, plan.scale, plan.mean, plan.std)

    def digest(self, which: Which) -> str:
        """The SHA-256 of the weights; a training that came to nothing has none."""
        if self.outcome.flag.startswith("the training diverged") or which not in self.outcome.weights:
            raise InputError(f"{str(self.folder)!r} holds no trained network: {self.outcome.flag}")
        return self.outcome.weights[which]

    def build(self, which: Which = "best", drop_path: float = 0.0) -> nn.Module:
        """The trained network in evaluation mode, without what is for training only.

        Args:
            which: the weights of the best epoch, or of the last.
            drop_path: drop each path with this probability whenever it answers, as Monte Carlo needs it.
        """
        from initio.networks.export.weights import load_weights
        from initio.networks.operations import DropPath

        self.digest(which)
        used = replace(self.plan.used, drop_path=drop_path)
        model = self.space.build(self.plan.architecture, used, seed=self.plan.seed)
        load_weights(model, ModelFolder(self.folder).weights_path(which))
        for module in model.modules():
            if isinstance(module, DropPath):
                module.always = True
        return model.eval()

    def told(self) -> dict[str, str]:
        """What is worth saying, by its name."""
        plan, out = self.plan, self.outcome
        notation = self.space.format(plan.architecture)
        told = {"network": notation if len(notation) <= 100 else notation[:97] + "..."}
        told["size"] = f"{out.parameters:,} parameters, {plan.network.channels} channels, {plan.network.cells} cells"
        if plan.network.channels is None:
            told["size"] = f"{out.parameters:,} parameters"
        told["recipe"] = f"{plan.recipe}, {out.epochs} epochs in {out.seconds:.0f} s" + f": {out.ended}" * bool(
            out.ended
        )
        told["accuracy"] = out.flag
        if out.accuracy is not None:
            told["accuracy"] = f"{out.accuracy:.2f} % validation in epoch {out.epoch}"
            if out.last is not None:
                told["accuracy"] += f", {out.last:.2f} % in the last"
        waits = [seen.waited for seen in self.epochs]
        told["waiting"] = f"{100 * sum(waits) / max(1, len(waits)):.1f} % of the time, for data"
        told |= {f"sha256 {name}": digits for name, digits in out.weights.items()}
        return told

    def __str__(self) -> str:
        return columns(self.told())


def load_model(folder: str | Path) -> TrainedModel:
    """A finished training: `initio.load_model("t1").build()`."""
    found = ModelFolder.open(folder)
    return TrainedModel(found.folder, found.plan(), found.result(), found.epochs())
