"""Tables and figures of HNAS (Shu et al., 2022) and thesis Figure 7.5: ours beside (theirs).

    python -m studies.hnas_tables --data ../shared/data                    # all but te-nas: about four core-minutes
    python -m studies.hnas_tables --data ../shared/data --table 6          # one
    python -m studies.hnas_tables --data ../shared/data --table 1 5 10 --store hnas.db --score   # scores first

Scores of all nb201, and of a seeded 300 of its architectures under other conventions, come with Initio. nb101 (Tables 1
and 5) and other batch sizes (Table 10) need a store of your own, made by `--score` in about ten core-minutes. Tables 4
and 13 are printed by `initio bench` (docs/results/hnas.md has the commands).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from initio.analysis.hnas_bounds import BOUNDS, Bound, bound
from initio.analysis.topology import shape
from initio.cli import main as initio
from initio.data import load
from initio.metrics import evaluate
from initio.searches.methods.hnas import Hnas
from initio.searches.methods.te_nas import TeNas
from initio.spaces import GraphSpace, NetworkSettings
from initio.spaces.genotype import Genotype
from initio.spaces.published import ZOO
from initio.spaces.zoo import ZOO_SPACE
from initio.tables import open_table
from studies.hnas_evidence import (
    ALL,
    BATCH_SIZES,
    DATASETS,
    IMAGES,
    METRICS,
    SAMPLE,
    SOURCES,
    Evidence,
    Pair,
    Scored,
    agree,
    cell,
    mean_std,
    show,
)
from studies.hnas_figures import figure_2, figure_3, figure_4, figure_7_5

# --- tables of HNAS --------------------------------------------------------------------------------------------------

# Spearman and Kendall for nb101, then for nb201
TABLE_1: dict[Bound, dict[str, tuple[float, float, float, float]]] = {
    "realisable": {
        "grad_norm": (-0.25, -0.17, 0.64, 0.47), "snip": (-0.21, -0.15, 0.64, 0.47),
        "grasp": (-0.45, -0.31, 0.57, 0.40), "trace": (-0.30, -0.21, 0.54, 0.39),
    },
    "non_realisable": {
        "grad_norm": (0.35, 0.23, 0.75, 0.56), "snip": (0.37, 0.25, 0.75, 0.56),
        "grasp": (0.46, 0.32, 0.69, 0.50), "trace": (0.33, 0.23, 0.70, 0.51),
    },
}  # fmt: skip


def table_1(e: Evidence) -> None:
    """The bounds on nb101 and nb201."""
    rows = []
    for kind, published in TABLE_1.items():
        for metric, theirs in published.items():
            ours = e.both(e.nb201, metric, kind=kind)
            cells = ["not scored"] * 2
            if e.nb101 is not None:
                values = bound(kind, e.nb101.M(metric), e.nb101.kappa, e.nb101.fit(kind, metric))
                cells = [cell(o, t) for o, t in zip(agree(values, e.nb101.errors["c10"]), theirs[:2], strict=True)]
            cells += [cell(o, t) for o, t in zip(ours, theirs[2:], strict=True)]
            rows.append([kind.replace("_", "-"), metric, *cells])
    show("Table 1: bounds and test errors on C10", ["bound", "M", "nb101 ρ", "nb101 τ", "nb201 ρ", "nb201 τ"], rows)


TABLE_2: dict[Bound, dict[str, tuple[str, ...]]] = {
    "realisable": {
        "c10": ("0.64±0.01", "0.64±0.01", "0.58±0.02", "0.55±0.01"),
        "c100": ("0.64±0.01", "0.64±0.01", "0.58±0.03", "0.54±0.02"),
        "in16": ("0.57±0.01", "0.57±0.01", "0.52±0.03", "0.47±0.02"),
    },
    "non_realisable": {
        "c10": ("0.75±0.00", "0.75±0.00", "0.69±0.01", "0.69±0.00"),
        "c100": ("0.74±0.00", "0.74±0.00", "0.69±0.01", "0.69±0.01"),
        "in16": ("0.69±0.00", "0.69±0.00", "0.63±0.01", "0.65±0.00"),
    },
}  # fmt: skip
# ρ, then τ; knas from the thesis
TABLE_12: dict[Bound, dict[str, tuple[str, ...]]] = {
    "realisable": {
        "c10": ("0.53±0.02", "0.39±0.01", "0.78±0.00", "0.09±0.02",
              "0.39±0.02", "0.29±0.01", "0.58±0.00", "0.10±0.00"),
        "c100": ("0.53±0.03", "0.39±0.01", "0.76±0.00", "0.09±0.02",
              "0.38±0.02", "0.29±0.01", "0.57±0.00", "0.11±0.01"),
        "in16": ("0.46±0.02", "0.32±0.01", "0.75±0.00", "0.16±0.02",
              "0.33±0.02", "0.24±0.01", "0.56±0.00", "0.15±0.02"),
    },
    "non_realisable": {
        "c10": ("0.66±0.02", "0.51±0.00", "0.81±0.00", "0.05±0.00",
              "0.49±0.02", "0.37±0.00", "0.61±0.00", "0.03±0.00"),
        "c100": ("0.67±0.03", "0.51±0.01", "0.80±0.02", "0.05±0.01",
              "0.49±0.02", "0.37±0.00", "0.60±0.00", "0.03±0.00"),
        "in16": ("0.62±0.04", "0.44±0.00", "0.78±0.00", "0.05±0.01",
              "0.45±0.03", "0.32±0.00", "0.59±0.00", "0.03±0.00"),
    },
}  # fmt: skip
STATISTICS = ("ρ", "τ")
Row = tuple[list[str], list[Pair], Sequence[float]]


def transfer(
    e: Evidence, title: str, metrics: Sequence[str], published: dict[Bound, dict[str, tuple[str, ...]]]
) -> None:
    """Metrics of three data sets against the errors of each: ρ, and τ where there is something to compare with."""
    by_source = [e.study(source=source) for source in SOURCES]
    printed = max(len(theirs) for each in published.values() for theirs in each.values()) // len(metrics)
    for statistic in range(printed):
        rows = []
        for kind, each in published.items():
            for dataset, theirs in each.items():
                cells = []
                for metric, text in zip(metrics, theirs[statistic * len(metrics) :], strict=False):
                    ours = mean_std([e.both(scored, metric, dataset, kind)[statistic] for scored in by_source])
                    cells.append(f"{ours} ({text})")
                rows.append([kind.replace("_", "-"), dataset, *cells])
        show(title.format(STATISTICS[statistic]), ["bound", "errors on", *metrics], rows)


def table_2(e: Evidence) -> None:
    """Transfer from one data set to another."""
    transfer(e, "Table 2: {}, mean and deviation over metrics from C10, C100 and IN16", METRICS, TABLE_2)


def table_12(e: Evidence) -> None:
    """The same for other metrics (thesis, Table 7.12)."""
    metrics = ("knas", "fisher", "synflow", "naswot")
    transfer(e, "Table 12: {}, mean and deviation over metrics from C10, C100 and IN16", metrics, TABLE_12)


TABLE_3 = {  # width and depth of the normal cell, trace, κ
    "nasnet": ("5c, 2", "31±2", "118±41"), "amoebanet": ("4c, 4", "36±2", "110±39"),
    "enas": ("5c, 2", "36±2", "98±33"), "darts_v2": ("3.5c, 3", "33±2", "122±58"),
    "snas": ("4c, 2", "31±2", "126±47"), "wide": ("4c, 2", "27±1", "141±36"),
    "deep": ("1.5c, 5", "131±16", "209±107"),
}  # fmt: skip
WIRINGS = {"wide": ((0, 1),) * 4, "deep": ((0, 1), (0, 2), (2, 3), (3, 4))}  # the sources of each node
TRACED = ("trace", "kappa")


def table_3(e: Evidence, seeds: int = 3) -> None:
    """Topology, trace and κ of published cells, and of the operations of DARTS wired as wide and as deep as can be."""
    data = load(str(e.data / IMAGES))
    size = NetworkSettings(channels=8, cells=8, shape=data.shape)
    rows = []
    for name, theirs in TABLE_3.items():
        arch = ZOO_SPACE.from_genotype(rewired(WIRINGS[name]) if name in WIRINGS else ZOO[name])
        found = [
            evaluate(ZOO_SPACE.build(arch, size, seed=seed), data.batch(64, seed), ",".join(TRACED))
            for seed in range(seeds)
        ]
        draws = [[values[metric].value for values in found] for metric in TRACED]
        ours = [str(shape(ZOO_SPACE.cells(arch)[0])), *(_whole(values) for values in draws)]
        rows.append([name, *(f"{o} ({t})" for o, t in zip(ours, theirs, strict=True))])
    show(f"Table 3: topology, trace and κ, {seeds} draws", ["cell", "width, depth", "trace", "κ"], rows)


def _whole(values: Sequence[float | None]) -> str:
    known = np.array(values, float)
    return f"{known.mean():.0f}±{known.std(ddof=1):.0f}"


def rewired(sources: Sequence[tuple[int, int]]) -> Genotype:
    """The operations of the DARTS cell between other nodes, in both cells."""
    cell, places = ZOO["darts_v2"], [place for pair in sources for place in pair]
    normal, reduce = (
        tuple((op, place) for (op, _), place in zip(half, places, strict=True)) for half in (cell.normal, cell.reduce)
    )
    return Genotype(normal, cell.normal_concat, reduce, cell.reduce_concat)


# Pearson, Spearman and Kendall for nb101, then for nb201
TABLE_5 = {
    ("grad_norm", "snip"): (0.98, 0.98, 0.87, 1.00, 1.00, 0.97),
    ("grad_norm", "grasp"): (0.35, 0.61, 0.43, 0.60, 0.92, 0.77),
    ("grad_norm", "trace"): (0.98, 0.98, 0.87, 0.98, 0.97, 0.85),
    ("snip", "grasp"): (0.34, 0.59, 0.42, 0.55, 0.92, 0.77),
    ("snip", "trace"): (0.94, 0.93, 0.77, 0.97, 0.96, 0.83),
    ("grasp", "trace"): (0.37, 0.57, 0.40, 0.69, 0.89, 0.73),
    ("knas", "trace"): (0.96, 0.96, 0.84, 0.89, 0.97, 0.86),
    ("fisher", "trace"): (0.69, 0.97, 0.85, 0.30, 0.78, 0.69),
    ("synflow", "trace"): (0.02, 0.50, 0.34, 0.07, 0.49, 0.35),
    ("naswot", "trace"): (0.08, 0.11, 0.08, 0.10, 0.32, 0.22),
}


def table_5(e: Evidence) -> None:
    """How metrics agree with each other."""
    rows = []
    for (a, b), theirs in TABLE_5.items():
        cells = []
        for scored, published in ((e.nb101, theirs[:3]), (e.nb201, theirs[3:])):
            if scored is None:
                cells += ["not scored"] * 3
                continue
            x, y = scored.M(a), scored.M(b)
            known = np.isfinite(x) & np.isfinite(y)
            pearson = float(np.corrcoef(x[known], y[known])[0, 1])
            cells += [cell(o, t) for o, t in zip((pearson, *agree(x, y)), published, strict=True)]
        rows.append([a, b, *cells])
    statistics = ["Pearson", "ρ", "τ"]
    head = ["M1", "M2", *(f"{space} {name}" for space in ("nb101", "nb201") for name in statistics)]
    show("Table 5: metrics with each other", head, rows)


# ρ, then τ
TABLE_6 = {
    "c10": ((0.637, 0.639, 0.566, 0.538, 0.469, 0.472, 0.400, 0.387),
            (0.642, 0.641, 0.570, 0.549, 0.475, 0.474, 0.403, 0.397),
            (0.724, 0.728, 0.658, 0.657, 0.530, 0.533, 0.474, 0.474),
            (0.750, 0.748, 0.686, 0.697, 0.559, 0.556, 0.501, 0.512)),
    "c100": ((0.638, 0.638, 0.571, 0.535, 0.473, 0.475, 0.409, 0.385),
             (0.642, 0.645, 0.578, 0.546, 0.476, 0.481, 0.414, 0.394),
             (0.716, 0.719, 0.649, 0.651, 0.527, 0.529, 0.469, 0.470),
             (0.740, 0.746, 0.680, 0.686, 0.552, 0.557, 0.498, 0.504)),
    "in16": ((0.578, 0.578, 0.550, 0.486, 0.430, 0.433, 0.397, 0.354),
             (0.588, 0.589, 0.566, 0.526, 0.438, 0.441, 0.408, 0.382),
             (0.646, 0.649, 0.612, 0.587, 0.472, 0.474, 0.443, 0.423),
             (0.682, 0.685, 0.655, 0.660, 0.505, 0.506, 0.480, 0.482)),
}  # fmt: skip


def table_6(e: Evidence) -> None:
    """What the trade-off and κ add."""
    rows = [
        ([dataset, kind.replace("_", "-")], [e.both(e.nb201, metric, dataset, kind) for metric in METRICS], theirs)
        for dataset, published in TABLE_6.items()
        for kind, theirs in zip(BOUNDS, published, strict=True)
    ]
    twice("Table 6: {} of four bounds", ["errors on", "bound"], rows, 3)
    signed = [agree(-e.nb201.values["grasp"], e.nb201.errors[dataset])[0] for dataset in DATASETS]
    print("\n−M for 1/M of GraSP, whose sign then counts: " + ", ".join(f"{rho:.3f}" for rho in signed))


TABLE_9: dict[Bound, dict[str, tuple[float, ...]]] = {
    "realisable": {
        "lecun": (0.637, 0.639, 0.566, 0.538, 0.469, 0.472, 0.400, 0.387),
        "xavier": (0.608, 0.627, 0.449, 0.465, 0.445, 0.463, 0.316, 0.334),
        "he": (0.609, 0.615, 0.340, 0.460, 0.446, 0.454, 0.242, 0.334),
    },
    "non_realisable": {
        "lecun": (0.750, 0.748, 0.686, 0.697, 0.559, 0.556, 0.501, 0.512),
        "xavier": (0.676, 0.685, 0.615, 0.635, 0.493, 0.501, 0.442, 0.460),
        "he": (0.607, 0.611, 0.505, 0.569, 0.436, 0.439, 0.358, 0.407),
    },
}


def table_9(e: Evidence) -> None:
    """Initialisations."""
    rows = []
    for kind, published in TABLE_9.items():
        for init, theirs in published.items():
            scored = e.study(init=init)
            rows.append(([kind.replace("_", "-"), init], [e.both(scored, m, kind=kind) for m in METRICS], theirs))
    twice("Table 9: {} on C10 by initialisation", ["bound", "init"], rows)


TABLE_10 = {
    "M": {4: (0.737, 0.741, 0.671, 0.684, 0.547, 0.550, 0.487, 0.501),
          8: (0.739, 0.743, 0.676, 0.689, 0.549, 0.552, 0.492, 0.506),
          16: (0.747, 0.748, 0.685, 0.690, 0.556, 0.556, 0.499, 0.507),
          32: (0.750, 0.748, 0.687, 0.690, 0.558, 0.556, 0.502, 0.506),
          64: (0.750, 0.748, 0.686, 0.697, 0.559, 0.556, 0.501, 0.512)},
    "κ": {4: (0.578, 0.585, 0.569, 0.509, 0.416, 0.421, 0.402, 0.362),
          8: (0.597, 0.603, 0.591, 0.542, 0.429, 0.433, 0.419, 0.386),
          16: (0.628, 0.633, 0.620, 0.582, 0.462, 0.455, 0.442, 0.414),
          32: (0.663, 0.666, 0.645, 0.621, 0.479, 0.481, 0.462, 0.445),
          64: (0.750, 0.748, 0.686, 0.697, 0.559, 0.556, 0.501, 0.512)},
}  # fmt: skip
TABLE_11 = {
    "M": {"4": (0.744, 0.746, 0.688, 0.732, 0.550, 0.552, 0.499, 0.539),
          "8": (0.750, 0.753, 0.707, 0.744, 0.556, 0.559, 0.515, 0.550),
          "16": (0.753, 0.753, 0.728, 0.750, 0.558, 0.559, 0.535, 0.556)},
    "κ": {"4": (0.755, 0.756, 0.736, 0.752, 0.560, 0.562, 0.543, 0.558),
          "8": (0.720, 0.722, 0.700, 0.709, 0.529, 0.531, 0.512, 0.522),
          "16": (0.698, 0.700, 0.677, 0.681, 0.511, 0.514, 0.492, 0.498)},
}  # fmt: skip


def varied(
    e: Evidence, title: str, scored: dict[Any, Scored], fixed: dict[str, Any], published: dict[str, dict[Any, Any]]
) -> None:
    """The non-realisable bound where M or κ is measured in several ways and the other one in a fixed way."""
    rows = []
    for what, each in published.items():
        for way, theirs in each.items():
            of_m, of_kappa = (scored[way], scored[fixed["κ"]]) if what == "M" else (scored[fixed["M"]], scored[way])
            ours = [e.both(of_m, metric, kappa=of_kappa.kappa) for metric in METRICS]
            rows.append(([what, str(way)], ours, theirs))
    twice(title, ["varied", "value"], rows)


def twice(title: str, head: list[str], rows: Sequence[Row], digits: int = 2) -> None:
    """A table of ρ and one of τ: of each row its labels, our pairs, and theirs, all ρ before all τ."""
    for number, statistic in enumerate(STATISTICS):
        found = [
            [*labels, *(cell(o[number], t, digits) for o, t in zip(ours, theirs[number * len(ours) :], strict=False))]
            for labels, ours, theirs in rows
        ]
        show(title.format(statistic), [*head, *METRICS], found)


def table_10(e: Evidence) -> None:
    """Batch sizes."""
    if e.store is None:
        print("\nTable 10 needs scores of other batch sizes: give --store, and --score to make them")
        return
    scored = {size: e.of_batch(size) for size in (*BATCH_SIZES, 64)}
    varied(e, "Table 10: {} on C10 by batch size, 64 for the other", scored, {"M": 64, "κ": 64}, TABLE_10)


def table_11(e: Evidence) -> None:
    """Widths; the widest was scored at 32x32."""
    wide = e.study(channels="16", source="cifar10_sub10k train")
    scored = {"4": e.study(channels="4"), "8": e.study(), "16": wide}
    title = "Table 11: {} on C10 by initial channels; κ of 4 while M varies, M of 16 (theirs 32) while κ varies"
    varied(e, title, scored, {"M": "16", "κ": "4"}, TABLE_11)


def synflow(e: Evidence) -> None:
    """What the bound proposes for some (μ, ν): of each proposal, its place in the metric's own ranking."""
    nus, widths = (0.5, 0.9, 0.98, 0.99, 0.995, 0.999), (0.0, 0.5, 1.0)
    rows = []
    for metric in ("synflow", "trace"):
        M, search = e.nb201.M(metric), Hnas(metric)
        place = np.empty(len(M), dtype=int)
        place[np.argsort(np.where(np.isnan(M), np.inf, -M), kind="stable")] = np.arange(1, len(M) + 1)
        for width in widths:
            bounds = [bound("non_realisable", M, e.nb201.kappa, search.trade_off((nu, width))) for nu in nus]
            rows.append([metric, f"{width:g}", *(f"{place[np.nanargmin(values)]:,}" for values in bounds)])
        if metric == "synflow":
            span = np.log(np.nanmax(M) / np.nanmedian(M))
            print(f"\nsynflow: best/median = e^{span:.0f}; places of 13714 and 10676: {place[13714]}, {place[10676]}")
    show(
        "Place of the proposal in the metric's ranking",
        ["M", "μ's place in its range", *(f"ν = {nu:g}" for nu in nus)],
        rows,
    )


# --- TE-NAS --------------------------------------------------------------------------------------------------------


def te_nas(e: Evidence, seeds: int = 5) -> None:
    """TE-NAS by the number of repeats."""
    benchmark = open_table("nb201", str(e.data))
    space = benchmark.space
    assert isinstance(space, GraphSpace)
    rows, data = [["published", "93.90±0.47", "71.24±0.56", "42.38±0.46"]], load(str(e.data / IMAGES))
    for repeats in (1, 3):
        search = TeNas(repeats=repeats)
        found = [benchmark.report(space.decode(search.weights(space, data, seed))) for seed in range(seeds)]
        rows.append([str(repeats), *(mean_std([each[dataset] for each in found]) for dataset in DATASETS)])
    show(f"TE-NAS, {seeds} seeds", ["repeats", "C10", "C100", "IN16"], rows)


# --- the command -----------------------------------------------------------------------------------------------------

TABLES: dict[str, Callable[[Evidence], None]] = {
    "1": table_1, "2": table_2, "3": table_3, "5": table_5, "6": table_6, "9": table_9, "10": table_10, "11": table_11,
    "12": table_12, "figure-2": figure_2, "figure-3": figure_3, "figure-4": figure_4, "figure-7.5": figure_7_5,
    "synflow": synflow, "te-nas": te_nas,
}  # fmt: skip


def score(data: Path, store: str, tables: Sequence[str]) -> None:
    """Scores what these tables need and no store that comes with Initio has; goes on where it was interrupted."""
    images = ["--data", str(data / IMAGES), "--channels", "8", "--seed", "0", "--workers", "1", "--store", store]
    runs = [["nb101", "--metrics", ",".join(ALL)]] if {"1", "5"} & set(tables) else []
    metrics = ",".join((*METRICS, "kappa"))
    if "10" in tables:
        runs += [["nb201", "--cells", "5", "--batch-size", str(b), "--metrics", metrics] for b in BATCH_SIZES]
    for run in runs:
        if code := initio(["score", *run, "--sample", str(SAMPLE), *images]):
            raise SystemExit(code)


def main() -> None:
    """Scores if asked to, then prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the tables (and, to score, the images)")
    parser.add_argument(
        "--table",
        nargs="+",
        choices=TABLES,
        default=list(TABLES)[:-1],
        metavar="NAME",
        help=f"which ones: {', '.join(TABLES)}",
    )
    parser.add_argument("--store", help="your own scores, for Tables 1, 5 and 10")
    parser.add_argument("--score", action="store_true", help="make them first")
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="folder for pictures")
    args = parser.parse_args()
    if args.score:
        if args.store is None:
            parser.error("--score needs --store, where scores go")
        score(args.data, args.store, args.table)
    evidence = Evidence(args.data, args.store, args.out)
    for name in args.table:
        TABLES[name](evidence)


if __name__ == "__main__":
    main()
