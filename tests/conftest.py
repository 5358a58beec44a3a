"""Settings of the whole suite: the same examples in every run, and no deadline on a machine that others share."""

from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

NUMBERS = count()
settings.register_profile("initio", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("initio")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds the trainings of another one, or leaves any to the user."""
    monkeypatch.setenv("INITIO_CACHE", str(Path(tmp_path_factory.getbasetemp(), f"cache-{next(NUMBERS)}")))
