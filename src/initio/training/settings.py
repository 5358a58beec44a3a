"""How to train."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from initio.data.draw import whole
from initio.errors import InputError

Augment = Literal["auto", "crop-flip", "crop", "none"]
AUGMENTS = get_args(Augment)


@dataclass(frozen=True)
class TrainingSettings:
    """SGD with Nesterov momentum on the cross-entropy, the learning rate falling to zero as a cosine.

    The defaults for momentum, weight decay and the learning rate are those of NAS-Bench-201's trainings.

    Args:
        epochs: passes over the training part; a query may ask for another number.
        batch_size: inputs in an update.
        lr: the learning rate of the first update.
        momentum: Nesterov's, 0 for none.
        weight_decay: λ of the penalty λ/2 ‖θ‖², on all parameters.
        clip: the largest norm that a gradient keeps; None keeps any.
        augment: random crops and flips of the training images; `auto` has both for colour images of at least 16
            pixels, crops for grey ones (a mirrored digit or letter is another one), and none for all else.
        validation: share of the data that is held out to measure accuracy, the same of each class.
        samples: use about so many samples of the data, the same share of each class; None uses all.
        auxiliary: weight of the auxiliary head's loss, where the network has one.
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

    def __post_init__(self) -> None:
        whole(self.epochs, "number of epochs", 1)
        whole(self.batch_size, "batch size", 2)  # batch norm needs two inputs
        if self.samples is not None:
            whole(self.samples, "number of samples", 2)
        _between("learning rate", self.lr, 0, math.inf, open_left=True)
        _between("momentum", self.momentum, 0, 1)
        _between("weight decay", self.weight_decay, 0, math.inf)
        _between("validation share", self.validation, 0, 1, open_left=True)
        _between("weight of the auxiliary loss", self.auxiliary, 0, math.inf)
        if self.clip is not None:
            _between("largest norm of a gradient", self.clip, 0, math.inf, open_left=True)
        if self.augment not in AUGMENTS:
            raise InputError(f"augment must be one of {', '.join(AUGMENTS)}, not {self.augment!r}")


def _between(name: str, value: object, low: float, high: float, *, open_left: bool = False) -> None:
    """Refuses what is not a number in [low, high), or in (low, high)."""
    inside = isinstance(value, int | float) and not isinstance(value, bool) and low <= value < high
    if inside and not (open_left and value == low):
        return
    limits = f"above {low}" if open_left else f"at least {low}"
    if high < math.inf:
        limits += f" and below {high}"
    raise InputError(f"the {name} must be a number {limits}, not {value!r}")
