"""How to train."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from initio.autodiff.devices import available, check_device
from initio.data.draw import whole
from initio.errors import InputError

Augment = Literal["auto", "crop-flip", "crop", "zoom-flip", "none"]
AUGMENTS = get_args(Augment)
Schedule = Literal["cosine", "linear", "constant"]
SCHEDULES = get_args(Schedule)


@dataclass(frozen=True)
class TrainingSettings:
    """Minutes on a laptop: short, with few regularisers; what searches train with.

    SGD on the cross-entropy. The defaults for momentum, weight decay and the learning rate are those of NAS-Bench-201's
    trainings. The other recipes (`initio.training.recipes`) are this class with other defaults.

    Args:
        epochs: passes over the training part; a query may ask for another number.
        batch_size: inputs in an update, over all processes.
        lr: the learning rate of the first update, or at the end of the warm-up.
        momentum: of SGD, 0 for none.
        weight_decay: λ of the penalty λ/2 ‖θ‖², on all parameters.
        clip: the largest norm that a gradient keeps; None keeps any.
        augment: random changes of the training images: crops after padding, flips, or crops of any size brought to the
            images' own (zoom); `auto` has crops and flips for colour images of at least 16 pixels, crops for grey ones
            (a mirrored digit or letter is another one), and none for all else.
        validation: share of the data that is held out to measure accuracy, the same of each class; 0 learns from all.
        samples: use about so many samples of the data, the same share of each class; None uses all.
        auxiliary: weight of the auxiliary head's loss, where the network has one.
        nesterov: use Nesterov's momentum.
        schedule: how the learning rate falls, update by update.
        lr_end: where it falls to.
        warmup: epochs in which the learning rate rises from zero, before it falls.
        smoothing: share of each label that is spread over all classes.
        cutout: side of a random square that is erased from each training image; 0 for none.
        drop_path: probability of dropping a path in the last epoch, to which it rises from zero (darts and nb201).
        ema: decay of the moving average of the weights that is validated and kept in their place; 0 for none.
        patience: stop after so many epochs without a better validation accuracy; None never does.
    """

    epochs: int = 3
    batch_size: int = 64
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    clip: float | None = 5.0
    augment: Augment = "auto"
    validation: float = 0.3
    samples: int | None = None
    auxiliary: float = 0.4
    nesterov: bool = True
    schedule: Schedule = "cosine"
    lr_end: float = 0.0
    warmup: int = 0
    smoothing: float = 0.0
    cutout: int = 0
    drop_path: float = 0.0
    ema: float = 0.0
    patience: int | None = None

    name: ClassVar[str] = "quick"
    published: ClassVar[bool] = False  # trains networks of the published size, not of the space's size for training
    head: ClassVar[bool] = False  # gives the network an auxiliary head, where its space has one
    most_multiply_adds: ClassVar[float | None] = None  # of the network on one image, where its width is not given

    def __post_init__(self) -> None:
        whole(self.epochs, "number of epochs", 1)
        whole(self.batch_size, "batch size", 2)  # batch norm needs two inputs
        if self.samples is not None:
            whole(self.samples, "number of samples", 2)
        _between("learning rate", self.lr, 0, math.inf, open_left=True)
        _between("momentum", self.momentum, 0, 1)
        _between("weight decay", self.weight_decay, 0, math.inf)
        _between("validation share", self.validation, 0, 1)
        _between("weight of the auxiliary loss", self.auxiliary, 0, math.inf)
        _between("learning rate at the end", self.lr_end, 0, math.inf)
        _between("label smoothing", self.smoothing, 0, 1)
        _between("probability of dropping a path", self.drop_path, 0, 1)
        _between("decay of the average of the weights", self.ema, 0, 1)
        whole(self.warmup, "number of epochs of the warm-up", 0)
        whole(self.cutout, "side of the erased square", 0)
        if self.warmup >= self.epochs and self.warmup:
            raise InputError(f"the warm-up of {self.warmup} epochs must be shorter than the training of {self.epochs}")
        if self.patience is not None:
            whole(self.patience, "patience", 1)
        if self.patience is not None and not self.validation:
            raise InputError("an early stop looks at the validation accuracy: hold out a share for it, as 0.1")
        if self.clip is not None:
            _between("largest norm of a gradient", self.clip, 0, math.inf, open_left=True)
        for name, allowed in (("augment", AUGMENTS), ("schedule", SCHEDULES)):
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")


def _between(name: str, value: object, low: float, high: float, *, open_left: bool = False) -> None:
    """Refuses what is not a number in [low, high), or in (low, high)."""
    inside = isinstance(value, int | float) and not isinstance(value, bool) and low <= value < high
    if inside and not (open_left and value == low):
        return
    limits = f"above {low}" if open_left else f"at least {low}"
    if high < math.inf:
        limits += f" and below {high}"
    raise InputError(f"the {name} must be a number {limits}, not {value!r}")


Device = str  # auto, cpu, cuda, cuda:1, mps
Precision = Literal["32", "bf16", "16"]
FABRIC_PRECISION: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


@dataclass(frozen=True)
class MachineSettings:
    """What to train on.

    Args:
        device: what computes; auto takes a GPU where there is one.
        precision: of the forward pass: 32 bits, or mixed with 16 of either kind.
        processes: how many processes, each with a device of its own (or all on the CPU), share every batch.
        nodes: how many machines; start the command on each of them by torchrun.
        threads: of each process on the CPU; more than one adds in another order, so a resumed training may differ.
        workers: processes that read image files which do not fit into memory.
    """

    device: Device = "auto"
    precision: Precision = "32"
    processes: int = 1
    nodes: int = 1
    threads: int = 1
    workers: int = 1

    def __post_init__(self) -> None:
        for name in ("processes", "nodes", "threads"):
            whole(getattr(self, name), f"number of {name}", 1)
        whole(self.workers, "number of workers", 0)
        check_device(self.device)
        if self.precision not in FABRIC_PRECISION:
            raise InputError(f"precision must be one of {', '.join(FABRIC_PRECISION)}, not {self.precision!r}")

    @property
    def chosen(self) -> str:
        """The device, `auto` decided."""
        return available()[0] if self.device == "auto" else self.device

    @property
    def plain(self) -> bool:
        """Whether torch alone is enough."""
        return self.precision == "32" and self.processes == self.nodes == 1
