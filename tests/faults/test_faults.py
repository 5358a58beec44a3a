"""Whatever happens, a clear sentence or a flagged value: never a wrong number, a lost score or a hang."""

import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
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
from studies.score_faults import Kill, command, start, survive, workers_of

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="finds the workers through /proc")
BATCH = noise((3, 8, 8), batch_size=4)
JOB = ScoringJob(NB201, BATCH, ("all",), NetworkSettings(channels=2, cells=1, shape=BATCH.shape), Options())


def own_job(space: Space, **changes: object) -> ScoringJob:
    """A space with a builder of its own has no width and no number of cells."""
    return replace(JOB, space=space, network=NetworkSettings(shape=BATCH.shape), **changes)  # type: ignore[arg-type]


# --- kill -9 ----------------------------------------------------------------------------


@ON_LINUX
def test_kill_a_worker_then_main_then_resume(tmp_path: Path) -> None:
    """studies/score_faults.py does it twenty times at random moments."""
    whole, survived = tmp_path / "whole.db", tmp_path / "survived.db"
    uninterrupted = start(command(whole, 40, workers=1))
    events = survive(survived, 40, [Kill(45, 0.0, worker=True), Kill(30, 0.0, worker=False)])
    _, errors = uninterrupted.communicate(timeout=120)
    assert uninterrupted.returncode == 0, errors
    assert [event for event in events if "killed" in event] == ["worker killed", "main killed"]
    with Store(whole, read_only=True) as a, Store(survived, read_only=True) as b:
        assert len(a) > 200
        assert list(differences(a, b)) == []


@ON_LINUX
def test_workers_end_with_the_main_process(tmp_path: Path) -> None:
    process = start(command(tmp_path / "s.db", 5000, workers=2))
    deadline = time.monotonic() + 60
    while len(workers := workers_of(process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.communicate(timeout=60)  # returns when the last holder of its output has ended
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(workers) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def die(width: int) -> torch.nn.Module:
    if width == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))


def test_a_network_that_always_kills_its_worker_is_named_and_the_others_are_scored(tmp_path: Path) -> None:
    own = initio.space("deadly", die, width=[1, 2, 3, 4, 5])
    job = own_job(own, metrics=("grad",))
    sentence = "^1 of 5 networks .* died of each 3 times: .*width=3; perhaps memory"
    with Store(tmp_path / "s.db") as store:
        with pytest.raises(initio.InputError, match=sentence):
            score_pool(job, own.architectures(), store, workers=2)
        assert sorted(e.architecture.choices for e in store.evaluations()) == [(0,), (1,), (3,), (4,)]


# --- the disk ---------------------------------------------------------------------------

SCORE = (sys.executable, "-m", "initio", "score", "nb201", "--sample", "400", "--metrics", "params,flops")


def fails(argv: list[str], **options: object) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("initio: ")
    assert done.stderr.count("\n") == 1
    return str(done.stderr)


def test_a_limit_on_the_size_of_files_and_going_on_without_it(tmp_path: Path) -> None:
    """What a full disk does to a running process; the rest is scored when there is room again."""
    store = tmp_path / "s.db"
    argv = [*SCORE, "--store", str(store)]

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    assert "the disk is full, a limit is reached" in fails(argv, preexec_fn=limited)
    with Store(store, read_only=True) as partial:
        written = len(partial)
        assert 0 < written < 800
        assert written % 2 == 0  # both costs of an architecture, or none
    whole = tmp_path / "whole.db"
    for path in (store, whole):
        assert main([*SCORE[3:], "--store", str(path)]) == 0
    with Store(store, read_only=True) as a, Store(whole, read_only=True) as b:
        assert list(differences(a, b)) == []


def test_a_full_disk(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", room], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root can mount a small disk; the limit on file sizes stands in for it")
    try:
        message = fails([*SCORE, "--store", str(room / "s.db")])
        assert "disk is full" in message
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
