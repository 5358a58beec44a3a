"""Evidence for docs/results/understanding.md: chapter 4 of the thesis at small scale.

    python -m studies.understanding tables --data ../shared/data            # counted and predicted: a minute
    python -m studies.understanding convergence                             # trainings on digits: a core-minute
    python -m studies.understanding landscapes                              # around three of them: two core-minutes
    python -m studies.understanding convergence --train FILE --epochs 60 --samples 10000     # as far as time allows

Studies are kept below --out and go on where they were interrupted; `--pictures FOLDER` writes the figures.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from initio.analysis.topology import shape, shapes
from initio.analysis.variants import adapted, variants
from initio.networks.graphs import NetworkSettings
from initio.records import Architecture
from initio.report.surfaces import Surface, save_surfaces
from initio.runs.convergence import convergence
from initio.runs.landscape import landscape, surfaces_of
from initio.spaces import DARTS, parse
from initio.spaces.zoo import ZOO_SPACE
from initio.tables.nb301 import EPOCHS, Surrogate

TABLE_4_1 = {"nasnet": (4.29, 4.32), "amoebanet": (3.60, 3.60), "enas": (4.32, 4.32), "darts_v2": (3.83, 3.90),
             "snas": (3.14, 3.19)}  # fmt: skip
TABLE_4_3 = {"darts_v2": 3.35, "enas": 3.86, "amoebanet": 3.15, "nasnet": 3.83}
PREDICTED = ("darts_v2", "snas")  # cells that the surrogate knows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("tables", "convergence", "landscapes"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--train", default="digits", help="what networks learn")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--variants", type=int, default=2)
    parser.add_argument("--grid", type=int, default=7)
    parser.add_argument("--cells", nargs="+", default=["adapted", "DARTS", "C1"], help="of the landscapes")
    parser.add_argument("--out", type=Path, default=Path("runs/understanding"))
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts = {"tables": tables, "convergence": converging, "landscapes": landscapes}
    parts[options.part](options)


def millions(arch: Architecture) -> float:
    """Parameters of the network with 20 cells and 36 channels."""
    return ZOO_SPACE.cost(arch, NetworkSettings(prune=False)).parameters / 1e6


def tables(options: argparse.Namespace) -> None:
    """Tables 4.1 and 4.3 as far as they can be counted, 4.2 and Figure 4.10 as far as the surrogate predicts."""
    print("| cell | width, depth | adapted | parameters, M (Table 4.3) | adapting adds, M (Table 4.1) |")
    print("|---|---|---|---|---|")
    for name, (before, after) in TABLE_4_1.items():
        arch = ZOO_SPACE.parse(name)
        wide = adapted(ZOO_SPACE, arch)
        its, wider = (shape(ZOO_SPACE.cells(one)[0]) for one in (arch, wide))
        printed = f" ({TABLE_4_3.get(name, '-')})"
        added = f"{millions(wide) - millions(arch):.3f} ({after - before:.2f})"
        print(f"| {name} | {its} | {wider} | {millions(arch):.3f}{printed} | {added} |")
    surrogate = Surrogate(options.data / "nb301_surrogate_yahpo_v1.npz")

    def predicted(archs: list[Architecture]) -> np.ndarray:
        return np.asarray(surrogate.predict(archs, EPOCHS[-1])[0])

    for name in PREDICTED:
        arch = parse(name)
        found = variants(DARTS, arch, 13)
        rows = [one.architecture for one in found]
        accuracies = predicted([*rows, adapted(DARTS, arch)])
        print(f"\n{name}: predicted accuracy of C0 to C13 and of the adapted cell, %\n")
        print("| " + " | ".join(f"{one.name} ({one.shape})" for one in found) + " | adapted |")
        print("|" + "---|" * 15)
        print("| " + " | ".join(f"{value:.2f}" for value in accuracies) + " |")
        many = variants(DARTS, arch, 150)
        widths = np.array([one.shape.width for one in many])
        values = predicted([one.architecture for one in many])
        means = ", ".join(f"{w:g}c {values[widths == w].mean():.2f}" for w in sorted(set(widths)))
        print(f"\nmean over 150 random wirings by width: {means}; Pearson {np.corrcoef(widths, values)[0, 1]:.2f}")


def converging(options: argparse.Namespace) -> None:
    """Figures 4.3 and 4.4: the cell, random variants and the adapted cell, with two learning rates."""
    found = convergence(
        "darts_v2", options.train, n=options.variants, widest=True, rates=(0.025, 0.25), epochs=options.epochs,
        samples=options.samples, folder=options.out / "convergence",
        on_done=lambda task, done, total: print(f"{task}: {done} of {total}", flush=True),
    )  # fmt: skip
    print("| learning rate | cell | width, depth | area, % | last test loss | last test accuracy, % |")
    print("|---|---|---|---|---|---|")
    for one in found.curves:
        area = "-" if one.area is None else f"{one.area:.2f}"
        last = f"{one.losses[-1]:.3f} | {one.accuracies[-1]:.2f}" if one.losses else f"{one.flag} |"
        print(f"| {one.lr:g} | {one.name} | {one.width:g}c, {one.depth} | {area} | {last} |")
    if options.pictures:
        for name in ("accuracies", "losses"):
            picture = options.out / "convergence" / f"{name}.png"
            (options.pictures / f"understanding-{name}.png").write_bytes(picture.read_bytes())


def landscapes(options: argparse.Namespace) -> None:
    """Figures 4.6 to 4.8: the adapted cell, the cell itself, and its narrowest of 13 variants."""
    arch = parse("darts_v2")
    cells = {"adapted": adapted(DARTS, arch), "DARTS": arch, "C1": variants(DARTS, arch, 13)[1].architecture}
    losses, deviations = {}, {}
    print(
        "| cell | width, depth | accuracy, % | loss | sharpness | near-convex radius | √g | λ of the Hessian | trace |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in options.cells:
        one, folder = cells[name], options.out / f"landscape-{name}"
        found = landscape(
            one, options.train, grid=options.grid, epochs=options.epochs, folder=folder, steps=10, probes=6
        )
        at, loss, variance = surfaces_of(folder)
        its = next(iter(shapes(DARTS, one).values()))
        losses[f"{name} ({its})"], deviations[f"{name} ({its})"] = Surface(at, loss), Surface(at, np.sqrt(variance))
        numbers, bent = found.numbers, found.curvature
        assert bent is not None
        radius = "-" if numbers.convex_radius is None else f"{numbers.convex_radius:.2f}"
        print(
            f"| {name} | {its} | {found.accuracy:.1f} | {numbers.center:.3f} | {numbers.sharpness:.2f} | {radius} "
            f"| {np.sqrt(numbers.variance):.1f}, {np.sqrt(numbers.variance_around):.0f} around "
            f"| {bent.eigenvalues[0]:.2f} | {bent.trace:.0f}±{bent.trace_error:.0f} |",
            flush=True,
        )
    if options.pictures:
        save_surfaces(losses, options.pictures / "understanding-contours.png", "contour", "loss")
        save_surfaces(deviations, options.pictures / "understanding-variance.png", "heat", "√g")
        save_surfaces(losses, options.pictures / "understanding-surfaces.png", "3d", "loss")


if __name__ == "__main__":
    main()
