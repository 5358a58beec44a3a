"""Pools: each network once, the same values whoever scores them, nothing lost and nothing scored twice."""

import csv
import json
import math
import pickle
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

import initio
from initio import Architecture, InputError, NetworkSettings, get_space, noise
from initio.autodiff import fused
from initio.autodiff.threads import one_thread
from initio.metrics import Metric, Options, evaluate
from initio.scores.files import COLUMNS, check_export, export
from initio.scores.pool import (
    ScoringJob,
    ScoringProgress,
    everything,
    missing,
    pool_table,
    read_architectures,
    run_task,
    sample,
    score_pool,
    share_of,
)
from initio.scores.read import read_table
from initio.scores.store import Store, differences
from initio.scores.table import Origin, ScoreTable
from initio.spaces import SPACES

NB201 = get_space("nb201")
BATCH = noise((3, 8, 8), batch_size=4)
SMALL = NetworkSettings(channels=2, cells=1, shape=BATCH.shape)
METRICS = ("grad", "trace", "kappa", "naswot")


def job(metrics: tuple[str | Metric, ...] = METRICS, **changes: object) -> ScoringJob:
    return replace(ScoringJob(NB201, BATCH, metrics, SMALL, Options()), **changes)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "scores.db") as opened:
        yield opened


def test_shares_are_the_pool_and_have_no_network_in_common() -> None:
    pool = sample(NB201, 200, seed=3)
    shares = [share_of(pool, NB201, number, 7) for number in range(1, 8)]
    assert sorted(arch for share in shares for arch in share) == sorted(pool)
    networks = [{NB201.canonical(arch) for arch in share} for share in shares]
    assert len(set().union(*networks)) == sum(map(len, networks))
    with pytest.raises(InputError, match="the share must be from 1 to 7, not 0"):
        share_of(pool, NB201, 0, 7)


def test_values_are_those_of_the_metrics_on_the_canonical_network(store: Store) -> None:
    pool = sample(NB201, 4, seed=1)
    score_pool(job(repeats=2, seed=3), pool, store)
    table = pool_table(job(repeats=2, seed=3), pool, store)
    assert table.architectures == tuple(pool)
    for row, arch in enumerate(pool):
        for draw, seed in enumerate((3, 4)):
            values = evaluate(NB201.build(NB201.canonical(arch), SMALL, seed=seed), BATCH, METRICS)
            for name, value in values.items():
                assert value.value in (table.each(name)[draw, row], None)
                assert value.flag == table.flags[name].get((draw, row), "")
    assert {e.seed for e in store.evaluations()} == {3, 4}


def test_each_network_is_scored_once_and_costs_are_of_the_architecture_as_written(store: Store) -> None:
    """A dead operation changes the parameters that are counted, not the network that is scored."""
    alive = NB201.parse("|nor_conv_3x3~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|")
    dead = NB201.parse("|nor_conv_3x3~0|+|nor_conv_3x3~0|none~1|+|none~0|skip_connect~1|none~2|")
    assert NB201.canonical(alive) == NB201.canonical(dead)
    counting, scoring = score_pool(job(("grad", "params", "flops", "layers")), [alive, dead, alive], store)
    assert (counting.phase, counting.done, scoring.phase, scoring.done) == ("counting", 2, "scoring", 1)
    table = pool_table(job(("grad", "params")), [alive, dead, alive], store)
    assert table.architectures == (alive, dead)
    assert table["grad"][0] == table["grad"][1] > 0
    built = [NB201.build(arch, replace(SMALL, prune=False)) for arch in (alive, dead)]
    assert table["params"].tolist() == [sum(p.numel() for p in model.parameters()) for model in built]
    assert table["params"][0] < table["params"][1]
    assert table.origin("params").draws == ((0, ""),)


def test_one_scorer(store: Store) -> None:
    """`initio.score` of an architecture is what `initio score` stores, to the bit."""
    dead = NB201.parse("|nor_conv_3x3~0|+|nor_conv_3x3~0|none~1|+|none~0|skip_connect~1|nor_conv_1x1~2|")
    pool = [dead, *sample(NB201, 2, seed=5)]
    this = job((*METRICS, "nngp", "naswot", "params"), repeats=2, seed=1)
    score_pool(this, pool, store)
    table = pool_table(this, pool, store)
    for row, arch in enumerate(pool):
        with one_thread():
            scores = initio.score(arch, BATCH, this.metrics, repeats=2, seed=1, channels=2, cells=1)
        for name in this.metrics:
            numbers = [math.nan if v.value is None else v.value for v in scores[name].values]
            np.testing.assert_array_equal(numbers[: len(table.each(name))], table.each(name)[:, row])


def test_a_counted_cost_is_what_the_metric_says(store: Store) -> None:
    arch = sample(NB201, 1, seed=0)[0]
    names = ("params", "flops", "layers")
    score_pool(job(names), [arch], store)
    values = evaluate(NB201.build(arch, replace(SMALL, prune=False)), BATCH, names)
    assert {e.metric: e.value for e in store.evaluations()} == {name: values[name].value for name in names}


def test_the_same_run_again_finds_everything(store: Store) -> None:
    pool = sample(NB201, 5, seed=0)
    first = score_pool(job(), pool, store)[0]
    again = score_pool(job(), reversed(pool), store)[0]
    assert (first.done, first.known, again.done, again.known) == (first.total, 0, 0, first.total)


def test_only_what_is_missing_is_scored(store: Store) -> None:
    pool = sample(NB201, 3, seed=0)
    score_pool(job(("grad",)), pool, store)
    tasks, known = missing(job(("grad", "trace"), repeats=2), pool, store)
    assert known == [0]
    assert all(task.metrics == ("grad", "trace") and task.seeds == (0, 1) for task in tasks)
    tasks, _ = missing(job(("grad", "trace")), pool, store)
    assert all(task.metrics == ("trace",) for task in tasks)
    score_pool(job(("grad", "trace"), repeats=2), pool, store)
    assert missing(job(("grad", "trace"), repeats=2), pool, store)[0] == []
    assert missing(job(("trace",), seed=1), pool, store)[0] == []  # repeat 1 of seed 0


@pytest.mark.parametrize(
    "change",
    [
        {"network": replace(SMALL, channels=3)},
        {"network": replace(SMALL, init="he")},
        {"options": Options(reduction="sum")},
        {"options": Options(dtype="float64")},
        {"batch": noise((3, 8, 8), batch_size=4, seed=1)},
        {"seed": 7},
    ],
)
def test_other_settings_never_share_a_score(change: dict[str, object], store: Store) -> None:
    pool = sample(NB201, 2, seed=0)
    score_pool(job(), pool, store)
    before = list(store.evaluations())
    done = score_pool(job(**change), pool, store)[0]
    assert (done.known, done.done) == (0, done.total)
    assert {*before} < {*store.evaluations()}


def test_whoever_rounds_differently_never_shares_a_score(store: Store) -> None:
    """Compiled kernels change bits of float32 and of nothing else; costs are counted."""
    pool, this = sample(NB201, 2, seed=0), job(("grad", "params"))
    both = [part.settings for part in this.parts]
    assert dict(both[0]).items() >= {"threads": 1, "arithmetic": fused.arithmetic()}.items()
    assert not {"threads", "arithmetic"} & set(dict(both[1]))
    score_pool(this, pool, store)
    with fused.switched_off():
        ended = score_pool(this, pool, store)
        assert [progress.done for progress in ended] == [0, 2]
        exact = job(options=Options(dtype="float64"))
        plain = [part.settings for part in exact.parts]
    assert plain == [part.settings for part in exact.parts]
    table = read_table(store, NB201, where={"arithmetic": "torch"})
    assert dict(table.origin("grad").settings)["arithmetic"] == "torch"
    mine = pool_table(this, pool, store)  # a run that is resumed elsewhere finds its own
    assert dict(mine.origin("grad").settings)["arithmetic"] == fused.arithmetic()
    assert not np.isnan(mine["grad"]).any()


def test_settings_that_only_say_how_do_share(store: Store) -> None:
    pool = sample(NB201, 2, seed=0)
    score_pool(job(), pool, store)
    assert missing(job(options=Options(memory=10**9)), pool, store)[0] == []
    published = NetworkSettings(channels=16, cells=5, shape=BATCH.shape)
    keys = [
        [part.settings for part in job(network=network).parts]
        for network in (published, NetworkSettings(shape=BATCH.shape))
    ]
    assert keys[0] == keys[1]


def test_workers_and_order_do_not_change_a_bit(tmp_path: Path) -> None:
    pool = sample(NB201, 4, seed=0)
    this = job(("all",), repeats=2)
    seen: list[ScoringProgress] = []
    with Store(tmp_path / "one.db") as one, Store(tmp_path / "two.db") as two:
        score_pool(this, pool, one)
        ended = score_pool(this, reversed(pool), two, workers=2, on_progress=seen.append)
        assert len(one) > 100
        assert list(differences(one, two)) == []
    assert [p.done for p in seen if p.phase == "scoring"] == list(range(ended[-1].total + 1))
    assert ended[-1].rate > 0


def test_a_metric_of_ones_own_reaches_the_workers(store: Store) -> None:
    """Nobody else knows it: it travels with the job."""
    largest = Metric("largest", "max x", "here", True, frozenset(), lambda at: float(at.x.max()))
    ended = score_pool(job((largest, "trace")), sample(NB201, 3, seed=0), store, workers=2)
    assert ended[0].done == 3
    table = pool_table(job((largest, "trace")), sample(NB201, 3, seed=0), store)
    assert table["largest"].tolist() == [float(BATCH.x.max())] * 3


def test_global_state_is_left_alone(store: Store) -> None:
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    score_pool(job(), sample(NB201, 2, seed=0), store)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), state)


def build(width: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(192, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)
    )


def test_a_space_of_your_own(store: Store) -> None:
    own, size = initio.space("tiny", build, width=[2, 3, 4]), NetworkSettings(shape=BATCH.shape)
    pool = list(everything(own))
    ended = score_pool(job(("grad", "params"), space=own, network=size), pool, store)
    assert [progress.done for progress in ended] == [3, 3]
    params = pool_table(job(("params",), space=own, network=size), pool, store)["params"].tolist()
    assert params == [sum(p.numel() for p in build(width).parameters()) for width in (2, 3, 4)]


@pytest.mark.parametrize("name", [name for name in SPACES if name != "mlp"])
def test_every_space(name: str, store: Store) -> None:
    """The representative of an nb1shot1 cell is an nb101 cell, built as one."""
    space = get_space(name)
    arch = space.sample(Random(0))
    network = NetworkSettings(channels=4, cells=2 if name == "darts" else 1, shape=BATCH.shape)
    this = job(("grad", "params"), space=space, network=network)
    score_pool(this, [arch], store)
    found = {e.metric: e for e in store.evaluations()}
    assert found["params"].architecture == arch
    assert found["grad"].architecture == space.canonical(arch)
    assert pool_table(this, [arch], store)["grad"][0] == found["grad"].value
    assert found["grad"].value is not None
    assert found["grad"].value > 0


# --- which architectures ----------------------------------------------------------------


def test_samples() -> None:
    pool = sample(NB201, 300, seed=0)
    assert len(set(pool)) == 300
    assert sample(NB201, 100, seed=0) == pool[:100]
    rng = Random(0)
    assert pool[0] == NB201.sample(rng)
    assert len(set(sample(NB201, 15_000, seed=0))) == 15_000
    assert sorted(sample(NB201, 15_625, seed=0)) == list(everything(NB201))


@pytest.mark.parametrize(
    ("count", "text"), [(0, "at least 1"), (20_000, "has 15625 architectures"), (10**9, "at most 10,000,000")]
)
def test_impossible_samples(count: int, text: str) -> None:
    with pytest.raises(InputError, match=text):
        sample(NB201, count, seed=0)


def test_a_space_too_large_to_score_whole() -> None:
    with pytest.raises(InputError, match="darts has 1.1e\\+18 architectures, too many to score all"):
        everything(get_space("darts"))


def test_architectures_from_a_file(tmp_path: Path) -> None:
    pool = sample(NB201, 3, seed=0)
    path = tmp_path / "pool.txt"
    lines = ["# mine", NB201.format(pool[0]), "", initio.to_json(pool[1]), NB201.format(pool[0]), NB201.format(pool[2])]
    path.write_text("\n".join(lines))
    assert read_architectures(path, NB201) == pool
    path.write_text(path.read_text(), encoding="utf-8-sig")  # as Windows editors begin a text
    assert read_architectures(path, NB201) == pool
    for line, text in [
        ("|nor_conv~0|", "line 2 of .*pool.txt': an nb201 cell has 3 nodes"),
        ("darts_v2", "line 2 of .*: the architecture is of space 'darts', not of 'nb201'"),
        ("nasnet", "line 2 of .*: the architecture is of space 'zoo', not of 'nb201'"),
    ]:
        path.write_text(f"{NB201.format(pool[0])}\n{line}\n")
        with pytest.raises(InputError, match=text):
            read_architectures(path, NB201)
    path.write_text("\n# nothing\n")
    with pytest.raises(InputError, match="holds no architecture"):
        read_architectures(path, NB201)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not a text file"):
        read_architectures(path, NB201)
    with pytest.raises(InputError, match="cannot be read"):
        read_architectures(tmp_path / "absent", NB201)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"repeats": 0}, "repeats must be at least 1"),
        ({"seed": -1}, "the seed must be"),
        ({"network": NetworkSettings()}, "the network is for 10 classes of inputs \\(3, 32, 32\\), the batch"),
    ],
)
def test_wrong_jobs(change: dict[str, object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        job(**change)


def test_wrong_workers(store: Store) -> None:
    with pytest.raises(InputError, match="workers must be at least 1"):
        score_pool(job(), [], store, workers=0)


def test_a_task_is_plain_data(store: Store) -> None:
    """The boundary that joblib carries: everything pickles, and the answer is the same on the other side."""
    tasks, _ = missing(job(), sample(NB201, 1, seed=0), store)
    sent = pickle.loads(pickle.dumps((job(), tasks[0])))
    assert run_task(*sent) == run_task(job(), tasks[0])
    assert len(pickle.dumps(tasks[0])) < 1000


# --- export -----------------------------------------------------------------------------


def test_csv_reads_back_to_the_same_bits(tmp_path: Path, store: Store) -> None:
    pool = [*sample(NB201, 3, seed=0), Architecture("nb201", (0,) * 6)]
    this = job((*METRICS, "params"))
    score_pool(this, pool, store)
    table = pool_table(this, pool, store)
    folder = tmp_path / "exported"
    folder.mkdir()
    export(folder / "scores.csv", NB201, table)
    assert [path.name for path in folder.iterdir()] == ["scores.csv"]
    with (folder / "scores.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert tuple(lines[0]) == COLUMNS
    expected = [(row, arch, name) for row, arch in enumerate(pool) for name in table.metrics]
    for line, (row, arch, name) in zip(lines, expected, strict=True):
        made = table.origin(name)
        assert NB201.parse(line["architecture"]) == arch
        assert NB201.parse(line["canonical"]) == (arch if made.counted else NB201.canonical(arch))
        np.testing.assert_equal(float(line["value"] or "nan"), table[name][row])
        assert (line["metric"], int(line["seed"]), line["data"]) == (name, *made.draws[0])
        assert line["flag"] == table.flags[name].get((0, row), "")
        assert json.loads(line["settings"]) == dict(made.settings)
    assert any(line["flag"] for line in lines)  # of the cell without a path


def test_infinities_survive_csv(tmp_path: Path) -> None:
    origin = {"kappa": Origin(draws=((0, "d00d"),))}
    table = ScoreTable.of(sample(NB201, 1, seed=0), {"kappa": [math.inf]}, {"kappa": {(0, 0): "singular"}}, origin)
    export(tmp_path / "k.csv", NB201, table)
    with (tmp_path / "k.csv").open(newline="") as file:
        assert float(next(csv.DictReader(file))["value"]) == math.inf


def test_wrong_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, text in [
        (tmp_path / "scores.xlsx", "to a .csv or a .parquet file"),
        (tmp_path / "absent" / "scores.csv", "the folder of .* does not exist"),
    ]:
        with pytest.raises(InputError, match=text):
            check_export(path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match="needs pyarrow: pip install 'initio\\[parquet\\]'"):
        check_export(tmp_path / "scores.parquet")


def test_parquet(tmp_path: Path, store: Store) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the optional extra `parquet` is not installed")
    pool = sample(NB201, 2, seed=0)
    score_pool(job(), pool, store)
    table = pool_table(job(), pool, store)
    export(tmp_path / "scores.parquet", NB201, table)
    lines = parquet.read_table(tmp_path / "scores.parquet").to_pylist()
    assert [line["value"] for line in lines] == [table[name][row] for row in range(2) for name in table.metrics]
