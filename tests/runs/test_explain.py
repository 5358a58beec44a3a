"""`initio explain` says what is known, from shipped scores or measured now, and the same as data."""

import json
from pathlib import Path

import numpy as np
import pytest

import initio
from initio.cli import main
from initio.errors import InputError
from initio.runs.explain import Explanation
from initio.spaces import NB201

CELL = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|none~1|nor_conv_3x3~2|"


@pytest.fixture(scope="module")
def shipped() -> Explanation:
    return initio.explain(CELL)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Explanation:
    store = tmp_path_factory.mktemp("store") / "scores.db"
    return initio.explain("mlp:relu,tanh;skips=1", pool=5, data="digits", batch_size=8, store=store)


def test_percentiles_are_those_of_the_shipped_scores(shipped: Explanation) -> None:
    from initio.scores.read import read_table
    from initio.scores.store import Store, find_store

    with Store(find_store("nb201"), read_only=True) as store:
        table = read_table(store, NB201, pool=list(NB201.architectures()))
    row = table.rows[NB201.parse(CELL)]
    places = {place.metric: place for place in shipped.metrics}
    for name, sign in (("trace", 1), ("kappa", -1), ("params", 1)):
        values = sign * table[name]
        others = np.delete(values, row)
        others = others[~np.isnan(others)]
        expected = 100 * ((others < values[row]).sum() + (others == values[row]).sum() / 2) / len(others)
        assert places[name].percentile == pytest.approx(expected)
        assert places[name].value == pytest.approx(table[name][row])
    assert shipped.others.startswith("all 15,625 architectures")
    assert [cell.width for cell in shipped.cells] == [1.5]


def test_each_decision_has_its_best_and_its_worst_change(shipped: Explanation) -> None:
    assert len(shipped.changes) == len(shipped.worst) == 6
    for best in shipped.changes:
        worst = next(change for change in shipped.worst if change.decision == best.decision)
        assert worst.gain <= best.gain
    assert shipped.ranking is not None
    for change in shipped.changes:
        assert change.percentile - change.gain == pytest.approx(shipped.ranking.percentile)
    assert [change.gain for change in shipped.changes] == sorted((c.gain for c in shipped.changes), reverse=True)


def test_what_is_not_shipped_is_measured(measured: Explanation) -> None:
    assert measured.others == "5 random architectures of mlp-3, measured now on digits"
    assert {"trace", "kappa", "naswot"} <= {place.metric for place in measured.metrics}
    assert {bound.metric for bound in measured.bounds} == {"realisable", "trade_off", "kappa", "non_realisable"}
    assert len(measured.changes) == 3
    assert measured.nearest is None


def test_the_same_again_comes_from_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = {"pool": 3, "data": "digits", "batch_size": 8, "store": tmp_path / "s.db", "changes": False}
    first = initio.explain("mlp:relu,tanh", **ask)
    monkeypatch.setattr("initio.scores.pool.measure", None)
    assert initio.explain("mlp:relu,tanh", **ask) == first
    assert first.changes == ()


def test_json_and_page_say_the_same(capsys: pytest.CaptureFixture[str], shipped: Explanation) -> None:
    assert main(["explain", CELL, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["initio"] == "explanation"
    assert data["ranking"]["place"] == shipped.ranking.place  # type: ignore[union-attr]
    assert main(["explain", CELL]) == 0
    page = capsys.readouterr().out
    assert f"place {shipped.ranking.place} of 15625" in page  # type: ignore[union-attr]
    assert "1.5c, 3" in page
    assert "the ranking was made without" in page or not shipped.notes


def test_a_pool_of_none_is_refused() -> None:
    with pytest.raises(InputError, match="a pool of 1 or more"):
        initio.explain("mlp:relu,tanh", pool=0)


def test_a_result_says_why_it_was_chosen() -> None:
    result = initio.SearchResult("mine", "nb201", 0, (NB201.parse(CELL),), why="it looked best")
    found = initio.explain(result, changes=False)
    assert (found.method, found.why, found.architecture) == ("mine", "it looked best", result.best)
