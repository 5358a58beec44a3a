"""What NASI's trace T is related to in nb1shot1: random labels and noise, the exact trace, the test error.

python -m studies.nasi_relations --data ../shared/data --picture docs/results/nasi-trace-error.svg

Prints NASI's Figure 1 (T on true and random labels, on data and noise), Table 3 (T and its rivals against the test
accuracy), Table 7 (T against the exact trace of the neural tangent kernel) and the correlations behind Figure 3 (T
against the test error), which is drawn. T_c is the part of T that the chosen operations' parameters hold, R the
objective of `nasi-fit`. Measurements are kept in a journal below --out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import kendalltau, pearsonr, spearmanr

from initio.errors import InputError
from initio.metrics import Options, evaluate
from initio.records import Architecture
from initio.searches.methods.nasi_fit import traces
from initio.spaces import get_space
from initio.spaces.nb1shot1 import NB1Shot1Space
from initio.system.files import whole_file
from studies.nasi_quality import MODES, Job, Journal, default_of, digest, nb1shot1_table, problem_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPACES = ("nb1shot1-s1", "nb1shot1-s2", "nb1shot1-s3")
BATCHES = (4, 8, 16, 32, 64, 128)
PUBLISHED = {  # Table 7: Pearson of the exact trace with T at each batch size, then with the sum of single gradients
    "nb1shot1-s1": (0.74, 0.80, 0.84, 0.83, 0.85, 0.86, 0.88),
    "nb1shot1-s2": (0.82, 0.87, 0.90, 0.89, 0.91, 0.91, 0.92),
    "nb1shot1-s3": (0.66, 0.74, 0.81, 0.79, 0.82, 0.84, 0.87),
}
TABLE_3 = {  # Spearman on S1, S2, S3, then Kendall
    "snip": (-0.49, -0.62, -0.79, -0.39, -0.49, -0.63), "grasp": (0.41, 0.54, 0.17, 0.33, 0.42, 0.15),
    "synflow": (-0.52, -0.45, -0.53, -0.42, -0.40, -0.47), "naswot": (0.21, 0.32, 0.54, 0.16, 0.24, 0.44),
    "nasi": (0.62, 0.74, 0.76, 0.44, 0.53, 0.53),
}  # fmt: skip
PARTS = ("figure-1", "figure-3", "table-3", "table-7")
BINS = 10


@dataclass(frozen=True)
class Relations:
    """Measurements of the random architectures 0, 1, 2, ... of one space; a number has its own weights and batch."""

    space: str
    data: Path
    journal: Journal

    def architecture(self, number: int) -> Architecture:
        """The same for every measurement."""
        return problem_of(self.space, "noise", self.data).draw_admitted(Random(f"relations {number}"))

    def values(self, what: str, n: int, mode: str = "data", batch_size: int = 64) -> np.ndarray:
        """One measurement of the first n architectures."""
        jobs = [Job(f"{what}, b = {batch_size}", mode, number) for number in range(n)]
        missing = [job for job in jobs if job not in self.journal.answers]
        for job in missing:
            self.journal.add(job, self._measure(what, mode, batch_size, job.seed))
        if missing:
            print(f"{self.space}: {what} of {n}, {mode}, b = {batch_size}", file=sys.stderr, flush=True)
        return np.array([self.journal.answers[job] for job in jobs], float)

    def _measure(self, what: str, mode: str, batch_size: int, number: int) -> float:
        at = problem_of(self.space, mode, self.data, batch_size=batch_size)
        draw = Random(f"relations {number} draw").randrange(2**31)
        network, batch = at.build(self.architecture(number), draw), at.batch(draw)
        if what == "T_c":
            _, value, flag = traces(at.space, network, batch)
        elif what == "exact":  # ‖Θ‖_tr of the full kernel, all outputs
            found = evaluate(network, batch, "trace", Options(reduction="all"))["trace"]
            value, flag = None if found.value is None else found.value**2, found.flag
        else:
            found = evaluate(network, batch, what)[what]
            value, flag = found.value, found.flag
        if value is None:
            raise InputError(f"{what} of architecture {number} of {self.space} does not exist: {flag}")
        return value

    def errors(self, n: int) -> np.ndarray:
        """Test errors of the first n."""
        space = get_space(self.space)
        assert isinstance(space, NB1Shot1Space)
        table = nb1shot1_table(space, self.data)
        return np.array([table.report(self.architecture(number))[0] for number in range(n)])


def figure_1(relations: Sequence[Relations], n: int) -> None:
    """Does T depend on labels and data?"""
    print(f"\nFigure 1: T of {n} architectures on data against random labels and noise, Pearson (Spearman)\n")
    print("| space | random labels | noise |\n|---|---|---|")
    for space in relations:
        T = {mode: space.values("nasi", n, mode) for mode in MODES}
        cells = [both(T["data"], T[mode]) for mode in list(MODES)[1:]]
        print(f"| {space.space} | {' | '.join(cells)} |", flush=True)
    print("| paper | about 1 | above 0.9 |")


def table_7(relations: Sequence[Relations], n: int, batch_size: int) -> None:
    """Is T a good approximation of the exact trace?"""
    print(f"\nTable 7: Pearson (Spearman) of the exact trace, on {batch_size} inputs, with T; {n} architectures\n")
    print(f"| space | {' | '.join(f'b = {b}' for b in BATCHES)} | sum |\n{'|---' * (len(BATCHES) + 2)}|")
    for space in relations:
        exact = space.values("exact", n, batch_size=batch_size)
        T = [space.values("nasi", n, batch_size=b) for b in BATCHES]
        T.append(space.values("nasi_sum", n, batch_size=batch_size))
        print(f"| {space.space} | {' | '.join(both(exact, t) for t in T)} |", flush=True)
        print(f"| paper | {' | '.join(f'{value:.2f}' for value in PUBLISHED[space.space])} |")


def figure_3(relations: Sequence[Relations], n: int, picture: Path | None) -> None:
    """How T and the part of it that the chosen operations hold are related to the test error."""
    print(f"\nFigure 3: Spearman with the test accuracy of {n} architectures\n")
    low_T = "where T is below its median"
    print(f"| space | T | T, {low_T} | T_c | T_c, {low_T} | R | parameters | median of T_c / T |\n{'|---' * 8}|")
    for space in relations:
        T, T_c, error = space.values("nasi", n), space.values("T_c", n), space.errors(n)
        low = np.median(T) >= T
        size = [parameters(space, number) for number in range(n)]
        R = default_of(space.space).objective(T, T_c)
        pairs = ((T, error), (T[low], error[low]), (T_c, error), (T_c[low], error[low]), (R, error), (size, error))
        cells = [f"{-spearmanr(*pair).statistic:.2f}" for pair in pairs] + [f"{np.median(T_c / T):.2f}"]
        print(f"| {space.space} | {' | '.join(cells)} |", flush=True)
    if picture is not None:
        draw(relations, n, picture)
        print(f"\nwritten {picture}")


def table_3(relations: Sequence[Relations], n: int) -> None:
    """T and its rivals against the test accuracy; the paper's T is that of architectures that keep its constraint."""
    print(f"\nTable 3: correlation with the test accuracy of {n} architectures, ours (theirs)\n")
    heads = [f"{name} {space.space[-2:].upper()}" for name in ("ρ", "τ") for space in relations]
    print(f"| metric | {' | '.join(heads)} |\n{'|---' * (len(heads) + 1)}|")
    places = [SPACES.index(space.space) + 3 * half for half in (0, 1) for space in relations]
    T = [space.values("nasi", n) for space in relations]
    low = [np.median(traces) >= traces for traces in T]
    fitted = [default_of(s.space).objective(t, s.values("T_c", n)) for s, t in zip(relations, T, strict=True)]
    sizes = [np.array([parameters(space, number) for number in range(n)]) for space in relations]
    for metric in ("snip", "grasp", "synflow", "naswot"):
        _row(metric, [space.values(metric, n) for space in relations], relations, TABLE_3[metric], places)
    _row("T of all", T, relations, (), places)
    _row("T where it is below its median", T, relations, TABLE_3["nasi"], places, low)
    _row("R of `nasi-fit`", fitted, relations, (), places)
    _row("parameters", sizes, relations, (), places)


def _row(
    name: str,
    values: Sequence[np.ndarray],
    relations: Sequence[Relations],
    theirs: Sequence[float],
    places: Sequence[int],
    kept: Sequence[np.ndarray] = (),
) -> None:
    cells = []
    for statistic in (spearmanr, kendalltau):
        for number, (space, x) in enumerate(zip(relations, values, strict=True)):
            error = space.errors(len(x))
            some = kept[number] if kept else np.ones(len(x), bool)
            cells.append(f"{-statistic(x[some], error[some]).statistic:.2f}")
    if theirs:
        cells = [f"{cell} ({theirs[place]:.2f})" for cell, place in zip(cells, places, strict=True)]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def parameters(space: Relations, number: int) -> int:
    """Of the published network."""
    from initio.networks.cost import count

    at = problem_of(space.space, "noise", space.data)
    return int(count(at.graphs.network(space.architecture(number), at.target), at.target).parameters)


def draw(relations: Sequence[Relations], n: int, picture: Path) -> None:
    """Mean test error of architectures in bins of equally many, with half the standard deviation as the paper has."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(relations), 3.4), layout="constrained")
    axes: list[Axes] = list(figure.subplots(1, len(relations), squeeze=False)[0])
    for axis, space in zip(axes, relations, strict=True):
        T, error = space.values("nasi", n), space.errors(n)
        bins = np.array_split(np.argsort(T), BINS)
        mean, spread = ([float(f(error[b])) for b in bins] for f in (np.mean, np.std))
        axis.errorbar([T[b].mean() for b in bins], mean, 0.5 * np.array(spread), marker="o", capsize=3)
        axis.axhline(error.min(), color="red", linewidth=1)
        axis.set(xscale="log", xlabel="T, mean of the bin", title=space.space)
    axes[0].set_ylabel("test error, %")
    with whole_file(picture) as temporary:
        figure.savefig(temporary, metadata={"Date": None} if picture.suffix == ".svg" else None)


def both(a: np.ndarray, b: np.ndarray) -> str:
    """Pearson, as the paper has it, and Spearman, which the tail does not decide."""
    return f"{pearsonr(a, b).statistic:.2f} ({spearmanr(a, b).statistic:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--space", nargs="+", default=SPACES, choices=SPACES)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--n", type=int, default=200, help="architectures for Figure 3 and Table 3; else a quarter")
    parser.add_argument("--part", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--exact", type=int, default=32, help="inputs of the exact trace")
    parser.add_argument("--picture", type=Path, help="where Figure 3 is drawn")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the journals")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    relations = []
    for space in options.space:
        network = problem_of(space, "noise", options.data).network
        key = digest((network, str(options.data.resolve())))
        journal = Journal(options.out / f"nasi-relations-{space}-{key}.jsonl")
        relations.append(Relations(space, options.data, journal))
    if "figure-3" in options.part:
        figure_3(relations, options.n, options.picture)
    if "table-3" in options.part:
        table_3(relations, options.n)
    if "figure-1" in options.part:
        figure_1(relations, options.n // 4)
    if "table-7" in options.part:
        table_7(relations, options.n // 4, options.exact)


if __name__ == "__main__":
    main()
