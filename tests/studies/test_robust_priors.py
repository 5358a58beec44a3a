"""The study of misleading priors: its kinds, its journal, and what counts as worse."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from initio.errors import InputError
from initio.spaces import NB201
from studies.robust_priors import KINDS, SHARE, Difference, Journal, Run, lines, wanted

ARCHS = tuple(NB201.architectures())[5000:5400]
TRUTH = np.random.default_rng(0).permutation(400).astype(float)


def agreement(kind: str) -> float:
    changed = KINDS[kind]({"metric": TRUTH}, ARCHS, TRUTH, np.random.default_rng(1))["metric"]
    return float(spearmanr(changed, TRUTH).statistic)


def test_kinds_mislead_as_they_say() -> None:
    assert agreement("as they are") == pytest.approx(1)
    assert agreement("turned") == pytest.approx(-1)
    assert abs(agreement("shuffled")) < 0.15
    assert abs(agreement("half")) < 0.5
    assert 0.3 < agreement("top") < 0.7


def test_half_is_right_on_the_other_half() -> None:
    changed = KINDS["half"]({"metric": TRUTH}, ARCHS, TRUTH, np.random.default_rng(2))["metric"]
    same = changed == TRUTH
    assert 0.2 < same.mean() < 0.8
    assert spearmanr(changed[~same], TRUTH[~same]).statistic == pytest.approx(-1)


def test_top_ranks_the_worst_first() -> None:
    changed = KINDS["top"]({"metric": TRUTH}, ARCHS, TRUTH, np.random.default_rng(0))["metric"]
    first = np.argsort(-changed)[: round(SHARE * len(TRUTH))]
    assert TRUTH[first].max() < SHARE * len(TRUTH)


def test_values_that_do_not_exist_stay_so() -> None:
    holes = np.where(TRUTH < 50, np.nan, TRUTH)
    for kind in KINDS:
        changed = KINDS[kind]({"metric": holes}, ARCHS, TRUTH, np.random.default_rng(0))["metric"]
        assert np.isnan(changed).sum() == 50


def test_a_journal_knows_what_is_missing_and_its_last_line_may_be_torn(tmp_path: Path) -> None:
    runs, path = wanted(["nb201/c10"], ["turned"], 2), tmp_path / "journal.jsonl"
    Journal(path).add(runs[0], {5: 90.0, 10: 91.0})
    with path.open("a") as file:
        file.write('["random", "nb2')
    journal = Journal(path)
    assert journal.missing(runs, [5, 10]) == runs[1:]
    assert journal.missing(runs, [5, 20]) == runs
    path.write_text("{}\n")
    with pytest.raises(InputError, match="line 1 of .* is damaged"):
        Journal(path)


def test_only_what_is_beyond_chance_is_worse(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    values = {"random": (90.0, 91.0, 92.0), "robust": (89.0, 90.1, 90.9), "robot": (95.0, 85.0, 92.0)}
    for run in wanted(["nb201/c10"], ["as they are"], 3):
        journal.known[run, 5] = values[run.search][run.seed]
    table = list(lines(journal, ["nb201/c10"], ["as they are"], [5], 3))
    assert "|robust, as they are|-1.00±0.06!|" in table
    assert "|robot, as they are|-0.33±3.18|" in table
    assert table[-1].startswith("\n1 of 1 cells")
    assert Difference(-0.1, 0.06).worse is False


@pytest.mark.parametrize("search", ["random", "robot"])
def test_a_run_has_a_value_for_each_budget(search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def values(self: Run, search: object, setup: int) -> list[float]:
        return [float(k) for k in range(setup)]

    monkeypatch.setattr(Run, "setup", lambda self, data, stores, budget: budget)
    monkeypatch.setattr(Run, "values", values)
    assert Run(search, "nb201/c10", "as they are", 0).best(None, None, [2, 5]) == {2: 1.0, 5: 4.0}
