"""The command line as a user meets it: what it prints, how it ends, what it leaves behind."""

import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import pytest

from initio import Architecture, InputError, SearchResult, from_json, to_json
from initio.cli import COMMANDS, all_commands, main
from initio.cli.options import options_of, parser
from initio.spaces import NB201, SPACES

CELL = "|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|nor_conv_1x1~1|avg_pool_3x3~2|"


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def fail(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one sentence that a mistake gets; nothing on stdout."""
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("initio: ")
    return captured.err


def test_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "--help")
    assert all(name in out and summary in out for name, summary in COMMANDS.items())
    assert run(capsys) == out


@pytest.mark.parametrize(("prog", "command"), list(all_commands()))
def test_every_command_explains_every_option(prog: str, command: type[Any], capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, *prog.split()[1:], "--help")
    assert "--config" in out
    explained = {action.dest for action in parser(command)._actions if action.help not in ("", argparse.SUPPRESS)}
    for field in dataclasses.fields(command):
        if field.name == "settings":  # the options of a part, such as a method
            continue
        assert field.name in explained, f"{prog} --{field.name} has no help"
    assert command.run.__doc__


LIGHT = [["spaces"], ["sample", "darts", "-n", "2"], ["show", CELL], ["--help"]]
LIGHT += [[*prog.split()[1:], "--help"] for prog, _ in all_commands()]


def test_start_up_and_looking_at_architectures_do_not_import_torch() -> None:
    code = f"import sys, initio.cli\nfor argv in {LIGHT}:\n  assert initio.cli.main(argv) == 0\n"
    code += "  assert 'torch' not in sys.modules, argv"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "spaces")
    assert [line.split()[0] for line in out.splitlines()] == list(SPACES)
    rows = json.loads(run(capsys, "spaces", "--json"))
    assert rows[0]["architectures"] == 15625


def test_sample(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "sample", "nb201", "-n", "5", "--seed", "1").splitlines()
    assert len(lines) == 5
    for five in ("--count=5", "-n5", "-n=5"):
        assert run(capsys, "sample", "nb201", five, "--seed=1").splitlines() == lines
    documents = run(capsys, "sample", "nb201", "-n", "5", "--seed", "1", "--json").splitlines()
    assert [NB201.format(from_json(Architecture, document)) for document in documents] == lines


def test_show_draws_and_describes(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "show", CELL)
    assert "avg_pool_3x3" in out
    assert CELL in out
    facts = json.loads(run(capsys, "show", "darts_v2", "--cost", "--json"))
    assert facts["parameters"] == 3_349_342


def test_show_warns_of_a_disconnected_cell(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no path connects" in run(capsys, "show", NB201.format(NB201.architecture(0, 0, 0, 0, 0, 0)))


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_show_writes_a_picture(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / f"cell.{suffix}"
    run(capsys, "show", "nasnet", "--out", str(out))
    assert out.stat().st_size > 1000
    assert list(tmp_path.iterdir()) == [out]


def test_show_reads_files_and_run_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arch = NB201.parse(CELL)
    (tmp_path / "arch.json").write_text(to_json(arch))
    (tmp_path / "arch.txt").write_text(CELL + "\n")
    (tmp_path / "result.json").write_text(to_json(SearchResult("m", "nb201", 0, (arch,))))
    for name, is_run in (("arch.json", False), ("arch.txt", False), ("result.json", True), (".", True)):
        facts = json.loads(run(capsys, "show", str(tmp_path / name), "--json"))
        assert facts["notation"] == CELL
        assert ("method" in facts) == is_run


def test_config_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "sample.toml"
    config.write_text(run(capsys, "sample", "nb201", "--count", "3", "--seed", "4", "--print-config"))
    expected = run(capsys, "sample", "nb201", "-n", "3", "--seed", "4")
    assert run(capsys, "sample", "--config", str(config)) == expected
    assert run(capsys, "sample", "--config", str(config), "--seed", "5") != expected


def test_env_says_what_results_depend_on(capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(run(capsys, "env", "--json"))
    assert facts["torch"] == version("torch")
    assert "the compiled kernels are" in facts["kernels"]
    assert facts["runs"].startswith(str(Path.cwd() / "runs"))
    assert re.fullmatch(r"[0-9.]+ [GM]B", facts["memory"])
    assert all(f"{name} " in run(capsys, "env") for name in facts)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["shw"], "there is no command 'shw': did you mean 'show'?"),
        (["sample", "nb202"], "there is no search space 'nb202': did you mean 'nb201'?"),
        (["sample"], "missing space: name of the search space; `initio spaces` lists them (see initio sample --help)"),
        (["sample", "nb201", "-n", "many"], "--count: expected a whole number, got 'many' (see initio sample --help)"),
        (["sample", "nb201", "-n", "0"], "--count must be at least 1, not 0"),
        (["sample", "nb201", "--sed", "1"], "--sed is not an option of initio sample: did you mean --seed? (see"),
        (["store", "inof"], "initio store does one of info, diff, copy, pack, update, not 'inof'"),
        (["sample", "nb201", "--config", "missing.toml"], "missing.toml"),
        (["show", "|nor_conv_9x9~0|"], "an nb201 cell has 3 nodes joined by '+'"),
        (["show", CELL.replace("nor_conv_3x3", "nor_conv_9x9")], "unknown operation 'nor_conv_9x9'"),
        (["show", "resnet"], "'resnet' is not an architecture"),
        (["show", ""], "the architecture is empty"),
        (["show", CELL, "--out", "cell.bmp"], ".svg"),
        (["show", CELL, "--out", "nowhere/cell.svg"], "nowhere"),
    ],
)
def test_mistakes_get_one_sentence(
    argv: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentence in fail(capsys, *argv)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["seed = [1, 2]", "seed = {", "colour = 'red'", "\x00\x01", "[sample]\nseed = 1"])
def test_an_unreadable_config_gets_one_sentence(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "bad.toml"
    config.write_text(content)
    assert str(config) in fail(capsys, "sample", "nb201", "--config", str(config))


def test_a_good_config_is_not_blamed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "good.toml"
    config.write_text("seed = 3")
    assert "good.toml" not in fail(capsys, "sample", "nb201", "-nmany", "--config", str(config))


def test_damaged_files_get_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "newer.json").write_text('{"initio": "architecture", "version": 99}')
    assert "is not a text file" in fail(capsys, "show", str(tmp_path / "binary"))
    assert "format version 99" in fail(capsys, "show", str(tmp_path / "newer.json"))
    assert "is not a run" in fail(capsys, "show", str(tmp_path))


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m initio sample nb201 -n 3000 | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ""


def test_an_error_that_nobody_reads_ends_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "initio", "shw"], stderr=writing, stdout=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_terminal_without_greek_letters_shows_question_marks() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "initio", "bounds", "--help"],
        env=os.environ | {"PYTHONIOENCODING": "cp1252"}, capture_output=True, check=True,
    )  # fmt: skip
    assert b"Prints ?_min of" in b" ".join(done.stdout.split())


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "long " * 1000, "\u202eright to left", "\udcff"])
def test_what_a_user_names_is_shown_on_one_bounded_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = fail(capsys, "show", name + "|")
    assert said[:-1].isprintable()
    assert len(said) < 700


def test_a_published_cell_outside_darts_reads_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(run(capsys, "show", "nasnet", "--json"))
    (tmp_path / "cell.txt").write_text(facts["notation"], encoding="utf-8-sig")
    assert json.loads(run(capsys, "show", str(tmp_path / "cell.txt"), "--json")) == facts


def test_a_run_that_chose_nothing_gets_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").write_text(to_json(SearchResult("m", "nb201", 0, ())))
    assert "nothing was chosen" in fail(capsys, "show", str(tmp_path / "run.json"))
    assert "is not finished: go on with" in fail(capsys, "show", str(tmp_path))


def test_a_binary_config_gets_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.toml").write_bytes(b"\x7fELF\xff\xfe")
    assert "is not a text file" in fail(capsys, "sample", "nb201", "--config", str(tmp_path / "bad.toml"))


def test_what_is_typed_beats_the_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "sample.toml"
    config.write_text("space = 'nb101'\nseed = 3\n")
    typed = run(capsys, "sample", "nb201", "--seed", "1")
    assert run(capsys, "sample", "nb201", "--seed", "1", "--config", str(config)) == typed
    assert run(capsys, "sample", "--config", str(config), "nb201", "--seed", "1") == typed


def test_a_process_ends_without_looking_through_what_it_has_made() -> None:
    """What was registered before is called after: by then all objects are left alone."""
    code = "import atexit, gc, sys; atexit.register(lambda: print(gc.get_freeze_count()))\n"
    code += "from initio.cli import main; sys.argv = ['initio', '--version']; sys.exit(main())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(ran.stdout.splitlines()[-1]) > 1000


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_process_knows_when_it_was_started() -> None:
    code = (
        "import time as t; t.sleep(0.3); from initio.system.clock import *; print(t.perf_counter() - process_began())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0.3 < float(ran.stdout) < 60


@pytest.mark.parametrize("words", [("search", "nb201"), ("search", "--resume", "r"), ("solve", "--data", "digits")])
def test_a_budget_begins_with_the_process(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's start and the imports count; where another program calls `main`, its call is the beginning."""
    heard: list[float] = []

    def work(*_: object, began: float, **asked: object) -> NoReturn:
        heard.append(began)
        raise InputError("enough")

    for verb in ("search.search", "search.resume_run", "solve.solve"):
        monkeypatch.setattr(f"initio.runs.{verb}", work)
    monkeypatch.setattr("initio.cli.process_began", lambda: 3.0)
    monkeypatch.setattr(sys, "argv", ["initio", *words])
    before = time.perf_counter()
    assert (main(), main(words)) == (2, 2)
    assert heard[0] == 3.0
    assert heard[1] >= before


# --- for programs -----------------------------------------------------------------------------------------------------

TINY_SCORE = ("score", "nb201", "--sample", "3", "--metrics", "params,flops")


def test_json_of_scores_and_stores(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    found = json.loads(run(capsys, *TINY_SCORE, "--store", store, "--json", "-q"))
    assert [(row["metric"], row["values"], row["undefined"]) for row in found["metrics"]] == [
        ("params", 3, {}),
        ("flops", 3, {}),
    ]
    assert found["work"][0]["done"] == 3
    assert {group["metric"] for group in json.loads(run(capsys, "store", "info", store, "--json"))} == {
        "params",
        "flops",
    }


def test_every_command_but_the_one_that_prints_a_script_has_json() -> None:
    assert [name for name, command in all_commands() if "json" not in options_of(command)] == ["initio completion"]


def test_json_of_stores_that_are_compared_copied_and_packed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other, packed = (str(tmp_path / name) for name in ("s.db", "t.db", "s.db.xz"))
    for path, metrics in ((store, "params,flops"), (other, "params")):
        run(capsys, "score", "nb201", "--sample", "3", "--metrics", metrics, "--store", path, "-q")
    with pytest.raises(SystemExit, match="1"):
        main(["store", "diff", store, other, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["scores"], found["different"]) == (6, 3)
    assert [(left["metric"], right) for left, right in found["pairs"]] == [("flops", None)] * 3
    with monkeypatch.context() as patched:
        patched.setattr("initio.cli.progress.EVERY", 0.0)
        patched.setattr("initio.scores.store.PUT_AT_ONCE", 4)
        assert main(["store", "copy", store, other, "--json"]) == 0
    said = capsys.readouterr()
    copied, progress = json.loads(said.out), said.err.splitlines()
    assert [line.partition(",")[0] for line in progress] == ["copying: 4 of 6", "copying: 6 of 6"]
    assert all(line.endswith(" left, scores") for line in progress[1:])
    assert copied == {"from": store, "scores": 6, "to": other, "copied": 3, "has": 6}
    assert json.loads(run(capsys, "store", "pack", store, packed, "--json"))["scores"] == 6
    assert json.loads(run(capsys, "store", "diff", packed, other, "--json"))["pairs"] == []


def test_json_of_what_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    text = json.loads(run(capsys, "export", "darts_v2", "--format", "genotype", "--json"))["text"]
    assert text.startswith("Genotype(")
    written = json.loads(run(capsys, "export", "darts_v2", "--format", "genotype", "--out", "g.txt", "--json"))
    assert written == {"format": "genotype", "written": "g.txt"}
    run(capsys, *TINY_SCORE, "--store", "s.db", "-q")
    page = json.loads(run(capsys, "report", "--store", "s.db", "--out", "r.html", "--json"))
    assert page == {"written": "r.html", "bytes": Path("r.html").stat().st_size}
    assert json.loads(run(capsys, "cache", "info", "--json"))["finished"] == 0
    assert json.loads(run(capsys, "cache", "empty", "--json"))["forgotten"] == 0
    for method in ("random-choice", "other"):
        folder = Path(method)
        folder.mkdir()
        found = SearchResult(method, "nb201", 0, (Architecture("nb201", (3,) * 6),))
        (folder / "result.json").write_text(to_json(found))
    beside = json.loads(run(capsys, "compare", "random-choice", "other", "--json"))
    assert beside["runs"] == ["random-choice", "other"]


def test_quiet_leaves_errors_and_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    assert run(capsys, *TINY_SCORE, "--store", store, "--quiet") == ""
    assert json.loads(run(capsys, "store", "info", store, "--json", "-q"))
    assert main(["show", "nosuch", "--quiet"]) == 2
    assert "'nosuch' is not an architecture" in capsys.readouterr().err
    assert json.loads(run(capsys, "show", "darts_v2", "--cost", "--json"))["flops"] > 10**8


def test_outputs_that_are_closed(tmp_path: Path) -> None:
    """`>&-` and `2>&-`: nothing is written there, and nothing fails."""
    scoring = " ".join([*TINY_SCORE, "--store", str(tmp_path / "s.db")])
    for words, closed in (("spaces", ">&-"), ("spaces", "2>&-"), (scoring, ">&- 2>&-")):
        line = f"{sys.executable} -m initio {words} {closed}"
        assert subprocess.run(["sh", "-c", line], check=False, capture_output=True).returncode == 0
