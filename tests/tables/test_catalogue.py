"""Tables answer as published, and what may select cannot reach what may only report."""

import pickle
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from initio import InputError
from initio.records import Architecture, Observation, Query
from initio.spaces import DARTS, NB101, NB201, get_space
from initio.tables import TABLES, Table, Validation, open_table
from tests.tables.files import SHARED, needs_data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty cells; the validation of one is missing, test accuracies run the other way."""
    rng = Random(1)
    ops = np.array(sorted({NB201.sample(rng).choices for _ in range(20)}), dtype=np.int8)
    n = len(ops)
    value = np.arange(n, dtype=np.float32) + 50
    value[3] = np.nan
    np.savez(
        tmp_path / "nb201_tss.npz",
        ops=ops,
        val12_c10=value,
        val_c10_nats=value + 10,
        time200_c10=np.full(n, 1000, np.float32),
        test_c10_nb201=90 - np.arange(n, dtype=np.float32),
        test_c10_nats=91 - np.arange(n, dtype=np.float32),
    )
    return tmp_path


def arch(folder: Path, row: int) -> Architecture:
    with np.load(folder / "nb201_tss.npz") as arrays:
        return NB201.architecture(*arrays["ops"][row].tolist())


def test_queries_count_their_share_of_the_training(folder: Path) -> None:
    benchmark = open_table("nb201", folder)
    assert benchmark.validation.epochs == (12, 200)
    assert benchmark.validation(Query(arch(folder, 5))) == Observation(55.0, 60.0)
    assert benchmark.validation(Query(arch(folder, 5), 200)) == Observation(65.0, 1000.0)
    longer = open_table("nb201", folder, epochs=200)
    assert longer.validation(Query(arch(folder, 5))) == Observation(65.0, 1000.0)


def test_regret_and_rank_are_by_validation(folder: Path) -> None:
    report = open_table("nb201", folder).report
    n = len(np.load(folder / "nb201_tss.npz")["ops"])
    assert (report.regret(arch(folder, n - 1)), report.rank(arch(folder, n - 1))) == (0, 1)
    assert (report.regret(arch(folder, n - 3)), report.rank(arch(folder, n - 3))) == (2, 3)
    assert open_table("nb201", folder, epochs=200).report.rank(arch(folder, 0)) == n - 1  # one has none
    assert report(arch(folder, 2)) == {"c10": 88.0}
    assert open_table("nb201", folder, version="nats").report(arch(folder, 2)) == {"c10": 89.0}


def test_what_has_no_answer(folder: Path) -> None:
    validation = open_table("nb201", folder).validation
    assert arch(folder, 3) not in validation
    assert arch(folder, 4) in validation
    assert "cell" not in validation
    assert DARTS.sample(Random(0)) not in validation
    assert arch(folder, 3) not in (validation.architectures or ())
    listed = set(validation.architectures or ())
    absent = next(a for a in NB201.architectures() if a not in listed and a != arch(folder, 3))
    for query, text in [
        (Query(arch(folder, 3)), "the table has no validation accuracy of |"),
        (Query(absent), "the table has no validation accuracy of |"),
        (Query(arch(folder, 4), 90), "there are trainings of 12 and 200 epochs, not of 90"),
        (Query(DARTS.sample(Random(0))), "the architecture is of space 'darts', not of 'nb201'"),
    ]:
        with pytest.raises(InputError) as caught:
            validation(query)
        assert text in str(caught.value)
    with pytest.raises(InputError, match="the table has no row for"):
        open_table("nb201", folder).report(absent)


def test_what_cannot_be_opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INITIO_DATA", raising=False)
    for name, options, text in [
        ("nb202", {}, "there is no benchmark 'nb202': did you mean 'nb201'?"),
        ("nb201", {"dataset": "mnist"}, "the data sets of NAS-Bench-201 are c10, c100, in16, not 'mnist'"),
        ("nb201", {"version": "v2"}, "the versions of NAS-Bench-201 are nb201 and nats, not 'v2'"),
        ("nb201", {"epochs": 90}, "there are trainings of 12 and 200 epochs, not of 90"),
        ("nb201", {"dataset": "c100", "epochs": 12}, "has no validation accuracies and times of c100"),
        ("nb101", {"table": "nb201_tss.npz"}, "is not a table of this benchmark: it has no array 'n_vertices'"),
        ("nb101", {"dataset": "c100"}, "nb101 has one data set, c10, and one version"),
        ("nb101", {}, "there is no table 'nb101.npz'"),
        ("nb301", {}, "there is no table 'nb301_surrogate_yahpo_v1.npz'"),
    ]:
        with pytest.raises(InputError) as caught:
            open_table(name, folder, **options)  # type: ignore[arg-type]
        assert text in str(caught.value)
    report_only = open_table("nb201", folder, dataset="c100")
    assert report_only.architectures == ()
    assert arch(folder, 0) not in report_only.validation
    with pytest.raises(InputError, match="has no validation accuracies and times of c100"):
        report_only.validation(Query(arch(folder, 0)))


def reachable(value: Any, seen: set[int]) -> list[np.ndarray]:
    """All arrays that attributes, items and keys of an object lead to."""
    if id(value) in seen or isinstance(value, type | str | int | float | Architecture):
        return []
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        return [value]
    inside: list[Any] = list(getattr(value, "__dict__", {}).values())
    if isinstance(value, dict):
        inside += [*value, *value.values()]
    elif isinstance(value, list | tuple | set):
        inside += list(value)
    return [array for item in inside for array in reachable(item, seen)]


def leads_to(validation: Validation, *columns: np.ndarray) -> list[bool]:
    arrays = reachable(validation, set())
    return [any(np.array_equal(a, column, equal_nan=a.dtype.kind == "f") for a in arrays) for column in columns]


def test_a_search_cannot_see_test_accuracy(folder: Path) -> None:
    benchmark = open_table("nb201", folder)
    assert benchmark.architectures
    with np.load(folder / "nb201_tss.npz") as arrays:
        columns = [arrays[name] for name in ("val12_c10", "test_c10_nb201", "test_c10_nats")]
    assert leads_to(benchmark.validation, *columns) == [True, False, False]
    assert not hasattr(benchmark.validation, "report")


def test_workers_get_a_copy(folder: Path) -> None:
    validation = open_table("nb201", folder).validation
    copied = pickle.loads(pickle.dumps(validation))
    assert copied(Query(arch(folder, 5))) == validation(Query(arch(folder, 5)))


# --- the real tables ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nb101() -> Table:
    return open_table("nb101", SHARED)


@needs_data
def test_the_two_best_of_nb201() -> None:
    benchmark = open_table("nb201", SHARED)
    everyone = benchmark.architectures or ()
    assert len(everyone) == 15_625
    assert [benchmark.report.index(everyone[k]) for k in (0, 9930, 15_624)] == [0, 9930, 15_624]
    published = {13714: (94.37, 73.09, 46.33), 9930: (94.36, 73.51, 46.34)}
    for rank, (index, tests) in enumerate(published.items(), start=1):
        assert benchmark.report.rank(everyone[index]) == rank
        found = benchmark.report(everyone[index])
        assert (found["c10"], found["c100"], found["in16"]) == pytest.approx(tests, abs=0.006)


@needs_data
@pytest.mark.parametrize("dataset", ["c10", "c100", "in16"])
def test_nb201_selects_by_the_column_it_was_asked_for(dataset: str) -> None:
    benchmark = open_table("nb201", SHARED, dataset=dataset)
    with np.load(SHARED / "nb201_tss.npz") as arrays:
        short, long, time = (arrays[n] for n in (f"val12_{dataset}", f"val_{dataset}_nats", f"time200_{dataset}"))
        tests = [arrays[name] for name in arrays.files if name.startswith(("test", "oneseed"))]
    for k in range(0, 15_625, 1111):
        written = (benchmark.architectures or ())[k]
        assert benchmark.validation(Query(written)) == Observation(float(short[k]), float(time[k]) * 12 / 200)
        assert benchmark.validation(Query(written, 200)) == Observation(float(long[k]), float(time[k]))
    assert len(tests) == 13
    assert leads_to(benchmark.validation, short, long, *tests) == [True, True, *[False] * 13]


@needs_data
def test_nb101_by_any_isomorphic_cell(nb101: Table) -> None:
    everyone = nb101.architectures or ()
    assert (len(everyone), nb101.validation.epochs) == (30_001, (4, 12, 36, 108))
    with np.load(SHARED / "nb101_multifidelity_30k.npz") as arrays:
        rows, short, time = (arrays[name] for name in ("row", "val_acc_4", "train_time_108_s"))
    for k in range(0, 30_001, 150):
        found = nb101.validation(Query(NB101.canonical(everyone[k]), 4))
        assert found == Observation(float(short[k]), float(time[k]) * 4 / 108)
        assert nb101.report.index(everyone[k]) == rows[k]


@needs_data
def test_nb101_reports_more_than_it_validates(nb101: Table) -> None:
    rng = Random(0)
    archs = [NB101.sample(rng) for _ in range(30)]
    assert all(0 < nb101.report(arch)["c10"] < 95 for arch in archs)
    outside = [arch for arch in archs if arch not in nb101.validation]
    assert outside
    with pytest.raises(InputError, match="the table has no validation accuracy of ModelSpec"):
        nb101.validation(Query(outside[0]))


@needs_data
@pytest.mark.parametrize(("name", "listed", "cells"), [("nb1shot1-s1", 1592, 195), ("nb1shot1-s2", 2289, 572)])
def test_nb1shot1_through_nb101(name: str, listed: int, cells: int, nb101: Table) -> None:
    benchmark, space = open_table(name, SHARED), get_space(name)
    everyone = benchmark.architectures or ()
    assert len(everyone) == listed
    for arch in everyone[::200]:
        assert space.contains(arch)
        cell = space.canonical(arch)
        assert cell.space == "nb101"
        assert benchmark.validation(Query(arch)) == nb101.validation(Query(cell))
        assert benchmark.report(arch) == nb101.report(cell)
    assert max(benchmark.report.rank(arch) or 0 for arch in everyone[::20]) <= cells
    rng = Random(0)
    drawn = [space.sample(rng) for _ in range(60)]
    assert {arch for arch in drawn if arch in benchmark.validation} == set(drawn) & set(everyone)


@needs_data
def test_every_benchmark_opens() -> None:
    for name in TABLES:
        benchmark = open_table(name, SHARED)
        assert benchmark.space.name == ("darts" if name == "nb301" else name)
        assert benchmark.validation.default_epochs in benchmark.validation.epochs
        assert list(benchmark.validation.epochs) == sorted(benchmark.validation.epochs)
