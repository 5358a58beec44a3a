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

from initio.analysis.theory import wide_and_deep
from initio.analysis.topology import CellShape, distribution, extremes, shape, share
from initio.spaces import DARTS
from initio.spaces.zoo import ZOO_SPACE

FIGURE_1 = {"nasnet": (5, 2), "amoebanet": (4, 4), "enas": (5, 2), "darts_v2": (3.5, 3), "snas": (4, 2)}
EXTREMES = {"widest": (4, 2), "deepest": (1.5, 5)}
EXACT = 1e-10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, help="folder for pictures")
    parser.parse_args()
    topologies()
    theorem_4()


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


def theorem_4() -> None:
    """HNAS: the kernel of the wide network is a multiple of the identity, that of the deep one only in the mean."""
    print("\n| n | L | wide: error of Θ/(Ln) | κ | deep: κ median (range) | error of mean Θ'/(Lnᴸ) ± standard error |")
    print("|---|---|---|---|---|---|")
    for layers in (1, 2, 3, 4):
        found = wide_and_deep(layers=layers)
        assert found.wide_error < EXACT
        assert found.wide_kappa - 1 < EXACT
        kappas = np.array(found.deep_kappas)
        assert layers == 1 or kappas.min() > 1
        spread = f"{np.median(kappas):.1f} ({kappas.min():.1f} to {kappas.max():.0f})"
        mean = f"{found.deep_error:.2f} ± {found.deep_spread:.2f}"
        print(f"| {found.n} | {layers} | {found.wide_error:.0e} | {found.wide_kappa:.10f} | {spread} | {mean} |")


if __name__ == "__main__":
    main()
