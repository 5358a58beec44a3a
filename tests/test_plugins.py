"""Parts of one's own are found by name."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from initio import plugins
from initio.errors import InputError
from initio.plugins import find, look_here

OWN = {"three": 3, "error": "initio.errors:InputError"}


def test_a_room_s_own_parts_come_first_and_are_imported_when_asked_for() -> None:
    assert find("metrics", "three", OWN) == 3
    assert find("metrics", "error", OWN) is InputError


def test_an_entry_point_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("theirs", "initio.errors:did_you_mean", "initio.spaces")
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point] if group == "initio.spaces" else [])
    assert find("spaces", "theirs", OWN)("nb102", ["nb101"]) == "did you mean 'nb101'?"
    with pytest.raises(InputError, match="there is no search space 'their': did you mean 'theirs'"):
        find("spaces", "their", OWN)
    with pytest.raises(InputError, match="there is no data source 'theirs': choose one of three, error"):
        find("data", "theirs", OWN)


def test_a_module_of_the_current_folder_is_found_if_it_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "found_here.py").write_text("class Inner:\n    value = 7\n")
    (tmp_path / "broken_here.py").write_text("import nothing_of_this_name\n")
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])  # a test may run with '' in it
    with pytest.raises(InputError, match="No module named 'found_here'; install it, or set PYTHONPATH to its folder"):
        find("searches", "found_here:Inner.value", OWN)  # as a file from someone else might name it
    look_here(["search", "nb201", "--method=found_here:Inner.value"])
    assert find("searches", "found_here:Inner.value", OWN) == 7
    assert sys.path[-1] == str(tmp_path)
    for name, why in {
        "found_here:Outer": "AttributeError: module 'found_here' has no attribute 'Outer'",
        "not_here:Inner": "ModuleNotFoundError: No module named 'not_here'",
        "broken_here:Inner": "ModuleNotFoundError: No module named 'nothing_of_this_name'",
    }.items():
        with pytest.raises(InputError, match=f"the search '{name}' cannot be imported: {why}"):
            find("searches", name, OWN)
