"""The same picture is the same file."""

from pathlib import Path

import numpy as np
import pytest

from initio.report.curves import Curves, save_curves

RUNS = np.array([[90.0, 91.0, 92.0], [89.0, 91.5, 92.5]])
CURVES = Curves(np.array([1.0, 10.0, 100.0]), "seconds", {"validation": {"random": RUNS}}, {"validation": 93.0})


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png"])
def test_the_same_picture_is_the_same_file(suffix: str, tmp_path: Path) -> None:
    first, second = (tmp_path / f"{name}{suffix}" for name in "ab")
    for path in (first, second):
        save_curves(CURVES, path, "one search")
    assert first.read_bytes() == second.read_bytes()
