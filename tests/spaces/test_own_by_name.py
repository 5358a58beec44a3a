"""A space of one's own is found by name, in this process and in others, and its architectures find it again."""

import json
import pickle
import subprocess
import sys
from importlib.metadata import EntryPoint
from random import Random

import pytest

import initio
from examples import own_space
from initio import Architecture, InputError, from_json, get_space, parse, plugins, to_json
from initio.spaces.exports import exported

NAME = "examples.own_space:Mine"


def test_its_architectures_read_back_from_text_json_and_in_another_process() -> None:
    space = get_space(NAME)
    arch = space.architecture(1, 0, 1)
    assert arch.space == f"{NAME}-{own_space.Mine.digest}"
    assert get_space(arch.space) == space
    text = space.format(arch)
    assert text == f"{arch.space}:kernel=5,width=8,activation=GELU"
    assert parse(text) == parse(f"{NAME}:kernel=5,width=8,activation=GELU") == arch
    assert parse(to_json(arch)) == from_json(Architecture, to_json(arch)) == arch
    assert pickle.loads(pickle.dumps(space)) == space
    code = f"import initio; print(sum(p.numel() for p in initio.build({text!r}, shape=(1, 8, 8)).parameters()))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(found.stdout) == sum(p.numel() for p in initio.build(arch, shape=(1, 8, 8)).parameters())


def test_an_architecture_of_other_choices_is_refused() -> None:
    with pytest.raises(InputError, match=f"the decisions of {NAME} have changed since {NAME}-000000 was written"):
        parse(json.dumps({"initio": "architecture", "version": 1, "space": f"{NAME}-000000", "choices": [0, 0, 0]}))
    with pytest.raises(InputError, match="must be a space, as initio.space makes it, not function"):
        get_space("examples.own_space:net")
    with pytest.raises(InputError, match="has a builder of its own"):
        exported(get_space(NAME).sample(Random(0)), "python")


def test_a_space_of_an_installed_package_goes_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("theirs", NAME, "initio.spaces")
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point] if group == "initio.spaces" else [])
    space = get_space("theirs")
    arch = space.architecture(0, 1, 0)
    assert space.name == f"theirs-{space.digest}"
    assert parse(space.format(arch)) == parse("theirs:kernel=3,width=16,activation=ReLU") == arch
    with pytest.raises(InputError, match="there is no search space 'their': did you mean 'theirs'"):
        get_space("their")


def test_the_builder_is_told_the_data_and_nothing_else() -> None:
    space = get_space(NAME)
    model = space.build(space.architecture(0, 0, 0), initio.NetworkSettings(shape=(2, 8, 8), classes=7))
    assert (model[0].in_channels, model[-1].out_features) == (2, 7)
    with pytest.raises(InputError, match="builds its own networks: make width and depth choices"):
        space.resolve(initio.NetworkSettings(channels=4))
