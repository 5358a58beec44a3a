"""Width and depth of cells against what is published, and the theorems about wide and deep networks.

    python -m studies.topology                                # facts that are asserted, in a minute
    python -m studies.topology --pictures docs/results        # also draws the theorems

Asserts Figure 1 of the ICLR 2020 paper and the extremes of darts, prints the exact distribution over darts' cells, and
computes both sides of the theorems: Theorem 4 of HNAS must hold to 1e-10 for the wide network.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from initio.analysis.topology import CellShape, distribution, extremes, shape, share
from initio.data import noise
from initio.report.surfaces import save_lines
from initio.spaces import DARTS, NB201, NetworkSettings
from initio.spaces.zoo import ZOO_SPACE
from studies.linear_cells import BlockBound, chain, descent, gradient_variance, lipschitz
from studies.theory import metric_constants, trace_of_data, wide_and_deep

FIGURE_1 = {"nasnet": (5, 2), "amoebanet": (4, 4), "enas": (5, 2), "darts_v2": (3.5, 3), "snas": (4, 2)}
EXTREMES = {"widest": (4, 2), "deepest": (1.5, 5)}
EXACT = 1e-10
Curve = tuple[np.ndarray, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, help="folder for pictures")
    options = parser.parse_args()
    topologies()
    checks = {
        "HNAS Theorem 4: κ by L": theorem_4(),
        "HNAS Theorem 1: metric / bound by network": theorem_1(),
        "NASI Proposition 2: traces by Z": proposition_2(),
        "thesis Theorem 4.2: E‖∇f‖² by γ": theorem_4_2(),
        "thesis Theorem 4.3: constant / bound by block": theorem_4_3(),
        "thesis Theorem 4.4: variance / bound by block": theorem_4_4(),
    }
    if options.pictures:
        for number, part in enumerate((list(checks.items())[:3], list(checks.items())[3:]), start=1):
            save_lines(dict(part), options.pictures / f"theorems-{number}.png", ("", ""))


def topologies() -> None:
    """Figure 1, the extremes of darts, and the exact distribution."""
    print("| cell | width, depth (published) | of darts' cells narrower | deeper |\n|---|---|---|---|")
    for name, published in FIGURE_1.items():
        found = shape(ZOO_SPACE.cells(ZOO_SPACE.parse(name))[0])
        assert found == CellShape(*published), (name, found)
        parts = [f"{part:.1%}" for part in share(DARTS, found)]
        if ZOO_SPACE.canonical(ZOO_SPACE.parse(name)).space != DARTS.name:  # five nodes
            parts = ["", ""]
        print(f"| {name} | {found} ({CellShape(*published)}) | {' | '.join(parts)} |")
    for (name, expected), arch in zip(EXTREMES.items(), extremes(DARTS), strict=True):
        found = shape(DARTS.cells(arch)[0])
        assert found == CellShape(*expected), (name, found)
        print(f"| {name} of darts | {found} ({CellShape(*expected)}) | | |")
    spread = distribution(DARTS)
    assert spread.total() == DARTS.count()
    print("\n| width, depth | share of darts' normal cells |\n|---|---|")
    for seen, count in sorted(spread.items()):
        print(f"| {seen} | {count / spread.total():.2%} |")


def theorem_4() -> dict[str, Curve]:
    """HNAS: the kernel of the wide network is a multiple of the identity, that of the deep one only in the mean."""
    print("\nHNAS Theorem 4\n")
    print("| n | L | wide: error of Θ/(Ln) | κ | deep: κ median (range) | error of mean Θ'/(Lnᴸ) ± standard error |")
    print("|---|---|---|---|---|---|")
    depths, medians = (1, 2, 3, 4), []
    for layers in depths:
        found = wide_and_deep(layers=layers)
        assert found.wide_error < EXACT
        assert found.wide_kappa - 1 < EXACT
        kappas = np.array(found.deep_kappas)
        assert layers == 1 or kappas.min() > 1
        medians.append(float(np.median(kappas)))
        spread = f"{medians[-1]:.1f} ({kappas.min():.1f} to {kappas.max():.0f})"
        mean = f"{found.deep_error:.2f} ± {found.deep_spread:.2f}"
        print(f"| {found.n} | {layers} | {found.wide_error:.0e} | {found.wide_kappa:.10f} | {spread} | {mean} |")
    return {"wide": (np.array(depths), np.ones(4)), "deep, median": (np.array(depths), np.array(medians))}


def theorem_1(networks: int = 12) -> dict[str, Curve]:
    """HNAS: grad, snip and grasp over trace, divided by the constants of the proof, for random networks."""
    batch, size = noise((3, 8, 8), classes=4, batch_size=8), NetworkSettings(4, 1, 4, (3, 8, 8), norm="none")
    rng, rows = np.random.default_rng(0), []
    while len(rows) < networks:
        arch = NB201.architecture(*rng.integers(0, 5, 6).tolist())
        if NB201.connected(arch):
            found = metric_constants(NB201.build(arch, size, seed=len(rows)), batch)
            rows.append([found.grad / found.bound, found.snip / found.bound, found.grasp / found.bound, found.H_theta])
    ratios = np.array(rows)
    assert ratios[:, :3].max() <= 1
    print(f"\nHNAS Theorem 1, {networks} random nb201 networks without batch norm: metric / (constant · trace)\n")
    print("| metric | constant | largest | median |\n|---|---|---|---|")
    for name, constant, column in zip(("grad", "snip", "grasp"), ("β", "β ‖θ‖", "β ‖Hθ‖"), ratios.T[:3], strict=True):
        print(f"| {name} | {constant} | {column.max():.3f} | {np.median(column):.3f} |")
    print(f"\n‖Hθ‖ itself, which the theorem takes for bounded: {ratios[:, 3].min():.2g} to {ratios[:, 3].max():.2g}")
    at = np.arange(networks)
    return {name: (at, np.sort(ratios[:, k])) for k, name in enumerate(("grad", "snip", "grasp"))}


def proposition_2() -> dict[str, Curve]:
    """NASI: the trace on other data."""
    print("\nNASI Proposition 2, ReLU network of 3 layers and 256 units, 32 inputs\n")
    print("| Z | difference of traces / (mn) | bound |\n|---|---|---|")
    found = [trace_of_data(part) for part in (0.0, 0.25, 0.5, 0.75, 1.0)]
    for one in found[1:]:
        assert one.difference <= one.bound
        print(f"| {2 * one.share:.1f} | {one.difference:.4f} | {one.bound:.4f} |")
    Z = np.array([2 * one.share for one in found])
    return {
        "difference": (Z, np.array([one.difference for one in found])),
        "bound": (Z, np.array([one.bound for one in found])),
    }


def theorem_4_2() -> dict[str, Curve]:
    """Ghadimi and Lan, as the thesis quotes them: smoother objectives and less noise, smaller gradients."""
    print("\nThesis Theorem 4.2, SGD on quadratics with L = 1 and 4, σ² = 1: E‖∇f(w_R)‖² and its bound\n")
    print("| γ | L = 1 | L = 4 |\n|---|---|---|")
    rates = (0.02, 0.05, 0.1, 0.2)
    curves: dict[str, list[float]] = {}
    for rate in rates:
        cells = []
        for L in (1.0, 4.0):
            found = descent(L * np.array([1.0, 0.5, 0.25]), 1.0, rate, steps=200)
            assert found.gradient <= found.bound
            cells.append(f"{found.gradient:.3f} ({found.bound:.3f})")
            curves.setdefault(f"L = {L:g}", []).append(found.gradient)
            curves.setdefault(f"bound, L = {L:g}", []).append(found.bound)
        print(f"| {rate} | {' | '.join(cells)} |")
    return {name: (np.array(rates), np.array(values)) for name, values in curves.items()}


def _drawn(n: int, size: int, seed: int, scale: float) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [scale * rng.standard_normal((size, size)) / np.sqrt(size) for _ in range(n)]


def _ratios(title: str, rows: list[list[BlockBound]]) -> dict[str, Curve]:
    """For each block the median of constant / printed and constant / what holds, over draws."""
    print(f"\n{title}\n\n| block | constant / printed bound | constant / bound that holds |\n|---|---|---|")
    blocks = np.arange(1, len(rows[0]) + 1)
    printed = np.array([[one.constant / one.printed for one in row] for row in rows])
    holds = np.array([[one.constant / one.holds for one in row] for row in rows])
    assert holds.max() <= 1 + EXACT
    for block, a, b in zip(blocks, printed.T, holds.T, strict=True):
        print(f"| {block} | {np.median(a):.3g} (up to {a.max():.3g}) | {np.median(b):.3g} (up to {b.max():.3g}) |")
    return {
        "of the printed bound": (blocks, np.median(printed, axis=0)),
        "of the one that holds": (blocks, np.median(holds, axis=0)),
    }


def theorem_4_3(draws: int = 50) -> dict[str, Curve]:
    """Block-wise Lipschitz constants of the narrowest cell for a quadratic objective."""
    rng = np.random.default_rng(0)
    rows = [lipschitz(_drawn(4, 8, seed, 1.0), rng.standard_normal(8)) for seed in range(draws)]
    return _ratios("Thesis Theorem 4.3, narrowest linear cell of 4 nodes, quadratic objective", rows)


def theorem_4_4(draws: int = 20) -> dict[str, Curve]:
    """Gradient variance of the narrowest cell: a linear objective, for which it holds, then a quadratic one."""
    rows, worst = [], 0.0
    for seed in range(draws):
        rng, Ws = np.random.default_rng(seed), _drawn(4, 6, seed, 1.0)
        xs = rng.standard_normal((40, 6))
        rows.append(gradient_variance(Ws, xs, rng.standard_normal((40, 4, 6))))
        doubled = [2 * np.eye(6)] * 4
        wide = np.stack([[W @ x for W in doubled] for x in xs])
        narrow = np.stack([[chain(doubled[: k + 1], 6) @ x for k in range(4)] for x in xs])
        first = gradient_variance(doubled, xs, wide, narrow)[0]
        worst = max(worst, first.constant / first.printed)
    found = _ratios("Thesis Theorem 4.4, narrowest linear cell of 4 nodes, linear objective", rows)
    assert worst > 1
    print(f"\nfor a quadratic objective and W = 2I the variance is up to {worst:.0f} times the printed bound")
    return found


if __name__ == "__main__":
    main()
