"""Every augmentation and a training by every recipe, on a GPU that is not there: the same numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from initio.data import Dataset
from initio.data.draw import generator
from initio.networks.operations import DropPath
from initio.spaces import NetworkSettings, get_space, parse
from initio.training import TrainingSettings, make_recipe
from initio.training.augment import AUGMENTATIONS, cutout
from initio.training.examples import examples_of
from initio.training.fit import fit
from initio.training.machine import PlainMachine
from initio.training.recipes import RECIPES
from tests.pretended import GPU, Pretended, pretended_gpu

pytestmark = pytest.mark.usefixtures("named_device")
CHANGES: dict[str, Callable[[Tensor, np.random.Generator], Tensor]] = {
    **AUGMENTATIONS,
    "cutout": lambda x, rng: cutout(x, rng, 6),
}
CELLS = {
    "nb201": "|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|nor_conv_1x1~1|avg_pool_3x3~2|",
    "darts": "darts_v2",
}
SIZES: dict[str, dict[str, Any]] = {"nb201": {"cells": 1}, "darts": {"cells": 3}}


def pictures(pixels: int) -> Dataset:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((24, 3, pixels, pixels)).astype(np.float32)
    return Dataset("pictures", values, np.arange(24) % 3, classes=3)


@pytest.mark.parametrize("name", CHANGES)
def test_every_augmentation_on_another_device(name: str) -> None:
    def changed(x: Tensor) -> Tensor:
        return CHANGES[name](x.clone(), generator(0))

    x = torch.as_tensor(pictures(16).images)
    expected = changed(x)
    with pretended_gpu():
        found = changed(x.to(GPU))
        assert isinstance(found, Pretended)
        assert torch.equal(found.cpu(), expected)
    assert torch.equal(expected, x) == (name == "none")


@pytest.mark.parametrize("name", RECIPES)
def test_a_training_by_every_recipe_on_another_device(name: str) -> None:
    """In the second epoch paths are dropped, where the recipe drops any; the first recipe's weights are averaged."""
    changes: dict[str, Any] = {"epochs": 2, "batch_size": 12, "validation": 0.5}
    changes |= {"imagenet": {"warmup": 1}, TrainingSettings.name: {"ema": 0.5}}.get(name, {})
    settings, space = make_recipe(name, **changes), get_space("darts" if RECIPES[name].head else "nb201")
    data = pictures(32 if settings.head else 17)
    size = NetworkSettings(
        channels=2, classes=3, shape=data.shape, auxiliary=settings.head, drop_path=settings.drop_path,
        **SIZES[space.name],
    )  # fmt: skip
    examples, cell = examples_of(data, settings, 0), parse(CELLS[space.name])

    def train(machine: PlainMachine) -> tuple[float | None, list[float]]:
        network, losses = space.build(cell, size, seed=0), list[float]()
        assert any(isinstance(module, DropPath) for module in network.modules()) == (settings.drop_path > 0)
        made = fit(network, examples, settings, machine=machine, on_progress=lambda now: losses.append(now.loss))
        return made.value, losses

    value, losses = train(PlainMachine())
    with pretended_gpu() as gpu:
        found, there = train(PlainMachine(GPU))
    assert gpu.products
    assert found == value
    assert there == pytest.approx(losses, rel=1e-5)
