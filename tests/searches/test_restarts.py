"""Restarts: the first is the search itself, the rows are the state, and the objective decides."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from initio.data import load
from initio.errors import InputError
from initio.searches import Problem, SearchResult, SearchStep, drive
from initio.searches.methods.nasi import Nasi
from initio.searches.methods.nasi_fit import Measured, NasiFit
from initio.searches.restarts import Finalist, Reference, Restarts, derived, finalists, stability, steps_of_restart
from initio.searches.traces import whole_trace
from initio.spaces import DARTS, NB201, NetworkSettings

PROBLEM = Problem(NB201, load("noise:3x8x8:10"), NetworkSettings(channels=2, cells=1, shape=(3, 8, 8)), batch_size=8)
A, B = NB201.architecture(3, 3, 3, 3, 3, 3), NB201.architecture(3, 3, 3, 3, 3, 1)
PLAIN = NasiFit(counted="all", nu="none")  # the objective is T itself
SEARCHES = [NasiFit(steps=4), Nasi(steps=3, nu="adaptive")]


def finalist(restart: int, choices: tuple[int, ...], *traces: float, share: float = 1.0) -> Finalist:
    return Finalist(NB201.architecture(*choices), traces, tuple(share * t for t in traces), restart=restart)


def searched(restart: int, T: float) -> Measured:
    return Measured(0, T, A, restart=restart)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_every_restart_is_the_search_with_its_own_seed(search: NasiFit | Nasi) -> None:
    result = drive(Restarts(search, 2, repeats=2), PROBLEM, seed=5)
    for restart in range(2):
        alone = drive(search, PROBLEM, seed=derived(5, restart))
        *steps, last = steps_of_restart(result.steps, restart)
        assert tuple(steps) == alone.steps
        assert isinstance(last, Finalist)
        assert last.architecture == alone.best
    assert derived(5, 0) == 5
    assert len({derived(5, restart) for restart in range(20)}) == 20


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_the_rows_are_the_state(search: NasiFit | Nasi) -> None:
    restarts = Restarts(search, 2, repeats=2)
    whole = drive(restarts, PROBLEM, seed=1)
    assert len(whole.steps) == restarts.n_steps(PROBLEM)
    for kept in range(0, len(whole.steps) + 1, 3):
        heard = list[SearchStep]()
        assert drive(restarts, PROBLEM, seed=1, done=whole.steps[:kept], on_step=heard.append) == whole
        assert tuple(heard) == whole.steps[kept:]


def test_the_largest_mean_objective_wins_not_the_first_nor_the_most_frequent() -> None:
    rows = [searched(0, 1.0), searched(1, 2.0)]
    rows += [finalist(0, A.choices, 10.0, 12.0), finalist(1, A.choices, 10.0, 12.0), finalist(2, B.choices, 11.0, 13.0)]
    first, second = Restarts(PLAIN, 3).ranking(rows)
    assert (first.architecture, first.votes) == (B, 1)
    assert (second.architecture, second.votes) == (A, 2)


def test_one_large_trace_does_not_win_and_the_penalty_counts() -> None:
    rows = [searched(0, 1.0), finalist(0, A.choices, 2.0, 2.0, 2000.0), finalist(1, B.choices, 30.0, 30.0, 30.0)]
    assert Restarts(PLAIN, 2).ranking(rows)[0].architecture == B  # geometric mean 20, arithmetic 668
    rows = [searched(0, 1.0), finalist(0, A.choices, 4.0, 4.0), finalist(1, B.choices, 8.0, 8.0)]
    assert Restarts(PLAIN, 2).ranking(rows)[0].architecture == B
    strict = Nasi(mu=2, nu="4")  # R = 8 − T above 4
    assert Restarts(strict, 2).ranking(rows)[0].architecture == A


def test_what_is_rewarded_decides() -> None:
    """A has the larger trace, B the larger part in its own operations."""
    rows = [searched(0, 1.0), finalist(0, A.choices, 4.0, share=0.1), finalist(1, B.choices, 2.0, share=0.9)]
    assert Restarts(NasiFit(nu="none"), 2).ranking(rows)[0].architecture == B


def test_equal_objectives_go_to_the_more_frequent() -> None:
    clipped = NasiFit(mu=1, nu="3")
    rows = [searched(0, 1.0), finalist(0, B.choices, 9.0), finalist(1, A.choices, 5.0), finalist(2, A.choices, 5.0)]
    assert Restarts(clipped, 3).ranking(rows)[0].architecture == A


def test_a_finalist_without_a_trace_comes_last() -> None:
    rows = [searched(0, 1.0), finalist(0, A.choices), finalist(1, B.choices, 0.5)]
    first, second = Restarts(PLAIN, 2).ranking(rows)
    assert first.architecture == B
    assert second.mean == float("-inf")


def test_finalists_are_measured_on_the_same_draws_once() -> None:
    restarts = Restarts(NasiFit(steps=4), 2, repeats=3)
    final = restarts.measure(PROBLEM, 0, A, [])
    assert restarts.measure(PROBLEM, 0, A, []) == final
    again = restarts.measure(replace(PROBLEM, batch_size=4), 0, A, [final])
    assert again == final  # the problem would have given another trace
    assert len(final.traces) == 3


def test_stability_counts_agreement_choice_by_choice() -> None:
    rows = (finalist(0, A.choices, 2.0), finalist(1, B.choices, 1.0), finalist(2, A.choices, 2.0))
    found = stability(SearchResult("nasi-fit", "nb201", 0, (A,), rows))
    assert found is not None
    assert (found.restarts, found.same) == (3, 2)
    assert [count for _, count in found.agreeing] == [3, 3, 3, 3, 3, 2]
    assert found.mean == pytest.approx(17 / 18)
    assert "nor_conv_3x3" in found.agreeing[0][0]
    assert stability(SearchResult("nasi-fit", "nb201", 0, (A,))) is None


@pytest.mark.parametrize("wrong", [{"restarts": 0}, {"repeats": 0}])
def test_wrong_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="must be at least 1, not 0"):
        Restarts(NasiFit(), **wrong)


def test_finalists_are_compared_with_networks_of_their_own_kind() -> None:
    """The samples have traces of 1 to 10 and ν half way; networks as the finalists are have a hundred times that."""
    sampled: list[SearchStep] = [searched(0, float(T)) for T in range(1, 11)]
    finals: list[SearchStep] = [finalist(0, A.choices, 900.0), finalist(1, B.choices, 500.0)]
    search = Nasi(mu=2, nu="5.5")  # R = ν − (T − ν) above ν
    alike = Restarts(search, 2).ranking([*sampled, *finals])
    assert alike[0].objective == alike[1].objective  # both far above every sample: nothing to choose by
    references = [Reference(n, 100.0 * T, A, 100.0 * T) for n, T in enumerate(range(1, 11))]
    first, second = Restarts(search, 2).ranking([*sampled, *finals, *references])
    assert (first.architecture, second.architecture) == (B, A)
    assert first.objective == pytest.approx([np.log(500)])  # ν is 550, by its place among the references
    assert second.objective == pytest.approx([np.log(550 - (900 - 550))])


def test_on_darts_random_cells_of_two_inputs_stand_beside_the_finalists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("initio.searches.restarts.REFERENCES", 3)
    problem = replace(PROBLEM, space=DARTS, network=replace(PROBLEM.network, cells=3))
    restarts = Restarts(Nasi(steps=2, nu="1e9"), 2, repeats=1)
    assert Restarts(Nasi(), 2).references(PROBLEM) == Restarts(NasiFit(), 2).references(problem) == 0
    whole = drive(restarts, problem, seed=1)
    assert len(whole.steps) == restarts.n_steps(problem) == 2 * 3 + 3
    for step in whole.steps[-3:]:
        assert isinstance(step, Reference)
        draw = Random(f"references 1 {step.number}")
        assert step.architecture == problem.draw(draw)
        assert step.traces == whole_trace(problem, step.architecture, draw.randrange(2**31))
    assert drive(restarts, problem, seed=1, done=whole.steps[:-2]) == whole
    assert whole.cost.scorings == 2 * 2 + len({final.architecture for final in finalists(whole.steps)}) + 3
