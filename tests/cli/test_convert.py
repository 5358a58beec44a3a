"""`initio convert` as a user meets it."""

import json
from pathlib import Path

import pytest

from initio.cli import COMMANDS, main
from initio.tables import open_table
from tests.tables.files import cells101, nats_folder, tfrecord


@pytest.fixture(autouse=True)
def command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "convert", COMMANDS.get("convert", "write a benchmark's own file as a compact table"))


def test_a_file_becomes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tfrecord(tmp_path / "nasbench.tfrecord", cells101(3)), tmp_path / "own.npz"
    assert main(["convert", str(source), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("NAS-Bench-101: 3 rows, columns n_vertices, adj_bits, ops, hash64, params, test_acc_108")
    assert printed.endswith(f"wrote {out}\n")
    assert len(open_table(str(out)).architectures or ()) == 3
    assert main(["convert", str(source), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 3


def test_the_name_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nats_folder(tmp_path / "NATS-tss-v1_0-3ffb9-simple")
    assert main(["convert", "NATS-tss-v1_0-3ffb9-simple"]) == 0
    assert open_table("NATS-tss-v1_0-3ffb9-simple.npz").space.name == "nb201"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["nowhere"], "there is no file or folder 'nowhere' to convert"),
        (["a.txt"], "'a.txt' is none of the files that can be converted"),
        (["a.tfrecord"], "record 0 of a.tfrecord is damaged: its checksum is wrong"),
        (["b.tfrecord", "--out", "nowhere/a.npz"], "the folder 'nowhere' does not exist"),
        (["b.tfrecord", "--out", "a.csv"], "a table's file is called TABLE.npz, not 'a.csv'"),
    ],
)
def test_mistakes_get_one_sentence(
    argv: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("hello")
    whole = tfrecord(Path("b.tfrecord"), cells101(2)).read_bytes()
    Path("a.tfrecord").write_bytes(whole[:20] + b"?" + whole[21:])
    assert main(["convert", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert sentence in captured.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tfrecord", "a.txt", "b.tfrecord"]
