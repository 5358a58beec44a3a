"""Many searches on one benchmark: the right numbers, the same whatever the workers, and nothing lost."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import initio
from initio import Evaluation, InputError
from initio.cli import main
from initio.cli.bench import BenchCommand, unequal
from initio.cli.options import parse
from initio.records import settings
from initio.runs.bench import (
    BenchSetup,
    Outcome,
    _mean_std,
    curves,
    curves_by_epoch,
    mean_curve,
    run_all,
    run_one,
    summarise,
)
from initio.runs.folders.run import RunFolder
from initio.scores.read import read_table
from initio.scores.store import Store
from initio.scores.table import ScoreTable
from initio.searches import Budget, drive
from initio.searches.methods.drnas import DrNas
from initio.searches.methods.evolution import RegularisedEvolution
from initio.searches.methods.random_search import RandomSearch
from initio.searches.methods.ranking import ZeroCost
from initio.searches.methods.rsps import Rsps
from initio.spaces import DARTS, NB201
from initio.system.leases import leased


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 100 cells whose accuracy is the number of convolutions, and two draws of a perfect score."""
    made = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    ops = rng.permutation(np.array([a.choices for a in NB201.architectures()], dtype=np.int8))[:100]
    good = (10.0 * np.isin(ops, (2, 3)).sum(axis=1) + rng.random(100)).astype(np.float32)
    columns = {f"{kind}_{data}": good for kind in ("val12", "time200") for data in ("c10", "c100", "in16")}
    columns |= {f"test_{data}_nb201": good + shift for shift, data in enumerate(("c10", "c100", "in16"))}
    np.savez(made / "nb201_tss.npz", ops=ops, **columns)
    with Store(made / "scores.db") as store:
        for seed in (0, 1):
            scores = {
                NB201.canonical(NB201.architecture(*map(int, row))): float(v) for row, v in zip(ops, good, strict=True)
            }
            store.put(
                Evaluation(arch, "trace", value, seed, settings=settings(cells=5), data=f"batch{seed}")
                for arch, value in scores.items()
            )
        store._describe([("batch0", "a set", 64), ("batch1", "a set", 64)])
    return made


@pytest.fixture
def setup(folder: Path) -> BenchSetup:
    return BenchSetup("nb201", Budget(queries=15), str(folder), store=str(folder / "scores.db"))


def test_an_outcome_is_what_the_table_says(setup: BenchSetup) -> None:
    outcome = run_one(setup, "random", RandomSearch(), 3)
    assert outcome.queries == 15
    assert outcome.report["c100"] == pytest.approx(outcome.validation + 1, abs=1e-4)
    values = [point.report["c10"] for point in outcome.curve]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(outcome.validation)
    assert outcome.curve[-1].queries == 15
    assert outcome.published_seconds == pytest.approx(outcome.curve[-1].seconds)
    assert any(point.queries == outcome.found_at for point in outcome.curve)


def test_shared_weights_are_reported_after_each_epoch(setup: BenchSetup, tmp_path: Path) -> None:
    """By the table, which the search does not see; what was finished is not trained again."""
    shared = replace(setup, images="digits", shared_epochs=2, shared_batch=30, folder=str(everything(tmp_path)))
    search = Rsps(samples=60, candidates=2)
    outcome = run_one(shared, "rsps", search, 1, tmp_path / "runs")
    steps = initio.load(tmp_path / "runs" / "rsps-seed-1").steps
    reports = [shared.open().report(step.architecture) for step in steps]  # type: ignore[attr-defined]
    assert [point.report for point in outcome.curve] == reports
    assert [point.queries for point in outcome.curve] == [1, 2]
    assert outcome.report == reports[-1]
    assert RunFolder(tmp_path / "runs" / "rsps-seed-1").plan().batch_size == 30
    assert (outcome.epochs, outcome.queries, outcome.published_seconds) == (2, 0, 0.0)
    assert replace(run_one(shared, "rsps", search, 1, tmp_path / "runs"), seconds=0) == replace(outcome, seconds=0)
    found = curves_by_epoch([outcome], {})
    assert found.panels["c10"]["rsps"].tolist() == [[report["c10"] for report in reports]]
    with pytest.raises(InputError, match="there are no images of in16 to learn from"):
        replace(setup, dataset="in16").pictures()


def everything(folder: Path) -> Path:
    """A table of all cells."""
    ops = np.array([a.choices for a in NB201.architectures()], dtype=np.int8)
    good = (10.0 * np.isin(ops, (2, 3)).sum(axis=1)).astype(np.float32)
    columns = {f"{kind}_{data}": good for kind in ("val12", "time200") for data in ("c10", "c100", "in16")}
    columns |= {f"test_{data}_nb201": good for data in ("c10", "c100", "in16")}
    np.savez(folder / "nb201_tss.npz", ops=ops, **columns)
    return folder


def test_every_seed_has_scores_of_some_draw(setup: BenchSetup, folder: Path) -> None:
    """The first seeds take one draw each; later ones, for each metric, one of the draws, always the same."""
    assert setup.draws == 2
    with Store(folder / "scores.db", read_only=True) as store:
        table = read_table(store, NB201)
    numbered = ScoreTable.of(table.architectures, {"trace": [[draw] * len(table) for draw in range(2)]})
    taken = [numbered.draw(seed)["trace"] for seed in range(12)]
    assert [int(column[0]) for column in taken[:2]] == [0, 1]
    assert {int(column[0]) for column in taken[2:]} == {0, 1}
    assert all(len(set(column)) == 1 for column in taken)  # a column is one draw
    assert setup.scores(5) is setup.scores(5)


def test_the_same_whatever_the_workers_and_after_a_crash(setup: BenchSetup, tmp_path: Path) -> None:
    searches = {"random": RandomSearch(), "rea": RegularisedEvolution(), "zero-cost": ZeroCost()}
    whole = run_all(setup, searches, range(2), journal=tmp_path / "a.jsonl")
    assert _known(run_all(setup, searches, range(2), workers=2)) == _known(whole)
    lines = (tmp_path / "a.jsonl").read_bytes()
    torn = tmp_path / "b.jsonl"
    torn.write_bytes(lines[: len(lines) // 2])
    ran: list[Outcome] = []
    again = run_all(setup, searches, range(2), journal=torn, on_outcome=ran.append)
    assert _known(again) == _known(whole)
    assert 0 < len(ran) < 6


def test_two_benches_never_work_in_one_folder(
    setup: BenchSetup, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also two that compare different things, as their tables have the same names."""
    command = ["bench", "nb201", "--search", "random", "--seeds", "1", "--data", str(folder), "--out", str(tmp_path)]
    with leased(tmp_path):
        assert main(command) == 2
        with pytest.raises(InputError, match="is working on .*: wait for it, or end it"):
            run_all(setup, {"rea": RegularisedEvolution()}, range(1), journal=tmp_path / "j")
    assert "is working on" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert run_all(setup, {"rea": RegularisedEvolution()}, range(1), journal=tmp_path / "j")
    assert [path.name for path in tmp_path.iterdir()] == ["j"]


def _known(outcomes: list[Outcome]) -> list[dict[str, object]]:
    return [{**vars(o), "seconds": 0} for o in outcomes]


def test_a_damaged_journal_is_refused(setup: BenchSetup, tmp_path: Path) -> None:
    (tmp_path / "j").write_text('{"search": "random"}\n')
    with pytest.raises(InputError, match="line 1 of .* is damaged: delete the file to start over"):
        run_all(setup, {"random": RandomSearch()}, range(1), journal=tmp_path / "j")


def test_a_summary_is_mean_deviation_and_median(setup: BenchSetup) -> None:
    outcomes = run_all(setup, {"random": RandomSearch()}, range(5))
    (row,) = summarise(outcomes)
    values = [o.report["c10"] for o in outcomes]
    assert row.report["c10"] == (pytest.approx(np.mean(values)), pytest.approx(np.std(values, ddof=1)))
    assert row.found_at == np.median([o.found_at for o in outcomes])
    assert row.in_top_two == sum(o.rank <= 2 for o in outcomes if o.rank is not None)


def test_a_curve_steps_up_where_the_best_changes(setup: BenchSetup) -> None:
    outcome = run_one(setup, "random", RandomSearch(), 0)
    (row,) = mean_curve([outcome], "c10", np.arange(0, 16.0), by="queries")
    assert np.isnan(row[0])
    for point in outcome.curve:
        assert row[point.queries] == point.report["c10"]


def test_curves_cost_seconds_where_they_are_published(setup: BenchSetup) -> None:
    outcomes = run_all(setup, {"a": RandomSearch(), "b": RandomSearch()}, range(2))
    found = curves(outcomes)
    assert found.cost == "seconds of training, as published"
    assert found.grid[-1] == pytest.approx(max(o.curve[-1].seconds for o in outcomes))
    assert all(rows.shape == (2, len(found.grid)) for lines in found.panels.values() for rows in lines.values())
    assert curves([replace(o, published_seconds=0.0) for o in outcomes]).cost == "queries"


def test_the_command_writes_the_table_the_runs_and_the_picture(folder: Path, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "out"
    argv = ["bench", "nb201", "--search", "zero-cost", "random", "--metric", "trace", "--k", "3", "--queries", "5"]
    argv += ["--seeds", "2", "--data", str(folder), "--store", str(folder / "scores.db"), "--out", str(out)]
    assert main(argv) == 0
    printed = capsys.readouterr().out
    assert "zero-cost, trace, k = 3" in printed
    assert "published: random, 12,000 s (HNAS, Table 4)" in printed
    assert sorted(file.name for file in out.iterdir()) == ["curves.pdf", "curves.svg", "runs.csv", "table.md"]
    assert (out / "table.md").read_text().strip() in printed
    assert len((out / "runs.csv").read_text().splitlines()) == 1 + 3 * 2  # rea is a baseline


def test_every_setting_of_the_one_search_is_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = parse(BenchCommand, ["nb201", "--search", "rea", "--population", "4", "--sample=2"], "initio bench")
    assert command.searches() == {
        "rea, population = 4, sample = 2": RegularisedEvolution(population=4, sample=2),
        "random": RandomSearch(),
    }
    command = parse(BenchCommand, ["nb201", "--search", "knas", "--sample", "9", "--k", "3"], "initio bench")
    assert list(command.searches()) == ["knas, k = 3, sample = 9", "random", "rea", "random, k = 3, full"]
    assert command.searches()["rea"] == RegularisedEvolution()
    with pytest.raises(InputError, match="population"):
        BenchCommand("nb201", ("rea",), settings={"population": "many"}).searches()
    assert BenchCommand("nb301", ("drnas",), baselines=False).searches() == {"drnas": DrNas().resolved(DARTS)}
    assert main(["bench", "--search", "hnas", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "options of hnas:" in shown
    assert shown.count("--metric") == 1
    assert main(["bench", "nb201", "--search", "rea", "knas", "--population", "4"]) == 2
    assert "--population is not an option of initio bench" in capsys.readouterr().err


def test_a_row_says_what_it_ranked_by_and_the_published_one_stands_beside_the_same() -> None:
    ours = BenchCommand("nb201", ("eigen-nas",))
    assert list(ours.searches()) == ["eigen-nas, lambda_relative", "random", "rea", "random, k = 20, full"]
    assert not [row for row in ours.published(ours.searches()) if "eigen" in row.label]
    paper = BenchCommand("nb201", ("eigen-nas",), ("eigen",))
    assert "eigen-nas, eigen" in paper.searches()
    [row] = [row for row in paper.published(paper.searches()) if "eigen" in row.label]
    assert (row.label, row.budget) == ("eigen-nas, eigen, k = 20", "20 full trainings")
    five = BenchCommand("nb201", ("eigen-nas",), ("eigen",), k=5, baselines=False)
    assert [row.label for row in five.published(five.searches())] == ["eigen-nas, eigen, k = 5"]
    assert list(BenchCommand("nb201", ("hnas",), baselines=False).searches()) == ["hnas, trace"]


def test_unequal_cost_is_said(setup: BenchSetup) -> None:
    rows = summarise(run_all(setup, {"random": RandomSearch(), "rea": RegularisedEvolution()}, [0]))
    assert unequal([replace(row, published_seconds=100.0) for row in rows]) == []
    assert unequal([replace(row, published_seconds=0.0) for row in rows]) == []
    costs = (100.0, 120.0, 330.0, 20.0)
    names = ("a", "b", "bohb", "naswot")
    told = unequal([replace(rows[0], search=n, published_seconds=c) for n, c in zip(names, costs, strict=True)])
    assert told[-1].endswith("published seconds: bohb 3.0, naswot 0.2.")


def test_the_control_trains_as_many_as_long(setup: BenchSetup) -> None:
    problem = setup.problem(0, scored=False)
    steps = drive(RandomSearch(3, full=True), problem, seed=0).steps
    assert [step.epochs for step in steps] == [problem.epochs[-1]] * 3
    plain = drive(RandomSearch(), problem, seed=0).steps
    assert [step.architecture for step in plain[:3]] == [step.architecture for step in steps]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--search", "hnass"], "there is no search 'hnass': did you mean 'hnas'?"),
        (["--search", "nasi-fit"], "nasi-fit does not learn from trainings"),
        (["--search", "random", "--metric", "trace"], "--metric is not an option of random, rea"),
        (["--seeds", "0"], "--seeds must be at least 1, not 0"),
        (["--queries", "0"], "the number of queries must be at least 1, not 0"),
        (["--search", "zero-cost", "--metric", "tracce"], "the pool has no scores 'tracce'"),
        (["--store", "nothing.db"], "there is no store 'nothing.db'"),
    ],
)
def test_bad_input_is_one_sentence(more: list[str], sentence: str, folder: Path, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    argv = ["bench", "nb201", "--search", "random", "--data", str(folder), "--out", str(tmp_path / "out")]
    argv += [] if "--store" in more else ["--store", str(folder / "scores.db")]
    assert main([*argv, *more]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("initio: ")
    assert sentence in error


def test_the_journal_is_json(setup: BenchSetup, tmp_path: Path) -> None:
    run_all(setup, {"random": RandomSearch()}, range(2), journal=tmp_path / "j")
    assert [json.loads(line)["seed"] for line in (tmp_path / "j").read_text().splitlines()] == [0, 1]


def test_one_seed_has_no_deviation() -> None:
    assert _mean_std([93.0]) == (93.0, None)
    assert _mean_std([1.0, 3.0]) == (2.0, pytest.approx(2**0.5))
