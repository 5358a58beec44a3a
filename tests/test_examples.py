"""The examples run, and do what they say."""

from pathlib import Path

import pytest

from examples import look_at_a_space, own_data, own_metric, own_search, own_space, search_with_training, train_on_digits


def test_look_at_a_space(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    look_at_a_space.main(tmp_path)
    assert "different networks" in capsys.readouterr().out
    assert (tmp_path / "largest.svg").exists()


def test_own_space(capsys: pytest.CaptureFixture[str]) -> None:
    own_space.main()
    assert len(capsys.readouterr().out.splitlines()) == 8


def test_own_data(capsys: pytest.CaptureFixture[str]) -> None:
    own_data.main()
    assert "(64, 1, 8, 8)" in capsys.readouterr().out
    data = own_data.bars("train")
    x, y = data.arrays()
    rows = x[:, 0].sum(axis=2).max(axis=1) > x[:, 0].sum(axis=1).max(axis=1)
    assert (rows == (y == 0)).mean() > 0.9  # the classes are what they are called


def test_own_metric(capsys: pytest.CaptureFixture[str]) -> None:
    own_metric.main()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[1] for row in rows] == ["grad", "weakest"] * 2
    assert all(0 < float(weakest[2]) < float(grad[2]) for grad, weakest in zip(rows[::2], rows[1::2], strict=True))


def test_train_on_digits() -> None:
    assert train_on_digits.main(epochs=2) > 0.5  # chance is 0.1


def test_search_with_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = search_with_training.main(tmp_path)
    assert result.cost.queries == 4
    first = capsys.readouterr().out
    assert search_with_training.main(tmp_path) == result
    again = capsys.readouterr().out
    assert first.endswith(again)  # nothing was trained again


def test_own_search(capsys: pytest.CaptureFixture[str]) -> None:
    result = own_search.main()
    assert (result.method, result.cost.queries) == ("examples.own_search:Mine", 3)
    assert "largest validation accuracy" in capsys.readouterr().out


def test_every_example_is_run_here() -> None:
    examples = {path.stem for path in (Path(__file__).parent.parent / "examples").glob("*.py")}
    assert examples == {name.removeprefix("test_") for name in globals() if name.startswith("test_")} - {
        "every_example_is_run_here"
    }
