"""A part of what `python -m studies.same_values` compares, and that it notices a change."""

import math

import pytest

from studies.same_values import Row, derivatives, scores, searches


def test_metrics_searches_and_derivatives_are_what_they_were() -> None:
    rows = [*scores(["nb201", "mlp"], first=2), *searches(["lambda-min", "eigen-darts"]), *derivatives(["nb1shot1-s1"])]
    assert len(rows) == 4 + 2 + 2
    for row in rows:
        assert row.compared > 20
        assert row.same, str(row)


@pytest.mark.parametrize(
    ("kept", "now", "worst"),
    [
        ([1.0, 2.0], [1.0, 2.0 + 2e-5], 1e-5),
        ({"a": 1.0}, {"a": 1.1}, 0.1),
        ([1.0], [1.0, 2.0], math.inf),
        ({"kind": "measured"}, {"kind": "sampled"}, math.inf),
        (None, 1.0, math.inf),
        ([3, 1], [3, 2], math.inf),
    ],
)
def test_differences_are_found(kept: object, now: object, worst: float) -> None:
    row = Row("kind", "what", "float64")
    row.add(kept, kept)
    assert row.same
    row.add(kept, now)
    assert row.worst == pytest.approx(worst, rel=1e-3)
    assert not row.same


def test_a_rounded_value_as_near_to_the_exact_one_as_was_usual_is_counted_apart() -> None:
    row = Row("kind", "what", "float32")
    row.add_rounded(1.01, 0.99, 1.0, 0.02)
    assert (row.compared, row.equal, row.rounded, row.same) == (1, 0, 1, True)
    row.add_rounded(1.01, 1.01, 1.0, 0.0)
    assert (row.compared, row.equal, row.rounded, row.same) == (2, 1, 1, True)
    row.add_rounded(1.0, 1.03, 1.0, 0.02)
    assert (row.compared, row.rounded, row.same) == (3, 1, False)
    row.add_rounded(1.0, None, None, 0.02)
    assert row.worst == float("inf")
