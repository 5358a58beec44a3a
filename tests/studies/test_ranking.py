import numpy as np

from initio.analysis.ranking import MEMBERS, rank
from studies.ranking import consensus, weighed


def test_a_member_that_agrees_with_nobody_has_less_to_say() -> None:
    rng = np.random.default_rng(0)
    common = rng.normal(size=500)
    columns = {member.metric: common + 0.5 * rng.normal(size=500) for member in MEMBERS[:-1]}
    ranking = rank(columns | {MEMBERS[-1].metric: rng.normal(size=500)})
    for rule, weights in consensus(ranking).items():
        assert weights[-1] < 0.3 * weights[:-1].min(), rule


def test_equal_weights_are_the_ranking() -> None:
    columns = {member.metric: np.random.default_rng(j).normal(size=50) for j, member in enumerate(MEMBERS)}
    columns["meco"][3] = np.nan
    for member in MEMBERS[:5]:
        columns[member.metric][7] = np.nan  # too little is known of it
    ranking = rank(columns)
    assert np.array_equal(np.argsort(weighed(ranking, np.ones(len(MEMBERS)))), np.argsort(ranking.values))
    assert weighed(ranking, np.ones(len(MEMBERS))).argmin() == 7
