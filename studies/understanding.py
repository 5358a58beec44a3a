"""Evidence for docs/results/understanding.md: chapter 4 of the thesis at small scale.

    python -m studies.understanding tables --data FOLDER           # counted and predicted: a minute
    python -m studies.understanding published --data FOLDER        # width and depth in the published tables: a minute
    python -m studies.understanding convergence --data FOLDER      # trainings: minutes of a core a seed
    python -m studies.understanding operations --data FOLDER       # random operations
    python -m studies.understanding landscapes --data FOLDER       # around trained networks

FOLDER has the tables of the benchmarks and `cifar10_sub10k.npz`, a part of CIFAR-10; `--train digits` learns digits in
its place. Studies are kept below --out and go on where they were interrupted, so more `--seeds` add to what is there;
`--pictures FOLDER` writes the figures.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from scipy.stats import rankdata

import initio
from initio.analysis.correlation import spearman
from initio.analysis.topology import shape, shapes
from initio.analysis.variants import VariantKind, adapted, variants
from initio.networks.graphs import NetworkSettings
from initio.records import Architecture
from initio.report.cells import Cell, drawn
from initio.report.surfaces import Surface, save_lines, save_surfaces
from initio.runs.convergence import ConvergenceCurve, convergence
from initio.runs.landscape import LandscapeResult, landscape, surfaces_of
from initio.spaces import DARTS, NB101, NB201, parse
from initio.spaces.zoo import ZOO_SPACE
from initio.tables.compact import Arrays
from initio.tables.nb101 import NB101Rows
from initio.tables.nb301 import EPOCHS, Surrogate

TABLE_4_1 = {"nasnet": (4.29, 4.32), "amoebanet": (3.60, 3.60), "enas": (4.32, 4.32), "darts_v2": (3.83, 3.90),
             "snas": (3.14, 3.19)}  # fmt: skip
TABLE_4_3 = {"darts_v2": 3.35, "enas": 3.86, "amoebanet": 3.15, "nasnet": 3.83}
PREDICTED = ("darts_v2", "snas")  # cells that the surrogate knows
RATES = (0.0025, 0.025, 0.25)
WIRINGS = ("adapted", "C0", "C1")  # from wide to narrow; C1 is the narrowest of
N = 13  # random ones
LEARNED, TESTED, PIXELS = 1000, 2000, 16  # of CIFAR-10


def main() -> None:
    parts = {"tables": tables, "published": published, "convergence": wirings, "operations": operations,
             "landscapes": landscapes}  # fmt: skip
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=parts)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--train", help="what networks learn; by default a part of CIFAR-10 at 16x16 pixels")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--channels", type=int, default=4)
    parser.add_argument("--cells", type=int, default=5)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--grid", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("runs/understanding"))
    parser.add_argument("--any-size", action="store_true", help="published: alike with any number of parameters")
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts[options.part](options)


def learned(options: argparse.Namespace) -> str:
    """What networks learn: balanced parts of CIFAR-10, means of 2x2 pixels, written once; or what was asked for."""
    path = options.out / "cifar10.npz"
    if options.train or path.is_file():
        return options.train or str(path)
    whole, parts = np.load(options.data / "cifar10_sub10k.npz", allow_pickle=False), {}
    for part, n in (("train", LEARNED), ("test", TESTED)):
        x, y = whole[f"x_{part}"], whole[f"y_{part}"]
        chosen = np.sort(np.concatenate([np.flatnonzero(y == label)[: n // 10] for label in range(10)]))
        small = x[chosen].reshape(n, PIXELS, 2, PIXELS, 2, 3).mean(axis=(2, 4)).round().astype(np.uint8)
        parts |= {f"x_{part}": small, f"y_{part}": y[chosen]}
    options.out.mkdir(parents=True, exist_ok=True)
    np.savez(path, **parts)
    return str(path)


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
    print("\nTable 4.2: width and depth of 13 random wirings\n")
    print("| cell | " + " | ".join(f"C{number}" for number in range(1, N + 1)) + " |\n" + "|---" * (N + 1) + "|")
    for name in TABLE_4_3:
        original, *others = variants(ZOO_SPACE, ZOO_SPACE.parse(name), N)
        print(f"| {name} ({original.shape}) | {' | '.join(str(one.shape) for one in others)} |")
    surrogate = Surrogate(options.data / "nb301_surrogate_yahpo_v1.npz")

    def predicted(archs: list[Architecture]) -> np.ndarray:
        return np.asarray(surrogate.predict(archs, EPOCHS[-1])[0])

    for name in PREDICTED:
        arch = parse(name)
        found = variants(DARTS, arch, N)
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


# --- published trainings ----------------------------------------------------------------------------------------------


def published(options: argparse.Namespace) -> None:
    """Do wide cells learn faster, and do they end higher? Rank correlations of width and depth with accuracies.

    Among all cells, and among those with the same operations, as many arrows and, unless --any-size, parameters.
    """
    print(
        "| benchmark | accuracy | cells | width ρ | depth ρ | alike but for connections: groups | width ρ | depth ρ |"
    )
    print("|---" * 8 + "|")
    for name, cells, sizes, accuracies in (nb101_cells(options.data), nb201_cells(options.data)):
        seen = [shape(cell) for cell in cells]
        width, depth = (np.array([getattr(one, what) for one in seen]) for what in ("width", "depth"))
        if options.any_size:
            sizes = np.zeros_like(sizes)
        words = [f"{operations_of(cell)} {size}" for cell, size in zip(cells, sizes, strict=True)]
        numbers = np.unique(np.array(words), return_inverse=True)[1]
        for label, values in accuracies.items():
            ok = np.isfinite(values) & (depth > 0)
            columns = [np.stack([values, width, depth])[:, ok], numbers[ok]]
            everywhere = [f"{spearman(columns[0][0], column):.2f}" for column in columns[0][1:]]
            inside, count = within(*columns)
            print(
                f"| {name} | {label} | {ok.sum():,} | {' | '.join(everywhere)} "
                f"| {count:,} | {' | '.join(f'{rho:.2f}' for rho in inside)} |"
            )


def nb101_cells(folder: Path) -> tuple[str, list[Cell], np.ndarray, dict[str, np.ndarray]]:
    """Cells of NAS-Bench-101 with accuracies after four lengths of training, one trial each, and the test's."""
    rows = NB101Rows.of(Arrays.read(folder / "nb101.npz"))
    short = np.load(folder / "nb101_multifidelity_30k.npz", allow_pickle=False)
    wanted = np.zeros(len(rows), dtype=bool)
    wanted[short["row"]] = True
    archs, place = rows.members(wanted)
    order = np.argsort(short["row"])
    assert np.array_equal(short["row"][order], place)
    found = {f"validation, {epochs} epochs": short[f"val_acc_{epochs}"][order] for epochs in (4, 12, 36, 108)}
    whole = np.load(folder / "nb101.npz", allow_pickle=False)
    found["test, 108 epochs"] = whole["test_acc_108"][place]
    return "nb101", [NB101.cells(arch)[0] for arch in archs], whole["params"][place], found


def nb201_cells(folder: Path) -> tuple[str, list[Cell], np.ndarray, dict[str, np.ndarray]]:
    """All cells of NAS-Bench-201 on CIFAR-10: after 12 epochs, and after 200."""
    table = np.load(folder / "nb201_tss.npz", allow_pickle=False)
    options = [decision.options for decision in NB201.decisions]
    names = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")  # as the table counts them
    archs = [
        NB201.architecture(*(choice.index(names[op]) for choice, op in zip(options, row, strict=True)))
        for row in table["ops"]
    ]
    keys = {"validation, 12 epochs": "val12_c10", "validation, 200 epochs": "val_c10_nats"}
    keys["test, 200 epochs"] = "test_c10_nb201"
    found = {label: table[key] for label, key in keys.items()}
    return "nb201", [NB201.cells(arch)[0] for arch in archs], table["params_c10"], found


def operations_of(cell: Cell) -> tuple[str, ...]:
    """All that a cell is made of, whatever its connections: operations on nodes and arrows, and how many arrows."""
    arrows = drawn(cell)
    return (str(len(arrows)), *sorted(cell.nodes), *sorted(edge.label for edge in arrows))


def within(columns: np.ndarray, groups: np.ndarray, least: int = 5) -> tuple[list[float], int]:
    """Spearman's correlation of the first column with the others inside groups of `least` or more, pooled."""
    ranks, count = [], 0
    order = np.argsort(groups, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        if len(members) >= least:
            centred = rankdata(columns[:, members], axis=1) - (len(members) + 1) / 2
            ranks.append(centred / len(members))
            count += 1
    table = np.corrcoef(np.concatenate(ranks, axis=1))
    return table[0, 1:].tolist(), count


# --- convergence ------------------------------------------------------------------------------------------------------


def converged(
    options: argparse.Namespace, kind: VariantKind, n: int, rates: tuple[float, ...], only: tuple[str, ...] = ()
) -> list[ConvergenceCurve]:
    """DARTS and variants, trained alike from every seed, which draws other variants too."""
    curves: list[ConvergenceCurve] = []
    for seed in options.seeds:
        found = convergence(
            "darts_v2", learned(options), n=n, kind=kind, widest=bool(only), only=only, rates=rates,
            epochs=options.epochs, channels=options.channels, cells=options.cells, seed=seed,
            folder=options.out / f"{kind}-{seed}",
            on_done=lambda task, done, total: print(f"{task}: {done} of {total}", flush=True),
        )  # fmt: skip
        curves += found.curves
    return curves


def grouped(curves: list[ConvergenceCurve]) -> dict[tuple[float, str], list[ConvergenceCurve]]:
    """By learning rate and name: one curve a seed."""
    groups = defaultdict(list)
    for one in curves:
        groups[one.lr, one.name].append(one)
    return dict(groups)


def spread(values: list[float | None]) -> str:
    """Mean and standard error over seeds; who has no value is counted beside."""
    there = [value for value in values if value is not None]
    if not there:
        return "-"
    text = f"{np.mean(there):.2f}"
    if len(there) > 1:
        text += f" ± {np.std(there, ddof=1) / len(there) ** 0.5:.2f}"
    return text + f" ({len(values) - len(there)} without)" * (len(there) < len(values))


def at_equal_loss(curve: ConvergenceCurve, loss: float) -> float | None:
    """Test accuracy when the training loss has come down to `loss`, between two epochs by a straight line."""
    falling = np.minimum.accumulate(curve.train_losses)
    if curve.flag or falling[-1] > loss or falling[0] < loss:
        return None
    return float(np.interp(-loss, -falling, curve.accuracies))


def show(curves: list[ConvergenceCurve], order: tuple[str, ...]) -> None:
    """A row a cell and learning rate: how fast, how far, and how well for what was learned."""
    groups = grouped(curves)
    print("| learning rate | cell | width | area, % | last train loss | last test loss | last accuracy, % "
          "| accuracy at equal train loss, % | diverged |\n" + "|---" * 9 + "|")  # fmt: skip
    for rate in sorted({rate for rate, _ in groups}):
        reached = [one.train_losses[-1] for one in curves if one.lr == rate and not one.flag]
        common = max(reached, default=0.0)  # the least that everybody came down to
        for name in order:
            its = groups[rate, name]
            done = [one for one in its if not one.flag]
            columns = [
                spread([one.area for one in its]),
                spread([one.train_losses[-1] for one in done]),
                spread([one.losses[-1] for one in done]),
                spread([one.accuracies[-1] for one in done]),
                f"{spread([at_equal_loss(one, common) for one in its])} at {common:.2f}",
                f"{len(its) - len(done)} of {len(its)}",
            ]
            width = "/".join(sorted({f"{one.width:g}c" for one in its}))
            print(f"| {rate:g} | {name} | {width} | {' | '.join(columns)} |")


def pictured(curves: list[ConvergenceCurve], order: tuple[str, ...], path: Path) -> None:
    """Mean curves of test accuracy over the seeds, a panel a learning rate."""
    panels: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    groups = grouped(curves)
    for rate in sorted({rate for rate, _ in groups}):
        for name in order:
            mean = np.mean([one.accuracies for one in groups[rate, name] if not one.flag], axis=0)
            widths = "/".join(sorted({f"{one.width:g}c" for one in groups[rate, name]}))
            line = np.arange(1, len(mean) + 1), mean
            panels.setdefault(f"learning rate {rate:g}", {})[f"{name} ({widths})"] = line
    save_lines(panels, path, ("epoch", "test accuracy, %"))


def wirings(options: argparse.Namespace) -> None:
    """Figures 4.3 and 4.4: the adapted cell, DARTS, and the narrowest of 13 wirings, with three learning rates."""
    curves = converged(options, "connections", N, RATES, WIRINGS)
    show(curves, WIRINGS)
    if options.pictures:
        pictured(curves, WIRINGS, options.pictures / "understanding-convergence.png")


def operations(options: argparse.Namespace) -> None:
    """Figure 4.5: DARTS and three cells with its connections and random operations."""
    curves, order = converged(options, "operations", 3, RATES[1:2]), ("C0", "C1", "C2", "C3")
    show(curves, order)
    if options.pictures:
        pictured(curves, order, options.pictures / "understanding-operations.png")


# --- landscapes -------------------------------------------------------------------------------------------------------


def landscapes(options: argparse.Namespace) -> None:
    """Figures 4.6 to 4.8: the adapted cell, DARTS, and the narrowest of 13 wirings, trained alike."""
    found: dict[str, list[tuple[Path, LandscapeResult]]] = defaultdict(list)
    arch = parse("darts_v2")
    size = {"channels": options.channels, "cells": options.cells, "epochs": options.epochs}
    for seed in options.seeds:
        narrow = variants(DARTS, arch, N, seed=seed)[1].architecture
        for name, one in {"adapted": adapted(DARTS, arch), "C0": arch, "C1": narrow}.items():
            folder = options.out / f"landscape-{seed}-{name}"
            trained = initio.train(
                one, learned(options), "plain", seed=seed, folder=folder / "training", resume=True, tensorboard=False,
                validation=0.0, augment="auto", **size,
            )  # fmt: skip
            label = f"{name} ({next(iter(shapes(DARTS, one).values()))})"
            around = landscape(
                str(trained.folder), grid=options.grid, samples=100, folder=folder, seed=seed, steps=10, probes=6,
                on_done=lambda task, done, total: print(f"{task}: {done} of {total}", flush=True),
            )  # fmt: skip
            found[name].append((folder, around))
            tell(seed, label, around)
    if options.pictures:
        losses, deviations = {}, {}
        for name, rows in found.items():
            at, loss, variance = surfaces_of(rows[0][0])
            losses[name], deviations[name] = Surface(at, loss), Surface(at, np.sqrt(variance))
        save_surfaces(losses, options.pictures / "understanding-contours.png", "contour", "loss")
        save_surfaces(deviations, options.pictures / "understanding-variance.png", "heat", "√g")
        save_surfaces(deviations, options.pictures / "understanding-variance-3d.png", "3d", "√g")


def tell(seed: int, label: str, found: LandscapeResult) -> None:
    """One row."""
    numbers, bent = found.numbers, found.curvature
    assert bent is not None
    assert numbers.variance is not None
    assert numbers.variance_around is not None
    radius = "-" if numbers.convex_radius is None else f"{numbers.convex_radius:.2f}"
    print(
        f"| {seed} | {label} | {found.accuracy:.1f} | {numbers.center:.3f} | {numbers.sharpness:.2f} | {radius} "
        f"| {np.sqrt(numbers.variance):.1f}, {np.sqrt(numbers.variance_around):.0f} around "
        f"| {bent.eigenvalues[0]:.2f} | {bent.trace:.0f} ± {bent.trace_error:.0f} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
