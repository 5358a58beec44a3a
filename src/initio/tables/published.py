"""Published results of searches, to print beside ours: facts from the papers, with their place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """Mean and standard deviation of the test accuracy on each data set; None where no deviation was given."""

    label: str
    budget: str  # what that search spent, in its paper's words
    source: str
    values: tuple[tuple[float, float | None], ...]  # c10, c100, in16


def _row(label: str, budget: str, source: str, *values: float | None) -> Published:
    means, deviations = values[::2], values[1::2]
    return Published(label, budget, source, tuple(zip(means, deviations, strict=True)))  # type: ignore[arg-type]


HNAS, EIGEN = "HNAS, Table 4", "Eigen-NAS, Table 2"

# by (benchmark, search, what makes it the published one: its metric, its metric and k, or nothing)
PUBLISHED: dict[tuple[str, str, str], Published] = {
    ("nb201", "random", ""): _row("random", "12,000 s", HNAS, 93.70, 0.36, 71.04, 1.07, 44.57, 1.25),
    ("nb201", "rea", ""): _row("rea", "12,000 s", HNAS, 93.92, 0.30, 71.84, 0.99, 45.15, 0.89),
    ("nb201", "reinforce", ""): _row("reinforce", "12,000 s", HNAS, 93.85, 0.37, 71.71, 1.09, 45.24, 1.18),
    ("nb201", "bohb", ""): _row("bohb", "12,000 s", HNAS, 93.61, 0.52, 70.85, 1.28, 44.42, 1.49),
    ("nb201", "naswot", ""): _row("naswot, N = 1000", "306 s", HNAS, 92.96, 0.81, 69.98, 1.22, 44.44, 2.10),
    ("nb201", "te-nas", ""): _row("te-nas", "1,558 s", HNAS, 93.90, 0.47, 71.24, 0.56, 42.38, 0.46),
    ("nb201", "knas", ""): _row("knas", "4,200 s", HNAS, 93.05, None, 68.91, None, 34.11, None),
    ("nb201", "rsps", ""): _row("rsps", "250 epochs", "NAS-Bench-201", 87.66, None, 58.33, None, 31.14, None),
    ("nb201", "enas", ""): _row("enas", "15,120 s", HNAS, 93.76, 0.00, 71.11, 0.00, 41.44, 0.00),
    ("nb201", "darts", ""): _row("darts", "16,281 s", HNAS, 54.30, 0.00, 15.61, 0.00, 16.32, 0.00),
    ("nb201", "darts-2nd", ""): _row("darts-2nd", "43,277 s", HNAS, 54.30, 0.00, 15.61, 0.00, 16.32, 0.00),
    ("nb201", "gdas", ""): _row("gdas", "8,640 s", HNAS, 93.44, 0.06, 70.61, 0.21, 42.23, 0.25),
    ("nb201", "hnas", "grad"): _row("hnas, grad", "3,010 s", HNAS, 94.04, 0.21, 71.75, 1.04, 45.91, 0.88),
    ("nb201", "hnas", "snip"): _row("hnas, snip", "2,976 s", HNAS, 93.94, 0.02, 71.49, 0.11, 46.07, 0.14),
    ("nb201", "hnas", "grasp"): _row("hnas, grasp", "3,148 s", HNAS, 94.13, 0.13, 72.59, 0.82, 46.24, 0.38),
    ("nb201", "hnas", "trace"): _row("hnas, trace", "3,006 s", HNAS, 94.07, 0.10, 72.30, 0.70, 45.93, 0.37),
    ("nb201", "hnas", "knas"): _row("hnas, knas", "3,081 s", "thesis", 94.19, 0.06, 72.94, 0.52, 46.31, 0.38),
    ("nb201", "hnas", "synflow"): _row("hnas, synflow", "3,615 s", "thesis", 94.13, None, 72.50, None, 45.47, None),
    ("nb201", "eigen-nas", "eigen, 20"): _row(
        "eigen-nas, eigen, k = 20", "20 full trainings", EIGEN, 93.46, 0.01, 71.42, 0.63, 45.54, 0.04
    ),
    ("nb201", "eigen-nas", "eigen, 5"): _row(
        "eigen-nas, eigen, k = 5", "5 full trainings", EIGEN, 93.43, 0.08, 69.92, 1.82, 45.53, 0.06
    ),
    ("nb201", "robust", ""): _row("RoBoT", "20 queries", "RoBoT", 94.36, None, 73.51, None, 46.34, None),
}
