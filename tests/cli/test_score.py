"""`initio score`, `metrics`, `correlate` and `store` as a user meets them."""

import csv
import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from initio.cli import main
from initio.cli.score import ScoreCommand
from initio.metrics import METRICS, Options
from initio.scores.pool import sample
from initio.scores.store import Store
from initio.spaces import DARTS, NB201, NetworkSettings
from initio.tables import open_compact, open_table
from tests.tables.files import small_surrogate

SMALL = ("--cells", "1", "--channels", "2", "--data", "noise:3x8x8", "--batch-size", "4")
FEW = ("--metrics", "grad,trace,kappa,params", *SMALL)


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def fail(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err.removeprefix("initio: ").rstrip("\n")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("initio.cli.progress.EVERY", 1e9)  # silent on a busy machine too
    return tmp_path


def test_shares_of_a_pool_are_scored_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool = ("score", "nb201", "--sample", "9", "--metrics", "params")
    for number in (1, 2):
        run(capsys, *pool, "--share", f"{number}/2")
    assert "0 costs counted, 9 were in the store already" in run(capsys, *pool)
    assert fail(capsys, *pool, "--share", "2").startswith("a share is one of several, as in --share 17/100, not '2'")
    assert "there are fewer networks than shares" in fail(capsys, *pool, "--share", "100/100")


def test_score_and_score_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("score", "nb201", "--sample", "6", *FEW, "--export", "scores.csv")
    out = run(capsys, *command)
    assert "6 costs counted in" in out
    assert "networks scored in" in out
    assert "0 were in the store already" in out
    with (folder / "scores.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["metric"] for line in lines] == ["grad", "trace", "kappa", "params"] * 6
    assert [line["architecture"] for line in lines[::4]] == [NB201.format(a) for a in sample(NB201, 6, seed=0)]
    first = (folder / "scores.csv").read_text()
    again = run(capsys, *command)
    assert "0 costs counted, 6 were in the store already" in again
    assert (folder / "scores.csv").read_text() == first
    with Store(folder / "scores.db") as store:
        assert {group.source for group in store.groups()} == {"noise", ""}


def test_architectures_of_a_file_and_their_repeats(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [NB201.format(arch) for arch in sample(NB201, 2, seed=3)]
    (folder / "pool.txt").write_text("\n".join(lines))
    argv = ("--archs", "pool.txt", "--metrics", "trace", *SMALL, "--repeats", "3", "--seed", "5")
    run(capsys, "score", "nb201", *argv, "--store", "s.db", "--memory", "1GB")
    with Store("s.db") as store:
        assert sorted(e.seed for e in store.evaluations()) == [5, 5, 6, 6, 7, 7]


def test_the_sample_can_stay_while_the_seed_changes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in ("0", "1"):
        run(
            capsys, "score", "nb201", "--sample", "3", "--sample-seed", "9", "--seed", seed, "--metrics", "grad", *SMALL
        )
    with Store("scores.db") as store:
        groups = store.groups()
        assert len({group.data for group in groups}) == 2  # another batch
        assert len({e.architecture for e in store.evaluations()}) == groups[0].architectures


def test_mistakes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    which = "say which architectures to score: one of --all, --sample N and --archs FILE"
    (folder / "text.db").write_text("no store " * 100)
    (folder / "folder.csv").mkdir()
    for argv, text in [
        ((), which),
        (("--all", "--sample", "3"), which),
        (("--sample", "3", "--metrics", "kapa"), "there is no metric 'kapa': did you mean 'kappa'?"),
        (("--sample", "3", "--memory", "much"), "--memory: expected a number of bytes as in 600MB or 2GB, got 'much'"),
        (("--sample", "3", "--workers", "0"), "workers must be at least 1, not 0"),
        (("--sample", "3", "--repeats", "0"), "repeats must be at least 1, not 0"),
        (("--sample", "3", "--data", "digtis"), "did you mean 'digits'?"),
        (("--sample", "3", "--export", "s.txt"), "scores are exported to a .csv or a .parquet file, not to 's.txt'"),
        (("--sample", "3", "--export", "folder.csv"), "'folder.csv' cannot be written: it is a folder"),
        (("--sample", "3", "--store", "no/s.db"), "the folder of the store 'no/s.db' does not exist"),
        (("--sample", "3", "--store", "text.db"), "'text.db' is not a store of Initio: it is another kind of file"),
        (("--sample", "3", "--batch-size", "0"), "batch size must be a whole number of at least 1"),
        (("--archs", "absent"), "'absent' cannot be read: No such file or directory"),
    ]:
        assert text in fail(capsys, "score", "nb201", *argv)
    assert "too many to score all" in fail(capsys, "score", "darts", "--all")
    assert not (folder / "scores.db").exists() or len(Store("scores.db")) == 0


def test_defaults_are_those_of_the_library() -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(ScoreCommand)}
    for settings in (Options(), NetworkSettings()):
        for field in dataclasses.fields(settings):
            if field.name in defaults:
                assert defaults[field.name] == getattr(settings, field.name)


# --- metrics ----------------------------------------------------------------------------


def test_metrics_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "metrics")
    for name, metric in METRICS.items():
        assert any(line.split()[0] == name and metric.source in line for line in out.splitlines() if line)
    rows = json.loads(run(capsys, "metrics", "--json"))
    assert [row["name"] for row in rows] == list(METRICS)
    assert all(row["formula"] and row["about"] and row["source"] and row["needs"] for row in rows)


def test_metrics_explains_one(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "metrics", "kappa")
    assert METRICS["kappa"].about in out
    assert "smaller" in out
    assert "measured, so it is left out" in run(capsys, "metrics", "latency")
    assert "did you mean 'kappa'?" in fail(capsys, "metrics", "kapa")


# --- correlate --------------------------------------------------------------------------


@pytest.fixture
def scored(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A store, and a table of the same architectures with the parameters as accuracy."""
    run(capsys, "score", "nb201", "--sample", "12", *FEW, "--export", "s.csv")
    pool = sample(NB201, 12, seed=0)
    with (folder / "s.csv").open(newline="") as file:
        params = [float(line["value"]) for line in csv.DictReader(file) if line["metric"] == "params"]
    ops = np.array([arch.choices for arch in pool], dtype=np.int8)
    np.savez(folder / "table.npz", ops=ops, acc=np.array(params), val=-np.array(params))
    return folder


def test_correlate(scored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "correlate", "--store", "scores.db", "--target", "table.npz:acc", "--top", "3")
    assert "acc of table.npz: 12 architectures" in out
    assert "top-3 regret" in out
    row = next(line.split() for line in out.splitlines() if line.startswith("params"))
    assert row[1:] == ["1.000", "-", "1.000", "0.00", "1.000", "12", "0"]
    assert "fitted to acc" in out
    assert "Spearman between metrics" in out
    facts = json.loads(run(capsys, "correlate", "table.npz:acc", "--fit", "val", "--json"))
    assert facts["architectures"] == 12
    assert {row["metric"] for row in facts["metrics"]} == {"grad", "trace", "kappa", "params"}
    assert facts["between"]["params,params"] == 1.0
    assert len(facts["bounds"]) == 8
    few = json.loads(run(capsys, "correlate", "table.npz:acc", "--sample", "5", "--metrics", "trace", "--json"))
    assert few["metrics"][0]["used"] == few["architectures"] == 5


def test_correlate_with_the_surrogate_and_a_picture(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its column is what the surrogate predicts for every scored cell as it was written."""
    run(capsys, "score", "darts", "--sample", "4", "--metrics", "params,flops,naswot", *SMALL)
    small_surrogate(folder / "nb301_surrogate_yahpo_v1.npz")
    facts = json.loads(run(capsys, "correlate", "nb301:surrogate", "--data", ".", "--out", "s.svg", "--json"))
    assert {row["metric"]: (row["used"], row["undefined"]) for row in facts["metrics"]} == {
        "params": (4, 0),
        "flops": (4, 0),
        "naswot": (4, 0),
    }
    cells = sample(DARTS, 4, seed=0)
    predicted = open_compact("nb301", folder, among=cells).column("surrogate")
    table = open_table("nb301", folder)
    assert predicted.tolist() == [table.report(arch)["surrogate"] for arch in cells]
    assert (folder / "s.svg").read_text().count("<!-- naswot: ρ ") == 1
    assert "ends in .svg or .pdf or .png, not 's.txt'" in fail(
        capsys, "correlate", "nb301:surrogate", "--data", ".", "--out", "s.txt"
    )


def test_correlate_mistakes(scored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "score", "nb201", "--sample", "2", "--metrics", "trace", *SMALL, "--init", "he")
    for argv, text in [
        (("table.npz",), "the target must be TABLE:COLUMN"),
        ((), "the target must be TABLE:COLUMN"),
        (("table.npz:acc", "--store", "absent.db"), "there is no store 'absent.db'"),
        (("table.npz:bcc",), "has no column 'bcc': choose one of acc, val"),
        (("table.npz:acc",), "several scores of trace, with init = he, lecun: choose with --where init=lecun"),
        (("table.npz:acc", "--where", "init"), "--where must look like"),
        (("table.npz:acc", "--where", "init=he", "--top", "0"), "top-k needs k of at least 1"),
    ]:
        assert text in fail(capsys, "correlate", *argv)
    assert "init=he" in run(capsys, "correlate", "table.npz:acc", "--where", "init=he")


# --- store ------------------------------------------------------------------------------


def test_store_info_and_diff(scored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "store", "info", "scores.db")
    assert "nb201, data noise" in out
    assert "kappa" in out
    run(capsys, "score", "nb201", "--sample", "12", *FEW, "--store", "other.db")
    assert "the stores are equal: " in run(capsys, "store", "diff", "scores.db", "other.db")
    with Store("other.db") as store:
        store._db.execute("UPDATE scores SET value = value + 1 WHERE metric = 'params'")
        store._db.execute("DELETE FROM scores WHERE metric = 'grad'")
    with pytest.raises(SystemExit) as stop:
        main(["store", "diff", "scores.db", "other.db"])
    assert stop.value.code == 1
    out = capsys.readouterr().out
    assert out.startswith("scores in scores.db | in other.db\n")
    assert "absent" in out
    assert "channels=" in out
    assert "more\n" in out
    assert out.endswith(" scores differ\n")


def test_names_from_a_store_reach_the_terminal_without_control_characters(
    scored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store("scores.db") as store:
        store._db.execute("UPDATE data SET source = ?", ("\x1b[31mnoise",))
        store._db.execute("UPDATE scores SET metric = ? WHERE metric = 'grad'", ("gr\x07ad",))
    assert "\x1b" not in run(capsys, "correlate", "table.npz:acc", "--metrics", "trace")
    out = run(capsys, "store", "info", "scores.db")
    assert "?[31mnoise" in out
    assert "gr?ad" in out


def test_store_pack(scored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "packed" in run(capsys, "store", "pack", "scores.db", "nb201.db.xz")
    assert "the stores are equal" in run(capsys, "store", "diff", "scores.db", "nb201.db.xz")
    assert run(capsys, "correlate", "table.npz:acc", "--store", "nb201.db.xz")
    assert "there is no store 'absent'" in fail(capsys, "store", "info", "absent")


def test_nothing_is_added_to_scores_that_come_with_initio(scored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "'nb201' names scores that come with Initio" in fail(capsys, "store", "copy", "scores.db", "nb201")
    assert not Path("nb201").exists()


def test_the_summary_says_why_values_do_not_exist(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one_class = ("--data", "noise:3x8x8:1", "--metrics", "grad,params", "--channels", "2", "--cells", "1")
    out = run(capsys, "score", "nb201", "--sample", "3", *one_class, "--batch-size", "4")
    assert re.search(r"^grad +0 +\d +none +\S.*$", out, flags=re.MULTILINE)
