"""Recipes are the published numbers, and every field of them can be changed."""

from dataclasses import fields
from typing import Any

import pytest

from initio.errors import InputError
from initio.training import RECIPES, TrainingSettings, make_recipe

PUBLISHED: dict[str, dict[str, Any]] = {  # facts from the papers
    "cifar": {"epochs": 600, "batch_size": 96, "lr": 0.025, "lr_end": 0.0, "momentum": 0.9, "weight_decay": 3e-4,
              "cutout": 16, "drop_path": 0.2, "auxiliary": 0.4, "clip": 5.0, "nesterov": False},
    "cifar100": {"epochs": 600, "lr": 0.035, "lr_end": 0.001, "drop_path": 0.3, "auxiliary": 0.6, "cutout": 16},
    "imagenet": {"epochs": 250, "batch_size": 1024, "lr": 0.5, "warmup": 5, "schedule": "linear", "momentum": 0.9,
                 "weight_decay": 3e-5, "smoothing": 0.1, "auxiliary": 0.4},
    "nb201": {"epochs": 200, "batch_size": 256, "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "nesterov": True,
              "augment": "crop-flip"},
    "plain": {"epochs": 600, "batch_size": 80, "lr": 0.025, "momentum": 0.9, "weight_decay": 3e-4, "cutout": 0,
              "drop_path": 0.0},
    "quick": {"epochs": 3, "batch_size": 64, "lr": 0.1, "clip": 5.0, "validation": 0.3},
}  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_what_was_published(name: str) -> None:
    made = make_recipe(name)
    assert {field: getattr(made, field) for field in PUBLISHED[name]} == PUBLISHED[name]
    assert [item.name for item in fields(made)] == [item.name for item in fields(TrainingSettings)]
    assert made.name == name


def test_heads_belong_to_the_evaluations_of_darts() -> None:
    assert [name for name, recipe in RECIPES.items() if recipe.head] == ["cifar", "cifar100", "imagenet"]


def test_fields_can_be_changed_and_wrong_names_are_refused() -> None:
    assert make_recipe("cifar", epochs=2, cutout=0).epochs == 2
    with pytest.raises(InputError, match="epoch is not a setting of a recipe: did you mean 'epochs'?"):
        make_recipe("cifar", epoch=2)
