"""A search with real trainings on the user's data: chooses by validation, and goes on after an interruption."""

from pathlib import Path

import pytest
from initio.runs.hybrid import Hybrid

from initio import InputError
from initio.cli import main
from initio.data import load
from initio.records import Settings
from initio.searches import Hnas, RandomSearch
from initio.spaces import NB201, NetworkSettings, get_space
from initio.training import TrainingSettings

SIZE = NetworkSettings(channels=2, cells=1, classes=10, shape=(1, 8, 8))
QUICK = TrainingSettings(epochs=1, samples=200)


def hybrid(**changes: object) -> Hybrid:
    options: dict[str, object] = {"queries": 3, "pool": 6, "training": QUICK, "batch_size": 8}
    return Hybrid(**{"search": Hnas(), "space": NB201, "data": load("digits"), "network": SIZE, **options, **changes})  # type: ignore[arg-type]


def test_the_best_trained_is_chosen_and_an_interrupted_run_ends_alike(tmp_path: Path) -> None:
    heard: list[Settings] = []
    (tmp_path / "whole").mkdir()
    whole = hybrid().run(tmp_path / "whole", on_row=heard.append)
    values = {str(dict(row)["choices"]): dict(row)["value"] for row in whole.trace}
    assert values[" ".join(map(str, whole.chosen[0].choices))] == max(values.values())  # type: ignore[type-var]
    assert tuple(heard) == whole.trace
    assert whole.cost.scorings <= 6

    class StoppedError(Exception):
        pass

    def stop(row: Settings) -> None:
        heard.append(row)
        raise StoppedError

    heard.clear()
    (tmp_path / "parts").mkdir()
    with pytest.raises(StoppedError):
        hybrid().run(tmp_path / "parts", on_row=stop)
    again = hybrid().run(tmp_path / "parts", rows=heard)
    assert again.chosen == whole.chosen
    assert [dict(row)["value"] for row in again.trace] == [dict(row)["value"] for row in whole.trace]


def test_noise_is_refused_before_anything_is_written() -> None:
    with pytest.raises(InputError, match="noise has nothing to learn"):
        hybrid(data=load("noise:1x8x8:10"))


def test_a_search_without_scores_scores_nothing(tmp_path: Path) -> None:
    result = hybrid(search=RandomSearch(), pool=0, queries=1).run(tmp_path)
    assert result.cost.scorings == 0
    assert not (tmp_path / "scores.db").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--method", "hnas", "--data", "noise"], "noise has nothing to learn"),
        (["--method", "hnas", "--data", "digits", "--mu", "1"], "--mu is not an option of hnas"),
        (["--method", "rea", "--data", "digits", "--pool", "5"], "--pool is not an option of rea"),
        (["--method", "robust", "--data", "digits", "--queries", "0"], "the number of queries must be at least 1"),
    ],
)
def test_bad_input_is_one_sentence(options: list[str], sentence: str, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(["search", "nb201", "--out", str(tmp_path / "run"), *options]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_command_trains_and_reports(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    options = ["--method", "random", "--data", "digits", "--queries", "1", "--epochs", "1", "--pixels", "8"]
    assert main(["search", "nb201", *options, "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert "best validation accuracy" in printed
    assert (tmp_path / "run" / "result.json").is_file()


def test_cells_of_nb1shot1_find_the_scores_of_their_networks(tmp_path: Path) -> None:
    """A network is scored once for all spaces that have it, under nb101."""
    space = get_space("nb1shot1-s1")
    network = NetworkSettings(channels=8, cells=1, classes=10, shape=(1, 8, 8))
    result = hybrid(space=space, network=network, queries=2, pool=4).run(tmp_path)
    assert result.chosen[0].space == "nb1shot1-s1"
    assert result.cost.scorings > 0
