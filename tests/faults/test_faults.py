"""Whatever happens, a clear sentence or a flagged value: never a wrong number, a lost score or a hang."""

import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import initio
from initio import Architecture, Batch, NetworkSettings, noise
from initio.cli import main
from initio.metrics import METRICS, Options
from initio.scores.pool import ScoringJob, sample, score_pool
from initio.scores.store import Store, differences
from initio.spaces import NB201, Space
from initio.system.executors import LostTasksError, Processes
from studies.faults import SMALL, command, count, workers_of

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="finds the workers through /proc")
BATCH = noise((3, 8, 8), batch_size=4)
JOB = ScoringJob(NB201, BATCH, ("all",), NetworkSettings(channels=2, cells=1, shape=BATCH.shape), Options())


def own_job(space: Space, **changes: object) -> ScoringJob:
    """A space with a builder of its own has no width and no number of cells."""
    return replace(JOB, space=space, network=NetworkSettings(shape=BATCH.shape), **changes)  # type: ignore[arg-type]


# --- kill -9 ----------------------------------------------------------------------------


@ON_LINUX
def test_kill_main_then_resume(tmp_path: Path) -> None:
    """Its workers end with it, and the rest is scored to the same bits; studies/faults.py kills at any moment."""
    whole, survived, options = tmp_path / "whole.db", tmp_path / "survived.db", ("--metrics", "grad,kappa", *SMALL[2:])
    words = [sys.executable, "-m", "initio", *command(survived, 300, 2, options)]  # would take long
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while count(survived) < 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    alive = workers_of(process.pid)
    process.kill()
    process.communicate(timeout=60)  # returns when the last holder of its output has ended
    while any(Path(f"/proc/{pid}").exists() for pid in alive) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(alive) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in alive)
    with Store(survived, read_only=True) as store:
        before = {*store.evaluations()}
    scored = {e.architecture for e in before if e.metric == "grad"}
    for path in (survived, whole):
        assert main(command(path, len(scored) + 4, 1, options)) == 0
    with Store(whole, read_only=True) as a, Store(survived, read_only=True) as b:
        uninterrupted, resumed = {*a.evaluations()}, {*b.evaluations()}
    assert uninterrupted <= resumed
    assert before & uninterrupted
    assert uninterrupted - before


def test_a_network_that_always_kills_its_worker_is_named_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/system/executors/test_executors.py kills real workers."""

    def lose_the_second(_: Processes, work: Callable[[object], object], tasks: Sequence[object]) -> Iterator[object]:
        yield from ((number, work(task)) for number, task in enumerate(tasks) if number != 1)
        raise LostTasksError([1])

    monkeypatch.setattr(Processes, "_answers", lose_the_second)
    archs = sample(NB201, 3, seed=0)
    sentence = f"^1 of 3 networks .* died of each 3 times: .*{re.escape(NB201.format(NB201.canonical(archs[1])))}"
    with Store(tmp_path / "s.db") as store:
        with pytest.raises(initio.InputError, match=f"{sentence}; perhaps memory"):
            score_pool(replace(JOB, metrics=("grad",)), archs, store, workers=2)
        assert {e.architecture for e in store.evaluations()} == {NB201.canonical(archs[k]) for k in (0, 2)}


# --- the disk ---------------------------------------------------------------------------

SCORE = ("score", "nb201", "--sample", "400", "--metrics", "params,flops", "--store")


def fails(store: Path, prepare: Callable[[], None] = lambda: None) -> str:
    """What the command says before it ends with code 2, in a copy of this process that starts with `prepare`."""
    errors = store.parent.parent / "errors"
    if (child := os.fork()) == 0:
        code = 99
        try:
            os.dup2(os.open(errors, os.O_CREAT | os.O_WRONLY), 2)
            sys.stderr = os.fdopen(2, "w", closefd=False)
            prepare()
            code = main([*SCORE, str(store)])
            sys.stderr.flush()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    message = errors.read_text()
    assert message.startswith("initio: ")
    assert message.count("\n") == 1
    return message


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_limit_on_the_size_of_files_and_going_on_without_it(tmp_path: Path) -> None:
    """What a full disk does to a running process; the rest is scored when there is room again."""
    (tmp_path / "room").mkdir()
    store, whole = tmp_path / "room" / "s.db", tmp_path / "whole.db"

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    assert "the disk is full, a limit is reached" in fails(store, limited)
    with Store(store, read_only=True) as partial:
        written = len(partial)
        assert 0 < written < 800
        assert written % 2 == 0  # both costs of an architecture, or none
    for path in (store, whole):
        assert main([*SCORE, str(path)]) == 0
    with Store(store, read_only=True) as a, Store(whole, read_only=True) as b:
        assert list(differences(a, b)) == []


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_full_disk(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", room], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root can mount a small disk; the limit on file sizes stands in for it")
    try:
        assert "disk is full" in fails(room / "s.db")
        with Store(room / "s.db", read_only=True) as store:
            assert len(store) % 2 == 0
    finally:
        subprocess.run(["umount", room], check=True)


@contextmanager
def as_somebody() -> Iterator[None]:
    """Root may write everywhere; nobody may not."""
    if os.getuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        argv = ["score", "nb201", "--sample", "3", "--metrics", "params", "--store"]
        assert main([*argv, str(folder / "known.db")]) == 0
        (folder / "known.db").chmod(0o444)
        folder.chmod(0o555)
        capsys.readouterr()
        try:
            with as_somebody():
                for file, text in [("new.db", "cannot be opened: check that you may"), ("known.db", "is read-only")]:
                    assert main([*argv, str(folder / file)]) == 2
                    assert text in capsys.readouterr().err
                assert main(["store", "info", str(folder / "known.db")]) == 0
        finally:
            folder.chmod(0o755)
        assert "3 networks" in capsys.readouterr().out
        assert [path.name for path in folder.iterdir()] == ["known.db"]


# --- networks and batches ---------------------------------------------------------------


def scores(tmp_path: Path, job: ScoringJob, arch: Architecture) -> dict[str, initio.Evaluation]:
    with Store(tmp_path / "s.db") as store:
        score_pool(job, [arch], store)
        found = {e.metric: e for e in store.evaluations()}
    reproducible = {name for name, metric in METRICS.items() if metric.reproducible}
    assert set(found) == reproducible
    for e in found.values():  # the store holds no NaN, but let it be said
        assert e.value is None or not math.isnan(e.value)
        assert e.value is not None or e.flag
    return found


def test_a_disconnected_cell(tmp_path: Path) -> None:
    found = scores(tmp_path, JOB, Architecture("nb201", (0,) * 6))
    assert not NB201.connected(Architecture("nb201", (0,) * 6))
    for name in ("grad", "trace", "kappa", "naswot", "jacob_cov", "synflow"):
        assert found[name].flag, name
    assert found["params"].flag == ""


def nan_network(scale: float) -> torch.nn.Module:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10), torch.nn.ReLU(), torch.nn.Linear(10, 10))
    with torch.no_grad():
        model[1].weight.mul_(scale)
        model[3].weight.mul_(scale)
    return model


def test_a_loss_that_is_nan(tmp_path: Path) -> None:
    own = initio.space("huge", nan_network, scale=[1e30, 1.0])
    found = scores(tmp_path, own_job(own), own.architecture(0))
    for name in ("grad", "snip", "grasp", "trace", "kappa", "nasi"):
        assert found[name].value is None, name
        assert "finite" in found[name].flag


def test_a_batch_of_one(tmp_path: Path) -> None:
    batch = noise((3, 8, 8), batch_size=1)
    found = scores(tmp_path, replace(JOB, batch=batch), sample(NB201, 1, seed=0)[0])
    assert found["kappa"].flag
    assert found["jacob_cov"].flag
    assert found["params"].value


def test_two_identical_images(tmp_path: Path) -> None:
    x = BATCH.x.copy()
    x[1] = x[0]
    twins = Batch(x, np.array([0, 0, 1, 2]), classes=10, source="twins")
    arch = NB201.parse(
        "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"
    )
    found = scores(tmp_path, replace(JOB, batch=twins), arch)
    for name in ("kappa", "naswot"):
        assert found[name].flag, name
        assert found[name].value is None or math.isinf(found[name].value), name
    assert found["grad"].value
    assert found["trace"].value
