import numpy as np
import pytest

from initio.searches.models.additive import sharing
from initio.searches.traces import penalised
from initio.spaces.base import Decision
from studies.nasi_estimators import PARTS, RULES, Rule, World, row


@pytest.fixture
def known() -> World:
    """Every cell of three edges with three options; T_c and T_o are products over the options."""
    grid = np.array(np.meshgrid(*[range(3)] * 3, indexing="ij")).reshape(3, -1).T
    X = (grid[:, :, None] == np.arange(3)).reshape(27, 9).astype(float)
    rng = np.random.default_rng(0)
    T_c, T_o = (np.exp(X @ rng.normal(size=9)) for _ in range(2))
    decisions = tuple(Decision(f"edge {edge}", ("a", "b", "c")) for edge in range(3))
    return World(T_c + T_o, T_c, X, X, sharing(decisions), (T_c + T_o)[:, None])


def test_without_a_penalty_the_largest_trace_is_found(known: World) -> None:
    for fitted in ("itself", "its log", "its rank"):
        assert known.choose(Rule("T", 1, "none", fitted), 27, seed=0)[0] >= np.sort(known.T)[-3]


def test_fits_of_the_parts_find_the_largest_objective(known: World) -> None:
    nu = float(np.exp(np.log(known.T).mean()))
    best = known.T[np.argmax(penalised(known.T_c, known.T, 1.0, nu))]
    reached, predicted = known.choose(Rule("T_c", 1, "geometric mean", PARTS), 27, seed=0)
    assert reached == best
    assert predicted.min() > 0.5


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_every_rule_chooses_by_the_seed_alone(known: World, rule: Rule) -> None:
    first, second = (known.choose(rule, 20, seed=3) for _ in range(2))
    assert [part.tolist() for part in first] == [part.tolist() for part in second]
    assert row(rule, [first, second]).count("|") == 5
