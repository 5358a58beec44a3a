"""Settings of the whole suite: the same examples in every run, and no deadline on a machine that others share."""

import gc
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from matplotlib.figure import Figure

from initio.system.executors.cluster import local_cluster

NUMBERS = count()
SAVEFIG = Figure.savefig
settings.register_profile("initio", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("initio")
gc.disable()  # until all is imported, which leaves no garbage and much to look through


def pytest_report_header() -> str:
    """Says what stores are tested on."""
    from studies.servers import postgres_programs

    if (found := postgres_programs()) is None:
        return "stores: SQLite alone, as PostgreSQL is not installed"
    return f"stores: SQLite, and PostgreSQL in {found}"


def pytest_collection_finish() -> None:
    """What was imported stays: the cycle collector need not look through it again during every test."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def scheduler() -> Iterator[str]:
    """The address of a cluster for all: two workers of this machine, which are started again when they die."""
    with local_cluster(2) as local:
        yield local.scheduler_address


@pytest.fixture(scope="session", autouse=True)
def _no_power_cuts() -> Iterator[None]:
    """Processes are killed here, not machines: nobody needs to wait until the disk has what the system has."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _sketches() -> Iterator[None]:
    """Figures are drawn whole, but without a layout and with few pixels; tests/report looks at real ones."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Figure, "savefig", sketched)
        yield


def sketched(figure: Figure, *given: Any, **named: Any) -> None:
    figure.set_layout_engine("none")
    SAVEFIG(figure, *given, **{**named, "dpi": 30})


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds the trainings of another one, or leaves any to the user."""
    monkeypatch.setenv("INITIO_CACHE", str(Path(tmp_path_factory.getbasetemp(), f"cache-{next(NUMBERS)}")))
