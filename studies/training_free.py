"""What the default search chooses without training, beside climbs, NASI, chance and published rows.

python -m studies.training_free --seeds 10 --data ../shared/data

Every search has a run folder below --out: a command that was killed goes on inside the search that it was in, and
seeds that are there are not run again. `--methods votes` leaves out the slow NASI rows, `--methods` alone the searches.
All searches see noise alone, with a batch and weights of their own for each measurement. Accuracies are read off the
tables when all is chosen: test accuracy after 200 epochs (nb201) and 108 (nb101, nb1shot1, as an error), the prediction
of a NAS-Bench-301 surrogate with its percentile among 20,000 random cells (darts).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from random import Random

import numpy as np
import torch

from initio.autodiff.work import executor_for
from initio.records import Architecture
from initio.runs.search import make_problem, make_search, search
from initio.searches import Problem, SearchResult
from initio.searches.methods.votes import VotedStep
from initio.searches.models.additive import design, regress
from initio.searches.problem import climb
from initio.spaces import DARTS, NB101, get_space
from initio.spaces.nb1shot1 import NB1Shot1Space
from initio.tables.nb301 import EPOCHS, Surrogate
from studies.nasi_darts import RANDOM, percentile
from studies.nasi_quality import Table, digest, nb1shot1_table, nb201_table

SPACES = ("nb201", "nb101", "nb1shot1-s1", "nb1shot1-s2", "nb1shot1-s3", "darts")
METHODS = ("votes", "nasi-fit", "nasi")
ONE = {"votes": 1}  # process a search: --workers run side by side
WITHOUT_SUPERNET = {("nb101", "nasi")}
LARGEST = ("nor_conv_3x3", "conv3x3-bn-relu", "sep_conv_5x5")  # the largest convolution of a space
GOALS: dict[str, tuple[float, ...]] = {  # errors are goals from above
    "nb201": (93.9, 72.0, 45.5),
    "nb101": (93.6,),
    "nb1shot1-s1": (5.94,),
    "nb1shot1-s2": (6.21,),
    "nb1shot1-s3": (6.17,),
    "darts": (0.0, 99.5),
}
PUBLISHED: dict[str, dict[str, str]] = {
    "nb201": {
        "AZ-NAS": "93.49±0.30 / 70.33±1.16 / 44.34±1.26",
        "ZiCo": "93.69±0.07 / 70.63 / 41.42",
        "APD (its formula was searched on these accuracies)": "93.76±0.09 / 72.22±0.65 / 45.03±0.76",
        "NASI (4T)": "93.55±0.10 / 71.20±0.14 / 44.84±1.41",
    },
    "nb101": {"AZ-NAS": "92.01", "ZiCo": "92.64", "APD": "93.49±0.34"},
    "nb1shot1-s1": {"NASI, noise": "6.6"},
    "nb1shot1-s2": {"NASI, noise": "7.5"},
    "nb1shot1-s3": {"NASI, noise": "7.3"},
    "darts": {},
}
Weigh = Callable[[Sequence[Architecture]], Sequence[float]]


# --- what is reported ------------------------------------------------------------------------------------------------


def nb101_table(data: Path) -> Table:
    """Test accuracy after 108 epochs, mean of three trials."""
    accuracy = np.load(data / "nb101.npz", allow_pickle=False)["test_acc_108"]
    hashes = np.load(data / "nb101_hash64.npz", allow_pickle=False)["hash64"]
    scale = 100 if accuracy.max() <= 1 else 1

    def report(arch: Architecture) -> tuple[float, ...]:
        key = np.uint64(int(NB101.graph_hash(arch)[:16], 16))
        return (float(scale * accuracy[np.searchsorted(hashes, key)]),)

    return Table(("test accuracy",), report)


def darts_table(data: Path) -> Table:
    """What the surrogate predicts, and which part of random cells is worse."""
    surrogate = Surrogate(data / "nb301_surrogate_yahpo_v1.npz")
    rng = Random("random darts cells")
    others = surrogate.predict([DARTS.sample(rng) for _ in range(RANDOM)], EPOCHS[-1])[0]

    def report(arch: Architecture) -> tuple[float, ...]:
        value = float(surrogate.predict([arch], EPOCHS[-1])[0][0])
        return value, percentile(value, others)

    return Table(("predicted", "percentile"), report)


def table_of(name: str, data: Path) -> Table:
    """What is reported of the space's architectures."""
    space = get_space(name)
    if isinstance(space, NB1Shot1Space):
        return nb1shot1_table(space, data)
    return {"nb201": nb201_table, "nb101": nb101_table, "darts": darts_table}[name](data)


# --- rows that measure nothing ---------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def problem_of(space: str) -> Problem:
    """What `initio search SPACE` searches on."""
    return make_problem(space)


def start(space: str, seed: int) -> Architecture:
    """A random architecture, where climbs begin."""
    return problem_of(space).draw_admitted(Random(f"climb {seed}"))


def by_cost(space: str, seed: int, what: str) -> Architecture:
    """The cell that climbing on a cost of the published network ends with."""
    problem = problem_of(space)
    weigh: Weigh = lambda archs: [getattr(problem.space.cost(a, problem.target), what) for a in archs]  # noqa: E731
    return climb(problem, start(space, seed), weigh)


def largest(space: str, seed: int) -> Architecture:
    """Every operation the largest convolution, the wiring of a random architecture."""
    arch = start(space, seed)
    decisions = problem_of(space).space.decisions
    words = [next((word for word in LARGEST if word in decision.options), None) for decision in decisions]
    choices = (
        choice if word is None else decision.options.index(word)
        for word, decision, choice in zip(words, decisions, arch.choices, strict=True)
    )
    return Architecture(space, tuple(choices))


def by_naswot(space: str, result: SearchResult) -> Architecture:
    """The cell that climbing on a fit of naswot, of the search's random architectures, ends with."""
    problem = problem_of(space)
    steps = [s for s in result.steps if isinstance(s, VotedStep) and s.round == 0 and s.naswot is not None]
    archs = [step.architecture for step in steps]
    form = {"shared": True, "canonical": True}
    fit = regress(design(problem, archs, **form), np.array([[step.naswot for step in steps]], float), 1.0)
    weigh: Weigh = lambda around: fit.of(design(problem, around, **form))[0].tolist()  # noqa: E731
    return climb(problem, archs[int(np.argmax(weigh(archs)))], weigh)


# --- searches, and the table -----------------------------------------------------------------------------------------


def found(out: Path, job: tuple[str, str, int]) -> SearchResult:
    """A search from noise in a folder of its own, resumed or read if it is there."""
    space, method, seed = job
    torch.set_num_threads(1)
    settings = make_search(method, get_space(space), {}).settings()
    folder = out / f"training-free-{space}-{method}-seed{seed}-{digest(settings)}"
    return search(space, method, seed=seed, folder=folder, resume=True, workers=ONE.get(method))


def line(name: str, values: Sequence[tuple[float, ...]], more: str = "") -> str:
    """Means, deviations, and the worst seed."""
    array = np.array(values)
    means = " / ".join(f"{mean:.2f}±{std:.2f}" for mean, std in zip(array.mean(0), array.std(0), strict=True))
    return f"| {name} | {means} | {more} |"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--spaces", nargs="+", default=list(SPACES), choices=SPACES)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--cluster", help="in place of workers, a Dask scheduler at tcp://host:port, or local:8")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the runs")
    options = parser.parse_args(words)
    jobs = [
        (space, method, seed)
        for method in options.methods
        for seed in range(options.seeds)
        for space in options.spaces
        if (space, method) not in WITHOUT_SUPERNET
    ]
    results: dict[tuple[str, str, int], SearchResult] = {}

    def keep(number: int, result: SearchResult) -> None:
        job = jobs[number]
        results[job] = result
        print(f"{len(results)} of {len(jobs)}: {' '.join(map(str, job))}, {result.cost.seconds:.0f} s", file=sys.stderr)

    executor_for(options.workers, options.cluster).map(partial(found, options.out), jobs, keep)
    for space in options.spaces:
        print_table(space, table_of(space, options.data), range(options.seeds), options.methods, results)


def print_table(
    space: str,
    table: Table,
    seeds: range,
    methods: Sequence[str],
    results: dict[tuple[str, str, int], SearchResult],
) -> None:
    print(f"\n## {space}\n\n| | {' / '.join(table.columns)} | scorings, seconds; worst seed |\n|---|---|---|")
    for name, text in PUBLISHED[space].items():
        print(f"| {name}, published | {text} | |")
    free: dict[str, Callable[[int], Architecture]] = {
        "random": lambda seed: start(space, seed),
        "all the largest convolution, random wiring": lambda seed: largest(space, seed),
        "most parameters, climbed": lambda seed: by_cost(space, seed, "parameters"),
        "most FLOPs, climbed": lambda seed: by_cost(space, seed, "flops"),
    }
    if "votes" in methods:
        free["naswot, fitted on the same random cells and climbed"] = lambda seed: by_naswot(
            space, results[space, "votes", seed]
        )
    for name, choose in free.items():
        print(line(name, [table.report(choose(seed)) for seed in seeds]), flush=True)
    for method in methods:
        if (space, method) in WITHOUT_SUPERNET:
            continue
        mine = [results[space, method, seed] for seed in seeds]
        values = [table.report(result.best) for result in mine]
        cost = f"{np.mean([r.cost.scorings for r in mine]):.0f}, {np.mean([r.cost.seconds for r in mine]):.0f} s"
        print(line(f"`{method}`, noise", values, f"{cost}; {worst(table, values)}"), flush=True)
        if method == "votes":
            print(f"\n{verdict(space, table, values)}\n")


def worst(table: Table, values: Sequence[tuple[float, ...]]) -> str:
    """Column by column."""
    pick = max if table.columns == ("test error",) else min
    return " / ".join(f"{pick(column):.2f}" for column in zip(*values, strict=True))


def verdict(space: str, table: Table, values: Sequence[tuple[float, ...]]) -> str:
    """Whether the goals that were set beforehand are reached."""
    sign = -1 if table.columns == ("test error",) else 1
    means = np.array(values).mean(0)
    missed = [
        f"{name} {mean:.2f}, not {goal}"
        for name, mean, goal in zip(table.columns, means, GOALS[space], strict=True)
        if sign * round(float(mean), 2) < sign * goal
    ]
    return f"goals missed: {'; '.join(missed)}" if missed else "all goals reached"


if __name__ == "__main__":
    from studies import training_free  # workers import it by this name

    training_free.main()
