"""What a user may give for an architecture, and what is said of a folder that has several."""

from pathlib import Path

import pytest

from initio.errors import InputError
from initio.records import to_json
from initio.runs.folders.ensemble import EnsembleFolder, EnsemblePlan
from initio.runs.folders.model import ModelFolder
from initio.runs.folders.named import find_named
from initio.runs.folders.run import RunFolder
from initio.searches import SearchResult
from initio.spaces import NB201

ARCH = NB201.architecture(3, 1, 0, 0, 2, 4)
RESULT = SearchResult("nasi-fit", "nb201", 3, (ARCH,))


def test_one_architecture_by_many_names(tmp_path: Path) -> None:
    run, notation, record = RunFolder(tmp_path / "run"), tmp_path / "cell.txt", tmp_path / "copy.json"
    run.folder.mkdir()
    run.finish(RESULT)
    notation.write_text(NB201.format(ARCH))
    record.write_text(to_json(RESULT))
    for what in (ARCH, RESULT, NB201.format(ARCH), notation, str(notation), run.folder, str(run.folder), record):
        named = find_named(what)
        assert (named.architecture, named.space, named.classes) == (ARCH, NB201, 10)
        assert named.result == (RESULT if what in (RESULT, run.folder, str(run.folder), record) else None)
        assert named.searched is None  # there is no plan


def test_a_folder_with_several_networks_is_called_what_it_is(tmp_path: Path) -> None:
    made = EnsembleFolder(tmp_path / "e").start(EnsemblePlan("nb201", "digits"))
    assert [kind.is_at(made.folder) for kind in (EnsembleFolder, ModelFolder, RunFolder)] == [True, False, False]
    assert not EnsembleFolder.is_at("x" * 9999)
    assert not EnsembleFolder.is_at(ARCH)
    with pytest.raises(InputError, match="is an ensemble: name one of its members, .*/e/members/1"):
        find_named(made.folder)
    with pytest.raises(InputError, match="the ensemble was started with size 3, not 2: give another folder than"):
        made.begin(EnsemblePlan("nb201", "digits", size=2), resume=True)
    with pytest.raises(InputError, match="is not finished: go on with `initio ensemble --resume"):
        made.result()
    with pytest.raises(InputError, match="is no training: it has no train.json; make one by `initio train`"):
        ModelFolder.open(made.folder)
