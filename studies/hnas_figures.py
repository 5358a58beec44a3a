"""Figures 2 to 4 of HNAS, and Figure 7.5 of the thesis; `hnas_tables` prints and saves them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from initio.analysis.hnas_bounds import bound
from initio.records import Query
from initio.runs.bench import BenchSetup, curves, run_all, summarise
from initio.searches import Answer, Budget, QuerySearch
from initio.searches.methods.evolution import RegularisedEvolution
from initio.searches.methods.hnas import Hnas
from initio.searches.methods.random_search import RandomSearch
from initio.searches.methods.ranking import ZeroCost
from initio.searches.methods.reinforce import Reinforce
from initio.searches.models.bayes import GaussianProcess, Optimiser, Point
from studies.hnas_evidence import METRICS, Evidence, agree, cell, mean_std, show, spearman_of


def picture(columns: int, rows: int = 1) -> tuple[Any, Any]:
    """An empty figure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt.subplots(rows, columns, figsize=(2.6 * columns, 2.4 * rows), constrained_layout=True, squeeze=False)


def save(e: Evidence, figure: Any, name: str) -> None:
    """Writes a small file."""
    e.out.mkdir(parents=True, exist_ok=True)
    figure.savefig(e.out / name, dpi=80)
    print(f"\nwritten {e.out / name}")


FIGURE_2 = {"grad_norm": 0.97, "snip": 0.96, "grasp": 0.89}


def figure_2(e: Evidence) -> None:
    """Metrics against `trace`."""
    figure, axes = picture(len(FIGURE_2))
    ranks = {metric: e.nb201.M(metric).argsort().argsort() for metric in ("trace", *FIGURE_2)}
    rows = []
    for axis, (metric, theirs) in zip(axes[0], FIGURE_2.items(), strict=True):
        rho = agree(e.nb201.M(metric), e.nb201.M("trace"))[0]
        axis.hexbin(ranks["trace"], ranks[metric], gridsize=40, bins="log", cmap="Blues", linewidths=0)
        axis.set(xlabel="rank of trace", ylabel=f"rank of {metric}", title=f"ρ = {rho:.2f}", xticks=[], yticks=[])
        rows.append([metric, cell(rho, theirs)])
    show("Figure 2: ρ with trace, nb201", ["M", "ρ"], rows)
    save(e, figure, "hnas-figure-2.png")


def figure_3(e: Evidence, seeds: int = 10, seconds: float = 12000) -> None:
    """Searches under one budget: what `initio bench` does, with a picture that is small enough to keep."""
    from initio.cli.bench import markdown
    from initio.report.curves import save_curves

    setup = BenchSetup("nb201", Budget(seconds=seconds), str(e.data))
    searches: dict[str, QuerySearch] = {
        "hnas, trace": Hnas("trace"), "zero-cost, trace": ZeroCost("trace", k=1000), "random": RandomSearch(),
        "rea": RegularisedEvolution(), "reinforce": Reinforce(),
    }  # fmt: skip
    outcomes = run_all(setup, searches, range(seeds))
    print("\n**Figure 3: the end of the curves**\n")
    print("\n".join(markdown(summarise(outcomes), [])))
    e.out.mkdir(parents=True, exist_ok=True)
    save_curves(curves(outcomes), e.out / "hnas-figure-3.png", f"nb201, {seconds:,.0f} s, {seeds} seeds")
    print(f"\nwritten {e.out / 'hnas-figure-3.png'}")


BINS = 20


def figure_4(e: Evidence) -> None:
    """Test errors in 20 bins of M with equally many architectures, and κ's correlation with them inside each bin."""
    figure, axes = picture(len(METRICS), 2)
    error, rows = 100 + e.nb201.errors["c10"], []
    for metric, (top, bottom) in zip(METRICS, axes.T, strict=True):
        M = e.nb201.M(metric)
        order = np.argsort(np.where(np.isnan(M), -1, M), kind="stable")[int(np.isnan(M).sum()) :]
        bins = np.array_split(order, BINS)
        means = np.array([error[b].mean() for b in bins])
        rhos = np.array([agree(e.nb201.kappa[b], error[b])[0] for b in bins])
        low, high = ([np.quantile(error[b], q) for b in bins] for q in (0.05, 0.95))
        top.vlines(range(BINS), low, high, color="tab:blue", linewidth=2)
        top.plot(range(BINS), means, "k--")
        top.set(title=metric, ylabel="test error, %", ylim=(0, 60))
        bottom.bar(range(BINS), rhos, color="tab:blue")
        bottom.set(xlabel="bin of M", ylabel="ρ(κ, error)", ylim=(-0.5, 1))
        best = int(means.argmin())
        shown = f"{means[0]:.1f}, {means[best]:.1f} (bin {best + 1}), {means[-1]:.1f}"
        rows.append([metric, shown, f"{np.nanmean(rhos):.2f}", f"{int((rhos > 0).sum())} of {BINS}"])
    head = [
        "M",
        "mean error: first bin, best bin, last bin",
        "mean ρ(κ, error) inside bins",
        "bins where it is positive",
    ]
    show("Figure 4: test error on C10 by bins of M", head, rows)
    save(e, figure, "hnas-figure-4.png")


@dataclass
class Remembering:
    """An optimiser whose points are kept."""

    inner: Optimiser
    points: list[Point] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def suggest(self) -> Point:
        """Of the optimiser inside."""
        return self.inner.suggest()

    def observe(self, point: Point, value: float) -> None:
        """Keeps both."""
        self.points.append(point)
        self.values.append(value)
        self.inner.observe(point, value)


def figure_7_5(e: Evidence, seeds: int = 10, queries: int = 20) -> None:
    """The correlation of the bound at the best (μ, ν) so far, step by step of HNAS's Bayesian optimisation."""
    setup = BenchSetup("nb201", Budget(queries), str(e.data))
    shown = (1, 3, 5, 10, 15, 20)
    rows = []
    for t in (1.0, 0.5):
        runs = np.array([_evolution(setup, Hnas("trace", t=t), seed, queries) for seed in range(seeds)])
        rows.append([f"{t:g}", *(mean_std(runs[:, step - 1].tolist()) for step in shown)])
    title = f"Thesis Figure 7.5: ρ of the bound (trace) at the best μ, ν so far; {seeds} seeds"
    show(title, ["t", *(f"step {step}" for step in shown)], rows)


def _evolution(setup: BenchSetup, search: Hnas, seed: int, queries: int) -> list[float]:
    benchmark, problem = setup.open(), setup.problem(seed)
    scores = problem.known_scores("hnas")
    kept = Remembering(GaussianProcess(2, seed, search.start(problem)))
    steps = search.steps(problem, seed, kept)
    query = next(asked for asked in steps if isinstance(asked, Query))
    for _ in range(queries):
        query = steps.send(Answer(benchmark.validation(query).value or 0.0))
    error = -np.array([benchmark.report(arch)["c10"] for arch in scores.architectures])
    found = []
    for step in range(queries):
        best = kept.points[int(np.argmax(kept.values[: step + 1]))]
        values = bound("non_realisable", scores[search.metric], scores[search.kappa], search.trade_off(best))
        found.append(spearman_of(values, error))
    return found
