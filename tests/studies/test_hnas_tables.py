"""The evidence for HNAS: each table has its place on a page, and prints ours beside theirs."""

from pathlib import Path

import numpy as np
import pytest

from studies.hnas_evidence import Evidence, Scored, cell, mean_std
from studies.hnas_tables import TABLES, table_5

PAGES = Path(__file__).parents[2] / "docs/results"


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_on_a_page(name: str) -> None:
    text = "".join((PAGES / page).read_text() for page in ("hnas.md", "eigen-nas.md"))
    assert f"--table {name}" in text


def test_cells() -> None:
    assert cell(0.637, 0.64) == "0.64 (0.64)"
    assert cell(-0.0621, None, 3) == "-0.062"
    assert mean_std([93.0, 94.0]) == "93.50±0.71"


def test_metrics_with_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    """GraSP's sign does not count, synflow's logarithm neither, and architectures without a value are left out."""
    x = np.array([1.0, 2.0, 3.0, 4.0, np.nan])
    names = ("grad_norm", "snip", "trace", "knas", "fisher", "naswot", "synflow")
    evidence = Evidence(Path(), None, Path())
    vars(evidence)["nb201"] = Scored({"grasp": -x} | dict.fromkeys(names, x), {})
    table_5(evidence)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| grad_norm")]
    assert (
        lines[1]
        == "| grad_norm | grasp | not scored | not scored | not scored | 1.00 (0.60) | 1.00 (0.92) | 1.00 (0.77) |"
    )
