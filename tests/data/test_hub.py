"""Hugging Face data sets, with a stand-in for the package `datasets`."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from initio.data import load
from initio.errors import InputError
from tests.data import formats
from tests.data.formats import images


class ClassLabel:
    def __init__(self, names: list[str]) -> None:
        self.names = names


class Rows:
    """What `datasets.Dataset` offers, as far as Initio asks."""

    def __init__(self, x: np.ndarray, y: list[int], names: list[str]) -> None:
        self.x, self.y = x, y
        image = type("Image", (), {})()
        self.features = {"id": object(), "img": image, "label": ClassLabel(names)}

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, key: int | str) -> object:
        return self.y if key == "label" else {"img": Image.fromarray(self.x[key]), "label": self.y[int(key)]}


def fake_hub(monkeypatch: pytest.MonkeyPatch, answer: Callable[..., object]) -> None:
    module = types.ModuleType("datasets")
    module.load_dataset = answer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)


def test_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = images(6, 8, 8, 3), [0, 0, 1, 1, 2, 2]
    asked: list[tuple[str, str | None]] = []

    def answer(name: str, config: str | None) -> object:
        asked.append((name, config))
        return {"train": Rows(x, y, ["a", "b", "c"]), "validation": Rows(x[:2], y[:2], ["a", "b", "c"])}

    fake_hub(monkeypatch, answer)
    data = load("hf:owner/toy:plain")
    formats.write_npz(tmp_path / "toy.npz", x=x, y=y)
    arrays = load(str(tmp_path / "toy.npz"))
    assert asked == [("owner/toy", "plain")]
    assert (data.name, data.class_names, data.mean) == ("hf:owner/toy:plain", ("a", "b", "c"), arrays.mean)
    assert data.batch(4).fingerprint == arrays.batch(4).fingerprint
    assert len(load("hf:toy", split="test").batch(2)) == 2
    assert asked[-1] == ("toy", None)


def test_bad_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"hf:cifar10 needs the package datasets: install Initio .* initio\[hf\]"):
        load("hf:cifar10")

    def fails(name: str, config: str | None) -> object:
        raise ConnectionError("no network\nsecond line")

    fake_hub(monkeypatch, fails)
    with pytest.raises(InputError, match=r"^hf:toy cannot be loaded: no network$"):
        load("hf:toy")
    with pytest.raises(InputError, match="hf: needs the name of a data set"):
        load("hf:")
    x = images(2, 8, 8, 3)
    fake_hub(monkeypatch, lambda *_: {"train": Rows(x, [0, -1], ["a", "b"])})
    with pytest.raises(InputError, match="label -1 of sample 1 in hf:toy is out of range"):
        load("hf:toy")
    with pytest.raises(InputError, match="hf:toy has no test part, only train"):
        load("hf:toy", split="test")
    rows = Rows(x, [0, 1], ["a", "b"])
    del rows.features["img"]
    fake_hub(monkeypatch, lambda *_: {"train": rows})
    with pytest.raises(InputError, match="hf:toy has no column of type Image: its columns are id, label"):
        load("hf:toy")
    fake_hub(monkeypatch, lambda *_: {"other": rows})
    with pytest.raises(InputError, match="hf:toy has no train part"):
        load("hf:toy")
