"""Scores of a pool: what is refused, what a missing value means, and that nothing can be changed afterwards."""

import math
import sys

import numpy as np
import pytest

from initio import InputError
from initio.records import Architecture
from initio.scores.table import Origin, ScoreTable
from initio.spaces import NB201

ARCHS = [Architecture("nb201", (0, 0, 0, 0, 0, k)) for k in range(5)]
VALUES = [2.0, math.nan, math.inf, 2.0, -math.inf]


def scores() -> ScoreTable:
    return ScoreTable.of(ARCHS, {"trace": VALUES, "kappa": [5.0, 4.0, 3.0, 2.0, 1.0]})


def test_columns_and_rows() -> None:
    table = scores()
    assert (len(table), table.metrics) == (5, ("trace", "kappa"))
    np.testing.assert_array_equal(table["trace"], VALUES)
    assert [table.rows[arch] for arch in ARCHS] == [0, 1, 2, 3, 4]


def test_subset() -> None:
    part = scores().subset([3, 0])
    assert part.architectures == (ARCHS[3], ARCHS[0])
    assert part["kappa"].tolist() == [2.0, 5.0]
    assert len(scores().subset([])) == 0


def test_scores_cannot_be_changed() -> None:
    given = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    table = ScoreTable.of(ARCHS, {"trace": given})
    with pytest.raises(ValueError, match="read-only"):
        table["trace"][0] = 9
    given[0] = 9  # the caller's own array stays the caller's
    assert table["trace"][0] == 1


def test_what_is_no_table_of_scores() -> None:
    with pytest.raises(InputError, match="there are 5 architectures, but the scores 'trace' have shape \\(4,\\)"):
        ScoreTable.of(ARCHS, {"trace": VALUES[:4]})
    with pytest.raises(InputError, match="an architecture stands twice in the table of scores"):
        ScoreTable.of([*ARCHS, ARCHS[0]], {})
    with pytest.raises(InputError, match="the pool has no scores 'trcae': did you mean 'trace'?"):
        scores()["trcae"]


def drawn() -> ScoreTable:
    """Two draws of the trace, the second without a value for two architectures; a cost."""
    values = [[1.0, 2.0, 3.0, 4.0, 5.0], [3.0, math.nan, math.nan, 6.0, math.inf]]
    origins = {"trace": Origin(draws=((0, "d00d"), (1, "d00d"))), "params": Origin(draws=((0, ""),))}
    flags = {"trace": {(1, 1): "the kernel is not finite", (1, 4): "singular"}, "params": {}}
    return ScoreTable.of(ARCHS, {"trace": values, "params": [9.0, 8.0, 7.0, 6.0, 5.0]}, flags, origins)


def test_draws() -> None:
    table = drawn()
    assert table.draws == 2
    np.testing.assert_array_equal(table["trace"], [2.0, math.nan, math.nan, 5.0, math.inf])
    np.testing.assert_array_equal(table.draw(1)["trace"], table.each("trace")[1])
    np.testing.assert_array_equal(table.draw(1)["params"], table["params"])  # counted once, the same in every draw
    assert table.draw(1).origin("trace").draws == ((1, "d00d"),)


def test_a_missing_value_has_a_reason() -> None:
    table = drawn()
    for some in (table, table.draw(1), table.subset([1, 2, 4, 0])):
        assert some.reason(ARCHS[1], "trace") == "the kernel is not finite"
        assert some.reason(ARCHS[2], "trace") == "it was not scored"
        assert some.reason(ARCHS[0], "trace") == some.reason(ARCHS[4], "trace") == ""
        assert some.undefined("trace") == 1
    assert table.draw(0).undefined("trace") == 0
    assert table.missing("trace") == {(1, 1): "the kernel is not finite"}
    with pytest.raises(InputError, match="is not in the table of scores"):
        table.reason(Architecture("nb201", (1, 1, 1, 1, 1, 1)), "trace")


def test_a_score_belongs_to_all_with_the_same_network_and_a_cost_to_one() -> None:
    table = drawn().spread([(ARCHS[3], ARCHS[1]), (ARCHS[2], ARCHS[0]), (Architecture("nb201", (4,) * 6), ARCHS[0])])
    np.testing.assert_array_equal(table.each("trace"), [[2.0, 1.0, 1.0], [math.nan, 3.0, 3.0]])
    np.testing.assert_array_equal(table["params"], [6.0, 7.0, math.nan])
    assert table.reason(ARCHS[3], "trace") == "the kernel is not finite"
    assert table.networks == set(table.architectures)
    assert ScoreTable.of(ARCHS, {"params": [1.0] * 5}, {}, {"params": Origin(draws=((0, ""),))}).networks == set()


def test_a_frame() -> None:
    frame = drawn().to_frame()
    assert frame.index.names == ["architecture", "draw"]
    assert frame.shape == (10, 2)
    first = NB201.format(ARCHS[0])
    assert frame.loc[first].to_dict("list") == {"trace": [1.0, 3.0], "params": [9.0, 9.0]}
    assert drawn().draw(0).to_frame().shape == (5, 2)


def test_a_frame_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="a data frame needs pandas: pip install 'initio\\[frames\\]'"):
        drawn().to_frame()


def test_in_a_notebook() -> None:
    own = [Architecture("<mine>", (k,)) for k in range(12)]  # of a space that nobody else knows
    table = ScoreTable.of(own, {"trace": range(12)})
    html = table._repr_html_()
    assert html.count("<tr>") == 11
    assert "the first 10 architectures" in html
    assert "&lt;mine&gt; (3,)" in html
    assert repr(table) == "ScoreTable of 12 architectures of <mine>, 1 metric (trace), 1 draw"
