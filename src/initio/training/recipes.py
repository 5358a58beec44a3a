"""Recipes: RECIPES, the one list. A recipe is `TrainingSettings` with other defaults, so every field can be changed.

The papers train on all of a benchmark's training part and report its test part. The recipes below hold a tenth out, so
that the best epoch is not chosen on test data; `validation=0` is as in the papers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from initio.errors import InputError, did_you_mean
from initio.training.settings import Augment, Schedule, TrainingSettings


@dataclass(frozen=True)
class CifarRecipe(TrainingSettings):
    """DARTS' evaluation on CIFAR-10: 600 epochs, cutout, paths dropped, an auxiliary head [NASI B.4].

    HNAS prints that the probability of dropping a path falls from 0.2 to 0; as in DARTS and NASI, it rises here.
    """

    epochs: int = 600
    batch_size: int = 96
    lr: float = 0.025
    weight_decay: float = 3e-4
    augment: Augment = "crop-flip"
    validation: float = 0.1
    nesterov: bool = False
    cutout: int = 16
    drop_path: float = 0.2

    name: ClassVar[str] = "cifar"
    published: ClassVar[bool] = True
    head: ClassVar[bool] = True


@dataclass(frozen=True)
class Cifar100Recipe(CifarRecipe):
    """The same for CIFAR-100: larger steps, more paths dropped, a heavier auxiliary head [HNAS]."""

    lr: float = 0.035
    lr_end: float = 0.001
    auxiliary: float = 0.6
    drop_path: float = 0.3

    name: ClassVar[str] = "cifar100"


@dataclass(frozen=True)
class ImagenetRecipe(TrainingSettings):
    """NASI's and HNAS' evaluation on ImageNet: 250 epochs of 1,024, a warm-up, then a linear fall [NASI B.4].

    The network of a darts cell has 14 cells and 46 channels on images of 96 pixels and more, or fewer channels where
    that were more than 600 million multiply-adds. Crops of any size are cut from images at the size they are read in;
    colours are not changed.
    """

    epochs: int = 250
    batch_size: int = 1024
    lr: float = 0.5
    weight_decay: float = 3e-5
    augment: Augment = "zoom-flip"
    validation: float = 0.05
    nesterov: bool = False
    schedule: Schedule = "linear"
    warmup: int = 5
    smoothing: float = 0.1

    name: ClassVar[str] = "imagenet"
    published: ClassVar[bool] = True
    head: ClassVar[bool] = True
    most_multiply_adds: ClassVar[float | None] = 600e6


@dataclass(frozen=True)
class Nb201Recipe(TrainingSettings):
    """NAS-Bench-201's own: 200 epochs of 256, Nesterov's momentum, crops and flips."""

    epochs: int = 200
    batch_size: int = 256
    clip: float | None = None
    augment: Augment = "crop-flip"
    validation: float = 0.1

    name: ClassVar[str] = "nb201"
    published: ClassVar[bool] = True


@dataclass(frozen=True)
class PlainRecipe(TrainingSettings):
    """Without cutout, dropped paths and auxiliary head, to compare convergence [Understanding A.3, A.4]."""

    epochs: int = 600
    batch_size: int = 80
    lr: float = 0.025
    weight_decay: float = 3e-4
    augment: Augment = "crop-flip"
    validation: float = 0.1
    nesterov: bool = False

    name: ClassVar[str] = "plain"
    published: ClassVar[bool] = True


RECIPES: dict[str, type[TrainingSettings]] = {
    recipe.name: recipe
    for recipe in (TrainingSettings, CifarRecipe, Cifar100Recipe, ImagenetRecipe, Nb201Recipe, PlainRecipe)
}


def find_recipe(name: str) -> type[TrainingSettings]:
    """The recipe of this name.

    >>> find_recipe("cifra")
    Traceback (most recent call last):
    initio.errors.InputError: there is no recipe 'cifra': did you mean 'cifar'?
    """
    if name not in RECIPES:
        raise InputError(f"there is no recipe {name!r}: {did_you_mean(name, list(RECIPES))}")
    return RECIPES[name]


def make_recipe(name: str, **changes: Any) -> TrainingSettings:
    """A recipe with some of its fields changed.

    >>> make_recipe("cifar", epochs=50).cutout
    16
    """
    recipe = find_recipe(name)
    known = [item.name for item in fields(recipe)]
    for wrong in changes.keys() - set(known):
        raise InputError(f"{wrong} is not a setting of a recipe: {did_you_mean(wrong, known)}")
    return recipe(**changes)
