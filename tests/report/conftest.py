"""Pictures as users get them."""

import pytest
from matplotlib.figure import Figure

SAVEFIG = Figure.savefig


@pytest.fixture(autouse=True)
def _pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Figure, "savefig", SAVEFIG)
