import numpy as np

from initio.analysis.ranking import MEMBERS, rank
from initio.records import Architecture
from initio.scores.table import ScoreTable
from studies.ranking import consensus, draw_rows, weighed


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


def test_the_noise_of_single_draws_goes_with_their_mean() -> None:
    """Several draws agree better with the truth than each alone; the row of a member says how two draws agree."""
    rng = np.random.default_rng(1)
    truth = rng.normal(size=300)
    archs = [Architecture("nb201", tuple(int(digit) for digit in np.base_repr(k, 5).zfill(6))) for k in range(300)]
    columns = [{member.metric: truth + rng.normal(size=300) for member in MEMBERS} for _ in range(3)]
    tables = [ScoreTable.of(archs, own) for own in columns]
    found = {name: float(cells[0].split()[0]) for name, cells in draw_rows(tables, truth[:, None])}
    alone = [value for name, value in found.items() if ", draw " in name]
    assert len(alone) == 3
    assert found["the ranking, 3 draws"] > max(alone)
    member = next(name for name in found if name.startswith("meco, 3 draws"))
    assert 0.4 < float(member.split()[-1]) < 0.6
