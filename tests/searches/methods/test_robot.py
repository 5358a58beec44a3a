"""RoBoT: its combination, what repeated choices cost, and values that do not exist."""

import numpy as np
import pytest

from initio.errors import InputError
from initio.records import Architecture, Observation, Query
from initio.scores.table import ScoreTable
from initio.searches import Budget
from initio.searches.methods.robot import Robot, normalised, weights
from initio.searches.models.bayes import GaussianProcess
from initio.spaces import NB201
from tests.searches.asking import ask, asking

POOL = tuple(NB201.architectures())[2000:2300]
RNG = np.random.default_rng(0)
COLUMNS = {name: RNG.normal(size=len(POOL)) for name in ("trace", "naswot", "kappa")}


def trained(
    columns: dict[str, np.ndarray], quality: np.ndarray, queries: int = 12, seed: int = 0
) -> list[Architecture]:
    values = dict(zip(POOL, quality.tolist(), strict=True))
    task = asking(NB201, Budget(queries=queries), POOL, ScoreTable.of(POOL, columns))
    steps = ask(Robot(), task, lambda query: Observation(values[query.architecture], 1.0), seed=seed).steps
    return [step.architecture for step in steps]  # type: ignore[attr-defined]


def test_the_first_is_the_best_by_the_first_weights() -> None:
    w = 2 * np.array(GaussianProcess(3, 5).suggest()) - 1
    slow = []
    for k in range(len(POOL)):
        parts = [(values[k] - values.min()) / (values.max() - values.min()) for values in COLUMNS.values()]
        slow.append(sum(weight * part for weight, part in zip(w, parts, strict=True)))
    assert trained(COLUMNS, np.zeros(len(POOL)), queries=1, seed=5) == [POOL[int(np.argmax(slow))]]


def test_one_metric_has_two_ends_and_the_rest_goes_down_the_better_one() -> None:
    column = RNG.permutation(len(POOL)).astype(float)
    order = np.argsort(-column)
    asked = trained({"trace": column}, column, queries=8)
    assert asked[0] in (POOL[order[0]], POOL[order[-1]])
    down = [POOL[k] for k in order[:8]]
    assert sum(arch in down for arch in asked) >= 7  # all but a look at the other end
    assert len(set(asked)) == 8


def test_it_finds_the_weights_of_metrics_whose_signs_nobody_knows() -> None:
    quality = COLUMNS["trace"] - 2 * COLUMNS["naswot"]
    best = [max(quality[POOL.index(arch)] for arch in trained(COLUMNS, quality, 20, seed)) for seed in range(4)]
    assert np.mean(best) > np.sort(quality)[-5]


def test_values_that_do_not_exist_say_nothing() -> None:
    holes = np.where(RNG.random(len(POOL)) < 0.3, np.nan, COLUMNS["trace"])
    M = normalised({"holes": holes, "empty": np.full(len(POOL), np.nan), "constant": np.ones(len(POOL))})
    assert M.shape == (len(POOL), 1)
    assert (M[np.isnan(holes), 0] == 0).all()
    assert np.isclose(np.ptp(M), 1)
    huge = normalised({"huge": np.array([-1.7e308, 1.7e308, np.inf, -np.inf])})
    assert huge.ravel().tolist() == [-0.5, 0.5, 0.5, -0.5]
    with pytest.raises(InputError, match="no metric tells any two of them apart"):
        trained({"constant": np.ones(len(POOL))}, np.zeros(len(POOL)))


def test_trainings_that_fail_teach_nothing() -> None:
    task = asking(NB201, Budget(queries=3), POOL, ScoreTable.of(POOL, COLUMNS))

    def fails(query: Query) -> Observation:
        return Observation(None, 1.0, "diverged")

    with pytest.raises(InputError, match="none of the 3 trainings has a value"):
        ask(Robot(), task, fails, seed=0)


def test_weights_have_both_signs() -> None:
    assert weights((0.25, 0.75)).tolist() == [-0.5, 0.5]
