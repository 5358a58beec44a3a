"""Scores of a pool: what is refused, what a missing value means, and that nothing can be changed afterwards."""

import math

import numpy as np
import pytest

from initio import InputError
from initio.records import Architecture
from initio.searches import ScoreTable

ARCHS = [Architecture("nb201", (0, 0, 0, 0, 0, k)) for k in range(5)]
VALUES = [2.0, math.nan, math.inf, 2.0, -math.inf]


def scores() -> ScoreTable:
    return ScoreTable.of(ARCHS, {"trace": VALUES, "kappa": [5.0, 4.0, 3.0, 2.0, 1.0]})


def test_columns_and_rows() -> None:
    table = scores()
    assert (len(table), table.metrics) == (5, ("trace", "kappa"))
    np.testing.assert_array_equal(table["trace"], VALUES)
    assert [table.rows[arch] for arch in ARCHS] == [0, 1, 2, 3, 4]


def test_ranks() -> None:
    """The best last, ties averaged, no value together with the worst that there is."""
    table = scores()
    assert table.ranks("trace").tolist() == [3.5, 1.5, 5.0, 3.5, 1.5]
    assert table.ranks("trace", higher_is_better=False).tolist() == [3.5, 1.5, 1.5, 3.5, 5.0]
    assert table.ranks("kappa", higher_is_better=False).tolist() == [1, 2, 3, 4, 5]


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
