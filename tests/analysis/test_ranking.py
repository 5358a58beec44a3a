"""The ranking against a slow, obvious one; ties, holes, constants, missing members and tiny pools."""

import math
import subprocess
import sys

import numpy as np
import pytest

from initio.analysis.ranking import MEMBERS, Member, log_ranks, log_shares, rank
from initio.errors import InputError

NAN = float("nan")


def slowly(columns: dict[str, list[float]]) -> list[float]:
    """The formula, one architecture and one member at a time."""
    n = len(next(iter(columns.values())))
    out = []
    for i in range(n):
        logs = []
        for member in MEMBERS:
            column = [member.sign * x for x in columns.get(member.metric, []) if not math.isnan(x)]
            if len(set(column)) < 2 or math.isnan(columns[member.metric][i]):
                continue
            mine = member.sign * columns[member.metric][i]
            place = sum(x < mine for x in column) + (sum(x == mine for x in column) + 1) / 2
            logs.append(math.log(place / (len(column) + 1)))
        out.append(sum(logs) / len(logs))
    return out


def test_it_is_the_formula() -> None:
    rng = np.random.default_rng(0)
    columns = {member.metric: rng.integers(0, 12, 40).astype(float) for member in MEMBERS[:4]}
    columns["naswot"][3] = NAN
    columns["flops"][:] = 7.0  # says the same of all
    columns["kappa"] = rng.standard_normal(40)  # no member
    found = rank(columns)
    assert found.values == pytest.approx(slowly({name: list(column) for name, column in columns.items()}))
    assert [member.metric for member in found.members] == [m.metric for m in MEMBERS[:4] if m.metric != "flops"]


def test_infinities_are_the_largest_and_the_smallest() -> None:
    assert rank({"meco": np.array([1.0, np.inf, -np.inf])}).order.tolist() == [1, 0, 2]


def test_equals_share_a_place_whatever_their_order() -> None:
    found = rank({"meco": np.array([2.0, 1.0, 2.0, 0.0])})
    assert found.places.tolist() == [1, 3, 1, 4]
    assert found.between(0, 2) == ""


def test_any_increasing_change_of_scale_and_any_order_leave_it_as_it_is() -> None:
    rng = np.random.default_rng(1)
    columns = {member.metric: rng.random(30) for member in MEMBERS}
    values = rank(columns).values
    assert np.array_equal(rank({name: np.exp(9 * column) for name, column in columns.items()}).values, values)
    turned = rng.permutation(30)
    assert rank({name: column[turned] for name, column in columns.items()}).values == pytest.approx(values[turned])


def test_what_can_hardly_be_measured_ranks_last() -> None:
    """Four members have no value for the architecture with the most FLOPs, one has none for another."""
    columns = {m.metric: np.array([NAN, 2.0, 3.0, 1.0]) for m in MEMBERS if m.metric != "flops"}
    columns["meco"][2] = NAN
    columns["flops"] = np.array([9.0, 2.0, 3.0, 1.0])
    found = rank(columns)
    assert found.order.tolist() == [2, 1, 3, 0]
    assert not np.isnan(found.values).any()


@pytest.mark.parametrize("columns", [{}, {"kappa": np.ones(2)}, {"meco": np.ones(2)}, {"meco": np.full(2, NAN)}])
def test_where_nobody_speaks_all_are_equal(columns: dict[str, np.ndarray]) -> None:
    found = rank(columns)
    assert found.members == ()
    assert len(set(found.values.tolist())) <= 1
    assert found.decided == ("",) * len(found.values)


def test_tiny_pools() -> None:
    assert rank({"meco": np.array([])}).order.tolist() == []
    assert rank({"meco": np.array([1.0])}).places.tolist() == [1]
    two = rank({"meco": np.array([1.0, 2.0])})
    assert (two.order.tolist(), two.decided, two.between(0, 1)) == ([1, 0], ("meco", "meco"), "meco")


def test_who_decided() -> None:
    """The first is best by naswot and middling by meco, the last is worst by meco."""
    found = rank({"meco": np.array([3.0, 4.0, 2.0, 5.0, 1.0]), "naswot": np.array([9.0, 4.0, 5.0, 6.0, 3.0])})
    assert (found.decided[0], found.decided[4]) == ("naswot", "meco")
    assert found.between(0, 1) == found.between(1, 0) == "naswot"


def test_a_member_with_a_negative_sign_wants_little() -> None:
    assert rank({"trace": np.array([1.0, 2.0])}, (Member("trace", -1, "a test"),)).order.tolist() == [0, 1]


def test_columns_of_two_lengths_are_refused() -> None:
    with pytest.raises(InputError, match="one length, not 2, 3"):
        rank({"meco": np.ones(2), "flops": np.ones(3)})


def test_log_ranks_of_nothing() -> None:
    assert log_ranks(np.array([])).tolist() == []
    assert np.isnan(log_ranks(np.array([NAN]))).all()


def test_it_needs_no_torch() -> None:
    code = "import sys, initio.analysis.ranking; sys.exit('torch' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_shares_are_those_of_a_normal_population() -> None:
    rng = np.random.default_rng(3)
    known = rng.normal(5.0, 2.0, 20_000)
    values = np.quantile(known, [0.1, 0.5, 0.9])
    np.testing.assert_allclose(np.exp(log_shares(values, known)), [0.1, 0.5, 0.9], atol=0.02)
    far = log_shares(np.array([-np.inf, NAN, np.inf, 13.0, 14.0]), np.append(known, [np.inf, NAN]))
    assert math.isnan(far[1])
    assert math.isfinite(far[0])
    assert far[0] < far[3] < far[4] <= far[2]


def test_a_population_that_does_not_differ_is_silent() -> None:
    column = np.append(np.ones(12), 2.0)
    assert rank({"flops": column}, among=column == 1).members == ()
    assert len(rank({"flops": column}).members) == 1


def test_few_random_architectures_are_no_scale() -> None:
    column = np.array([1.0, 1.0, 5.0, 9.0])
    few = rank({"flops": column}, among=column < 6)
    np.testing.assert_array_equal(few.votes, rank({"flops": column}).votes)


def test_what_a_search_has_looked_at_does_not_change_how_two_compare() -> None:
    """Copies between two in one member move them apart by ranks, and not by shares of the random ones."""
    rng = np.random.default_rng(4)
    both = {"meco": np.array([3.0, 3.1]), "flops": np.array([3.5, 3.0])}
    random = {name: rng.standard_normal(50) for name in both}

    def ahead(copies: int, *, shares: bool) -> float:
        between = {"meco": np.full(copies, 3.05), "flops": np.full(copies, 1.0)}
        columns = {name: np.concatenate([random[name], both[name], between[name]]) for name in both}
        among = np.arange(52 + copies) < 50
        values = rank(columns, among=among if shares else None).values
        return float(values[50] - values[51])

    assert ahead(0, shares=True) == pytest.approx(ahead(40, shares=True))
    assert ahead(0, shares=True) > 0
    assert ahead(40, shares=False) < -0.1


def test_a_condition_keeps_its_rank_in_the_pool() -> None:
    member = Member("nasi", -1, "small enough", enough=0.5)
    column = np.arange(9.0)
    found = rank({"nasi": column}, (member,), among=column > 5)
    np.testing.assert_allclose(found.votes[:, 0], np.minimum(log_ranks(-column), np.log(0.5)))
